"""Some members of a group as a group of their own: it exchanges by the whole group's send and receive alone."""

from collections.abc import Sequence

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array
from nncourse.errors import CourseError
from nncourse.group import Group, shard


class Subgroup:
    """The members `ranks` of a group, numbered anew from 0. Each of them makes one; the others take no part."""

    def __init__(self, group: Group, ranks: Sequence[int]):
        if group.rank not in ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(group.size)):
            raise CourseError(f"wanted different members of {group}, this one among them; got {list(ranks)}")
        self.group, self.ranks = group, list(ranks)
        self.rank, self.size, self.device = self.ranks.index(group.rank), len(ranks), group.device

    def send(self, vector: Array, to: int, tag: int = 0) -> None:
        self.group.send(vector, self.ranks[to], tag)

    def receive(self, vector: Array, source: int, tag: int = 0) -> None:
        self.group.receive(vector, self.ranks[source], tag)

    def all_reduce(self, vector: Array) -> None:
        """By a ring: first each chunk goes round and is summed on its way, then the sums go round.

        A chunk is summed in one order and copied, so all members get the same bits.
        """
        cuts = [vector[shard(vector.size, chunk, self.size)] for chunk in range(self.size)]
        arrived = np.empty_like(cuts[0])  # the largest
        for step in range(self.size - 1):
            to_send, to_add = cuts[(self.rank - step) % self.size], cuts[(self.rank - step - 1) % self.size]
            self._pass_on(to_send, arrived[: to_add.size])
            to_add += arrived[: to_add.size]
        for step in range(self.size - 1):
            self._pass_on(cuts[(self.rank + 1 - step) % self.size], cuts[(self.rank - step) % self.size])

    def _pass_on(self, vector: Array, arriving: Array) -> None:
        """Send to the next member and receive from the one before; each second one receives first.

        Otherwise all might wait for their receivers, in a group whose send does.
        """
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        if self.rank % 2:
            self.receive(arriving, before)
            self.send(vector, after)
        else:
            self.send(vector, after)
            self.receive(arriving, before)

    def broadcast(self, vector: Array, root: int = 0) -> None:
        if self.rank != root:
            self.receive(vector, root)
            return
        for other in range(self.size):
            if other != root:
                self.send(vector, other)

    def gather(self, vector: Array, root: int = 0) -> list[Array] | None:
        """The sizes go first."""
        if self.rank != root:
            self.send(np.full_like(vector, vector.size, np.int64, shape=1), root)
            self.send(vector, root)
            return None
        parts = []
        for other in range(self.size):
            if other == root:
                parts.append(vector.copy())
                continue
            size = np.empty_like(vector, np.int64, shape=1)
            self.receive(size, other)
            parts.append(np.empty_like(vector, shape=int(size[0])))
            self.receive(parts[-1], other)
        return parts

    def barrier(self) -> None:
        self.all_reduce(devices.to_device(np.zeros(self.size, np.int64), self.device))

    def __repr__(self) -> str:
        return f"member {self.rank} of {self.ranks} of {self.group}"
