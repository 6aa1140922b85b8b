"""A profile says where a training step goes: the time of each call, its work, its kernel, and the least it can take.

    profile = step_profile(network, X[:32], Y[:32], choose("cuda", mine=True), Adam())
    print(profile)                           # a table, a line for each call
    profile.share(["dense_forward"])         # of the step's time

A call is timed when the step comes to it, on copies of its arguments. On a GPU it is recorded CALLS times, so that its
time is the GPU's own; what launching adds is the difference between the two times of the whole step.
"""

import copy
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

import numpy as np

from nnclassroom.formats import duration, in_units
from nnclassroom.pages import cells, page
from nnclassroom.timing import NOTHING, Table, limits_in_words, of_limit, shared_in_words
from nncourse import device as devices
from nncourse import threads
from nncourse.backend import Backend, Through
from nncourse.cuda.compile import gpu_kernel
from nncourse.cuda.recording import Recording
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.kernels.kernel import Kernel
from nncourse.kernels.operation import Operation
from nncourse.model import recorded_steps
from nncourse.model.data_parallel import Part as Rows
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, training_step
from nncourse.model.optimizers import SGD, Optimizer
from nncourse.model.task import Task
from nncourse.model.training import refuse_bad_data

CALLS = 40  # in the recording that a call is timed by
TURNS = 40  # in which a call is timed
MOST_LINES = 40  # of a table; a step with more calls is shown by operation
COLUMNS = 80


@dataclass(frozen=True)
class Part:
    """A call in a step, or several of one operation together. `seconds`, `flops`, `bytes` and `least` are sums.

    shape: of the call's first result; () for several calls.
    least: seconds at the machine's measured limits.
    launched: the time includes the launch from Python, since the kernel cannot be recorded.
    by_memory: the copy bandwidth is the limit that binds.
    """

    operation: str
    kernel: str
    yours: bool
    shape: tuple[int, ...]
    calls: int
    seconds: float
    flops: int
    bytes: int
    least: float
    launched: bool = False
    by_memory: bool | None = None

    @property
    def label(self) -> str:
        if self.calls > 1:
            return f"{self.calls} × {self.operation}"
        return f"{self.operation} {'×'.join(map(str, self.shape))}"

    @property
    def kernel_in_words(self) -> str:
        return f"yours, {self.kernel}" if self.yours else self.kernel

    @property
    def of_limit(self) -> str:
        return of_limit(self.least / self.seconds, self.flops, self.bytes, self.by_memory)


@dataclass(frozen=True)
class Profile:
    """The parts of a training step, in order, and the time of the whole step.

    seconds: of the step, called or launched from Python.
    recorded: of the step as train() replays it on a GPU; None without one. `note`: why it cannot be recorded.
    shortest: of an empty kernel in a recording.
    """

    title: str
    device: str
    parts: tuple[Part, ...]
    seconds: float
    recorded: float | None = None
    note: str = ""
    shortest: float = 0.0
    shared: tuple[str, ...] = ()

    HEAD = ("call", "kernel", "time", "FLOPs", "bytes", "of limit")
    WIDTHS = (33, 15, 9, 7, 7, 9)
    LAUNCHED = "*"

    @property
    def by_operation(self) -> tuple[Part, ...]:
        """The calls of each operation together, the longest first."""
        names = dict.fromkeys(part.operation for part in self.parts)
        found = [together([part for part in self.parts if part.operation == name]) for name in names]
        return tuple(sorted(found, key=lambda part: -part.seconds))

    @property
    def lines(self) -> tuple[Part, ...]:
        """The parts to show: the calls, or the operations if there are too many calls."""
        return self.parts if len(self.parts) <= MOST_LINES else self.by_operation

    @property
    def whole(self) -> float:
        """Seconds of the step as train() runs it; at least those of its calls, which are timed one by one."""
        return max(self.recorded or self.seconds, self.in_calls)

    @property
    def in_calls(self) -> float:
        """Seconds of all calls, one after the other."""
        return sum(part.seconds for part in self.parts)

    @property
    def between(self) -> float:
        """Seconds of the step outside of its calls."""
        return self.whole - self.in_calls

    def share(self, operations: Collection[str]) -> float:
        """The share of the step's time that the calls of these operations take."""
        return sum(part.seconds for part in self.parts if part.operation in operations) / self.whole

    def __str__(self) -> str:
        return "\n".join([*textwrap.wrap(self.title, COLUMNS), *map(_line, [self.HEAD, *self._table]), *self._foot])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, body = cells(self.HEAD, tag="th", words=2), "".join(cells(texts, words=2) for texts in self._table)
        foot = "<br>".join(map(escape, self._foot))
        return page(f"<b>{self.title}</b><table>{head}{body}</table><small>{foot}</small>")

    @property
    def _table(self) -> list[Sequence[str]]:
        rest = ("between the calls", "", duration(self.between), "", "", "")
        total = replace(together(self.parts), kernel="", yours=False)
        return [*map(_cells, self.lines), rest, [f"all {total.calls} calls", *_cells(total)[1:]]]

    @property
    def _foot(self) -> list[str]:
        """The lines below the table: the whole step, and what the columns mean."""
        found = [f"The whole step: {self.in_words}."]
        if self.recorded and self.recorded < self.in_calls:
            found.append("It takes less time than its calls one by one, since some may run at the same time.")
        if self.note:
            found.append(f"Not recorded: {self.note}.")
        if any(part.launched for part in self.parts):
            found.append(f"{self.LAUNCHED} Includes the launch from Python, since this kernel cannot be recorded.")
        found += [Table.FOOT, f"This machine {limits_in_words(self.device)}."]
        if self.shortest:
            found.append(f"An empty kernel takes {duration(self.shortest)}: no kernel takes less.")
        if any(part.of_limit == Table.CACHED for part in self.lines):
            found.append(Table.CACHED_FOOT)
        return [line for text in (*found, *self.shared) for line in textwrap.wrap(text, COLUMNS)]

    @property
    def in_words(self) -> str:
        """The times of the whole step."""
        if self.device == "cpu":
            return duration(self.whole)
        recorded = f", {duration(self.recorded)} recorded" if self.recorded else ""
        return f"{duration(self.seconds)} launched from Python{recorded}"


def step_profile(
    network: Network,
    X: np.ndarray,
    Y: np.ndarray,
    backend: Backend,
    optimizer: Optimizer | None = None,
    record: bool = True,
) -> Profile:
    """The time of each call of a training step; print the result to see it as a table.

    network: it is not changed.
    X, Y: samples and targets of one batch, as train() takes them.
    backend: its kernels are timed, yours among them: choose("numpy", mine=True).
    optimizer: SGD(), Adam() …; plain SGD by default. It is not changed.
    record: on a GPU, time recorded kernels; False: each with its launch from Python.

    Raises CourseError for data that do not fit the network, and for an emulated backend.

    >>> X, Y = np.ones((10, 4), np.float32), np.zeros((10, 1), np.float32)
    >>> profile = step_profile(make_network([4, 1]), X, Y, choose("numpy"))
    >>> [part.operation for part in profile.parts][:2]
    ['dense_forward', 'sigmoid']
    """
    refuse_bad_data(network, X, Y)
    place = backend.device
    if place == "cpu" and any(kernel.cuda for kernel in backend.kernels.values()):
        raise CourseError(f"expected a backend that computes on its own device; got {backend.name}: leave emulate out")
    optimizer = copy.deepcopy(optimizer or SGD())
    optimizer.state = {name: backend.to_device(array) for name, array in optimizer.state.items()}
    there, X, Y = network.on(backend), backend.to_device(X), backend.to_device(Y)
    record, limits = record and place == "gpu", devices.limits(place)
    shortest = _recorded(partial(gpu_kernel(NOTHING, "nothing"), (1,), (1,), ())) if record else 0.0
    parts: list[Part] = []
    known: dict[Any, tuple[float, bool]] = {}  # equal calls take equally long

    def called(kernel: Kernel, *arguments: Any) -> Any:
        name = kernel.operation.name
        function, shapes = getattr(backend, name), [getattr(argument, "shape", ()) for argument in arguments]
        if (key := (name, *shapes)) not in known:
            copies = [a.copy() if hasattr(a, "copy") else a for a in arguments]  # some are changed in place
            known[key] = _seconds(partial(function, *copies), place, record)
        result = function(*arguments)
        assert isinstance(kernel.operation, Operation)
        flops, size = kernel.operation.count(*arguments)
        computing, copying = flops / limits["matrix"], size / limits["copy"]
        least, by_memory = max(computing, copying, shortest), copying > computing
        shape = (result[0] if isinstance(result, tuple) else result).shape
        taken, launched = known[key]
        whose = name in backend.yours
        parts.append(Part(name, kernel.name, whose, shape, 1, taken, flops, size, least, launched, by_memory))
        return result

    before, rate = threads.look(), optimizer.usual_rate
    training_step(there, X, Y, rate, Through(backend, called), optimizer, StepPosition())
    step = partial(training_step, there, X, Y, rate, backend, optimizer, StepPosition())
    seconds, recorded, note = _shortest(step, place), None, ""
    if record:
        try:
            recorded = _recorded_step(there, X, Y, backend, optimizer)
        except DoesNotFitError as error:
            note = str(error)
    title = f"A step of {network.in_words}, batch {len(X)}, {optimizer.kind}, backend {backend.name}"
    shared = shared_in_words(threads.since(before), {place})
    return Profile(title, place, tuple(parts), seconds, recorded, note, shortest, shared)


def together(parts: Sequence[Part]) -> Part:
    """Several calls as one part, named as the first."""
    return replace(
        parts[0],
        yours=any(part.yours for part in parts),
        shape=(),
        calls=len(parts),
        seconds=sum(part.seconds for part in parts),
        flops=sum(part.flops for part in parts),
        bytes=sum(part.bytes for part in parts),
        least=sum(part.least for part in parts),
        launched=any(part.launched for part in parts),
        by_memory=all(part.by_memory for part in parts),
    )


def _seconds(work: Callable[[], Any], device: str, record: bool) -> tuple[float, bool]:
    """Seconds of a call, and whether its launch from Python is in them although it should have been recorded."""
    if record:
        try:
            return _recorded(work), False
        except (
            Exception
        ):  # CUDA, libraries and students' kernels refuse in many ways; what else is wrong comes up below
            pass
    return _shortest(work, device), record


def _shortest(work: Callable[[], Any], device: str) -> float:
    """Seconds of a call: the shortest of many short turns, of which other programs leave some alone."""
    return devices.seconds(work, device, repeats=TURNS, pick=min)


def _recorded(work: Callable[[], Any]) -> float:
    """Seconds of a call of work() among CALLS in a recording. Raises what work() raises, and errors of CUDA."""
    import cupy

    def calls() -> None:
        for _ in range(CALLS):
            work()

    devices.synchronise("gpu")  # the arrays come from another stream
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc), cupy.cuda.Stream(non_blocking=True) as stream:
        work()  # compiles and loads the kernel
        stream.synchronize()
        return _shortest(Recording(calls).replay, "gpu") / CALLS


def _recorded_step(network: Network, X: Any, Y: Any, backend: Backend, optimizer: Optimizer) -> float:
    """Seconds of a step among those of a recording by train(), all on the same rows."""
    steps, order = recorded_steps.MOST_STEPS, backend.to_device(np.arange(len(X)))
    parts, rate = [Rows(slice(0, len(X)))] * steps, optimizer.usual_rate
    epoch = recorded_steps.RecordedEpoch(Task(network, optimizer, backend, X, Y, len(X), rate), parts)
    return _shortest(partial(epoch, order, rate, StepPosition()), "gpu") / steps


def _cells(part: Part) -> list[str]:
    time = duration(part.seconds) + Profile.LAUNCHED * part.launched
    label = part.label if len(part.label) < Profile.WIDTHS[0] else part.operation
    return [label, part.kernel_in_words, time, _amount(part.flops), _amount(part.bytes), part.of_limit]


def _amount(number: int) -> str:
    return in_units(number, {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1}).strip()


def _line(texts: Sequence[str]) -> str:
    pairs = enumerate(zip(texts, Profile.WIDTHS, strict=True))
    return "".join(f"{text:{'<' if place < 2 else '>'}{width}}" for place, (text, width) in pairs).rstrip()
