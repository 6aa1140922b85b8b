"""Who learns together: what training asks of a group of processes, and the group of one.

The groups of several processes are in nncourse/parallel/. A vector is flat and contiguous; it lies where the group's
`device` says: NumPy's on "cpu", CuPy's on "gpu".
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array
from nncourse.errors import CourseError


class Group(Protocol):
    """The members are numbered: `rank` is this process's number, from 0 to `size` - 1.

    Every member has to take part in all_reduce, broadcast, gather and barrier, in the same order.
    """

    rank: int
    size: int
    device: str

    def all_reduce(self, vector: Array) -> None:
        """The sum over all members takes the vector's place: the same bits for each of them."""

    def broadcast(self, vector: Array, root: int = 0) -> None:
        """The root's vector takes the place of everyone's."""

    def gather(self, vector: Array, root: int = 0) -> list[Array] | None:
        """At the root the vectors of all members, in order, which may differ in size; None for the others."""

    def send(self, vector: Array, to: int, tag: int = 0) -> None:
        """Send to another member, which has to receive. The vector may be changed afterwards."""

    def receive(self, vector: Array, source: int, tag: int = 0) -> None:
        """Wait for what that member sends with this tag; it fills the vector."""

    def barrier(self) -> None:
        """Wait until every member is here."""


class Alone:
    """The group of one. There is nobody to send to."""

    rank = 0
    size = 1

    def __init__(self, device: str = "cpu"):
        self.device = device

    def all_reduce(self, vector: Array) -> None:
        pass

    def broadcast(self, vector: Array, root: int = 0) -> None:
        pass

    def gather(self, vector: Array, root: int = 0) -> list[Array] | None:
        return [vector.copy()]

    def send(self, vector: Array, to: int, tag: int = 0) -> None:
        raise CourseError(f"wanted a group of at least {to + 1} processes to send to number {to}; this one is alone")

    def receive(self, vector: Array, source: int, tag: int = 0) -> None:
        raise CourseError(f"wanted a group of several processes to receive from number {source}; this one is alone")

    def barrier(self) -> None:
        pass

    def __repr__(self) -> str:
        return "one process alone"


ALONE = Alone()


def total(numbers: np.ndarray, group: Group) -> np.ndarray:
    """The sum over all members of a few numbers of NumPy's: costs, counts."""
    there = devices.to_device(numbers.copy(), group.device)
    group.all_reduce(there)
    return devices.to_device(there, "cpu")


def shard(rows: int, rank: int, size: int, shares: Sequence[float] | None = None) -> slice:
    """Which of so many rows are this member's: disjoint and in order, together all of them.

    The numbers of rows differ by one at most; with `shares`, a number of at least 0 for each member, they are in
    proportion to these, and the rows that are left over go to the largest remainders.
    """
    counts = shard_sizes(rows, size, shares)
    start = sum(counts[:rank])
    return slice(start, start + counts[rank])


def shard_sizes(rows: int, size: int, shares: Sequence[float] | None = None) -> list[int]:
    """How many rows each member has: see shard()."""
    if shares is None:  # asked for every batch
        return [rows // size + (rank < rows % size) for rank in range(size)]
    weights = np.asarray(shares, float)
    if weights.shape != (size,) or not (np.isfinite(weights).all() and weights.min() >= 0 and weights.sum() > 0):
        wanted = f"a share of at least 0 for each of {size} members, and one above 0"
        raise CourseError(f"wanted {wanted}; got {weights.tolist()}")
    exact = rows * weights / weights.sum()
    counts = np.floor(exact).astype(int)
    # Of equal remainders the first members' come first. A rounding error must not decide: hence round().
    largest = np.argsort(-np.round(exact - counts, 9), kind="stable")
    counts[largest[: rows - counts.sum()]] += 1
    return counts.tolist()
