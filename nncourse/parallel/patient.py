"""A group of MPI's processes for kernels that are tried: nobody waits in it for ever.

MPI's own send may return at once, or wait until the other side receives: it says which only by what happens. For
messages of a few thousand bytes it usually returns, and a text that everybody begins with a send works; with longer
ones it hangs. So this group is told: `buffered` sends return at once, with a copy on its way, and others always wait.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nncourse.errors import CourseError
from nncourse.parallel.mpi import MPIGroup
from nncourse.parallel.simulation import count

BUSY = 1e-3  # seconds in which a member asks again and again; then it sleeps in between, and frees its core
NAP = 1e-4


class PatientGroup(MPIGroup):
    """The processes of a communicator of mpi4py, on the CPU; a send or receive ends with a CourseError after a while.

    The error names this member, the number of its send or receive, and the other member. `patience` is in seconds. The
    members take a copy of the communicator, all together: what a failed exchange left on the way is not in the next.
    """

    def __init__(self, communicator: Any = None, patience: float = 2.0, buffered: bool = True):
        super().__init__("cpu", communicator)
        self.communicator = self.communicator.Dup()
        self.patience, self.buffered, self.step = patience, buffered, 0
        self._under_way: list[tuple[Any, np.ndarray]] = []  # what MPI reads or writes must live until it has

    def send(self, vector: np.ndarray, to: int, tag: int = 0) -> None:
        self.step += 1
        copy = vector.copy()
        if self.buffered:
            self._under_way = [(request, kept) for request, kept in self._under_way if not request.Test()]
            self._under_way.append((self.communicator.Isend(copy, to, tag), copy))
            return
        request = self.communicator.Issend(copy, to, tag)
        self._under_way.append((request, copy))
        self._wait(request.Test, f"send {count(vector.size)} to rank {to}", "it does not receive them")

    def receive(self, vector: np.ndarray, source: int, tag: int = 0) -> None:
        self.step += 1
        status = self._MPI.Status()
        wanted, why = f"receive {count(vector.size)} from rank {source}", "nothing comes"
        message = self._wait(lambda: self.communicator.Improbe(source, tag, status), wanted, why)
        if status.Get_count(self._MPI.BYTE) != vector.nbytes:
            got = f"{status.Get_count(self._MPI.BYTE)} bytes came instead of {vector.nbytes}"
            raise CourseError(f"rank {self.rank} wanted at its step {self.step} to {wanted}: {got}")
        # A long one comes in parts, which MPI may send only while the other side calls it.
        request = message.Irecv(vector)
        self._under_way.append((request, vector))
        self._wait(request.Test, wanted, "it has begun to come, and does not end")

    def _wait(self, asked: Callable[[], Any], wanted: str, why: str) -> Any:
        """What is answered, as soon as it is something."""
        start = time.monotonic()
        while not (answer := asked()):
            waited = time.monotonic() - start
            if waited > self.patience:
                place = f"rank {self.rank} has waited {self.patience:g} s at its step {self.step}"
                raise CourseError(f"{place} to {wanted}: {why}")
            if waited > BUSY:
                time.sleep(NAP)
        return answer
