"""The all-reduce inside CUDA kernels: GPUs of one host add up their vectors by writing into each other's memory.

One process drives all GPUs. all_reduce.cu explains the three ways, flags, words and pieces; way_for() chooses one.

    peers = GPUs([0, 1])                 # all_reduce.py
    peers.all_reduce([on_0, on_1])       # CuPy arrays, one on each GPU: in place, the same bits on both

Simulated has the same kernels, for several simulated devices on the CPU emulator or on one GPU: for checks anywhere.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from itertools import permutations
from math import ceil
from typing import Any

import numpy as np

from cuda_on_cpu.text import CudaSource
from nncourse.cuda.launch import launch, prepared
from nncourse.device import Array, array_module
from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Trial, sizes_named

WAYS = ("flags", "words", "pieces")
MOST_BLOCKS = 128  # per device: all must be on the GPU at once, because they wait for blocks of other devices
PATIENCE = 4_000_000_000  # clock cycles that a kernel waits for another device: 2 s
FEW = 100_000  # if `words` sends up to this many more numbers, it is faster than the two meetings of `pieces`
MISSED, HEAD = 2, 32  # as in all_reduce.cu
ALREADY_REACHED = 704  # cudaErrorPeerAccessAlreadyEnabled
MOST_PREPARED = 16  # launches that are kept ready, with their arrays
GUARD = 4  # numbers after each simulated vector that no kernel may change


def source(size: int, owners_change: bool = False) -> CudaSource:
    """The CUDA C for `size` devices; `owners_change` is for checks, as all_reduce.cu explains."""
    scale = 0.5 ** int(size - 1).bit_length()  # exact, so that other code can easily compute the same rounds
    constants = {"DEVICES": size, "MOST_BLOCKS": MOST_BLOCKS, "PATIENCE": f"{PATIENCE}LL", "SCALE": f"{scale}f"}
    constants["OWNERS_CHANGE"] = str(owners_change).lower()
    return cuda_beside(__file__, *(f"{name}={value}" for name, value in constants.items()))


def way_for(n: int, size: int, most: int) -> str:
    """The fastest way for n numbers on `size` devices, with buffers for `most` numbers."""
    more = n * (size - 1) * (size - 1) / size  # `words` sends n to each other device, in words of twice the size
    return "words" if more <= FEW and n <= most else "pieces"


def after_rounds(vectors: Sequence[np.ndarray], rounds: int) -> list[np.ndarray]:
    """The devices' vectors after a launch with `rounds` rounds: the same operations in the same order, in NumPy."""
    vectors, size = [vector.astype(np.float32) for vector in vectors], len(vectors)
    scale = np.float32(0.5 ** int(size - 1).bit_length())
    for number in range(rounds):
        total = functools.reduce(np.add, vectors)
        last = number == rounds - 1
        vectors = [total if last else total * scale + np.float32(d + 1 + number % 5) for d in range(size)]
    return vectors


def _memory_size(size: int, most: int) -> int:
    """Floats in each device's memory: head, flags, and for each device two buffers, and two of twice the size."""
    return HEAD + MOST_BLOCKS * size + 6 * size * most


def _shape(way: str, n: int, size: int) -> tuple[int, int]:
    """Blocks of each device, and their threads."""
    items = {"flags": n / 4, "words": n / 2, "pieces": n / 4 / size}[way]
    threads = 512 if items <= 512 * MOST_BLOCKS or way == "pieces" else 1024  # as __launch_bounds__ in all_reduce.cu
    return max(1, min(MOST_BLOCKS, ceil(items / threads))), threads


def _chosen(way: str, n: int, size: int, most: int) -> str:
    """The given way, or the fastest; CourseError if its buffers are too small."""
    if not way:
        return way_for(n, size, most)
    refuse_unknown("a way of the all-reduce", way, WAYS)
    if way != "pieces" and n > most:
        raise CourseError(
            f"all_reduce ({way}): expected at most {most} numbers, got {n}; take pieces, or a larger `most`"
        )
    return way


def _refuse_missed(missed: Sequence[int]) -> None:
    """CourseError if a device waited in vain. `missed` has 0 for each device, or 1 + the one that it waited for."""
    for rank, other in enumerate(missed):
        if other:
            raise CourseError(
                f"all_reduce: device {rank} expected the numbers of device {other - 1}, which did not come in time; "
                "launch the same all-reduces on all devices, and begin with new memory"
            )


def _refuse_few(size: int) -> None:
    if size < 2:
        raise CourseError(f"all_reduce: expected at least 2 devices, got {size}")


class Simulated:
    """Devices simulated by groups of blocks in one launch, on the CPU emulator or, with `like=cupy`, on one GPU."""

    def __init__(self, size: int, most: int = 1 << 12, like: Any = np):
        _refuse_few(size)
        self.size, self.most, self.like = size, ceil(most / 4) * 4, like
        self.source = source(size, owners_change=True)
        stride = _memory_size(size, self.most)
        self.memory = like.zeros(size * stride, np.float32)
        self.distances = like.arange(size, dtype=np.int64) * stride

    def all_reduce(
        self,
        vectors: Sequence[Any],
        way: str = "",
        rounds: int = 1,
        shape: tuple[int, int] = (2, 32),
        present: int | None = None,
        **emulator: Any,
    ) -> None:
        """The all-reduce of the devices' vectors, in place.

        shape: blocks of each device, and threads per block.
        present: launch only the first `present` devices.
        emulator: options of emulate.run.

        Raises CourseError if a device was missed, or a kernel wrote past the end of a vector.
        """
        devices, n = len(vectors), len(vectors[0])
        if devices != self.size:
            raise CourseError(f"all_reduce: expected a vector for each of {self.size} devices, got {devices}")
        if n == 0:
            return
        way = _chosen(way, n, self.size, self.most)
        stride = ceil(n / 4) * 4 + GUARD
        together = self.like.full((devices, stride), np.nan, np.float32)
        for row, vector in zip(together, vectors, strict=True):
            row[:n] = vector
        rows = self.like.arange(devices, dtype=np.int64) * stride
        blocks, threads = shape
        grid = blocks * (devices if present is None else present)
        arguments = [together, rows, self.memory, self.distances, n, 0, blocks, self.most, rounds]
        launch(self.source, way, (grid,), (threads,), arguments, **emulator)
        _refuse_missed(self.memory.view(np.int32)[self.distances + MISSED].tolist())
        if not self.like.isnan(together[:, n:]).all():
            raise CourseError(f"{self.source.file}: {way} wrote past the end of a vector; check the index against n")
        for row, vector in zip(together, vectors, strict=True):
            vector[:] = row[:n]

    def on(self, rank: int) -> contextlib.AbstractContextManager[Any]:
        """A context in which that device is current. It does nothing, since there is only one."""
        return contextlib.nullcontext()


class GPUs:
    """GPUs of this host, and memory for their exchanges. Raises CourseError if they cannot access each other's memory.

    All-reduces with the same memory must not overlap: use one stream per GPU, or wait between them.
    """

    def __init__(self, devices: Sequence[int], most: int = 1 << 18):
        import cupy

        _refuse_few(len(devices))
        self.devices, self.size, self.most = tuple(devices), len(devices), ceil(most / 4) * 4
        self.source = source(self.size)
        for one, other in permutations(self.devices, 2):
            _reach(one, other)
        self.memory = []
        for device in self.devices:
            with cupy.cuda.Device(device):
                self.memory.append(cupy.zeros(_memory_size(self.size, self.most), np.float32))
        self.distances = self._tables(self.memory)
        self._rows: dict[tuple[int, ...], list[Any]] = {}
        self._launches: dict[tuple[Any, ...], list[tuple[int, Callable[[], None]]]] = {}
        self._load()

    def all_reduce(self, vectors: Sequence[Any], way: str = "", rounds: int = 1) -> None:
        """Launch the all-reduce of CuPy arrays, one on each GPU, in place, on each GPU's current stream.

        refuse_missed() waits for the end. `rounds` above 1 are for timing: see after_rounds().
        """
        import cupy

        key = (way, rounds, *((vector.data.ptr, vector.size, vector.strides) for vector in vectors))
        if key not in self._launches:
            while len(self._launches) >= MOST_PREPARED:
                self._launches.pop(next(iter(self._launches)))
            self._launches[key] = self._prepared(vectors, way, rounds)
        for device, start in self._launches[key]:
            with cupy.cuda.Device(device):
                start()

    def _prepared(self, vectors: Sequence[Any], way: str, rounds: int) -> list[tuple[int, Callable[[], None]]]:
        """A launch for each GPU."""
        n = self._refuse_vectors(vectors)
        if n == 0:
            return []
        way = _chosen(way, n, self.size, self.most)
        blocks, threads = _shape(way, n, self.size)
        rows, launches = self._rows_of(vectors), []
        for rank, device in enumerate(self.devices):
            own = [vectors[rank], rows[rank], self.memory[rank], self.distances[rank]]
            with self.on(rank):
                arguments = [*own, n, rank, blocks, self.most, rounds]
                launches.append((device, prepared(self.source, way, (blocks,), (threads,), arguments)))
        return launches

    def on(self, rank: int) -> contextlib.AbstractContextManager[Any]:
        """A context in which that GPU is current."""
        import cupy

        return cupy.cuda.Device(self.devices[rank])

    def _rows_of(self, vectors: Sequence[Any]) -> list[Any]:
        """For each GPU the distances of all vectors from its own. They are kept, because recorded graphs read them."""
        key = tuple(vector.data.ptr for vector in vectors)
        if key not in self._rows:
            self._rows[key] = self._tables(vectors)
        return self._rows[key]

    def refuse_missed(self) -> None:
        """Wait for all GPUs. CourseError if one of them waited for another in vain."""
        import cupy

        missed = []
        for device, memory in zip(self.devices, self.memory, strict=True):
            with cupy.cuda.Device(device) as current:
                current.synchronize()
                missed.append(int(memory[MISSED : MISSED + 1].view(np.int32)[0]))
        _refuse_missed(missed)

    def _tables(self, arrays: Sequence[Any]) -> list[Any]:
        """For each GPU the distances of all arrays from its own, in floats, in its memory."""
        import cupy

        places = np.array([array.data.ptr for array in arrays], np.int64)
        made = []
        for device, place in zip(self.devices, places, strict=True):
            with cupy.cuda.Device(device) as current:
                made.append(cupy.asarray((places - place) // 4))
                current.synchronize()  # streams that do not wait for the default one may read it
        return made

    def _load(self) -> None:
        """Load the kernels on each GPU beforehand: loading might wait for a kernel that waits for another GPU."""
        import cupy

        from nncourse.cuda.compile import gpu_kernel

        for device in self.devices:
            with cupy.cuda.Device(device):
                for way in WAYS:
                    _ = gpu_kernel(self.source, way).num_regs  # loads the kernel on the current GPU

    def _refuse_vectors(self, vectors: Sequence[Any]) -> int:
        """The size of the vectors; CourseError unless there is one on each GPU, all of the same size."""
        sizes, there = {vector.size for vector in vectors}, tuple(vector.data.device_id for vector in vectors)
        if there != self.devices or len(sizes) != 1:
            wanted = f"a vector on each of the GPUs {self.devices}, all of one size"
            raise CourseError(f"all_reduce: expected {wanted}; got sizes {sorted(sizes)} on GPUs {there}")
        if any(vector.data.ptr % 16 for vector in vectors):
            raise CourseError("all_reduce: expected vectors that begin at a multiple of 16 bytes; make copies: .copy()")
        return sizes.pop()


@functools.cache
def _reach(one: int, other: int) -> None:
    """Let kernels on GPU `one` access the memory of GPU `other`."""
    from cupy.cuda import Device, runtime

    if not runtime.deviceCanAccessPeer(one, other):
        raise CourseError(f"all_reduce: expected GPUs that reach each other's memory; {one} does not reach {other}")
    with Device(one):
        try:
            runtime.deviceEnablePeerAccess(other)
        except runtime.CUDARuntimeError as error:
            if error.status != ALREADY_REACHED:
                raise


# ---- an operation for check(), on simulated devices


_sizes = sizes_named("devices n rounds")
peer_sum = Operation(
    "peer_sum",
    "every device gets V[0] + V[1] + …, added in this order in float32; so `rounds` times, see after_rounds()",
    contract="V (devices, n), rounds () int -> V (devices, n) where devices >= 2, rounds >= 1",
    reference=lambda V, rounds: np.array(after_rounds(V, rounds)),
    flops=None,
    trial=Trial(
        error_scale=lambda V, rounds: np.zeros(V.shape),  # no rounding may differ
        edge_cases=("zeros", "large"),
        sizes_to_check=[_sizes(2, 5, 1), _sizes(4, 130, 3), _sizes(2, 301, 4), _sizes(4, 1, 2), _sizes(4, 75, 1)],
        draw_sizes=lambda rng: _sizes(int(rng.choice([2, 4])), int(rng.integers(1, 400)), int(rng.integers(1, 6))),
    ),
)


def _register(way: str) -> None:
    @peer_sum.kernel(way, device="gpu", cuda=True)
    def all_reduce(V: Array, rounds: int, **emulator: Any) -> Array:
        devices, n = V.shape
        peers = Simulated(devices, n, like=array_module(V))
        peers.all_reduce(V, way, rounds, **emulator)
        return V


for way in WAYS:
    _register(way)
