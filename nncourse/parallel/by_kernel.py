"""A group whose sums are computed by an all_reduce kernel, so that a student's kernel can train a network.

kernel, whose = own_all_reduce()

def part(group):
    train(network, X, Y, backend, together=Together(ByKernel(group, kernel)), epochs=1)

simulate(part, size=4)
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from nncourse.group import Group
from nncourse.parallel.patient import PatientGroup


class ByKernel:
    """A group in which all_reduce(vector) is kernel(group, vector), which uses the group's send and receive.

    The kernel adds vectors of float32, for which it was checked: gradients and parameters. The group itself adds
    vectors of other types: counts, costs, times. `sums` counts the kernel's calls.
    """

    queued = False  # its kernel computes on the CPU

    def __init__(self, group: Group, kernel: Callable[[Group, np.ndarray], Any]):
        self.group, self.kernel, self.sums = group, kernel, 0
        self.rank, self.size, self.device = group.rank, group.size, group.device

    def all_reduce(self, vector: np.ndarray) -> None:
        if vector.dtype == np.float32 and self.size > 1:
            if isinstance(self.group, PatientGroup):
                self.group.exchange(self.kernel, vector)
            else:
                self.kernel(self.group, vector)
            self.sums += 1
        else:
            self.group.all_reduce(vector)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.group, name)  # send, receive, broadcast, the clock of a simulated group

    def __repr__(self) -> str:
        return f"{self.group}, with sums by {self.kernel}"
