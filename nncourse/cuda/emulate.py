"""The same .cu text run on the CPU, thread by thread: slow, but it finds mistakes, and needs no GPU.

A child process (emulator_program.py) answers one launch after the other through pipes, so a kernel that crashes or
never ends harms nobody else. What it emulates, and how, is in cuda_on_cpu.h.
"""

import contextlib
import functools
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nncourse.cuda.emulator_program import lines_before, program_for, why_no_compiler
from nncourse.cuda.source import CudaSource, Parameter, kernels_in, parameters
from nncourse.cuda.trace import RECORD, Trace, trace_of
from nncourse.errors import CourseError

ORDERS = ("forward", "reverse", "shuffled")

# The structs Launch and Argument, and the head of an answer, as in cuda_on_cpu_threads.h and cuda_on_cpu_serve.h.
LAUNCH = struct.Struct("=3i I 3I 3I q d q")
ARGUMENT = struct.Struct("=48s q 3i 4x")
ANSWER = struct.Struct("=3i")
DONE, FAILED, OUT_OF_TIME, RACE = range(4)
COUNT = struct.Struct("=q")
MOST_RECORDS = 1_000_000

# Before it the child's stderr holds what kernels printed, after it a report of AddressSanitizer.
REPORT_START = re.compile(r"(?:AddressSanitizer:DEADLYSIGNAL\n)?={65}")
MISALIGNED = (
    " reads or writes at an address that is no multiple of what it takes at once: 16 bytes for float4, 8 for float2"
)
CRASHES = {
    "FPE on": " divides an integer by zero",
    "stack-overflow": " needs more than the 256 KB of local memory that the emulator gives a thread",
    "SEGV on": " reads or writes memory that belongs to no array",
    "ILL on": MISALIGNED,
    "TRAP on": MISALIGNED,  # so the same is called on ARM
}


class EmulationError(CourseError):
    """A mistake that a kernel made while it ran on the CPU: "file:line: kernel …"."""


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
    most_records: int = MOST_RECORDS,
) -> None:
    """Run a kernel. Arrays whose parameter is not const are changed in place. launch.py has checked the arguments.

    Blocks, and threads between two barriers, run one after the other: in this order, `seed` choosing a shuffled one.
    With `races`, two threads that touch the same cell without waiting for each other are a mistake, whatever comes out;
    then arrays are not watched for accesses out of bounds. A list given as `record` gets the Trace of the launch: every
    access of every thread, `most_records` at most; then neither races nor accesses out of bounds are mistakes.
    """
    where = f"{source.file}: {function}"
    if order not in ORDERS:
        raise CourseError(f"{where}: wanted order to be one of {', '.join(ORDERS)}; got {order!r}")
    if not time_limit > 0:
        raise CourseError(f"{where}: wanted a time_limit above 0 s, got {time_limit}")
    recording = record is not None
    if recording and most_records < 1:
        raise CourseError(f"{where}: wanted most_records from 1 up, got {most_records}")
    declared = parameters(source, function)
    numbers = kernels_in(source).index(function), ORDERS.index(order), len(arguments), seed % 2**32
    head = LAUNCH.pack(*numbers, *grid, *block, shared_bytes, time_limit, most_records if recording else 0)
    request = [head, *_packed(declared, arguments)]
    pairs = zip(declared, arguments, strict=True)
    written = [argument for parameter, argument in pairs if parameter.pointer and not parameter.const]
    try:
        records = _child(source, os.getpid(), races or recording).launch(request, written, recording)
    except _ChildError as failure:
        if recording and failure.outcome == FAILED and not failure.text:  # a crash: the other program knows its line
            run(source, function, grid, block, arguments, shared_bytes, order, seed, time_limit)
        raise EmulationError(_explained(failure, source, function, time_limit)) from None
    if recording:
        arrays = {
            number: (parameter.name, argument)
            for number, (parameter, argument) in enumerate(zip(declared, arguments, strict=True))
            if parameter.pointer
        }
        record.append(trace_of(records, source, function, grid, block, arrays, shared_bytes))


def trace(source: CudaSource, function: str, *launch, **options) -> Trace:
    """Every access of a launch: which thread touches which cell. Arguments and options are run()'s; use small sizes."""
    found: list[Trace] = []
    run(source, function, *launch, **options, record=found)
    return found[0]


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


def _packed(declared: tuple[Parameter, ...], arguments: list) -> list[bytes]:
    """The arguments as the child reads them. Arrays passed twice share memory there too."""
    parts, first_use = [], {}
    for number, (parameter, value) in enumerate(zip(declared, arguments, strict=True)):
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
    """The child ended: its last answer (outcome, line, text), and the sanitizer's report."""

    def __init__(self, outcome: int, line: int, text: str, report: str):
        super().__init__(text)
        self.outcome, self.line, self.text, self.report = outcome, line, text, report


class _Child:
    """A running program that emulates the kernels of one source."""

    def __init__(self, program: Path):
        self.lock = threading.Lock()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the child)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen([program], bufsize=1 << 20, **pipes)
        weakref.finalize(self, _end, self.process, self.errors, os.getpid())

    def launch(self, request: list[bytes], written: list[np.ndarray], recording: bool) -> np.ndarray:
        """Send a request, wait for the answer, fill the arrays that the kernel wrote. Gives back what was recorded."""
        with self.lock:
            try:
                return self._converse(request, written, recording)
            except BaseException:  # a Ctrl-C too leaves the conversation in the middle: the next launch starts anew
                self.process.kill()
                _child.cache_clear()
                raise
            finally:
                self._show_printed()

    def _converse(self, request: list[bytes], written: list[np.ndarray], recording: bool) -> np.ndarray:
        outcome, line, text = FAILED, 0, ""
        try:
            self.process.stdin.write(b"".join(request))
            self.process.stdin.flush()
            outcome, line, length = ANSWER.unpack(self._read(ANSWER.size))
            text = self._read(length).decode(errors="replace")
        except (BrokenPipeError, EOFError):
            pass  # it died without an answer
        if outcome != DONE:
            self.process.wait()  # until its report is complete
            raise _ChildError(outcome, line, text, "".join(REPORT_START.split(self._stderr())[1:]))
        for array in written:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(self._read(array.nbytes), np.uint8)
        count = COUNT.unpack(self._read(COUNT.size))[0] if recording else 0
        return np.frombuffer(self._read(count * RECORD.itemsize), RECORD)

    def _read(self, size: int) -> bytes:
        data = self.process.stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _stderr(self) -> str:
        size = os.fstat(self.errors.fileno()).st_size
        return os.pread(self.errors.fileno(), size, 0).decode(errors="replace") if size else ""

    def _show_printed(self) -> None:
        """What kernels printed, on Python's stdout, where a notebook shows it."""
        if text := self._stderr():
            sys.stdout.write(REPORT_START.split(text)[0])
            os.lseek(self.errors.fileno(), 0, os.SEEK_SET)  # the child shares this position
            os.ftruncate(self.errors.fileno(), 0)


@functools.lru_cache(maxsize=16)
def _child(source: CudaSource, pid: int, races: bool) -> _Child:
    """The child for this source. `pid` is this process: after a fork both sides must not talk with the same child."""
    return _Child(program_for(source, races))


def _end(process: subprocess.Popen, errors: BinaryIO, owner: int) -> None:
    """Called when a _Child is dropped, or Python ends."""
    if os.getpid() == owner:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, errors):
        with contextlib.suppress(BrokenPipeError):  # a request that the child did not live to read
            pipe.close()


def _explained(failure: _ChildError, source: CudaSource, function: str, time_limit: float) -> str:
    """One line. For a crash the .cu line is in the sanitizer's report: the innermost frame in the file."""
    if failure.outcome == RACE:
        return _explained_race(failure, source, function)
    in_report = re.search(re.escape(source.file) + r":(\d+)", failure.report)
    line = failure.line or (in_report[1] if in_report else 0)
    where = f"{source.file}:{line}: {function}" if line else f"{source.file}: {function}"
    if failure.outcome == OUT_OF_TIME:
        return f"{where} did not end within {time_limit:g} s: {failure.text} still runs; look for an endless loop"
    if failure.text:
        return where + failure.text.replace("an array", _nearest_array(failure.report))
    for sign, text in CRASHES.items():
        if sign in failure.report:
            return where + text
    return f"{where} ended the emulator; launch it again: {failure.report.strip()[:200] or 'it left no report'}"


def _explained_race(failure: _ChildError, source: CudaSource, function: str) -> str:
    """One line, at the access that came second; the text begins with the addresses of both."""
    *addresses, text = failure.text.split(" ", 2)
    program = program_for(source, races=True)
    line, other = lines_before([int(address, 16) for address in addresses], program, source)
    where = f"{source.file}:{line}: {function}" if line else f"{source.file}: {function}"
    return where + text + (f" (the other access is in line {other})" if other != line else "")


def _nearest_array(report: str) -> str:
    """The array in shared or constant memory that the sanitizer names, the nearest if it names several."""
    found = re.findall(r"is located (\d+) bytes .*global variable '(\w+)'.* of size (\d+)", report)
    if not found:
        return "an array"
    _, name, size = min(found, key=lambda item: int(item[0]))
    return f"{name} ({size} bytes)"
