"""Processes that train together: what training needs from a group, and the group of one process.

Groups of several processes are in nncourse/parallel/. Vectors are flat and contiguous, on the group's `device`: NumPy
arrays on "cpu", CuPy arrays on "gpu".
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array
from nncourse.errors import CourseError


class Group(Protocol):
    """Several processes; `rank` is the number of this one, from 0 to `size` - 1.

    All members must call all_reduce, broadcast, gather and barrier the same number of times, in the same order.
    """

    rank: int
    size: int
    device: str

    def all_reduce(self, vector: Array) -> None:
        """Replace the vector with the sum over all members; all get the same bits."""

    def broadcast(self, vector: Array, root: int = 0) -> None:
        """Replace every member's vector with the root's."""

    def gather(self, vector: Array, root: int = 0) -> list[Array] | None:
        """The root gets the vectors of all members, in order of rank; the others get None. Sizes may differ."""

    def send(self, vector: Array, to: int, tag: int = 0) -> None:
        """Send to another member, which must receive. The vector may be changed afterwards."""

    def receive(self, vector: Array, source: int, tag: int = 0) -> None:
        """Wait for a vector that `source` sends with this tag, and copy it to `vector`."""

    def barrier(self) -> None:
        """Wait until every member has called this."""


class Alone:
    """The group of one process, which can send to nobody."""

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
        raise CourseError(f"expected a group of at least {to + 1} processes to send to number {to}; this one is alone")

    def receive(self, vector: Array, source: int, tag: int = 0) -> None:
        raise CourseError(f"expected a group of several processes to receive from number {source}; this one is alone")

    def barrier(self) -> None:
        pass

    def __repr__(self) -> str:
        return "one process alone"


ALONE = Alone()


def total(numbers: np.ndarray, group: Group) -> np.ndarray:
    """The sum over all members of a few NumPy numbers, such as costs and counts."""
    there = devices.to_device(numbers.copy(), group.device)
    group.all_reduce(there)
    return devices.to_device(there, "cpu")


def shard(rows: int, rank: int, size: int, shares: Sequence[float] | None = None) -> slice:
    """This member's rows. The members' slices are disjoint, in order, and cover all rows.

    The numbers of rows differ by at most one. With `shares`, one number of at least 0 per member, they are proportional
    to the shares; rows that are left after rounding down go to the largest remainders.
    """
    counts = shard_sizes(rows, size, shares)
    start = sum(counts[:rank])
    return slice(start, start + counts[rank])


def shard_sizes(rows: int, size: int, shares: Sequence[float] | None = None) -> list[int]:
    """The number of rows of each member: see shard()."""
    if shares is None:  # fast, because it is called for every batch
        return [rows // size + (rank < rows % size) for rank in range(size)]
    weights = np.asarray(shares, float)
    if weights.shape != (size,) or not (np.isfinite(weights).all() and weights.min() >= 0 and weights.sum() > 0):
        wanted = f"a share of at least 0 for each of {size} members, and one above 0"
        raise CourseError(f"expected {wanted}; got {weights.tolist()}")
    exact = rows * weights / weights.sum()
    counts = np.floor(exact).astype(int)
    # Of equal remainders the first wins. Without round() a rounding error might decide.
    largest = np.argsort(-np.round(exact - counts, 9), kind="stable")
    counts[largest[: rows - counts.sum()]] += 1
    return counts.tolist()
