"""Run .cu text on the CPU, thread by thread: slow, but it detects mistakes and needs no GPU.

A child process (built by program.py) executes the launches it receives through pipes, so a kernel that crashes
or hangs cannot affect the caller. cuda_on_cpu.h describes what is emulated and how.
"""

import functools
import re
import struct
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cuda_on_cpu.arguments import checked, in_three
from cuda_on_cpu.errors import MissingToolError, UserError, refuse_unknown
from cuda_on_cpu.faults import EmulationError, Fault, read
from cuda_on_cpu.processes import Child, conversation, empty
from cuda_on_cpu.program import confined, inside, line_in, lines_before, program_for, why_no_compiler
from cuda_on_cpu.source import Parameter, kernels_in, parameters
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.trace import RECORD, Trace, trace_of, variables

ORDERS = ("forward", "reverse", "shuffled")

# The structs Launch, Argument and Constant and the header of an answer, as declared in cuda_on_cpu_threads.h and
# cuda_on_cpu_serve.h.
LAUNCH = struct.Struct("=3i I 3I 3I q d q q")
ARGUMENT = struct.Struct("=48s q 4i")
CONSTANT = struct.Struct("=q q")
ANSWER = struct.Struct("=2i")
DONE, FAILED = range(2)

# Separates the two parts of the child's stderr: the kernels' printed output, then AddressSanitizer's report.
REPORT_START = re.compile(
    r"(?:AddressSanitizer:DEADLYSIGNAL\n)?={65}|^(?===\d+==ERROR: AddressSanitizer failed|AddressSanitizer: CHECK)",
    re.M,
)
# The sanitizer's note if a [[noreturn]] function is called on a thread's stack, which it does not know.
STACK_NOTE = re.compile(r"==\d+==WARNING: ASan is ignoring requested __asan_handle_no_return.*\n(?:F.*\n){0,2}")
CRASHES = {
    "FPE on": "division",
    "stack-overflow": "stack",
    "SEGV on": "address",
    "failed to allocate|CHECK failed: sanitizer_allocator": "addresses",
    "(ILL|TRAP) on": "alignment",  # TRAP on ARM: see FOR_MEMORY in program.py
}


def launch(
    source: CudaSource,
    function: str,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[Any],
    shared_bytes: int = 0,
    **options: Any,
) -> None:
    """Run the kernel `function` on `grid` blocks of `block` threads each; arrays that are not const change in place.

    `arguments` are NumPy arrays and numbers in the order in which the kernel declares them, `shared_bytes` the size of
    dynamic shared memory, `options` those of run(): order, seed, time_limit, races, record, constants.

    Raises UserError for arguments or sizes that do not fit, EmulationError for a mistake of the kernel.
    """
    passed = checked(source, function, grid, block, arguments, shared_bytes)
    run(source, function, in_three(grid), in_three(block), passed, shared_bytes, **options)


def run(
    source: CudaSource,
    function: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: list[Any],
    shared_bytes: int = 0,
    order: str = "forward",
    seed: int = 0,
    time_limit: float = 10.0,
    races: bool = False,
    record: list[Trace] | None = None,
    most_records: int = 1_000_000,
    sandbox: tuple[str, ...] = (),
    constants: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Run a kernel on the CPU with arguments that have been checked. Arrays that are not const are changed in place.

    order: of blocks, and of threads between two barriers: "forward", "reverse", or "shuffled" as determined by `seed`.
    time_limit: in seconds.
    races: detect data races instead of out-of-bounds accesses. Unsynchronised accesses to the same element by two
        threads are a mistake even if the result is right, unless both only read or both are atomic.
    record: a list to which the Trace of the launch is appended: all accesses of all threads, at most `most_records`.
        Races and out-of-bounds accesses are then not reported, and the threads of a warp run in lockstep.
    sandbox: the beginning of a command line, such as bwrap's, to put before the compiler and before the program. In it
        "{folder}" stands for the only folder that the command needs to write to.
    constants: arrays to copy into the text's __constant__ arrays of these names before the launch.

    Raises EmulationError for a mistake of the kernel, UserError for invalid options.
    """
    where = f"{source.file}: {function}"
    refuse_unknown(f"an order of threads for {where}", order, ORDERS)
    if not time_limit > 0:
        raise UserError(f"{where}: expected a time_limit above 0 s, got {time_limit}")
    if most_records < 1:
        raise UserError(f"{where}: expected most_records from 1 up, got {most_records}")
    recording = record is not None
    passed = list(zip(parameters(source, function), arguments, strict=True))
    numbers = kernels_in(source).index(function), ORDERS.index(order), len(passed), seed % 2**32
    filled = _packed_constants(source, constants or {}, races or recording, tuple(sandbox))
    limits = time_limit, most_records if recording else 0
    head = LAUNCH.pack(*numbers, *grid, *block, shared_bytes, *limits, len(filled))
    request = [head, *_packed(passed), *filled]
    written = [argument for parameter, argument in passed if parameter.pointer and not parameter.const]
    try:
        with conversation(_child, source, races or recording, tuple(sandbox)) as child:
            try:
                records = _converse(child, request, written, recording)
            except BaseException:
                child.end()  # otherwise it would continue to print after a KeyboardInterrupt
                raise
            finally:
                _show_printed(child)
    except _ChildError as failure:
        # A crash: only the other program contains AddressSanitizer, which finds the line.
        if recording and not failure.args[1]:
            first = source, function, grid, block, arguments, shared_bytes, order, seed, time_limit
            run(*first, sandbox=sandbox, constants=constants)
        raise EmulationError(_fault(failure, source, function)) from None
    if record is not None:
        record.append(trace_of(records, source, grid, block, passed, shared_bytes))


@functools.cache
def why_not() -> str | None:
    """Why the emulator cannot run on this machine; None if it can."""
    if reason := why_no_compiler():
        return reason
    try:
        run(CudaSource('extern "C" __global__ void nothing() {}', "nothing.cu"), "nothing", (1, 1, 1), (1, 1, 1), [])
    except UserError as error:
        return f"the CPU emulator of CUDA does not work here: {error}"
    return None


def _packed(passed: list[tuple[Parameter, Any]]) -> list[bytes]:
    """The arguments in the child's format. An array that is passed twice is sent once.

    A view that begins between two multiples of 16 bytes does so in the child: a kernel must not read a float4 there.
    The offset is 8 bytes, because the sanitizer guards memory in steps of 8.
    """
    parts: list[bytes] = []
    first_use: dict[tuple[int, int], int] = {}
    for number, (parameter, value) in enumerate(passed):
        name = parameter.name.encode()[:47]
        if not parameter.pointer:
            parts += [ARGUMENT.pack(name, value.nbytes, 0, 0, number, 0), value.tobytes()]
            continue
        same_as = first_use.setdefault((value.ctypes.data, value.nbytes), number) if value.nbytes else number
        offset = 8 if value.ctypes.data % 16 else 0
        parts.append(ARGUMENT.pack(name, value.nbytes, value.itemsize, not parameter.const, same_as, offset))
        if same_as == number:
            parts.append(value.tobytes())
    return parts


def _packed_constants(
    source: CudaSource, constants: Mapping[str, np.ndarray], races: bool, sandbox: tuple[str, ...]
) -> list[bytes]:
    """The arrays in the child's format: the offset of each among the variables of the text, its size, its bytes."""
    if not constants:
        return []
    places = {name: start for name, start, _ in variables(program_for(source, races, sandbox), "cuda_device")}
    if missing := constants.keys() - places.keys():
        names = ", ".join(missing)
        raise MissingToolError(f"{source.file}: the emulator expected the command nm to find {names}; install binutils")
    return [CONSTANT.pack(places[name], array.nbytes) + array.tobytes() for name, array in constants.items()]


class _ChildError(Exception):
    """The child has ended. args: line and text of its last answer, and the sanitizer's report."""


@functools.lru_cache(maxsize=16)
def _child(source: CudaSource, races: bool, sandbox: tuple[str, ...], pid: int) -> Child:
    """A running emulator program for this source, owned by this process, whose id is `pid`."""
    program = program_for(source, races, sandbox)
    if not sandbox:
        return Child([*confined(), program])
    folder = tempfile.TemporaryDirectory()
    child = Child([*inside(sandbox, folder.name), *confined(), program])
    weakref.finalize(child, folder.cleanup)
    return child


def _converse(child: Child, request: list[bytes], written: list[np.ndarray], recording: bool) -> np.ndarray:
    """Send a request, wait for the answer, and copy back the arrays in `written`. Returns the recorded accesses."""
    outcome, line, place, answer = FAILED, 0, 0, b""
    try:
        child.connection.send_bytes(b"".join(request))
        child.connection.poll(None)
        answer = child.connection.recv_bytes()
        outcome, line = ANSWER.unpack_from(answer)
        place = ANSWER.size
    except (EOFError, OSError):
        pass  # it ended without an answer
    if outcome != DONE:
        child.status()  # its report is complete then
        text = answer[place:].decode(errors="replace")
        raise _ChildError(line, text, "".join(REPORT_START.split(child.stderr())[1:]))
    for array in written:
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(answer, np.uint8, array.nbytes, place)
        place += array.nbytes
    return np.frombuffer(answer, RECORD, offset=place) if recording else np.empty(0, RECORD)


def _show_printed(child: Child) -> None:
    """Copy the kernels' printed output to Python's stdout, where a notebook shows it."""
    if text := child.stderr():
        sys.stdout.write(STACK_NOTE.sub("", REPORT_START.split(text)[0]))
        empty(child.errors.fileno())


def _fault(failure: _ChildError, source: CudaSource, function: str) -> Fault:
    """The fault that ended the child. For a crash, the .cu line is the report's innermost frame in the .cu file."""
    line, text, report = failure.args
    kind, facts = read(text) if text else ("crash", _crash(report))
    line = line or line_in(report, source)
    if kind == "race":
        line = _complete_race(facts, source)
    elif facts.get("memory") == "other":
        facts |= _nearest_array(report)
    return Fault(kind, source.file, function, line, facts)


def _crash(report: str) -> dict[str, Any]:
    for sign, cause in CRASHES.items():
        if re.search(sign, report):
            return {"cause": cause}
    return {"cause": "unknown", "report": report.strip()[:200]}


def _complete_race(facts: dict[str, Any], source: CudaSource) -> int:
    """Replace code addresses by lines, and a byte by a variable's element. Returns the line of the second access."""
    program = program_for(source, races=True)
    codes = [int(facts.pop(name), 16) for name in ("code", "other_code")]
    line, other = lines_before(codes, program, source)
    if other != line:
        facts["other_line"] = other
    if facts["memory"] in ("device", "static shared"):
        section = "cuda_device" if facts["memory"] == "device" else "cuda_shared"
        facts |= _variable_at(facts.pop("index"), variables(program, section), facts.pop("bytes"))
    return line


def _variable_at(offset: int, known: list[tuple[str, int, int]], bytes: int) -> dict[str, Any]:
    """The variable that contains a byte of a section, and the index of its element if elements have that size."""
    for name, start, size in known:
        if start <= offset < start + size:
            return {"array": name} | ({"index": (offset - start) // bytes} if size > bytes else {})
    return {}


def _nearest_array(report: str) -> dict[str, Any]:
    """The array in shared or constant memory that the sanitizer's report names; the nearest one if it names several."""
    found = re.findall(r"is located (\d+) bytes .*global variable '(\w+)'.* of size (\d+)", report)
    if not found:
        return {}
    _, name, size = min(found, key=lambda item: int(item[0]))
    return {"array": name, "array_bytes": int(size)}
