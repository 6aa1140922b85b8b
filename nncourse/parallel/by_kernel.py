"""A group whose sums are made by a kernel of all_reduce: so a network learns by an exchange of one's own.

kernel, whose = own_all_reduce()

def part(group):
    train(network, X, Y, backend, group=ByKernel(group, kernel), epochs=1)

simulate(part, size=4)
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from nncourse.group import Group


class ByKernel:
    """The group, but all_reduce(vector) is kernel(group, vector), by the group's send and receive.

    That is so for vectors of float32, which the kernels are judged with: gradients, parameters. Counts, costs and times
    are few numbers of other types; the group adds them itself. `sums` counts what the kernel has made.
    """

    def __init__(self, group: Group, kernel: Callable[[Group, np.ndarray], Any]):
        self.group, self.kernel, self.sums = group, kernel, 0
        self.rank, self.size, self.device = group.rank, group.size, group.device

    def all_reduce(self, vector: np.ndarray) -> None:
        if vector.dtype == np.float32 and self.size > 1:
            self.kernel(self.group, vector)
            self.sums += 1
        else:
            self.group.all_reduce(vector)

    def __getattr__(self, name: str) -> Any:
        """What else the group has: send, receive, broadcast, the clock of a simulated one."""
        return getattr(self.group, name)

    def __repr__(self) -> str:
        return f"{self.group}, whose sums are made by {self.kernel}"
