"""A group of processes that exchange over NCCL, through CuPy: one process per GPU, started by MPI.

Exchanges are queued on the current stream, in order with the kernels that are launched before and after.
"""

import contextlib
import ctypes
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nncourse import device as devices
from nncourse.calls import Array
from nncourse.errors import CourseError
from nncourse.parallel.mpi import mpi


class NCCLGroup:
    """All processes of MPI's world, or those of a different communicator, each with its own GPU.

    Vectors are CuPy arrays on this process's GPU, which becomes CuPy's current device.
    """

    device = "gpu"
    queued = True  # exchanges do not block the CPU, so that steps with exchanges can be recorded

    def __init__(self, communicator: Any = None):
        self.communicator = communicator or mpi().COMM_WORLD
        self.rank: int = self.communicator.Get_rank()
        self.size: int = self.communicator.Get_size()
        _take_a_gpu(self.communicator)
        self._nccl = nccl()
        self._types = {
            "float32": self._nccl.NCCL_FLOAT32,
            "float64": self._nccl.NCCL_FLOAT64,
            "int64": self._nccl.NCCL_INT64,
        }
        identity = self.communicator.bcast(self._nccl.get_unique_id() if self.rank == 0 else None)
        try:
            self._members = self._nccl.NcclCommunicator(self.size, identity, self.rank)
        except (RuntimeError, KeyError) as error:  # KeyError: CuPy has no name for this error of NCCL's
            advice = "NCCL_DEBUG=WARN in the environment says why"
            raise CourseError(f"expected NCCL to join {self.size} GPUs; got {error!r}; {advice}") from None

    def all_reduce(self, vector: Array) -> None:
        where, *about = self._described(vector)
        self._members.allReduce(where, where, *about, self._nccl.NCCL_SUM, _stream())

    def broadcast(self, vector: Array, root: int = 0) -> None:
        where, *about = self._described(vector)
        self._members.broadcast(where, where, *about, root, _stream())

    def gather(self, vector: Array, root: int = 0) -> list[Array] | None:
        sizes = self.communicator.gather(vector.size, root)
        if sizes is None:
            self.send(vector, root)
            return None
        import cupy

        parts = [vector.copy() if rank == root else cupy.empty(size, vector.dtype) for rank, size in enumerate(sizes)]
        for rank, part in enumerate(parts):
            if rank != root:
                self.receive(part, rank)
        return parts

    def send(self, vector: Array, to: int, tag: int = 0) -> None:
        """NCCL has no tags: a member must receive messages in the order in which they were sent."""
        self._members.send(*self._described(vector), to, _stream())

    def receive(self, vector: Array, source: int, tag: int = 0) -> None:
        self._members.recv(*self._described(vector), source, _stream())

    def barrier(self) -> None:
        devices.synchronise("gpu")
        self.communicator.Barrier()

    def _described(self, vector: Array) -> tuple[int, int, int]:
        """Address, length and type of a vector, for NCCL. Raises CourseError for one that NCCL cannot exchange."""
        if not devices.on_gpu(vector) or vector.dtype.name not in self._types or not vector.flags.c_contiguous:
            wanted = f"a contiguous vector on the GPU, of {', '.join(self._types)}"
            raise CourseError(f"expected {wanted}, for NCCL; got {vector.dtype.name} of {type(vector).__name__}")
        return vector.data.ptr, vector.size, self._types[vector.dtype.name]

    def __repr__(self) -> str:
        return f"process {self.rank} of {self.size}, over NCCL"


def nccl() -> Any:
    """The module cupy.cuda.nccl, with pip's NCCL or the system's. Raises CourseError if NCCL is missing."""
    with contextlib.suppress(ModuleNotFoundError):  # no package of NVIDIA's at all
        package = find_spec("nvidia.nccl")
        for folder in package.submodule_search_locations or () if package else ():
            with contextlib.suppress(OSError):
                # CuPy loads the library by name, and so finds the one that is loaded already, without LD_LIBRARY_PATH.
                ctypes.CDLL(str(Path(folder) / "lib" / "libnccl.so.2"), mode=ctypes.RTLD_GLOBAL)
    from cupy.cuda import nccl

    if not nccl.available:
        advice = "pip install nvidia-nccl-cu13 (or -cu12), or name the folder of libnccl.so.2 in LD_LIBRARY_PATH"
        raise CourseError(f"expected NCCL, for a group of GPUs; CuPy does not find it: {advice}")
    return nccl


def _take_a_gpu(communicator: Any) -> None:
    """Select a GPU of this host for this process. Raises CourseError, in all members, if there are too few."""
    if reason := devices.why_no_gpu():
        raise CourseError(f"expected a GPU for each process; got none: {reason}")
    import cupy

    MPI = mpi()
    here = communicator.Split_type(MPI.COMM_TYPE_SHARED)  # the processes of this host
    seen = cupy.cuda.runtime.getDeviceCount()  # one, where the scheduler gives each process its own
    number = here.Get_rank() % seen
    here.Free()
    cupy.cuda.Device(number).use()
    taken = communicator.allgather((MPI.Get_processor_name(), cupy.cuda.Device(number).pci_bus_id))
    if len(set(taken)) < len(taken):
        advice = "start one process for each GPU"
        raise CourseError(f"expected a GPU for each of {len(taken)} processes; they share {len(set(taken))}: {advice}")


def _stream() -> int:
    import cupy

    return cupy.cuda.get_current_stream().ptr
