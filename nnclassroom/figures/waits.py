"""How reading from global memory depends on the threads that wait for it, and on their order: for notebook 03b.

Each measurement is for a machine with a GPU; `python -m benchmarks.waits` records them.
"""

import statistics

import numpy as np

from cuda_on_cpu import CudaSource
from nnclassroom.exercises.catalogue import find
from nncourse import device as devices
from nncourse.cuda.compile import gpu_kernel

# A thread waits for its read before it writes, and `y` might overlap `x`: so it never has a second read under way.
COPY = CudaSource(
    """extern "C" __global__ void copy(const float* x, float* y, int n) {
    int threads = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) y[i] = x[i];
}""",
    "copy.cu",
)
MOST = 1 << 26  # numbers that are copied: 256 MB, more than an L2 cache holds
OF_A_THREAD = 1 << 12  # by few threads fewer, or it would take minutes
BLOCK = 1024
ROUNDS = 5
SIDE = 4096


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
