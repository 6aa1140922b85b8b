"""Asynchronous SGD (Downpour, Dean and others, 2012): no worker waits for another, so none is quite up to date.

The first members are servers, each with a part of the parameters. The others are workers, each with a shard of the
rows: they compute a gradient, push it, fetch the parameters, and repeat. A server applies a gradient when it arrives,
W ← W − η g, whatever has changed since the fetch. The *staleness* of a gradient is the number of updates between its
worker's fetch and its arrival: 0 is plain SGD, and K equal workers have about K − 1. A stale gradient belongs to
parameters of the past, so many workers need a smaller rate.

To save messages, a worker pushes the sum of its gradients every `n_push` steps, fetches every `n_fetch` steps, and
updates its own copy in between.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any, NamedTuple, Protocol

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.group import ALONE, Group, shard
from nncourse.model.data_parallel import shared_gradient
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network
from nncourse.model.training import evaluate, refuse_bad_data, refuse_bad_options
from nncourse.parallel.timeline import Timeline

PUSHED, ANSWER, PART, FINAL = range(1, 5)  # tags of messages
HEAD = 3  # numbers after a gradient: version fetched, rows (−1: training is over), 1 if the parameters are requested


class Listening(Group, Protocol):
    """A group whose members can wait for a message from anyone: MPI's or a simulated one, not NCCL's."""

    def next_sender(self, tag: int = 0, patience: float = inf) -> int | None:
        """Wait for a message with this tag, and return the sender of the first, without receiving the message.

        Returns None after `patience` seconds, or if the group knows that no such message can come any more.
        """


@dataclass(frozen=True)
class Downpour:
    """Settings of train_asynchronously(). `batch_size` is a worker's; n_fetch is a multiple of n_push."""

    epochs: int
    servers: int = 1
    batch_size: int = 32
    learning_rate: float = 0.1
    n_fetch: int = 1
    n_push: int = 1
    seed: int = 0


@dataclass
class Arrivals:
    """What the first server saw. An epoch ends when gradients of as many rows as the data has were pushed."""

    staleness: Counter[int] = field(default_factory=Counter)  # number of gradients with each staleness
    pushes: Counter[int] = field(default_factory=Counter)  # by the worker's rank
    seconds: list[float] = field(default_factory=list)  # since the start, at the end of each epoch
    costs: list[float] = field(default_factory=list)  # of all rows, at the end of each epoch
    lost: list[int] = field(default_factory=list)  # workers that ended early


class Task(NamedTuple):
    """What to train, and on what. `cuts` are the servers' parts of the flat parameters."""

    network: Network
    X: Array
    Y: Array
    backend: Calls
    cuts: list[slice]


def train_asynchronously(
    network: Network,
    X: np.ndarray,
    Y: np.ndarray,
    backend: Calls,
    group: Listening,
    timeline: Timeline | None = None,
    **settings: Any,
) -> Arrivals | None:
    """Train `network` in place, by workers that push gradients to servers and fetch parameters without waiting.

    X, Y: samples (n, …) and targets (n, n_out), the same at every member; a worker takes its own rows.
    group: member 0 is the first server. A worker may die; the servers may not.
    timeline: a Timeline to which this member's spans are added.
    settings: fields of Downpour, such as epochs and learning_rate.

    Returns the Arrivals at its server to member 0, None to the others.
    Raises CourseError for settings and groups that do not fit together.

    >>> data = datasets.moons()
    >>> def part(group):
    ...     return train_asynchronously(make_network([2, 1]), data.X, data.Y, choose("numpy"), group, epochs=1)
    >>> sorted(simulate(part, 3).results[0].pushes)  # the ranks of the workers
    [1, 2]
    """
    plan = Downpour(**settings)
    _refuse_bad_plan(plan, group, len(X))
    refuse_bad_data(network, X, Y)
    if network.flat_statistics.size:
        wanted = "a network without batch normalisation, since nobody has its statistics of all rows here"
        raise CourseError(f"expected {wanted}; got {network}")
    timeline = Timeline(group.rank) if timeline is None else timeline
    there = network.on(backend)
    W, arrivals = there.flat_parameters, None
    group.broadcast(W)
    cuts = [shard(W.size, server, plan.servers) for server in range(plan.servers)]
    task = Task(there, backend.to_device(X), backend.to_device(Y), backend, cuts)
    if group.rank >= plan.servers:
        work(task, group, plan, timeline)
    else:
        arrivals, parts = serve(task, group, plan, timeline)
        if group.rank == 0:
            put_together(task, parts, arrivals, group)
        else:
            for part in parts:
                group.send(part, 0, PART)
    if group.rank:
        group.next_sender(FINAL)  # the first server sends when it knows who is lost
        group.receive(W, 0, FINAL)
    network.flat_parameters[...] = devices.to_device(W, "cpu")
    return arrivals if group.rank == 0 else None


def work(task: Task, group: Listening, plan: Downpour, timeline: Timeline) -> None:
    """Compute, push and fetch, until the first server answers that training is over."""
    network, X, Y, backend, cuts = task
    W, gathered, trained = network.flat_parameters, np.zeros_like(network.flat_parameters), 0
    versions, enough = [0] * len(cuts), False
    for step, (batch, position) in enumerate(_batches(len(X), group, plan), 1):
        with timeline.span("compute", step):
            batch = backend.to_device(batch)
            shared_gradient(network, X[batch], Y[batch], 1.0, backend, ALONE, position)
            gathered += network.flat_gradient
            trained += len(batch)
            backend.sgd_update(W, network.flat_gradient, plan.learning_rate)  # its own copy
        if step % plan.n_push:
            continue
        wants = step % plan.n_fetch == 0
        for server in reversed(range(plan.servers)):  # the first one last: it says "enough"
            cut = cuts[server]
            with timeline.span("exchange", step):
                group.send(_with(gathered[cut], versions[server], trained, wants), server, PUSHED)
            if wants:
                answer = np.empty_like(W, shape=cut.stop - cut.start + 2)
                with timeline.span("wait", step):
                    group.receive(answer, server, ANSWER)
                W[cut], versions[server], enough = answer[:-2], int(answer[-2]), bool(answer[-1])
        if enough:
            return
        gathered[...], trained = 0, 0


def serve(task: Task, group: Listening, plan: Downpour, timeline: Timeline) -> tuple[Arrivals, list[Array]]:
    """Apply gradients until training is over. Also returns the server's part after each epoch and at the end."""
    part, rows = task.network.flat_parameters[task.cuts[group.rank]], len(task.X)
    after_epochs: list[Array] = []
    seen, start = Arrivals(), timeline.clock()
    here, version, trained = set(range(plan.servers, group.size)), 0, 0
    message = np.empty_like(part, shape=part.size + HEAD)
    while here:
        with timeline.span("wait", version):
            if (worker := group.next_sender(PUSHED)) is None:
                break
            group.receive(message, worker, PUSHED)
        fetched, pushed, wants = map(int, message[-HEAD:].tolist())
        if pushed < 0:
            break
        with timeline.span("update", version):
            task.backend.sgd_update(part, message[:-HEAD], plan.learning_rate)
        seen.staleness[version - fetched] += 1
        seen.pushes[worker] += 1
        version, trained = version + 1, trained + pushed
        if len(after_epochs) < min(plan.epochs, trained // rows):
            after_epochs.append(part.copy())
            seen.seconds.append(timeline.clock() - start)
        if wants:
            enough = trained >= plan.epochs * rows
            with timeline.span("exchange", version):
                group.send(_with(part, version, enough), worker, ANSWER)
            if enough and group.rank == 0:
                here.discard(worker)  # it knows that training is over
    seen.lost = sorted(here)
    return seen, after_epochs + [part.copy()] * (plan.epochs + 1 - len(after_epochs))  # the same number on all servers


def put_together(task: Task, parts: list[Array], arrivals: Arrivals, group: Listening) -> None:
    """End the other servers, compute the cost after each epoch from all parts, and send the final parameters."""
    W, (first, *others) = task.network.flat_parameters, task.cuts
    for server, cut in enumerate(others, 1):
        group.send(np.full_like(W, -1, shape=cut.stop - cut.start + HEAD), server, PUSHED)
    for number, part in enumerate(parts):
        W[first] = part
        for server, cut in enumerate(others, 1):
            group.receive(W[cut], server, PART)
        if number < len(arrivals.seconds):
            arrivals.costs.append(evaluate(task.network, task.X, task.Y, task.backend))
    for member in range(1, group.size):
        if member not in arrivals.lost:
            group.send(W, member, FINAL)


def _with(vector: Array, *numbers: float) -> Array:
    """A message: the vector, then some numbers."""
    message = np.empty_like(vector, shape=vector.size + len(numbers))
    message[: vector.size] = vector
    for place, number in enumerate(numbers, vector.size):
        message[place] = number
    return message


def _batches(rows: int, group: Group, plan: Downpour) -> Iterator[tuple[np.ndarray, StepPosition]]:
    """Endless batches of this worker's shard, in a new order for each pass."""
    mine = shard(rows, group.rank - plan.servers, group.size - plan.servers)
    for epoch in count(1):
        order = mine.start + np.random.default_rng([plan.seed, epoch, group.rank]).permutation(mine.stop - mine.start)
        for first in range(0, len(order), plan.batch_size):
            yield order[first : first + plan.batch_size], StepPosition(plan.seed, epoch, mine.start + first)


def _refuse_bad_plan(plan: Downpour, group: Listening, rows: int) -> None:
    """Raise CourseError for a plan that does not fit the group, and for a group without next_sender()."""
    refuse_bad_options(plan.epochs, plan.batch_size, plan.learning_rate)
    if not 1 <= plan.servers < group.size or rows < group.size - plan.servers:
        got = f"servers {plan.servers}, workers {group.size - plan.servers}, rows {rows}"
        raise CourseError(f"expected at least one server, one worker, and one row for each worker; got {got}")
    if plan.n_push < 1 or plan.n_fetch < 1 or plan.n_fetch % plan.n_push:
        got = f"n_push {plan.n_push} and n_fetch {plan.n_fetch}"
        raise CourseError(f"expected n_push of at least 1, and n_fetch a multiple of it; got {got}")
    if not hasattr(group, "next_sender"):
        raise CourseError(f"expected a group whose members can hear from anyone, such as an MPIGroup; got {group}")
