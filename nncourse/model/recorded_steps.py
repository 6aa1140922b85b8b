"""Recorded steps: the training steps of an epoch as CUDA graphs, replayed with no Python between the steps.

Launching a kernel from Python takes longer than running one of a small network. So the launches of up to MOST_STEPS
steps are recorded once; a single call replays them, as often as the epoch has this many steps. Its last steps, with the
smaller batch, are a second recording. Before each replay the samples of its steps are gathered into arrays that the
recording reads.

A kernel gets numbers by value, and some change from step to step: Adam's 1 − βᵗ, a schedule's rate, the counters from
which dropout draws. To find them, two steps are compared in which all of these differ. Before each replay they are
changed in the recording.

Only the optimizer needs the gradients of weights and biases. So small ones are computed at the same time as the deltas
of the layers below: as branches of the graph, recorded on streams of their own.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cuda_on_cpu.source import parameters
from nncourse.backend import Through
from nncourse.calls import Array, Calls
from nncourse.cuda.recording import Launch, Recording, most_steps
from nncourse.errors import DoesNotFitError
from nncourse.group import Alone, Group
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.model.data_parallel import Part, shared_step
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, backpropagation, own_algorithm_1, training_step
from nncourse.model.optimizers import Optimizer, remembered
from nncourse.model.task import Task

MOST_STEPS = 20  # in one recording
BRANCHES = 2
MOST_BESIDE = 1 << 21  # numbers that a kernel in a branch reads and writes: with more it occupies the whole GPU
DRAWN_FROM = "epoch", "first"  # arguments of a kernel that draws random numbers: the position of the step


class Call(NamedTuple):
    """A call of a kernel in a step."""

    kernel: Kernel
    arguments: tuple[Any, ...]
    result: Any


class Alike(NamedTuple):
    """What steps on the same number of rows have in common. Keys are the numbers of their calls.

    changing: the positions of the arguments that are numbers and differ from step to step.
    gradients: the number of the parameter array whose gradient the call's kernel can write to a given array.
    first_update: the number of the optimizer's first call.
    """

    changing: dict[int, tuple[int, ...]]
    gradients: dict[int, int]
    first_update: int


class Changing(NamedTuple):
    """A recorded launch with numbers that change: names, positions in the launch, and recorded values of these."""

    launch: Launch
    names: dict[int, str]
    there: dict[int, int]
    recorded: dict[int, float]


class Recorded(NamedTuple):
    """A recording of several steps. For each step its changing launches, by number: 0 is the optimizer's first."""

    recording: Recording
    steps: list[dict[int, Changing]]


class RecordedEpoch:
    """epoch(order, rate, position) takes the training steps of an epoch of a task by replaying recordings.

    `parts` are the steps of an epoch, in order; the members of a group take them together. The network does not change
    before the first epoch. Raises DoesNotFitError, with the reason, if the steps cannot be recorded.
    """

    def __init__(self, task: Task, parts: Sequence[Part]):
        import cupy

        network, optimizer, backend, X, Y = task.network, task.optimizer, task.backend, task.X, task.Y
        self.network, self.optimizer, self.backend, self.X, self.Y = network, optimizer, backend, X, Y
        self.rate, self.seed, self.rate_changes = task.rate, task.seed, task.rate_changes
        self.group = task.together.group if task.together.group.size > 1 else None
        self.on_rows = task.together.on_rows if self.group else None
        largest = max(part.size for part in parts)
        most = most_steps(max(1, largest), prod(X.shape[1:]) + prod(Y.shape[1:]), MOST_STEPS)
        self.pieces = [parts[start : start + most] for start in range(0, len(parts), most)]
        rows = max(map(_rows, self.pieces))
        self.inputs, self.targets = (cupy.empty((rows, *array.shape[1:]), np.float32) for array in (X, Y))
        own = np.concatenate([np.arange(len(X))[part.rows] for part in parts])
        self.own = None if np.array_equal(own, np.arange(len(X))) else cupy.asarray(own)
        for name in optimizer.remembers:  # if an array were made during recording, each replay would clear it
            remembered(optimizer.state, name, network.flat_parameters)
        self.gradients = network.gradient_views
        self.updates: list[tuple[Any, ...]] = []  # the arguments of the optimizer's calls
        self.quiet = Through(backend, lambda kernel, *arguments: self.updates.append(arguments))
        self.stream, self.pool = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool()
        self.branches = [cupy.cuda.Stream(non_blocking=True) for _ in range(BRANCHES)]
        self.beside: list[tuple[Any, ...]] = []  # the arguments of the kernels in branches
        self.stream.wait_event(cupy.cuda.get_current_stream().record())
        try:
            with cupy.cuda.using_allocator(self.pool.malloc), self.stream:
                kinds = {_kind(part): part for part in parts}
                tried = {kind: self._tried(part) for kind, part in kinds.items()}
                self.stream.synchronize()
                shapes = {_shape(piece): piece for piece in self.pieces}
                self.recorded = {shape: self._recorded(piece, tried) for shape, piece in shapes.items()}
        except DoesNotFitError:
            raise
        except Exception as error:
            raise DoesNotFitError(f"a step cannot be recorded: {_first_line(error)}") from error

    def __call__(self, order: Array, rate: float, position: StepPosition) -> None:
        import cupy

        current, own = cupy.cuda.get_current_stream(), order if self.own is None else order[self.own]
        done = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]
        self.stream.wait_event(current.record())
        start = 0
        try:
            with self.stream:
                for number, piece in enumerate(self.pieces):
                    rows = own[start : start + _rows(piece)]
                    if self.on_rows:
                        self.on_rows(len(rows))
                    done[number % 2].synchronize()  # at most two replays are queued, so that Ctrl-C need not wait long
                    self._replay(piece, rows, rate, position)
                    done[number % 2].record()
                    start += len(rows)
        finally:
            current.wait_event(self.stream.record())

    def _replay(self, piece: Sequence[Part], rows: Array, rate: float, position: StepPosition) -> None:
        """Take the steps of a piece of the epoch, on these rows."""
        import cupy

        for array, there in ((self.X, self.inputs), (self.Y, self.targets)):
            if len(rows):
                cupy.take(array, rows, axis=0, out=there[: len(rows)])
        recording, steps = self.recorded[_shape(piece)]
        begin = piece[0].rows.start
        for step in steps:
            updates = self._next_update(self.optimizer, rate)
            for number, (launch, names, there, recorded) in step.items():
                if number >= 0:
                    new = {there[place]: updates[number][place] for place in names}
                else:
                    drawn_from = {"epoch": position.epoch, "first": begin}
                    new = {there[place]: drawn_from[name] + recorded[place] for place, name in names.items()}
                recording.change(launch, new)
        recording.replay()

    def _next_update(self, optimizer: Optimizer, rate: float) -> list[tuple[Any, ...]]:
        """The arguments of each call of the optimizer's next step, which it counts; nothing is computed."""
        self.updates.clear()
        optimizer.step(self.network.flat_parameters, self.network.flat_gradient, rate, self.quiet)
        return self.updates

    def _tried(self, part: Part) -> Alike:
        """Take two steps on copies of everything that they change. This also compiles and loads the kernels."""
        network = self.network.with_flat_parameters(self.network.flat_parameters.copy())
        optimizer, group = copy.deepcopy(self.optimizer), Alone("gpu") if self.group else None
        X, Y = (array[: part.size] for array in (self.X, self.Y))
        steps = []
        for number in range(2):  # they differ in all that may differ between steps
            rate = self.rate * (2 if number and self.rate_changes else 1)
            here = StepPosition(self.seed, number, number, group=group if part.together else None)
            calls: list[Call] = []
            through = Through(self.backend, partial(_noted, calls))
            _step(network, X, Y, part, rate, through, optimizer, here, group)
            steps.append(calls)
        one, other = steps
        if [id(call.kernel) for call in one] != [id(call.kernel) for call in other]:
            raise DoesNotFitError("two steps call different kernels")
        first_update = len(one) - len(self._next_update(copy.copy(optimizer), rate))
        pairs = enumerate(zip(one, other, strict=True))
        changing = {number: _changing(*pair, number >= first_update) for number, pair in pairs}
        gradients: dict[int, int] = {}
        students = not group and own_algorithm_1(network, optimizer, self.backend)
        if len(X) and not students:  # a student's algorithm_1 makes its calls in an order of its own
            made: list[Call] = []
            found = backpropagation(network, X, Y, Through(self.backend, partial(_noted, made)), StepPosition())
            places = {id(each): place for place, each in enumerate(each for of_layer in found for each in of_layer)}
            for number, (call, again) in enumerate(zip(one, made, strict=False)):
                if call.kernel is again.kernel and call.kernel.takes_out and id(again.result) in places:
                    gradients[number] = places[id(again.result)]
        return Alike({number: places for number, places in changing.items() if places}, gradients, first_update)

    def _recorded(self, piece: Sequence[Part], tried: Mapping[Any, Alike]) -> Recorded:
        """Record the steps of a piece of the epoch. The network and the optimizer stay as they are."""
        steps: list[dict[int, Changing]] = []

        def work() -> None:
            start = 0
            for part in piece:
                steps.append({})
                through = Through(self.backend, partial(self._recorded_call, tried[_kind(part)], count(), steps[-1]))
                together = self.group if part.together else None
                here = StepPosition(self.seed, 0, part.rows.start - piece[0].rows.start, group=together)
                rows = slice(start, start := start + part.size)
                of_step = self.inputs[rows], self.targets[rows], part, self.rate
                _step(self.network, *of_step, through, self.optimizer, here, self.group)

        counted = self.optimizer.steps
        try:
            return Recorded(Recording(work), steps)
        finally:
            self.optimizer.steps = counted

    def _recorded_call(
        self, alike: Alike, numbers: Iterator[int], step: dict[int, Changing], kernel: Kernel, *arguments: Any
    ) -> Any:
        """Call a kernel while a step is recorded. A gradient is written where the optimizer reads it."""
        number = next(numbers)
        if number not in alike.gradients:
            result = _called(kernel, *arguments)
        else:
            result = self._gradient(kernel, arguments, self.gradients[alike.gradients[number]])
            if number == max(alike.gradients):
                self._join()
        if places := alike.changing.get(number):
            assert isinstance(kernel, CudaKernel)
            names = {place: kernel.operation.names[place] for place in places}
            there = {place: kernel.operation.cuda_arguments.index(name) for place, name in names.items()}
            declared = enumerate(parameters(kernel.source, kernel.entry))
            launch = Launch([each.dtype if place in there.values() else None for place, each in declared])
            recorded = {place: arguments[place] for place in places}
            step[number - alike.first_update] = Changing(launch, names, there, recorded)
        return result

    def _gradient(self, kernel: Kernel, arguments: tuple[Any, ...], out: Array) -> Any:
        """Record a kernel that computes a gradient, in a branch if it is small.

        A kernel with __constant__ arrays must not run twice at once, since each launch fills them.
        """
        numbers = sum(getattr(each, "size", 0) for each in (*arguments, out))
        if numbers > MOST_BESIDE or getattr(kernel, "constants", None):
            return _called(kernel, *arguments, out=out)
        branch = self.branches[len(self.beside) % BRANCHES]
        branch.wait_event(self.stream.record())
        self.beside.append(arguments)  # nothing else may get their memory before the branch ends
        with branch:
            return _called(kernel, *arguments, out=out)

    def _join(self) -> None:
        """The end of the branches: what is recorded next waits for them."""
        for branch in self.branches[: len(self.beside)]:
            self.stream.wait_event(branch.record())
        self.beside.clear()


def _step(
    network: Network,
    X: Array,
    Y: Array,
    part: Part,
    rate: float,
    backend: Calls,
    optimizer: Optimizer,
    position: StepPosition,
    group: Group | None,
) -> None:
    """A training step, alone or of a group together."""
    if group:
        shared_step(network, X, Y, part, rate, backend, optimizer, position, group)
    else:
        training_step(network, X, Y, rate, backend, optimizer, position)


def _noted(calls: list[Call], kernel: Kernel, *arguments: Any) -> Any:
    calls.append(Call(kernel, arguments, _called(kernel, *arguments)))
    return calls[-1].result


def _called(kernel: Kernel, *arguments: Any, **options: Any) -> Any:
    """Call a kernel. DoesNotFitError if it fails: a student's kernel may raise anything."""
    try:
        return kernel(*arguments, **options)
    except Exception as error:
        called = f"{kernel.operation.name} ({kernel.name})"
        raise DoesNotFitError(f"{called} cannot be recorded: {_first_line(error)}") from error


def _changing(one: Call, other: Call, of_update: bool) -> tuple[int, ...]:
    """The positions of the numbers that differ. DoesNotFitError if a recording cannot change one of them."""
    kernel, operation = one.kernel, one.kernel.operation
    pairs = zip(operation.arguments, one.arguments, other.arguments, strict=True)
    places = tuple(place for place, (argument, a, b) in enumerate(pairs) if not argument.dims and a != b)
    for name in (operation.names[place] for place in places):
        if not isinstance(kernel, CudaKernel):
            raise DoesNotFitError(
                f"{operation.name} ({kernel.name}) gets a different {name} in each step, and is not a CUDA kernel"
            )
        if not of_update and name not in DRAWN_FROM:
            raise DoesNotFitError(f"{operation.name} ({kernel.name}) gets a different {name} in each step")
    return places


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _rows(piece: Sequence[Part]) -> int:
    return sum(part.size for part in piece)


def _kind(part: Part) -> tuple[Any, ...]:
    """A key for all steps that make the same calls."""
    return part.size, part.weight, part.together


def _shape(piece: Sequence[Part]) -> tuple[Any, ...]:
    """A key for all pieces that share a recording: the sizes of their steps, and where these begin."""
    return tuple((part.rows.start - piece[0].rows.start, *_kind(part)) for part in piece)
