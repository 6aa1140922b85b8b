"""Synchronous data-parallel training: every member of a group computes the gradient of some rows of each batch.

The gradients are added over the group before the parameters move. So all members keep the same parameters: up to
rounding, those of one device that computes whole batches.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nncourse.calls import Array, Calls
from nncourse.group import ALONE, Group, shard, shard_sizes
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import HostSamples, in_turn
from nncourse.model.network import Network, backpropagation
from nncourse.model.optimizers import Optimizer


@dataclass(frozen=True)
class Together:
    """How a group shares each batch.

    group: the processes that train together; all of them call the same functions with the same arguments.
    shares: each member's share of a batch, one number per member; by default they are equal.
    synchronise: compute the statistics of a batch (batch normalisation) over the group, not over each member's rows.
    on_rows: a function that is called with the number of rows that this member computes next.
    """

    group: Group = ALONE
    shares: Sequence[float] | None = None
    synchronise: bool = False
    on_rows: Callable[[int], None] | None = None


def begin_alike(network: Network, group: Group) -> None:
    """Give all members the parameters and running statistics of the first."""
    for vector in (network.flat_parameters, network.flat_statistics):
        if vector.size:
            group.broadcast(vector)


def own_pieces(
    rows: int,
    at_once: int,
    group: Group,
    on_rows: Callable[[int], None] | None = None,
    shares: Sequence[float] | None = None,
) -> Iterator[slice]:
    """This member's shard of `rows`, in pieces of up to `at_once` rows. on_rows() is called with the rows of each."""
    own = shard(rows, group.rank, group.size, shares)
    for start in range(own.start, own.stop, at_once):
        piece = slice(start, min(start + at_once, own.stop))
        if on_rows:
            on_rows(piece.stop - piece.start)
        yield piece


def data_parallel_epoch(
    network: Network,
    X: Array | HostSamples,
    Y: Array,
    order: Array,
    batch_size: int,
    rate: float,
    backend: Calls,
    optimizer: Optimizer,
    position: StepPosition,
    together: Together,
    alike: bool = False,
) -> None:
    """One epoch over the samples X, Y in this order: all members, who all hold them, take a step for each batch.

    At the end the running statistics become the mean over the members. With `alike` all members have the same weight,
    however many rows they have; with unequal shares the sum is then no longer the gradient of the batch.
    """
    group, on_rows = together.group, together.on_rows
    parts = parts_of_epoch(len(order), batch_size, together, alike)
    own_samples = in_turn(X, [order[part.rows] for part in parts])
    for samples, part in zip(own_samples, parts, strict=True):
        if on_rows:
            on_rows(part.size)
        here = position._replace(first=part.rows.start, group=group if part.together else None)
        shared_step(network, samples, Y[order[part.rows]], part, rate, backend, optimizer, here, group)
    mean_statistics(network, group, parts)


class Part(NamedTuple):
    """A member's rows of a batch, counted from the epoch's first, and their weight: own rows / all rows of the batch.

    `together`: layers with statistics of the batch compute these over the group.
    """

    rows: slice
    weight: float = 1.0
    together: bool = False

    @property
    def size(self) -> int:
        return self.rows.stop - self.rows.start


def parts_of_epoch(rows: int, batch_size: int, together: Together = Together(), alike: bool = False) -> list[Part]:
    """This member's part of each batch in an epoch of `rows` rows; see data_parallel_epoch() for `alike`."""
    group, shares, synchronise = together.group, together.shares, together.synchronise
    parts = []
    for start in range(0, rows, batch_size):
        size = min(batch_size, rows - start)
        own = shard(size, group.rank, group.size, shares)
        weight, adds = 1 / group.size if alike else (own.stop - own.start) / size, synchronise
        if synchronise and min(shard_sizes(size, group.size, shares)) == 0:
            # A member without rows has no statistics to add: all members compute all of this small batch.
            own, weight, adds = slice(0, size), 1 / group.size, False
        parts.append(Part(slice(start + own.start, start + own.stop), weight, adds))
    return parts


def shared_step(
    network: Network,
    X: Array,
    Y: Array,
    part: Part,
    rate: float,
    backend: Calls,
    optimizer: Optimizer,
    position: StepPosition,
    group: Group,
) -> None:
    """A step of all members together; each is given its own part of the batch."""
    shared_gradient(network, X, Y, part.weight, backend, group, position)
    optimizer.step(network.flat_parameters, network.flat_gradient, rate, backend)


def mean_statistics(network: Network, group: Group, parts: Sequence[Part]) -> None:
    """End an epoch of these parts: the running statistics become the mean over the members, with the parts' weights."""
    if network.statistics:
        network.flat_statistics *= np.float32(sum(part.weight for part in parts) / len(parts))
        group.all_reduce(network.flat_statistics)


def shared_gradient(
    network: Network,
    X: Array,
    Y: Array,
    weight: float,
    backend: Calls,
    group: Group,
    position: StepPosition | None = None,
) -> None:
    """Write the gradient of a batch to network.flat_gradient; each member is given its own rows.

    A member's gradient is the mean over its rows. The mean over all rows is the sum of these, each times its `weight`:
    own rows / all rows. A member without rows adds zeros.
    """
    if len(X):
        gradients = [each for of_layer in backpropagation(network, X, Y, backend, position) for each in of_layer]
        for place, gradient in zip(network.gradient_views, gradients, strict=True):
            np.multiply(gradient, weight, out=place)
    else:
        network.flat_gradient[...] = 0
    group.all_reduce(network.flat_gradient)
