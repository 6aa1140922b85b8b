"""A group of MPI processes for trying kernels: no exchange waits for ever.

MPI's own send may return at once, or wait until the other side receives. Usually it returns at once for up to a few
thousand bytes, and waits for more. So a program in which all members send first works with short messages and hangs
with long ones. Here `buffered` decides: sends either return at once, with a copy on its way, or always wait.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nncourse.errors import CourseError
from nncourse.parallel.mpi import MPIGroup
from nncourse.parallel.simulation import count

BUSY = 1e-3  # seconds of polling without pause; after that a member sleeps between polls, to free its core
NAP = 1e-4


class PatientGroup(MPIGroup):
    """The processes of a communicator, on the CPU. A send or receive raises CourseError after `patience` seconds.

    The error names this member, the number of its send or receive, and the other member. All members have to make the
    group together: it copies the communicator, so that messages of a failed exchange do not reach the next one.
    """

    def __init__(self, communicator: Any = None, patience: float = 2.0, buffered: bool = True):
        super().__init__("cpu", communicator)
        self.communicator = self.communicator.Dup()
        self.patience, self.buffered, self.step = patience, buffered, 0
        self._under_way: list[tuple[Any, np.ndarray]] = []  # keeps arrays alive while MPI reads or writes them

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
            raise CourseError(f"rank {self.rank} expected at its step {self.step} to {wanted}: {got}")
        # A long message comes in parts. MPI may send them only while the other side calls MPI.
        request = message.Irecv(vector)
        self._under_way.append((request, vector))
        self._wait(request.Test, wanted, "it has begun to come, and does not end")

    def exchange(self, kernel: Callable[["PatientGroup", np.ndarray], Any], vector: np.ndarray) -> None:
        """Call kernel(self, vector), then wait until the long messages that it sent have been received.

        MPI may move a long message only while its sender calls MPI. If the sender started to compute instead, the
        receiver would have to wait until that is done.
        """
        before = [request for request, _ in self._under_way]  # of exchanges that have failed
        kernel(self, vector)
        sends = [request for request, _ in self._under_way if request not in before]
        self._wait(lambda: all(send.Test() for send in sends), "finish its sends", "they are not received")

    def _wait(self, asked: Callable[[], Any], wanted: str, why: str) -> Any:
        """Call asked() until its answer is true; return that."""
        start = time.monotonic()
        while not (answer := asked()):
            waited = time.monotonic() - start
            if waited > self.patience:
                place = f"rank {self.rank} has waited {self.patience:g} s at its step {self.step}"
                raise CourseError(f"{place} to {wanted}: {why}")
            if waited > BUSY:
                time.sleep(NAP)
        return answer
