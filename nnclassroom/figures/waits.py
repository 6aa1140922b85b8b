"""What notebook 03b says of a GPU's memory: waits, orders of reading, widths of tiles, and a barrier too few.

Each measurement is for a machine with a GPU; `python -m benchmarks.waits` records them.
"""

import statistics
from dataclasses import replace
from functools import partial

import numpy as np

from cuda_on_cpu import CudaSource
from nnclassroom.exercises.catalogue import find
from nncourse import device as devices
from nncourse.cuda.compile import gpu_kernel
from nncourse.kernels.kernel import CudaKernel

# A thread waits for its read before it writes, and `y` might overlap `x`: so it never has a second read under way.
COPY = CudaSource(
    """extern "C" __global__ void copy(const float* x, float* y, int n) {
    int threads = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) y[i] = x[i];
}""",
    "copy.cu",
)
# One thread follows a chain of places, each read only when the one before has come: to warm up, then on the clock.
CHAIN = CudaSource(
    """extern "C" __global__ void follow(const int* next, int* found, int steps) {
    int place = 0;
    for (int i = 0; i < steps; i++) place = next[place];
    long long begin = clock64();
    for (int i = 0; i < steps; i++) place = next[place];
    found[0] = int((clock64() - begin) / steps);
    found[1] = place;
}
extern "C" __global__ void follow_shared(const int* next, int* found, int steps) {
    __shared__ int near_by[2048];
    for (int i = 0; i < 2048; i++) near_by[i] = next[i];
    int place = 0;
    for (int i = 0; i < steps; i++) place = near_by[place];
    long long begin = clock64();
    for (int i = 0; i < steps; i++) place = near_by[place];
    found[0] = int((clock64() - begin) / steps);
    found[1] = place;
}""",
    "chain.cu",
)
PLACES = {"shared memory": 1 << 11, "L1 cache": 1 << 11, "L2 cache": 1 << 18, "global memory": 1 << 27}  # numbers
STEPS = 10_000  # more than the L2 cache's chain has places: the first time round fetches them
LINE = 32  # numbers between two places of a chain, so that each is in a line of the caches of its own
MOST = 1 << 26  # numbers that are copied: 256 MB, more than an L2 cache holds
OF_A_THREAD = 1 << 12  # by few threads fewer, or it would take minutes
BLOCK = 1024
ROUNDS = 5
SIDE = 4096
OF_TILES = 1024  # the side for tiles
SPARE_COLUMN = "[TILE + 1]", "[TILE]"
SECOND_BARRIER = "W_tile[x][k];\n        __syncthreads();", "W_tile[x][k];"


def launches(multiprocessors: int) -> list[tuple[int, int]]:
    """Blocks, and threads in each: one thread, one warp, one block; then blocks until two fill every multiprocessor."""
    blocks = [2**power for power in range(20) if 2**power < 2 * multiprocessors]
    return [(1, 1), (1, 32), *((count, BLOCK) for count in (*blocks, 2 * multiprocessors))]


def in_flight() -> list[dict[str, float]]:
    """Bytes a second, read and written, of a copy by each of `launches`: each thread has one read under way.

    Before each round a large array is filled, so that the numbers come from memory and not from the L2 cache.
    """
    import cupy

    copy = gpu_kernel(COPY, "copy")
    x, y, other = (cupy.zeros(MOST, np.float32) for _ in range(3))
    found = []
    for blocks, threads in launches(cupy.cuda.Device().attributes["MultiProcessorCount"]):
        numbers = min(MOST, OF_A_THREAD * blocks * threads)
        seconds = []
        for _ in range(ROUNDS + 1):  # the first to warm up
            other.fill(0)
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            copy((blocks,), (threads,), (x, y, np.int32(numbers)))
            end.record()
            end.synchronize()
            seconds.append(cupy.cuda.get_elapsed_time(begin, end) / 1000)
        rate = 2 * x.itemsize * numbers / statistics.median(seconds[1:])
        found.append({"blocks": blocks, "threads": blocks * threads, "bytes_a_second": rate})
    return found


def latencies() -> dict[str, int]:
    """Cycles from a read to its number, by where the number is: each chain fits there, and nowhere nearer."""
    import cupy

    found, cycles = cupy.zeros(2, np.int32), {}
    for name, numbers in PLACES.items():
        places = np.random.default_rng(0).permutation(numbers // LINE) * LINE
        chain = np.zeros(numbers, np.int32)
        chain[places] = np.roll(places, -1)
        on_gpu = cupy.asarray(chain)
        if name == "global memory":
            cupy.ones(MOST, np.float32)  # out of the L2 cache, where the copy has left its end
        follow = gpu_kernel(CHAIN, "follow_shared" if name == "shared memory" else "follow")
        follow((1,), (1,), (on_gpu, found, np.int32(STEPS)))
        cycles[name] = int(found[0])
    return cycles


def orders() -> dict[str, float]:
    """Seconds of a dense layer, SIDE in each direction: by `naive`, and with the weights stored the other way."""
    rng = np.random.default_rng(0)
    A, W = (devices.to_device(rng.standard_normal((SIDE, SIDE), dtype=np.float32), "gpu") for _ in range(2))
    b, W_t = devices.to_device(np.zeros(SIDE, np.float32), "gpu"), W.T.copy()
    naive, coalesced = find("dense_forward")["naive"], find("dense_transposed")["coalesced"]
    return {
        "W": devices.seconds(lambda: naive(A, W, b), "gpu"),
        "W_t": devices.seconds(lambda: coalesced(A, W_t, b), "gpu"),
    }


def tiled(width: int, was: str = "", now: str = "") -> CudaKernel:
    """The kernel `tiled` with tiles of this width, and with one part of its text changed."""
    kernel = find("dense_forward")["tiled"]
    assert isinstance(kernel, CudaKernel)
    text = kernel.source.text.replace("#define TILE 16", f"#define TILE {width}").replace(was, now)
    return replace(kernel, source=replace(kernel.source, text=text), block=(width, width), plans={})


def tiles() -> dict[str, float]:
    """Seconds of `tiled` with tiles of 8, 16 and 32, OF_TILES in each direction; "rows of 16" have no spare column."""
    A, W = (devices.to_device(np.ones((OF_TILES, OF_TILES), np.float32), "gpu") for _ in range(2))
    b = devices.to_device(np.zeros(OF_TILES, np.float32), "gpu")
    kernels = {str(width): tiled(width) for width in (8, 16, 32)} | {"rows of 16": tiled(16, *SPARE_COLUMN)}
    return {name: devices.seconds(partial(kernel, A, W, b), "gpu") for name, kernel in kernels.items()}


def lost_barrier() -> dict[str, list[int]]:
    """How many sums `tiled` gets wrong without its second barrier, in five runs each with two sides."""
    kernel = tiled(16, *SECOND_BARRIER)
    wrong: dict[str, list[int]] = {}
    for side in (64, OF_TILES):
        rng = np.random.default_rng(0)
        A, W = (rng.integers(0, 5, (side, side)).astype(np.float32) for _ in range(2))
        on_gpu = [devices.to_device(each, "gpu") for each in (A, W, np.zeros(side, np.float32))]
        wrong[str(side)] = [int((kernel(*on_gpu).get() != A @ W.T).sum()) for _ in range(5)]
    return wrong
