"""Asynchronous SGD, as Downpour does it: nobody waits for the others, so nobody has quite the latest parameters.

The first members are servers, and each holds a part of the parameters. The others are workers, and each has its shard
of the rows: it fetches the parameters, computes a gradient, pushes it and goes on. A server applies a gradient when it
arrives, W ← W − η g, whatever has changed since the fetch. The *staleness* of a gradient is the number of updates
applied between its worker's fetch and its arrival: 0 is plain SGD, and K equal workers have about K − 1. A stale
gradient leads from where the parameters were, not from where they are; so many workers want a smaller rate.

Downpour saves messages: a worker fetches every `n_fetch` steps only, pushes the sum of its gradients every `n_push`
steps, and moves its own copy in between.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.group import ALONE, Group, shard
from nncourse.model.data_parallel import shared_gradient
from nncourse.model.layers import Turn
from nncourse.model.network import Network
from nncourse.model.training import evaluate, refuse_bad_options

FETCH, PUSH, GOODBYE = range(3)  # what a worker wants of a server
WISH, GRADIENT, VERSION, PARAMETERS = range(1, 5)  # tags of messages


class Listening(Group, Protocol):
    """A group whose members can hear from anyone: one of MPI, or a simulated one. NCCL has nothing like it."""

    def next_sender(self, tag: int, patience: float) -> int | None:
        """Wait for a message with this tag: who sent it? It is still to be received.

        None after so many seconds without one, and where nobody can send any more.
        """


@dataclass(frozen=True)
class Downpour:
    """How to train. `batch_size` is a worker's.

    goes_on(step) is called between a gradient and its push: it may take its time, for a slow worker; where it is False
    the worker is gone without a word, and training goes on without it. Servers wait for the next message no longer than
    their `patience`, in seconds.
    """

    epochs: int
    servers: int = 1
    batch_size: int = 32
    learning_rate: float = 0.1
    n_fetch: int = 1
    n_push: int = 1
    seed: int = 0
    goes_on: Callable[[int], bool] = lambda step: True
    patience: float = 60.0
    clock: Callable[[], float] = time.perf_counter


@dataclass
class Arrivals:
    """What a server saw. An epoch is over when as many rows were pushed as there are."""

    staleness: Counter[int] = field(default_factory=Counter)  # how many gradients had it
    pushes: Counter[int] = field(default_factory=Counter)  # of each worker, by rank
    seconds: list[float] = field(default_factory=list)  # since the start, at the end of each epoch
    costs: list[float] = field(default_factory=list)  # of all rows, at the end of each epoch
    lost: list[int] = field(default_factory=list)  # workers that left without a word


def train_asynchronously(
    network: Network, X: np.ndarray, Y: np.ndarray, backend: Calls, group: Listening, **settings
) -> Arrivals | None:
    """Train `network` in place, at every member; `settings` are fields of Downpour.

    Member 0 gets what its server saw, the others None.
    """
    plan = Downpour(**settings)
    refuse_bad_plan(plan, group, len(X))
    there, X, Y = network.on(backend), backend.to_device(X), backend.to_device(Y)
    W, others = there.flat_parameters, range(1, group.size)
    cuts = [shard(W.size, server, plan.servers) for server in range(plan.servers)]
    arrivals = None
    if group.rank < plan.servers:
        arrivals, after_epochs = serve(W[cuts[group.rank]], len(X), backend, group, plan)
        for number, part in enumerate(after_epochs):  # the first server puts the parts together
            if group.rank > 0:
                group.send(part, 0, PARAMETERS)
                continue
            W[cuts[0]] = part
            for server in range(1, plan.servers):
                group.receive(W[cuts[server]], server, PARAMETERS)
            if number < len(arrivals.seconds):
                arrivals.costs.append(evaluate(there, X, Y, backend))
    elif not work(there, X, Y, cuts, backend, group, plan):
        return None
    if group.rank == 0:
        for other in sorted(set(others) - set(arrivals.lost)):
            group.send(W, other, PARAMETERS)
    else:
        group.receive(W, 0, PARAMETERS)
    network.flat_parameters[...] = devices.to_device(W, "cpu")
    return arrivals if group.rank == 0 else None


def serve(part: Array, rows: int, backend: Calls, group: Listening, plan: Downpour) -> tuple[Arrivals, list[Array]]:
    """Answer the workers until all have left. Also returns the part after each epoch, and at the very end."""
    seen, after_epochs, start = Arrivals(), [], plan.clock()
    here, version, pushed = set(range(plan.servers, group.size)), 0, 0
    wish, gradient = np.empty(3, np.int64), np.empty_like(part)
    while here and (worker := group.next_sender(WISH, plan.patience)) is not None:
        group.receive(wish, worker, WISH)
        kind, fetched, trained = wish.tolist()
        if kind == FETCH:
            group.send(np.array([version, pushed >= plan.epochs * rows]), worker, VERSION)
            group.send(part, worker, PARAMETERS)
        elif kind == PUSH:
            group.receive(gradient, worker, GRADIENT)
            backend.sgd_update(part, gradient, plan.learning_rate)
            seen.staleness[version - fetched] += 1
            seen.pushes[worker] += 1
            version, pushed = version + 1, pushed + trained
            if len(after_epochs) < min(plan.epochs, pushed // rows):
                after_epochs.append(part.copy())
                seen.seconds.append(plan.clock() - start)
        else:
            here.discard(worker)
    seen.lost = sorted(here)
    return seen, after_epochs + [part.copy()] * (plan.epochs + 1 - len(after_epochs))  # as many on every server


def work(
    network: Network, X: Array, Y: Array, cuts: list[slice], backend: Calls, group: Listening, plan: Downpour
) -> bool:
    """Fetch, compute, push, until a server says that it is enough; False for a worker that dies before."""
    W, gathered, trained = network.flat_parameters, np.zeros_like(network.flat_parameters), 0
    answer, versions = np.empty(2, np.int64), [0] * len(cuts)
    for step, (batch, turn) in enumerate(_batches(len(X), group, plan)):
        if step % plan.n_fetch == 0:
            enough = False
            for server, cut in enumerate(cuts):
                group.send(np.array([FETCH, 0, 0]), server, WISH)
                group.receive(answer, server, VERSION)
                group.receive(W[cut], server, PARAMETERS)
                versions[server], enough = int(answer[0]), enough or bool(answer[1])
            if enough:
                break
        batch = backend.to_device(batch)
        shared_gradient(network, X[batch], Y[batch], 1.0, backend, ALONE, turn)
        gathered += network.flat_gradient
        trained += len(batch)
        backend.sgd_update(W, network.flat_gradient, plan.learning_rate)
        if not plan.goes_on(step):
            return False
        if (step + 1) % plan.n_push == 0:
            for server, cut in enumerate(cuts):
                group.send(np.array([PUSH, versions[server], trained]), server, WISH)
                group.send(gathered[cut], server, GRADIENT)
            gathered[...], trained = 0, 0
    for server in range(len(cuts)):
        group.send(np.array([GOODBYE, 0, 0]), server, WISH)
    return True


def _batches(rows: int, group: Group, plan: Downpour) -> Iterator[tuple[np.ndarray, Turn]]:
    """The batches of this worker's shard, in a new order each time it has seen all of them, without end."""
    mine = shard(rows, group.rank - plan.servers, group.size - plan.servers)
    for epoch in count(1):
        order = mine.start + np.random.default_rng([plan.seed, epoch, group.rank]).permutation(mine.stop - mine.start)
        for first in range(0, len(order), plan.batch_size):
            yield order[first : first + plan.batch_size], Turn(plan.seed, epoch, mine.start + first)


def refuse_bad_plan(plan: Downpour, group: Listening, rows: int) -> None:
    """CourseError for a plan that does not fit the group, and for a group that cannot hear from anyone."""
    refuse_bad_options(plan.epochs, plan.batch_size, plan.learning_rate)
    if not 1 <= plan.servers < group.size or min(plan.n_fetch, plan.n_push) < 1 or rows < group.size:
        got = f"{group.size} members, {plan.servers} of them servers, {rows} rows, n_fetch {plan.n_fetch}"
        wanted = "a server, a worker, a row for each, and n_fetch and n_push of at least 1"
        raise CourseError(f"wanted {wanted}; got {got} and n_push {plan.n_push}")
    if not hasattr(group, "next_sender"):
        raise CourseError(f"wanted a group whose members can hear from anyone, such as one of MPI; got {group}")
