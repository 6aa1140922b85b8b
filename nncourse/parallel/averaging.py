"""Parameter averaging: every member trains alone for some batches, then all continue from the mean of their parameters.

1. The parameters begin at random; make_network() does this.
2. Every member gets a copy of them.
3. Every member trains on some batches of its own rows, without communication.
4. Every member sends its parameters, and waits for the slowest.
5. The mean becomes the new parameters of all: an all-reduce does both.
6. Repeat from step 3.

A batch is divided as in synchronous training, and members are weighted by their numbers of rows. With one batch per
round the result is that of synchronous training, up to rounding: the mean of W − η g is W minus η times the mean of g.
This holds for plain SGD, and with momentum and L2, since the optimizer's state is averaged too; not for Adam, since the
mean of squares is not the square of the mean. With more batches per round the parameters differ after the first.
"""

import time

import numpy as np

from nncourse import device as devices
from nncourse.calls import Calls
from nncourse.errors import CourseError
from nncourse.group import Group, shard
from nncourse.model.data_parallel import begin_alike
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, training_step
from nncourse.model.optimizers import SGD, Optimizer, remembered
from nncourse.model.training import Epoch, History, evaluate, refuse_bad_data, refuse_bad_options
from nncourse.parallel.timeline import Timeline


def train_by_averaging(
    network: Network,
    X: np.ndarray,
    Y: np.ndarray,
    backend: Calls,
    group: Group,
    *,
    epochs: int,
    batches_a_round: int = 1,
    batch_size: int = 32,
    learning_rate: float = 0.1,
    optimizer: Optimizer | None = None,
    seed: int = 0,
    timeline: Timeline | None = None,
) -> History:
    """Train `network` in place; all members call this with the same arguments, and end with the same parameters.

    X, Y: all samples (n, …) and targets (n, n_out), on the CPU; each member takes its own rows of them.
    epochs, learning_rate, optimizer, seed: as for train().
    batches_a_round: number of batches that each member trains on between two averagings.
    batch_size: rows per batch, of all members together.
    timeline: a Timeline to which this member's spans are added.

    Returns the costs and seconds of each epoch. Raises CourseError for data and options that do not fit.

    >>> data = datasets.moons()
    >>> def part(group):
    ...     network = make_network([2, 1])
    ...     train_by_averaging(network, data.X, data.Y, choose("numpy"), group, epochs=1)
    ...     return network.flat_parameters
    >>> first, second = simulate(part, 2).results
    >>> bool((first == second).all())
    True
    """
    refuse_bad_options(epochs, batch_size, learning_rate)
    refuse_bad_data(network, X, Y)
    if batches_a_round < 1:
        raise CourseError(f"expected at least 1 batch per round; got {batches_a_round}")
    optimizer, history, there = optimizer or SGD(), History(plan="operations"), network.on(backend)
    X, Y = backend.to_device(X), backend.to_device(Y)
    begin_alike(there, group)  # step 2
    timeline = Timeline(group.rank) if timeline is None else timeline
    a_round, steps = batches_a_round * batch_size, optimizer.steps
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        order = np.random.default_rng([seed, epoch]).permutation(len(X))
        for first in range(0, len(X), a_round):
            rows = 0  # of this member
            for begin in range(first, min(first + a_round, len(X)), batch_size):
                batch = order[begin : begin + batch_size]
                mine = shard(len(batch), group.rank, group.size)
                if len(batch[mine]):  # step 3
                    with timeline.span("compute", steps):
                        position = StepPosition(seed, epoch, begin + mine.start)
                        training_step(
                            there, X[batch[mine]], Y[batch[mine]], learning_rate, backend, optimizer, position
                        )
                    rows += len(batch[mine])
                steps += 1
            optimizer.steps = steps  # the same everywhere, although a small batch may have no row for this member
            with timeline.span("exchange", steps):
                average(there, optimizer, rows / len(order[first : first + a_round]), group)  # steps 4, 5
        devices.synchronise(backend.device)
        seconds = time.perf_counter() - start
        history.epochs.append(Epoch(epoch, evaluate(there, X, Y, backend, group), None, seconds))
    network.flat_parameters[...] = devices.to_device(there.flat_parameters, "cpu")
    network.flat_statistics[...] = devices.to_device(there.flat_statistics, "cpu")
    return history


def average(network: Network, optimizer: Optimizer, share: float, group: Group) -> None:
    """Replace parameters, the optimizer's state and running statistics with their mean over all members.

    `share`: this member's weight in the mean.
    """
    remembers = [remembered(optimizer.state, name, network.flat_parameters) for name in optimizer.remembers]
    for vector in (network.flat_parameters, *remembers, network.flat_statistics):
        if vector.size:
            vector *= share
            group.all_reduce(vector)
