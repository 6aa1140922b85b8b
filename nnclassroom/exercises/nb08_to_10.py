"""Operations of the exercises of notebooks 08, 08b and 10: no network calls them, and no backend has kernels for them.

    train_on_gpu     what is transferred to the GPU and back, and when                    notebook 08
    seconds_a_call   the time of a kernel that runs while the CPU continues
    least_seconds    the roofline: the least time that launch, arithmetic and memory allow
    occupancy        the share of a multiprocessor's warps that a kernel fills                     notebook 08b
    window_columns   the windows of an image as the columns of a matrix                   notebook 10
    blur             a tile in shared memory, and the halo around it, in one dimension

The first two take a GPU as an argument. check() passes a simulated one, which notices mistakes and has an exact clock.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, NoReturn

import numpy as np

from nncourse.device import Array
from nncourse.errors import CourseError
from nncourse.kernels.contract import Sizes
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Mistakes, Trial, exact

# ---- what travels, and when


MOST_SENT = 3  # parameters, X and Y
TRAIN_EPOCH = "train_epoch(parameters, X, Y, batch, rate)"


class OnGpu:
    """An array in the memory of a simulated GPU: the CPU cannot read it."""

    def __init__(self, array: np.ndarray):
        self.hidden = array

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        takes = "pass it to gpu.train_epoch(…), or fetch it with gpu.to_cpu(…)"
        raise CourseError(f"the CPU cannot read an array that is on the GPU: {takes}")


class PretendMemory:
    """A simulated GPU with its own memory. It trains, and refuses transfers that would slow a real one down."""

    def __init__(self, architecture: DenseArchitecture):
        self.architecture, self.epochs, self.sent, self.fetched = architecture, 0, 0, 0
        self.told: list[tuple[int, float]] = []  # batch and rate of each epoch

    def to_gpu(self, array: np.ndarray) -> OnGpu:
        if isinstance(array, OnGpu):
            raise CourseError("to_gpu() got an array that is on the GPU already")
        if self.epochs:
            raise CourseError("an array is sent to the GPU after the first epoch: send each once, before the loop")
        self.sent += 1
        if self.sent > MOST_SENT:
            raise CourseError("a fourth array is sent to the GPU: send only parameters, X and Y, each once")
        return OnGpu(np.array(array))

    def to_cpu(self, array: OnGpu) -> np.ndarray:
        if not isinstance(array, OnGpu):
            raise CourseError("to_cpu() got an array that is on the CPU already")
        self.fetched += 1
        if self.fetched > 1:
            raise CourseError("a second array comes back: fetch only the trained parameters, once")
        return array.hidden.copy()

    def train_epoch(self, parameters: OnGpu, X: OnGpu, Y: OnGpu, batch: int, rate: float) -> OnGpu:
        for name, array in (("parameters", parameters), ("X", X), ("Y", Y)):
            if not isinstance(array, OnGpu):
                raise CourseError(f"the GPU cannot read {name} in the CPU's memory: send it with gpu.to_gpu({name})")
        if self.fetched:
            raise CourseError("an array comes back before the last epoch: fetch it once, after the loop")
        if not isinstance(batch, int | np.integer) or batch < 1:
            raise CourseError(f"{TRAIN_EPOCH}: expected batch, a whole number, as fourth argument, got {_named(batch)}")
        if not isinstance(rate, int | float | np.number):
            raise CourseError(f"{TRAIN_EPOCH}: expected rate, a number, as fifth argument, got {_named(rate)}")
        given = self.architecture, X.hidden, Y.hidden, batch, rate
        parameters.hidden[...] = dense_sgd_epoch.reference(parameters.hidden, *given)
        self.epochs += 1
        self.told.append((batch, rate))
        return parameters

    def __str__(self) -> str:
        return f"with a network {self.architecture}"


def _named(value: Any) -> str:
    """A number, or the type of anything else."""
    return f"{value:g}" if isinstance(value, int | float | np.number) else type(value).__name__


def _how_it_trained(
    place: tuple[int, ...],
    gpu: PretendMemory,
    parameters: np.ndarray,
    X: np.ndarray,
    Y: np.ndarray,
    epochs: int,
    batch: int,
    rate: float,
) -> str:
    """The wrong number of epochs, or the wrong arguments of train_epoch(), in words."""
    if gpu.epochs and not gpu.fetched:
        return "the trained parameters are still on the GPU: fetch them with gpu.to_cpu(…)"
    if gpu.epochs != epochs:
        return f"expected {epochs} calls of train_epoch(), got {gpu.epochs}"
    other = [told for told in gpu.told if told != (batch, rate)]
    wanted = f"expected batch {batch} and rate {rate:g} in train_epoch()"
    return f"{wanted}, got {other[0][0]} and {other[0][1]:g}" if other else ""


def _after_epochs(
    gpu: PretendMemory, parameters: np.ndarray, X: np.ndarray, Y: np.ndarray, epochs: int, batch: int, rate: float
) -> np.ndarray:
    for _ in range(epochs):
        parameters = dense_sgd_epoch.reference(parameters, gpu.architecture, X, Y, batch, rate)
    return parameters


def _training(sizes: tuple[int, ...], n: int, epochs: int, batch: int) -> Sizes:
    architecture = DenseArchitecture(sizes, ("sigmoid",) * (len(sizes) - 1), "mse")
    return {"architecture": architecture, **architecture.contract_sizes, "n": n, "epochs": epochs, "batch": batch}


train_on_gpu = Operation(
    "train_on_gpu",
    "parameters after `epochs` calls of train_epoch",
    equation="Algorithm 1",
    contract="gpu () object, parameters (p,), X (n, n_in), Y (n, n_out), epochs () int, batch () int, rate ()"
    " -> trained (p,)",
    reference=_after_epochs,
    flops=None,
    trial=Trial(
        error_scale=lambda gpu, parameters, X, Y, epochs, batch, rate: np.full(parameters.shape, 4.0 * epochs),
        values={**dense_sgd_epoch.trial.values, "gpu": lambda rng, shape, sizes: PretendMemory(sizes["architecture"])},
        edge_cases=(),
        advice=_how_it_trained,
        sizes_to_check=(_training((2, 3, 1), 5, 3, 2), _training((1, 1), 1, 1, 1), _training((4, 3, 2), 200, 3, 150)),
        draw_sizes=lambda rng: _training((2, 3, 1), *rng.integers(1, 11, 3).tolist()),
    ),
)


@train_on_gpu.kernel("loops", device="cpu")
def train_there(
    gpu: PretendMemory, parameters: Array, X: Array, Y: Array, epochs: int, batch: int, rate: float
) -> np.ndarray:
    parameters, X, Y = gpu.to_gpu(parameters), gpu.to_gpu(X), gpu.to_gpu(Y)
    for _ in range(epochs):
        gpu.train_epoch(parameters, X, Y, batch, rate)
    return gpu.to_cpu(parameters)


# ---- the clock


class PretendGpu:
    """A simulated GPU with a queue of kernels. Its clock advances only during calls, so its times are exact.

    launch() queues a kernel and returns at once. Kernels run one after the other; synchronise() waits for the last. The
    first launch compiles. `launches` and `runs` are the (start, end) of the CPU's launches and of the GPU's kernels,
    `asked` the names of the calls, in order.
    """

    def __init__(self, launch: float, kernel: float, compiling: float = 0.3):
        self.launch_seconds, self.kernel_seconds, self.compiling = launch, kernel, compiling
        self.now = self.free_at = 0.0
        self.launches: list[tuple[float, float]] = []
        self.runs: list[tuple[float, float]] = []
        self.asked: list[str] = []

    def launch(self, kernel: float | None = None) -> None:
        """Queue a kernel. `kernel` is its time in seconds, if not the usual one."""
        self.asked.append("launch")
        start, first = self.now, not self.launches
        self.now += self.launch_seconds + first * self.compiling
        begin = max(self.now, self.free_at)
        self.free_at = begin + (self.kernel_seconds if kernel is None else kernel)
        self.launches.append((start, self.now))
        self.runs.append((begin, self.free_at))

    def synchronise(self) -> None:
        self.asked.append("synchronise")
        self.now = max(self.now, self.free_at)

    def clock(self) -> float:
        """Seconds since some moment in the past."""
        self.asked.append("clock")
        return self.now

    def __str__(self) -> str:
        return f"with launches of {1e6 * self.launch_seconds:g} µs and kernels of {1e6 * self.kernel_seconds:g} µs"


def _mean_time(gpu: PretendGpu, calls: int) -> np.float64:
    """Launches and kernels overlap: the slower of the two takes the time, plus one of the faster."""
    slow, fast = max(gpu.launch_seconds, gpu.kernel_seconds), min(gpu.launch_seconds, gpu.kernel_seconds)
    return np.float64((calls * slow + fast) / calls)


def _what_was_timed(place: tuple[int, ...], gpu: PretendGpu, calls: int) -> str:
    """What is wrong with the timing, from the calls between the first and the last reading of the clock."""
    return "; and ".join(_faults_of_timing(gpu, calls)) or "the launches are right; is the result the time of one call?"


def _faults_of_timing(gpu: PretendGpu, calls: int) -> Iterator[str]:
    if gpu.asked.count("clock") < 2:
        yield "read the clock twice: before the first launch that counts, and when the last kernel has ended"
        return
    start, end = gpu.asked.index("clock"), len(gpu.asked) - 1 - gpu.asked[::-1].index("clock")
    before, between = gpu.asked[:start], gpu.asked[start + 1 : end]
    launches = between.count("launch")
    if "launch" not in before:
        yield "the first launch, which compiles, is timed too: launch once before you read the clock"
    elif before[-1] != "synchronise":
        yield "an earlier kernel was still in the queue: wait for it before you read the clock"
    if launches != calls:
        yield f"expected {calls} launches between the two readings of the clock, got {launches}"
    if between[-1:] != ["synchronise"]:
        yield "the kernels had not ended when the clock was read: wait first"
    if between.count("synchronise") > 1:
        yield "it waits between the calls, so launches and kernels cannot overlap: wait once, after the last"


seconds_a_call = Operation(
    "seconds_a_call",
    "t = (clock after the last kernel has ended − clock before the first launch) / calls",
    contract="gpu () object, calls () int -> t ()",
    reference=_mean_time,
    flops=None,
    trial=Trial(
        error_scale=_mean_time,
        values={"gpu": lambda rng, shape, sizes: PretendGpu(*sizes["seconds"])},
        edge_cases=(),
        advice=_what_was_timed,
        sizes_to_check=(
            {"calls": 10, "seconds": (5e-6, 200e-6)},
            {"calls": 1, "seconds": (4e-6, 3e-3)},
            {"calls": 100, "seconds": (5e-6, 2e-6)},
        ),
        draw_sizes=lambda rng: {
            "calls": int(rng.integers(1, 300)),
            "seconds": tuple((10 ** rng.uniform((-6, -6), (-5, -3))).tolist()),
        },
    ),
)


@seconds_a_call.kernel("loops", device="cpu")
def clocked(gpu: PretendGpu, calls: int) -> float:
    gpu.launch()  # the first one compiles
    gpu.synchronise()
    start = gpu.clock()
    for _ in range(calls):
        gpu.launch()
    gpu.synchronise()
    return (gpu.clock() - start) / calls


# ---- limits


def _many(low: float, high: float) -> Callable[..., np.ndarray | float]:
    """A maker of positive numbers between 10**low and 10**high."""

    def make(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray | float:
        numbers = 10 ** rng.uniform(low, high, shape)
        return numbers.astype(np.float32) if shape else float(numbers)

    return make


def _some_flops(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Some kernels, such as one that copies, compute nothing."""
    return np.where(rng.random(shape) < 0.2, np.float32(0), _many(2, 12)(rng, shape, sizes))


def _mistakes_of_the_least(
    place: tuple[int, ...], flops: np.ndarray, bytes: np.ndarray, rate: float, bandwidth: float, launch: float
) -> Mistakes:
    yield "this is the sum of the three: they overlap, so take the largest", launch + flops / rate + bytes / bandwidth


least_seconds = Operation(
    "least_seconds",
    "t = max(launch, FLOPs / rate, bytes / bandwidth)",
    contract="flops (n,), bytes (n,), rate (), bandwidth (), launch () -> t (n,)",
    reference=lambda flops, bytes, rate, bandwidth, launch: np.max(
        [np.full(flops.shape, launch), flops / rate, bytes / bandwidth], axis=0
    ),
    flops=None,
    trial=Trial(
        values={
            "flops": _some_flops,
            "bytes": _many(2, 11),
            "rate": _many(11, 13),
            "bandwidth": _many(10, 12),
            "launch": lambda *given: (
                0.0 if given[2]["turn"] % 4 == 3 else _many(-6, -3)(*given)
            ),  # 0 as in a CUDA graph
        },
        edge_cases=(),
        mistakes=_mistakes_of_the_least,
        sizes_to_check=({"n": 6}, {"n": 1}, {"n": 50}, {"n": 500}),
        draw_sizes=lambda rng: {"n": int(rng.integers(1, 100))},
    ),
)


@least_seconds.kernel("numpy", device="cpu")
def least_array(flops: np.ndarray, bytes: np.ndarray, rate: float, bandwidth: float, launch: float) -> np.ndarray:
    return np.maximum(np.maximum(flops / rate, bytes / bandwidth), launch)


@dataclass(frozen=True)
class Multiprocessor:
    """The capacity of one SM: warps, blocks, registers of 4 bytes, bytes of shared memory.

    Each block takes 1,024 bytes of shared memory more than it asks for, for the system.
    """

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    reserved_bytes: int = 1024


H200 = Multiprocessor(warps=64, blocks=32, registers=65536, shared_bytes=228 * 1024)
A4000 = Multiprocessor(warps=48, blocks=16, registers=65536, shared_bytes=100 * 1024)  # the handout's server


def _another(rng: np.random.Generator) -> Multiprocessor:
    """One that a GPU might have."""
    numbers = (16, 48), (8, 40), (32_768, 131_072), (48 * 1024, 256 * 1024), (256, 4096)
    return Multiprocessor(*(int(rng.integers(low, high)) for low, high in numbers))


def _filled(registers: np.ndarray, shared_bytes: np.ndarray, threads: np.ndarray, sm: Multiprocessor) -> np.ndarray:
    """Add blocks one by one while there is room."""
    shares = []
    for r, s, t in zip(registers, shared_bytes, threads, strict=True):
        warps, blocks = ceil(t / 32), 0
        per_block = np.array([warps, 1, warps * 32 * 8 * ceil(r / 8), s + sm.reserved_bytes])
        while ((blocks + 1) * per_block <= [sm.warps, sm.blocks, sm.registers, sm.shared_bytes]).all():
            blocks += 1
        shares.append(blocks * warps / sm.warps)
    return np.array(shares)


def _room(registers: Any, shared_bytes: Any, threads: Any, sm: Multiprocessor) -> dict[str, Any]:
    """How many blocks fit by each of the four limits."""
    warps = -(-threads // 32)
    return {
        "warps": sm.warps // warps,
        "blocks": sm.blocks + 0 * warps,
        "registers": sm.registers // (warps * 256 * -(-registers // 8)),
        "shared memory": sm.shared_bytes // (shared_bytes + sm.reserved_bytes),
    }


def _room_there(
    place: tuple[int, ...], registers: np.ndarray, shared_bytes: np.ndarray, threads: np.ndarray, sm: Multiprocessor
) -> str:
    room = _room(registers[place], shared_bytes[place], threads[place], sm)
    return (
        f"with {registers[place]} registers per thread, {shared_bytes[place]} bytes and {threads[place]} threads "
        f"per block, there is room for {room['warps']} blocks by their warps, {room['blocks']} by their number, "
        f"{room['registers']} by registers, {room['shared memory']} by shared memory"
    )


def _mistakes_of_occupancy(
    place: tuple[int, ...], registers: np.ndarray, shared_bytes: np.ndarray, threads: np.ndarray, sm: Multiprocessor
) -> Iterator[tuple[str, np.ndarray]]:
    room, warps = _room(registers, shared_bytes, threads, sm), -(-threads // 32)

    def share(other: dict[str, np.ndarray], warps: np.ndarray = warps) -> np.ndarray:
        """With other room by some limits."""
        return np.minimum.reduce(list((room | other).values())) * warps / sm.warps

    without = np.full(len(warps), np.iinfo(np.int32).max)
    reserved = "sm.reserved_bytes are left out: each block needs them in addition to its shared_bytes"
    yield reserved, share({"shared memory": sm.shared_bytes // np.maximum(shared_bytes, 1)})
    none = np.where(shared_bytes, sm.shared_bytes // np.maximum(shared_bytes, 1), 0)  # NumPy's x // 0
    yield reserved, share({"shared memory": none})
    words = "the limit by shared memory is left out: take the smallest of all four limits"
    yield words, share({"shared memory": without})
    yield "the limit by registers is left out: take the smallest of all four limits", share({"registers": without})
    yield "the limit sm.blocks is left out: take the smallest of all four limits", share({"blocks": without})
    yield (
        "registers are counted one by one: round those of a thread up to a multiple of 8",
        share({"registers": sm.registers // (warps * 32 * registers)}),
    )
    down = np.maximum(threads // 32, 1)
    yield (
        "the warps of a block are rounded down: round up, since a partly filled warp counts as a whole one",
        share(_room(registers, shared_bytes, 32 * down, sm), down),
    )


def _often_small(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
    """Integers, half of them in the lowest eighth, so that each of the four limits matters in some cases."""
    top = np.where(rng.random(shape) < 0.5, low + (high - low) // 8, high)
    return rng.integers(low, top, shape, dtype=np.int32)


occupancy = Operation(
    "occupancy",
    "occupancy = warps that fit on an SM at once / warps it has places for",
    contract="registers (n,) int, shared_bytes (n,) int, threads (n,) int, sm () object -> share (n,)",
    reference=_filled,
    flops=None,
    trial=Trial(
        error_scale=_filled,
        values={
            "registers": lambda rng, shape, sizes: _often_small(rng, shape, 16, 256),
            "shared_bytes": lambda rng, shape, sizes: rng.integers(0, 50, shape, dtype=np.int32) ** 3 // 3,
            "threads": lambda rng, shape, sizes: _often_small(rng, shape, 1, 1025),
        },
        edge_cases=(),
        advice=_room_there,
        mistakes=_mistakes_of_occupancy,
        sizes_to_check=({"n": 8, "sm": H200}, {"n": 1, "sm": H200}, {"n": 200, "sm": H200}, {"n": 200, "sm": A4000}),
        draw_sizes=lambda rng: {"n": int(rng.integers(20, 60)), "sm": _another(rng)},
    ),
)


@occupancy.kernel("numpy", device="cpu")
def filled(registers: np.ndarray, shared_bytes: np.ndarray, threads: np.ndarray, sm: Multiprocessor) -> np.ndarray:
    warps = -(-threads // 32)
    of_a_warp = 32 * 8 * -(-registers // 8)  # a warp gets registers in multiples of 256
    blocks = np.minimum(sm.warps // warps, sm.blocks)
    blocks = np.minimum(blocks, sm.registers // (warps * of_a_warp))
    blocks = np.minimum(blocks, sm.shared_bytes // (shared_bytes + sm.reserved_bytes))
    return (blocks * warps / sm.warps).astype(np.float32)


# ---- a halo


HALO = 2  # as in nb08_to_10.cu


def _means(x: np.ndarray) -> np.ndarray:
    return np.convolve(x, np.full(2 * HALO + 1, 1 / (2 * HALO + 1)))[HALO : HALO + len(x)]


def _of_the_next(place: tuple[int, ...], x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield (
        "this is the mean of x[i] … x[i + 4]: cell 0 of the tile is HALO elements before the block's first",
        _means(np.pad(x, (0, HALO)))[HALO:],
    )


def _windows(A: np.ndarray, k: int) -> np.ndarray:
    """The windows (y, x, c, i, j) of an image (c_in, h_in, w_in)."""
    return np.lib.stride_tricks.sliding_window_view(A, (k, k), (1, 2)).transpose(1, 2, 0, 3, 4)


def _wider_than_windows(rng: np.random.Generator) -> dict[str, int]:
    k, *more = rng.integers((2, 0, 1), (13, 7, 7)).tolist()
    return {"c_in": int(rng.integers(1, 5)), "h_in": k + more[0], "w_in": k + more[1], "k": k}


def _columns(windows: np.ndarray) -> np.ndarray:
    return windows.reshape(-1, np.prod(windows.shape[2:])).T


def _other_columns(place: tuple[int, ...], A: np.ndarray, k: int) -> Iterator[tuple[str, np.ndarray]]:
    windows = _windows(A, k)
    words = "the rows of C have the channel last: order them by channel, then by row and column of the window"
    yield words, _columns(windows.transpose(0, 1, 3, 4, 2))
    yield "the columns of C go down the image first: order the windows row by row", _columns(windows.swapaxes(0, 1))
    words = "rows and columns of each window are swapped: pixel i, j of a window comes before pixel i, j + 1"
    yield words, _columns(windows.swapaxes(3, 4))


window_columns = Operation(
    "window_columns",
    "C[(c, i, j), (y, x)] = A[c, y+i, x+j]",
    contract="A (c_in, h_in, w_in), k () int -> C (rows, columns)"
    " where rows = c_in * k * k, columns = (h_in - k + 1) * (w_in - k + 1), k >= 1, k <= h_in, k <= w_in",
    reference=lambda A, k: _columns(_windows(A, k)),
    flops=None,
    trial=Trial(
        error_scale=exact,
        edge_cases=("ties", "nan", "infinite"),
        mistakes=_other_columns,
        # Not k = 1, nor one channel with windows as wide as the image: there C may be a view of A, which is right too.
        sizes_to_check=[
            {"c_in": 2, "h_in": 4, "w_in": 5, "k": 3},
            {"c_in": 1, "h_in": 2, "w_in": 3, "k": 2},
            {"c_in": 2, "h_in": 3, "w_in": 3, "k": 2},
            {"c_in": 3, "h_in": 2, "w_in": 6, "k": 2},
            {"c_in": 2, "h_in": 5, "w_in": 4, "k": 4},  # windows as wide as the image
            {"c_in": 1, "h_in": 12, "w_in": 11, "k": 9},
        ],
        draw_sizes=_wider_than_windows,
    ),
)


@window_columns.kernel("numpy", device="cpu")
def columns(A: np.ndarray, k: int) -> np.ndarray:
    _, h_in, w_in = A.shape
    places = [(i, j) for i in range(k) for j in range(k)]
    met = [A[:, i : h_in - k + 1 + i, j : w_in - k + 1 + j] for i, j in places]
    return np.stack(met, axis=1).reshape(len(A) * k * k, -1)


blur = Operation(
    "blur",
    "y[i] = (x[i−2] + x[i−1] + x[i] + x[i+1] + x[i+2]) / 5, 0 outside",
    contract="x (n,) -> y (n,)",
    reference=_means,
    flops=None,
    trial=Trial(
        budgets={"shared": Budget({"n": 128}, (Limit("reads", "2 * n", "x"),), {"n": 300})}, mistakes=_of_the_next
    ),
)


@blur.kernel("numpy", device="cpu")
def blurred(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, HALO)
    return np.sum([padded[i : i + len(x)] for i in range(2 * HALO + 1)], axis=0) / np.float32(2 * HALO + 1)


blur.cuda_kernel("shared", cuda_beside(__file__), block=64)
