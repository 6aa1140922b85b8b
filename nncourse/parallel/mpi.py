"""A group of processes that exchange over MPI (mpi4py): each process of `mpiexec -n 4 …` is one member."""

import math
import time
from typing import Any

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array
from nncourse.errors import CourseError
from nncourse.threads import begin_with_one


def mpi() -> Any:
    """The module mpi4py.MPI, which starts MPI in this process. NumPy's products then begin with one thread.

    Raises CourseError if mpi4py or MPI is missing.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is here, and no MPI
        advice = "`make lab` installs both on Linux, and so does pip install 'nncourse[devices]'"
        raise CourseError(f"expected mpi4py and an MPI, for several processes; got: {error}; {advice}") from None
    begin_with_one()
    return MPI


class MPIGroup:
    """All processes of MPI's world, or those of a different communicator of mpi4py.

    MPI exchanges vectors in the host's memory. On "gpu" each vector is copied through it. This is slow, unlike
    NCCLGroup, but a member with a GPU and one without can be in the same group.
    """

    def __init__(self, device: str = "cpu", communicator: Any = None):
        self._MPI = mpi()
        self.communicator = communicator or self._MPI.COMM_WORLD
        self.rank: int = self.communicator.Get_rank()
        self.size: int = self.communicator.Get_size()
        self.device = device

    def all_reduce(self, vector: Array) -> None:
        here = devices.to_device(vector, "cpu")
        self.communicator.Allreduce(self._MPI.IN_PLACE, here)
        _back(here, vector)

    def broadcast(self, vector: Array, root: int = 0) -> None:
        here = devices.to_device(vector, "cpu")
        self.communicator.Bcast(here, root)
        if self.rank != root:
            _back(here, vector)

    def gather(self, vector: Array, root: int = 0) -> list[Array] | None:
        here = devices.to_device(vector, "cpu")
        sizes = self.communicator.gather(here.size, root)
        if sizes is None:
            self.communicator.Gatherv(here, None, root)
            return None
        together = np.empty(sum(sizes), here.dtype)
        self.communicator.Gatherv(here, (together, sizes), root)
        return [devices.to_device(part, self.device) for part in np.split(together, np.cumsum(sizes)[:-1])]

    def send(self, vector: Array, to: int, tag: int = 0) -> None:
        self.communicator.Send(devices.to_device(vector, "cpu"), to, tag)

    def receive(self, vector: Array, source: int, tag: int = 0) -> None:
        here = vector if isinstance(vector, np.ndarray) else np.empty(vector.shape, vector.dtype)
        status = self._MPI.Status()
        message = self.communicator.Mprobe(source, tag, status)  # tells the length before the message is received
        if status.Get_count(self._MPI.BYTE) != here.nbytes:
            got = status.Get_count(self._MPI.BYTE)
            raise CourseError(f"expected {here.nbytes} bytes from process {source}, with tag {tag}; got {got}")
        message.Recv(here)
        _back(here, vector)

    def next_sender(self, tag: int = 0, patience: float = math.inf) -> int | None:
        """Wait for a message with this tag, and return the sender of the first, without receiving the message.

        Returns None after `patience` seconds.
        """
        status, end = self._MPI.Status(), time.monotonic() + patience
        while not self.communicator.Iprobe(self._MPI.ANY_SOURCE, tag, status):
            if time.monotonic() > end:
                return None
            time.sleep(1e-4)  # a wait of MPI's own would keep a core busy
        return status.Get_source()

    def barrier(self) -> None:
        self.communicator.Barrier()

    def __repr__(self) -> str:
        return f"process {self.rank} of {self.size}, over MPI"


def _back(here: np.ndarray, vector: Array) -> None:
    """Copy what MPI wrote to the vector, if that is on a GPU."""
    if here is not vector:
        vector.set(here)
