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
from nncourse.kernels import kept_kernels
from nncourse.kernels.catalogue import find
from nncourse.kernels.kernel import Kernel

WAYS = ("ring", "tree", "root")  # the first that is kept is taken


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


def own_all_reduce() -> tuple[Kernel, str]:
    """The student's kept all_reduce that is right now, a ring before a tree before a root, or else the course's ring.

    The second result is "yours" or "the course's".
    """
    operation, record = find("all_reduce"), kept_kernels.progress()
    for name in WAYS:
        kernel = kept_kernels.load(operation, name, record[key]) if (key := f"all_reduce.{name}") in record else None
        if isinstance(kernel, Kernel):
            return kernel, "yours"
    return operation[WAYS[0]], "the course's"
