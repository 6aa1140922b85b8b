"""Model parallelism: each device owns some layers, and the samples pass through the devices as through a pipeline.

In the forward pass a member computes its layers and sends the activations up. In the backward pass it receives dC/dA of
its outputs and sends dC/dA of its inputs down. With whole batches only one device would work at a time. So a batch is
cut into M micro-batches, which follow each other. If all stages take equally long, K devices then wait for the share
(K − 1) / (M + K − 1) of the time, the *bubble*. The gradients of the micro-batches, weighted by rows, add up to that of
the batch, up to rounding. Only layers with statistics of the batch see a micro-batch instead.

Several pipelines add data parallelism: each has a shard of the batch, and the gradients of a stage are added over its
`replicas`. grid() of stages.py makes these groups.
"""

import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError, refuse_unknown
from nncourse.group import ALONE, Group, shard
from nncourse.model.data_parallel import begin_alike
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, flops
from nncourse.model.optimizers import SGD, Optimizer
from nncourse.model.training import Epoch, History, evaluate, refuse_bad_data, refuse_bad_options
from nncourse.parallel.stages import Stage, partition
from nncourse.parallel.timeline import Timeline

Work = tuple[str, int]  # forward or backward, and the number of a micro-batch
Schedule = Callable[[int, int, int], list[Work]]  # (stage, number of stages, number of micro-batches) -> its work


def all_forward_first(stage: int, stages: int, count: int) -> list[Work]:
    """All micro-batches forward, then all backward. A stage keeps the activations of all of them."""
    return [(what, number) for what in ("forward", "backward") for number in range(count)]


def one_forward_one_back(stage: int, stages: int, count: int) -> list[Work]:
    """Backward as soon as possible: a stage keeps the activations of at most 1 + (stages above it) micro-batches.

    The bubble is as long as with all_forward_first.
    """
    ahead = min(stages - 1 - stage, count)
    order: list[Work] = [("forward", number) for number in range(ahead)]
    for number in range(count):
        if number + ahead < count:
            order.append(("forward", number + ahead))
        order.append(("backward", number))
    return order


SCHEDULES: dict[str, Schedule] = {each.__name__: each for each in (all_forward_first, one_forward_one_back)}


def train_pipeline(
    network: Network,
    X: np.ndarray,
    Y: np.ndarray,
    backend: Calls,
    pipeline: Group,
    replicas: Group = ALONE,
    *,
    epochs: int,
    batch_size: int = 256,
    micro_batches: int = 4,
    schedule: str = "all_forward_first",
    learning_rate: float = 0.1,
    optimizer: Optimizer | None = None,
    seed: int = 0,
    timeline: Timeline | None = None,
) -> History:
    """Train `network` in place; every member calls this with the same arguments, and ends with all parameters.

    X, Y: all samples (n, …) and targets (n, n_out), on the CPU.
    pipeline: the members of this pipeline, each with one stage of the layers.
    replicas: the members that have this stage in all pipelines, with different rows.
    epochs, learning_rate, optimizer, seed: as for train(). The optimizer's state stays with the stage.
    batch_size, micro_batches: rows of all pipelines together; number of parts of a pipeline's own rows.
    schedule: "all_forward_first" or "one_forward_one_back".
    timeline: a Timeline that gets this member's spans of the last batch.

    Returns the costs and seconds of each epoch. Raises CourseError for data and options that do not fit.

    >>> data = datasets.moons()
    >>> def part(group):
    ...     network = make_network([2, 4, 1])
    ...     train_pipeline(network, data.X, data.Y, choose("numpy"), group, epochs=1)
    ...     return network.flat_parameters
    >>> first, second = simulate(part, 2).results
    >>> bool((first == second).all())
    True
    """
    refuse_bad_options(epochs, batch_size, learning_rate)
    refuse_bad_data(network, X, Y)
    refuse_unknown("a schedule", schedule, SCHEDULES)
    if micro_batches < 1:
        raise CourseError(f"expected at least 1 micro-batch, got {micro_batches}")
    optimizer, history, there = optimizer or SGD(), History(plan="operations"), network.on(backend)
    timeline = Timeline(pipeline.rank) if timeline is None else timeline
    X, Y = backend.to_device(X), backend.to_device(Y)
    for group in (replicas, pipeline):  # in this order all members get those of the very first member
        begin_alike(there, group)
    stage = Stage(there, partition(flops(there), pipeline.size), backend, pipeline, timeline)
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        order = backend.to_device(np.random.default_rng([seed, epoch]).permutation(len(X)))
        for first in range(0, len(X), batch_size):
            batch = order[first : first + batch_size]
            own = shard(len(batch), replicas.rank, replicas.size)
            position = StepPosition(seed, epoch, first + own.start)
            timeline.clear()
            pipeline_gradient(
                stage, X[batch[own]], Y[batch[own]], len(batch), micro_batches, SCHEDULES[schedule], position
            )
            if stage.gradient.size:
                with timeline.span("exchange"):
                    replicas.all_reduce(stage.gradient)
                with timeline.span("update"):
                    optimizer.step(stage.parameters, stage.gradient, learning_rate, backend)
        devices.synchronise(backend.device)
        seconds = time.perf_counter() - start
        stage.share_out(replicas)
        history.epochs.append(Epoch(epoch, evaluate(there, X, Y, backend, pipeline), None, seconds))
    network.flat_parameters[...] = devices.to_device(there.flat_parameters, "cpu")
    network.flat_statistics[...] = devices.to_device(there.flat_statistics, "cpu")
    return history


def pipeline_gradient(
    stage: Stage, X: Array, Y: Array, rows: int, micro_batches: int, schedule: Schedule, position: StepPosition
) -> None:
    """The gradient of a batch in stage.gradient: the sum over this pipeline's samples X, Y, divided by `rows`."""
    cuts = [shard(len(X), number, micro_batches) for number in range(min(micro_batches, len(X)))]
    stage.gradient[...] = 0
    work = schedule(stage.pipeline.rank, stage.pipeline.size, len(cuts))
    for (what, number), (then, after) in pairwise([*work, ("", 0)]):
        cut = cuts[number]
        if what == "forward":
            stage.take_input(number, X[cut])
            stage.forward(number, position._replace(first=position.first + cut.start))
            continue
        G_below = stage.backward(number, Y[cut], (cut.stop - cut.start) / rows)
        if then == "forward":
            # Receive before sending: the stage below sends first, and if both sent, both would wait for ever.
            stage.take_input(after, X[cuts[after]])
        stage.give_back(number, G_below)
