"""Plans: ways to compute the steps of an epoch. One is chosen before training begins.

    operations    one call for each operation: any network, any device, any group
    recorded      on a GPU, the same calls recorded and replayed with no Python between the steps: recorded_steps.py

Other packages add plans that compute several operations, or a whole epoch, in one call. An entry point of the group
GROUP names a module with PLANNERS, which are tried first, and ASKED, which are tried only when asked for by name.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

from nncourse.calls import Array, Calls
from nncourse.entry_points import added
from nncourse.errors import DoesNotFitError, refuse_unknown
from nncourse.model.data_parallel import data_parallel_epoch, mean_statistics, parts_of_epoch
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import HostSamples, in_pieces
from nncourse.model.network import Network, flops, training_step
from nncourse.model.optimizers import Optimizer
from nncourse.model.task import Plan, Refused, Task, TrainEpoch

GROUP, FUSED = "nncourse.planners", "fused_epochs"  # the group of entry points; the package whose plans come first
MOST_COPIED = 1 << 22  # numbers of X that are reordered at a time: 16 MB
LARGE = 1 << 24  # FLOPs of a layer for a batch: from here on cuBLAS is faster than the kernels that networks use
MOST_IN_CACHE = 1 << 19  # the same on a CPU: 2 MB, which are still in its cache when they are read

Step = Callable[[Array, Array, float, StepPosition | None], None]  # of samples, targets, the rate and the position


Planner = Callable[[Task], Plan | Refused]


def chosen(task: Task, asked: str | None = None) -> Plan:
    """The first plan that fits, or the one that was asked for. Raises DoesNotFitError if that one does not fit.

    Everything that the plan needs is compiled already, so that no epoch's seconds include it.
    """
    planners, named = known()
    if asked is not None:
        refuse_unknown("a plan", asked, planners | named)
        found = (planners | named)[asked](task)
        if isinstance(found, Refused):
            raise DoesNotFitError(f"the plan {asked} does not fit: {found.reason}; leave it out")
        return found
    news: list[str] = []
    for planner in planners.values():
        found = planner(task)
        if isinstance(found, Plan):
            return replace(found, note="; ".join(filter(None, (*news, found.note))))
        news += [found.reason] if found.is_news else []
    raise AssertionError("operations fits everything")


def known() -> tuple[dict[str, Planner], dict[str, Planner]]:
    """The planners by name: those to try, in order, and those that are used only when asked for."""
    own: dict[str, Planner] = {"recorded": recorded, "operations": operations}
    fused = added(GROUP, FUSED)
    if isinstance(fused, str):
        return {FUSED: partial(_without, fused), **own}, {}
    return {**fused.PLANNERS, **own}, fused.ASKED


def _without(reason: str, task: Task) -> Refused:
    is_news = task.backend.fusable and task.together.group.size == 1
    return Refused(f"trained step by step, which is slower: {reason}", is_news)


# ---- the plans of this package


def operations(task: Task) -> Plan:
    """One call for each operation."""
    network, optimizer = task.copies()
    if task.together.group.size > 1:
        own = parts_of_epoch(len(task.X), task.batch_size, task.together)[0].rows
        if own.stop > own.start:
            training_step(network, task.X[own], task.Y[own], 0.0, task.backend, optimizer, StepPosition())
        return Plan("operations", partial(_shared_epoch, task))
    first = slice(task.batch_size)
    step_by_operations(network, task.backend, optimizer)(task.X[first], task.Y[first], task.rate, StepPosition())
    return Plan("operations", by_steps(task, step_by_operations(task.network, task.backend, task.optimizer)))


def _shared_epoch(task: Task, order: Array, rate: float, position: StepPosition) -> None:
    where = task.X, task.Y, order, task.batch_size, rate, task.backend, task.optimizer, position
    data_parallel_epoch(task.network, *where, task.together)


def recorded(task: Task) -> Plan | Refused:
    """The calls of several steps, recorded as a CUDA graph and replayed."""
    if task.backend.device != "gpu":
        return Refused("only a GPU records steps")
    if isinstance(task.X, HostSamples):
        return Refused("samples that are sent batch by batch cannot be recorded")
    from nncourse.model.recorded_steps import RecordedEpoch

    group = task.together.group
    if group.size > 1:
        if not getattr(group, "queued", False):
            return Refused("steps are not recorded: its processes exchange through the host's memory", is_news=True)
        group.all_reduce(task.network.flat_gradient)  # the first exchange connects the members: it cannot be recorded
    parts = parts_of_epoch(len(task.X), task.batch_size, task.together)
    task, note = _with_large_products(task)
    try:
        replayed = RecordedEpoch(task, parts)
    except DoesNotFitError as error:
        return Refused(f"steps are not recorded: {error}", is_news=True)

    def shared(order: Array, rate: float, position: StepPosition) -> None:
        replayed(order, rate, position)
        mean_statistics(task.network, group, parts)

    return Plan("recorded", shared if group.size > 1 else replayed, note)


def _with_large_products(task: Task) -> tuple[Task, str]:
    """The task, with cuBLAS for its dense layers if one is large, and a note. Kernels that a student chose stay."""
    large = max(flops(task.network)) * task.batch_size >= LARGE
    backend = task.backend.by_library() if large else task.backend
    if backend is task.backend:
        return task, ""
    return replace(task, backend=backend), "products of dense layers by cuBLAS"


# ---- an epoch of steps


def by_steps(task: Task, step: Step) -> TrainEpoch:
    """epoch(order, rate, position): a step for each batch."""
    most = MOST_IN_CACHE if task.backend.device == "cpu" else MOST_COPIED
    return reordered(task, partial(in_batches, step, task.batch_size), most)


def reordered(
    task: Task, compute: Callable[[Array, Array, float, StepPosition], None], most: int, least: int = 1
) -> TrainEpoch:
    """epoch(order, rate, position): `compute` gets several batches at a time, one after the other in memory.

    most, least: numbers of X at a time at most, batches at least. A copy of all rows would be as large as X.
    """
    X, Y, batch_size = task.X, task.Y, task.batch_size
    some = len(X) if X.size <= most else batch_size * max(least, most // (batch_size * prod(X.shape[1:])))

    def epoch(order: Array, rate: float, position: StepPosition) -> None:
        for start, samples, targets in in_pieces(X, Y, order, some):
            compute(samples, targets, rate, position._replace(first=start))

    return epoch


def step_by_operations(network: Network, backend: Calls, optimizer: Optimizer) -> Step:
    """A training step by one call for each operation."""

    def step(X: Array, Y: Array, rate: float, position: StepPosition | None) -> None:
        training_step(network, X, Y, rate, backend, optimizer, position)

    return step


def train_step_by_step(
    network: Network,
    X: Array,
    Y: Array,
    batch_size: int,
    rate: float,
    backend: Calls,
    optimizer: Optimizer,
    position: StepPosition | None = None,
) -> None:
    """One epoch: a training step for each batch, in the order of the rows; the last batch may be smaller.

    position: that of the first row; a network with dropout needs it.
    """
    in_batches(step_by_operations(network, backend, optimizer), batch_size, X, Y, rate, position)


def in_batches(step: Step, batch_size: int, X: Array, Y: Array, rate: float, position: StepPosition | None) -> None:
    """A step for each batch of these rows."""
    for start in range(0, len(X), batch_size):
        rows = slice(start, start + batch_size)
        of_batch = StepPosition(position.seed, position.epoch, position.first + start) if position else None
        step(X[rows], Y[rows], rate, of_batch)
