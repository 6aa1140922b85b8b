"""Run .cu text on the CPU, thread by thread: slow, but it detects mistakes and needs no GPU.

A child process (built by emulator_program.py) executes the launches it receives through pipes, so a kernel that crashes
or hangs cannot affect the caller. cuda_on_cpu.h describes what is emulated and how.
"""

import functools
import re
import struct
import sys
from typing import Any

import numpy as np

from nncourse.child import Child, conversation, empty
from nncourse.cuda.emulator_program import line_in, lines_before, program_for, why_no_compiler
from nncourse.cuda.source import CudaSource, Parameter, kernels_in, parameters
from nncourse.cuda.trace import RECORD, Trace, trace_of
from nncourse.errors import CourseError, refuse_unknown

ORDERS = ("forward", "reverse", "shuffled")

# The structs Launch and Argument and the header of an answer, as declared in cuda_on_cpu_threads.h and
# cuda_on_cpu_serve.h.
LAUNCH = struct.Struct("=3i I 3I 3I q d q")
ARGUMENT = struct.Struct("=48s q 3i 4x")
ANSWER = struct.Struct("=3i")
DONE, FAILED, OUT_OF_TIME, RACE = range(4)
COUNT = struct.Struct("=q")

# Separates the two parts of the child's stderr: the kernels' printed output, then AddressSanitizer's report.
REPORT_START = re.compile(r"(?:AddressSanitizer:DEADLYSIGNAL\n)?={65}")
CRASHES = {
    "FPE on": " divides an integer by zero",
    "stack-overflow": " needs more than the 256 KB of local memory that the emulator gives a thread",
    "SEGV on": " reads or writes memory that belongs to no array",
    # ILL, and on ARM TRAP: see FOR_MEMORY in emulator_program.py
    "(ILL|TRAP) on": " uses an address that is no multiple of what it takes at once: 16 bytes for float4, 8 for float2",
}


class EmulationError(CourseError):
    """A mistake detected while a kernel ran on the CPU; the message begins "file:line: kernel …"."""


def run(
    source: CudaSource,
    function: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: list,
    shared_bytes: int = 0,
    order: str = "forward",
    seed: int = 0,
    time_limit: float = 10.0,
    races: bool = False,
    record: list[Trace] | None = None,
    most_records: int = 1_000_000,
) -> None:
    """Run a kernel on the CPU. Arrays whose parameter is not const are changed in place.

    The arguments have been checked by launch.py. Blocks run one after the other, and so do threads between two
    barriers: `order` is "forward", "reverse" or "shuffled", the last one determined by `seed`. `time_limit` is in
    seconds.

    races: detect data races instead of out-of-bounds accesses. Unsynchronised accesses to the same element by two
        threads are a mistake even if the result is right, unless both only read or both are atomic.
    record: a list to which the Trace of the launch is appended: all accesses of all threads, at most `most_records`.
        Neither races nor out-of-bounds accesses are then mistakes.

    Raises EmulationError for a mistake of the kernel, CourseError for invalid options.
    """
    where = f"{source.file}: {function}"
    refuse_unknown(f"an order of threads for {where}", order, ORDERS)
    if not time_limit > 0:
        raise CourseError(f"{where}: wanted a time_limit above 0 s, got {time_limit}")
    if most_records < 1:
        raise CourseError(f"{where}: wanted most_records from 1 up, got {most_records}")
    recording = record is not None
    passed = list(zip(parameters(source, function), arguments, strict=True))
    numbers = kernels_in(source).index(function), ORDERS.index(order), len(passed), seed % 2**32
    head = LAUNCH.pack(*numbers, *grid, *block, shared_bytes, time_limit, most_records if recording else 0)
    request = [head, *_packed(passed)]
    written = [argument for parameter, argument in passed if parameter.pointer and not parameter.const]
    try:
        with conversation(_child, source, races or recording) as child:
            try:
                records = _converse(child, request, written, recording)
            except BaseException:
                child.end()  # otherwise it would go on printing after a KeyboardInterrupt
                raise
            finally:
                _show_printed(child)
    except _ChildError as failure:
        outcome, _, text, _ = failure.args
        # A crash: AddressSanitizer, which only the other program has, names the line.
        if recording and outcome == FAILED and not text:
            run(source, function, grid, block, arguments, shared_bytes, order, seed, time_limit)
        raise EmulationError(_explained(*failure.args, source, function, time_limit)) from None
    if recording:
        record.append(trace_of(records, source, grid, block, passed, shared_bytes))


@functools.cache
def why_not() -> str | None:
    """Why the emulator cannot run on this machine; None if it can."""
    if reason := why_no_compiler():
        return reason
    try:
        run(CudaSource('extern "C" __global__ void nothing() {}', "nothing.cu"), "nothing", (1, 1, 1), (1, 1, 1), [])
    except CourseError as error:
        return f"the CPU emulator of CUDA does not work here: {error}"
    return None


def _packed(passed: list[tuple[Parameter, Any]]) -> list[bytes]:
    """The arguments in the child's format. An array that is passed twice is sent once, and shared there too."""
    parts, first_use = [], {}
    for number, (parameter, value) in enumerate(passed):
        name = parameter.name.encode()[:47]
        if not parameter.pointer:
            parts += [ARGUMENT.pack(name, value.nbytes, 0, 0, number), value.tobytes()]
            continue
        same_as = first_use.setdefault((value.ctypes.data, value.nbytes), number) if value.nbytes else number
        parts.append(ARGUMENT.pack(name, value.nbytes, value.itemsize, not parameter.const, same_as))
        if same_as == number:
            parts.append(value.tobytes())
    return parts


class _ChildError(Exception):
    """The child has ended. args: outcome, line and text of its last answer, and the sanitizer's report."""


@functools.lru_cache(maxsize=16)
def _child(source: CudaSource, races: bool, pid: int) -> Child:
    """A running emulator program for this source, owned by this process, whose id is `pid`."""
    return Child([program_for(source, races)])


def _converse(child: Child, request: list[bytes], written: list[np.ndarray], recording: bool) -> np.ndarray:
    """Send a request, wait for the answer, and copy back the arrays in `written`. Returns the recorded accesses."""
    outcome, line, text = FAILED, 0, ""
    try:
        child.process.stdin.write(b"".join(request))
        child.process.stdin.flush()
        outcome, line, length = ANSWER.unpack(_read(child, ANSWER.size))
        text = _read(child, length).decode(errors="replace")
    except (BrokenPipeError, EOFError):
        pass  # it ended without an answer
    if outcome != DONE:
        child.process.wait()  # so that its report is complete
        raise _ChildError(outcome, line, text, "".join(REPORT_START.split(child.stderr())[1:]))
    for array in written:
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(_read(child, array.nbytes), np.uint8)
    count = COUNT.unpack(_read(child, COUNT.size))[0] if recording else 0
    return np.frombuffer(_read(child, count * RECORD.itemsize), RECORD)


def _read(child: Child, size: int) -> bytes:
    data = child.process.stdout.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _show_printed(child: Child) -> None:
    """Copy the kernels' printed output to Python's stdout, where a notebook shows it."""
    if text := child.stderr():
        sys.stdout.write(REPORT_START.split(text)[0])
        empty(child.errors.fileno())


def _explained(
    outcome: int, line: int, text: str, report: str, source: CudaSource, function: str, time_limit: float
) -> str:
    """The error message, in one line. For a crash, the .cu line is the report's innermost frame in the .cu file."""
    line = line or line_in(report, source)
    if outcome == RACE:  # the text begins with the code addresses of the second and the first access
        *addresses, text = text.split(" ", 2)
        line, other = lines_before([int(address, 16) for address in addresses], program_for(source, races=True), source)
        text += f" (the other access is in line {other})" if other != line else ""
    where = f"{source.file}:{line}: {function}" if line else f"{source.file}: {function}"
    if outcome == OUT_OF_TIME:
        return f"{where} did not end within {time_limit:g} s: {text} still runs; look for an endless loop"
    if text:
        return where + text.replace("an array", _nearest_array(report))
    for sign, words in CRASHES.items():
        if re.search(sign, report):
            return where + words
    return f"{where} ended the emulator; launch it again: {report.strip()[:200] or 'it left no report'}"


def _nearest_array(report: str) -> str:
    """The array in shared or constant memory that the sanitizer's report names; the nearest one if it names several."""
    found = re.findall(r"is located (\d+) bytes .*global variable '(\w+)'.* of size (\d+)", report)
    if not found:
        return "an array"
    _, name, size = min(found, key=lambda item: int(item[0]))
    return f"{name} ({size} bytes)"
