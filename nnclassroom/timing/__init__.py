"""Time the kernels of an operation on the same data, and compare them with the machine's measured limits."""

import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import lazy_loader
import numpy as np

from cuda_on_cpu.text import CudaSource
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.formats import duration, rate, times_as_fast
from nnclassroom.judge.cases import random_case
from nnclassroom.pages import cells, page
from nnclassroom.timing import neighbours, pytorch
from nncourse import device as devices
from nncourse import threads
from nncourse.errors import CourseError
from nncourse.kernels.kernel import MANTISSA, Kernel
from nncourse.kernels.operation import Operation

__getattr__, _, _ = lazy_loader.attach(__name__, ["anatomy"])

LOOPS_RATE = 5e6  # approximate FLOP/s of Python loops, to estimate whether timing them would take too long
LONGEST = 2.0  # seconds
SLOW = 1.0  # seconds of a loop that is timed only once
BASES = ("loops", "numpy")  # the kernels that speedups are relative to
ROUNDING = "{} rounds its factors to {} bits of mantissa: the limit shown is float32's."
LARGEST_CACHE = 128 << 20  # bytes: no GPU's cache holds more, and no CPU's that serves one thread
OVER = 1.1  # times a limit: more is no error of measurement
BUSY_LIMIT = "Above 100 %: the limit was measured while others used this machine."
FAILED = "failed, so not timed"  # the note of a kernel that raised an error while it was timed
C = "c"  # the plain C program: the base in the place of loops, where there is one
TIMING_LIMIT = 120.0  # seconds, for the table of times
NOTHING = CudaSource('extern "C" __global__ void nothing() {}', "nothing.cu")


@dataclass(frozen=True)
class Row:
    """One kernel's time. `limit` is the fraction of the machine's measured limit that it reaches.

    If `seconds` is None, nothing was timed, and `note` says why. Otherwise a `note` says why the time is unreliable.
    `meanwhile` is the load by other processes during the measurement. `by_memory` tells whether the copy bandwidth is
    the limit that binds; None if it is not known, and FLOPs and bytes decide.
    """

    kernel: str
    device: str
    seconds: float | None
    flops: int
    bytes: int
    limit: float | None
    note: str = ""
    meanwhile: threads.Load = threads.Load()
    by_memory: bool | None = None


@dataclass(frozen=True)
class Table:
    """Rows of times, as text of at most 80 columns and as HTML for a notebook. `shared`: sentences below it.

    `beside` is the course's kernel of the same name as the first row's, if there is one.
    """

    title: str
    rows: tuple[Row, ...]
    shared: tuple[str, ...] = ()
    beside: str = ""

    HEAD = ("kernel", "on", "time", "rate", "of limit")
    WIDTHS = (16, 5, 10, 16, 10, 11, 11)
    FOOT = "Of limit: share of this machine's measured copy bandwidth or matrix rate."
    CACHED = "in cache"
    CACHED_FOOT = "In cache: faster than memory, since the data stayed in the processor's caches."

    def __str__(self) -> str:
        lines = [self.title, self._line(self._head)]
        for row in self.rows:
            texts = self._cells(row)
            lines.append(self._line(texts) if len(texts) == len(self._head) else f"{self._line(texts[:3])}  {texts[3]}")
        return "\n".join([*lines, *self._foot])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = "".join(cells(self._cells(row), columns=len(self._head)) for row in self.rows)
        foot = "<br>".join(self._foot)
        return page(f"<b>{self.title}</b><table>{cells(self._head, tag='th')}{body}</table><small>{foot}</small>")

    @property
    def in_one_line(self) -> str:
        """The first row's time, and how many times as fast it is as the bases and the course's kernel `beside`."""
        first = self.rows[0]
        time = duration(first.seconds) if first.seconds else "–"
        if first.note:
            return f"Your kernel: {time}; {first.note}"
        own = self.beside if self.beside and self._speedup(first, self.beside) != "–" else ""
        others = [f"{self._speedup(first, base)} {base}" for base in self._bases if base != own]
        if own:
            others.append(f"{self._speedup(first, own)} the course's {own}")
        return f"Your kernel: {time}; speed: {', '.join(others)}" if others else f"Your kernel: {time}"

    @property
    def _foot(self) -> list[str]:
        """The lines below the rows."""
        cached = any(self.CACHED in self._cells(row) for row in self.rows)
        return [self.FOOT, *([self.CACHED_FOOT] if cached else []), *self.shared]

    @property
    def _bases(self) -> tuple[str, ...]:
        """The kernels that speedups are relative to: those of them that were timed."""
        timed = {row.kernel for row in self.rows if row.seconds}
        return tuple(base for base in ((C, *BASES[1:]) if C in timed else BASES) if base in timed)

    @property
    def _head(self) -> tuple[str, ...]:
        return (*self.HEAD, *(f"× {base}" for base in self._bases))

    def _line(self, texts: Sequence[str]) -> str:
        wide = (max(width, len(name) + 2) for width, name in zip(self.WIDTHS, self._head, strict=False))
        pairs = zip(texts, wide, strict=False)
        return "".join(f"{text:{'<' if place < 2 else '>'}{width}}" for place, (text, width) in enumerate(pairs))

    def _cells(self, row: Row) -> list[str]:
        """A text for each column; a note replaces all columns after the time."""
        start = [row.kernel, row.device, duration(row.seconds) if row.seconds else "–"]
        if row.note or row.seconds is None or row.limit is None:
            return [*start, row.note]
        by_flops = _by_flops(row.flops, row.bytes)
        speed = rate(row.flops / row.seconds, "FLOP/s") if by_flops else rate(row.bytes / row.seconds, "B/s")
        share = of_limit(row.limit, row.flops, row.bytes, row.by_memory)
        return [*start, speed, share, *(self._speedup(row, over) for over in self._bases)]

    def _speedup(self, row: Row, over: str) -> str:
        found = [other.seconds for other in self.rows if other.kernel == over and other.seconds]
        return times_as_fast(found[0] / row.seconds) if found and row.seconds else "–"


def of_limit(limit: float, flops: int, bytes: int, by_memory: bool | None = None) -> str:
    """A share of a measured limit in per cent; or that the data must have been in a cache, if they fit into one.

    by_memory: whether the limit is the copy bandwidth; if None, that is guessed.
    """
    by_memory = not _by_flops(flops, bytes) if by_memory is None else by_memory
    if limit > OVER and bytes <= LARGEST_CACHE and by_memory:
        return Table.CACHED
    return f"{100 * limit:.2g} %" if limit < 0.995 else f"{100 * limit:.0f} %"


def _by_flops(flops: int, bytes: int) -> bool:
    """Whether arithmetic dominates, rather than memory traffic."""
    return flops > 2 * bytes


def default_sizes(operation: Operation, device: str | None = None) -> dict[str, int]:
    """Sizes that are large enough to time on a device; without `device`, on the GPU if there is one, else the CPU.

    Raises CourseError for an operation that is not timed.
    """
    if operation.flops is None:
        raise CourseError(f"{operation.name} is not timed: no network calls it")
    device = device or ("gpu" if devices.gpu_available() else "cpu")
    if operation.trial.sizes_to_time:
        return operation.trial.sizes_to_time(device)
    side, length = (1024, 1 << 26) if device == "gpu" else (96, 1 << 17)
    names = operation.shapes.free_names
    alone = "n" in names and "batch" not in names
    sizes = dict.fromkeys(names, length if alone else side) | dict.fromkeys(operation.shapes.whole_in_formulas, 3)
    return sizes | ({"classes": 10} if "classes" in sizes else {})


def time_kernels(operation: Operation, sizes: dict[str, int] | None = None, names: Sequence[str] = ()) -> list[Row]:
    """Time kernels of an operation (all, unless named) on random data of these sizes.

    The arrays are on the kernel's device before the call, as in a training step; transfers are not included.
    Raises CourseError for unknown sizes or kernels.
    """
    sizes = default_sizes(operation) | (sizes or {})
    there = operation.shapes.free_names
    if unknown := sizes.keys() - set(there):
        derived = " (which is derived from them)" if unknown <= set(operation.size_names) else ""
        raise CourseError(f"{operation.name} has the sizes {', '.join(there)}; got {', '.join(unknown)}{derived}")
    if empty := [name for name in there if name in operation.shapes.dims and sizes[name] < 1]:
        raise CourseError(f"{operation.name}: expected arrays with {', '.join(empty)} of at least 1; got 0")
    arguments = random_case(operation, sizes).arguments
    return [_time(operation[name], arguments) for name in names or operation.kernels]


def table(operation: Operation, rows: Sequence[Row], sizes: dict[str, int]) -> Table:
    """A Table of the rows, with the sizes in its title and sentences on a shared machine below it."""
    said = ", ".join(f"{name} {size}" for name, size in sizes.items())
    places = {row.device for row in rows if row.seconds}
    shared = shared_in_words(neighbours.together(row.meanwhile for row in rows), places)
    timed = (operation.kernels.get(row.kernel) for row in rows if row.seconds)
    rounds = {kernel.name: kernel.mantissa for kernel in timed if kernel and kernel.mantissa < MANTISSA}
    rounding = [ROUNDING.format(name, bits) for name, bits in rounds.items()]
    busy = [BUSY_LIMIT] if any(_is_over(row) for row in rows if row.kernel not in rounds) else []
    return Table(f"{operation.name}, {said}", tuple(rows), (*rounding, *busy, *shared))


def _is_over(row: Row) -> bool:
    """Whether a row shows more than the limit, which nothing can reach."""
    if row.limit is None or row.note or row.limit <= OVER:
        return False
    return of_limit(row.limit, row.flops, row.bytes, row.by_memory) != Table.CACHED


def shared_in_words(meanwhile: threads.Load, places: Collection[str]) -> tuple[str, ...]:
    """Sentences on others who used these devices, "cpu" or "gpu", while something was timed."""
    said = [neighbours.in_words(meanwhile)]
    said += [neighbours.share_in_words()] if "cpu" in places else []
    said += [neighbours.gpu_in_words()] if "gpu" in places else []
    return tuple(filter(None, said))


def compare(yours: Kernel, label: str = "yours", measure: Callable[[tuple[Any, ...]], float] | None = None) -> Table:
    """Time a kernel beside the package's kernels for the same device, `loops`, `numpy`, PyTorch and the transfers.

    `measure(arguments)` returns its seconds, if it must not be called in this process.
    """
    operation, device = yours.operation, yours.device
    assert isinstance(operation, Operation)
    sizes = default_sizes(operation, device)
    arguments = random_case(operation, sizes).arguments
    others = [kernel for kernel in operation.kernels.values() if kernel.device == device or kernel.name in BASES]
    rows = [replace(_time(yours, arguments, measure), kernel=label)]

    def of_course(kernel: Kernel) -> list[Row]:
        return [_time(kernel, arguments)]

    for kernel in others:
        rows += _or_reason(kernel.name, kernel.device, functools.partial(of_course, kernel))
    rows += _or_reason("PyTorch", device, lambda: _time_pytorch(operation, arguments, device))
    if device == "gpu":
        rows += _or_reason("transfers", device, lambda: [_time_transfers(operation, arguments)])
    return replace(table(operation, rows, sizes), beside=yours.name if yours.name in operation.kernels else "")


def compare_text(operation_name: str, name: str, text: str | None, launch: dict[str, Any] | None) -> Table:
    """compare() for a kernel given as text, or for the package's of that name. A worker process calls this."""
    from nnclassroom.judge.answer import seconds_of_text  # in the worker alone

    operation = find(operation_name)
    if text is None or launch:
        return compare(kept_kernels.build(operation, name, text, launch), "yours" if text else "solution")
    kernel = Kernel(operation, name, operation.python_devices[name], kept_kernels.file_name(operation, name, launch))
    return compare(kernel, "yours", functools.partial(seconds_of_text, operation, name, text, seconds=TIMING_LIMIT))


def _or_reason(name: str, device: str, measure: Callable[[], list[Row]]) -> list[Row]:
    """The rows that measure() returns. If it fails, a row with the reason: your own kernel's time is not lost."""
    try:
        return measure()
    except Exception as error:  # PyTorch, cuDNN and a GPU without free memory raise errors of many types
        return [Row(name, device, None, 0, 0, None, f"{FAILED}: {type(error).__name__}")]


def _time(kernel: Kernel, arguments: tuple[Any, ...], measure: Callable[[tuple[Any, ...]], float] | None = None) -> Row:
    """One kernel's row; with a note instead of a time if it cannot run here or would take too long."""
    assert isinstance(kernel.operation, Operation)
    flops, size = kernel.operation.count(*arguments)
    here = ("cpu", "gpu") if devices.gpu_available() else ("cpu",)
    place = kernel.device
    if place not in here:
        return Row(kernel.name, "gpu", None, flops, size, None, "no GPU here")
    if said := kernel.missing():
        return Row(kernel.name, place, None, flops, size, None, said)
    if kernel.name == "loops" and flops / LOOPS_RATE > LONGEST:
        return Row(kernel.name, "cpu", None, flops, size, None, f"about {flops / LOOPS_RATE:.0f} s: not timed")
    if measure:
        return _row(kernel.name, place, measure(arguments), flops, size)
    there = [devices.to_device(a, place) if isinstance(a, np.ndarray) else a for a in arguments]
    before = threads.look()
    slow = SLOW if kernel.name == "loops" else math.inf
    seconds = devices.seconds(lambda: kernel(*there), place, slow=slow)
    meanwhile = threads.since(before)
    return replace(_row(kernel.name, place, seconds, flops, size), meanwhile=meanwhile)


def _row(name: str, device: str, seconds: float, flops: int, size: int) -> Row:
    nothing = seconds_of_nothing(device)
    note = f"too short to measure: a bare call takes {duration(nothing)}" if seconds < 2 * nothing else ""
    limits = devices.limits(device)
    computing, copying = flops / limits["matrix"], size / limits["copy"]
    share, by_memory = max(computing, copying) / seconds, copying > computing
    return Row(name, device, seconds, flops, size, share, note, by_memory=by_memory)


@functools.cache
def seconds_of_nothing(device: str) -> float:
    """Seconds to call an empty function, or to launch an empty CUDA kernel."""
    if device == "cpu":
        return devices.seconds(lambda: None)
    from nncourse.cuda.compile import gpu_kernel  # on a GPU alone

    kernel = gpu_kernel(NOTHING, "nothing")
    return devices.seconds(lambda: kernel((1,), (1,), ()), device)


def _time_pytorch(operation: Operation, arguments: tuple[Any, ...], device: str) -> list[Row]:
    """PyTorch's row, if it is installed and has an equivalent function."""
    torch = pytorch.installed(device)
    function = pytorch.counterpart(operation.name, torch) if torch else None
    if torch is None or function is None:
        return []
    place = "cuda" if device == "gpu" else "cpu"
    there = [torch.from_numpy(a).to(place) if isinstance(a, np.ndarray) else a for a in arguments]
    # cuDNN's convolutions would round to 10 bits before they multiply; the course's are float32
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        seconds = devices.seconds(lambda: function(*there), device)
    return [_row("PyTorch", device, seconds, *operation.count(*arguments))]


def _time_transfers(operation: Operation, arguments: tuple[Any, ...]) -> Row:
    """A row for the transfers of the arguments to the GPU and of the results back.

    The contract says what the results are: no kernel need be called for them.
    """
    arrays = [value for value in arguments if isinstance(value, np.ndarray)]
    shapes = operation.shapes.result_shapes(arguments, operation.sizes(*arguments))
    blank = [np.zeros(shape, result.dtype) for result, shape in zip(operation.results, shapes, strict=True)]
    results = [devices.to_device(array, "gpu") for array in blank]
    there = devices.seconds(lambda: [devices.to_device(array, "gpu") for array in arrays], "gpu")
    back = devices.seconds(lambda: [devices.to_device(array, "cpu") for array in results], "gpu")
    moved = f"to the GPU {duration(there)}, back {duration(back)}"
    return Row("transfers", "gpu", there + back, 0, operation.count(*arguments)[1], None, moved)


def limits_in_words(device: str) -> str:
    """The device's measured limits: "copies 4.24 TB/s, multiplies matrices at 50.9 TFLOP/s"."""
    limits = devices.limits(device)
    return f"copies {rate(limits['copy'], 'B/s')}, multiplies matrices at {rate(limits['matrix'], 'FLOP/s')}"
