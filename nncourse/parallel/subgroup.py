"""Some members of a group as a separate group, which uses only send and receive of the whole group."""

from collections.abc import Sequence

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array
from nncourse.errors import CourseError
from nncourse.group import Group
from nncourse.parallel.ring import in_a_ring


class Subgroup:
    """The members `ranks` of a group, renumbered from 0. Each of them makes its own Subgroup; the others make none."""

    def __init__(self, group: Group, ranks: Sequence[int]):
        if group.rank not in ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(group.size)):
            raise CourseError(f"expected different members of {group}, this one among them; got {list(ranks)}")
        self.group, self.ranks = group, list(ranks)
        self.rank, self.size, self.device = self.ranks.index(group.rank), len(ranks), group.device

    def send(self, vector: Array, to: int, tag: int = 0) -> None:
        self.group.send(vector, self.ranks[to], tag)

    def receive(self, vector: Array, source: int, tag: int = 0) -> None:
        self.group.receive(vector, self.ranks[source], tag)

    def all_reduce(self, vector: Array) -> None:
        """The ring of notebook 12. Each chunk is summed in one order, then copied, so all members get the same bits."""
        in_a_ring(self, vector)

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
