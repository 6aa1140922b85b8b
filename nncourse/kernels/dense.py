"""A dense layer, in which every neuron is connected to every input: equation (1) for a whole layer and batch.

Rows are samples. W[j, k] connects input k to neuron j: Z[i, j] = A[i] · W[j] + b[j] is neuron j's sum for sample i.
"""

from collections.abc import Mapping
from math import ceil

import numpy as np

from nncourse import device
from nncourse.device import Array
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Mistakes, Trial

TILE = 16  # the side of a tile in what follows
MOST_BLOCKS, EMULATED = 1024, 3  # blocks of `stream_k`: at most, and on the emulator


def of_other_rows(A: Array, W: Array) -> tuple[Array, Array]:
    """The sums A Wᵀ of a wrong kernel, which takes the row of W, or of A, that a different thread of its block needs.

    It swaps the indices in the block: x for y in W_tile[y][k], or in A_tile[x][k].
    """
    i, j = np.ogrid[: len(A), : len(W)]
    rows, samples = j - j % TILE + i % TILE, i - i % TILE + j % TILE
    of_w, of_a = (np.append(each, np.zeros((TILE, each.shape[1])), axis=0) for each in (W, A))  # 0 beyond the end
    return np.einsum("ik,ijk->ij", A, of_w[rows]), np.einsum("ijk,jk->ij", of_a[samples], W)


# Threads of a block in x, or neurons that it computes.
BLOCKS = (8, 16, 32, 64, 128)
MOST_MULTIPLIED = 1 << 22
OF_ITS_OWN_BLOCK = "each block reads b from its beginning: column j takes b[j], whichever block it is in"


def _mistakes(place: tuple[int, ...], A: Array, W: Array, b: Array) -> Mistakes:
    sums, (n_out, n_in) = A @ W.T, W.shape
    if sums.size * n_in <= MOST_MULTIPLIED:
        of_w, of_a = of_other_rows(A, W)
        yield "Z[i, j] is computed with row i of W: neuron j has row j", of_w + b
        yield "Z[i, j] is computed with row j of A: sample i has row i", of_a + b
    for width in BLOCKS:
        if n_out > width:
            yield OF_ITS_OWN_BLOCK, sums + b[np.arange(n_out) % width]
    yield "this is A Wᵀ: add b", sums
    if n_in == n_out:
        yield "this is A W + b: transpose W, since neuron j has row j of W", A @ W + b
    of_others = A @ W.reshape(n_in, n_out) + b
    yield "W is read as if its rows had n_out numbers: row j holds the n_in weights of neuron j", of_others
    if len(A) == n_out:
        yield "b is added along the batch, b[i] to row i: add b[j] to column j", sums + b[:, None]
    yield "b is added to each product: add it once, to their sum", sums + n_in * b


Three = tuple[int, int, int]  # batch, n_in, n_out


def _reads(most: str, by_a_thread: str, sizes: Three, more: Three, shared: str = "") -> Budget:
    """A and W are read at most this often, since a tile of each serves many elements of Z, and all threads fill it.

    shared: the same for shared memory, if each number read from there must serve several sums.
    """
    limits = [(Limit("reads", most, name), Limit("reads by a thread", by_a_thread, name)) for name in ("A", "W")]
    of_shared = (Limit("all shared reads", shared),) if shared else ()
    few, many = (dict(zip(("batch", "n_in", "n_out"), numbers, strict=True)) for numbers in (sizes, more))
    return Budget(few, (*(limit for pair in limits for limit in pair), *of_shared), many)


dense_forward = Operation(
    "dense_forward",
    "Z = A Wᵀ + b",
    equation="(1)",
    contract="A (batch, n_in), W (n_out, n_in), b (n_out,) -> Z (batch, n_out)",
    reference=lambda A, W, b: np.einsum("ik,jk->ij", A, W) + b,
    flops=lambda batch, n_in, n_out: 2 * batch * n_in * n_out,
    trial=Trial(
        mistakes=_mistakes,
        anywhere=("W", "b"),
        budgets={
            "tiled": _reads("batch * n_in * n_out // 8", "n_in // 4", (32, 32, 32), (16, 80, 48)),
            "tiles_1d": _reads("batch * n_in * n_out // 32", "n_in // 2", (64, 16, 64), (64, 24, 96)),
            "tiles_2d": _reads(
                "batch * n_in * n_out // 32",
                "2 * n_in",
                (128, 8, 128),
                (128, 24, 128),
                "batch * n_in * n_out * 3 // 10",
            ),
            "vectorised": _reads(
                "batch * n_in * n_out // 256", "n_in", (128, 8, 128), (128, 24, 128), "batch * n_in * n_out // 10"
            ),
        },
    ),
)


@dense_forward.loops_kernel
def loops(A: Array, W: Array, b: Array) -> Array:
    """Equation (1) written out: one sum for each sample and neuron."""
    batch, n_in = A.shape
    n_out = W.shape[0]
    Z = np.empty((batch, n_out), A.dtype)
    for i in range(batch):
        for j in range(n_out):
            z = b[j]
            for k in range(n_in):
                z += A[i, k] * W[j, k]
            Z[i, j] = z
    return Z


@dense_forward.array_kernel
def array(A: Array, W: Array, b: Array) -> Array:
    """All sums as one matrix product, computed by BLAS; b is added to every row."""
    return A @ W.T + b


# block: threads in x, y. tile: neurons and samples that a block computes, if not one element of Z per thread.
# On large matrices each kernel up to `double_buffered` is faster than those above it. On small ones, blocks of
# 128 × 128 elements would leave most of the GPU idle: so networks use `tiled` by default.
SOURCE = cuda_beside(__file__)
dense_forward.cuda_kernel("naive", SOURCE, block=(32, 4))  # 32 samples, 128 neurons: 32 blocks, not 16
dense_forward.cuda_kernel("coalesced", SOURCE, block=(32, 8), tile=(1, 8))
dense_forward.cuda_kernel("tiled", SOURCE, block=(16, 16), default=True)

ON_TILES = cuda_beside(__file__, name="tiles")
TILES = cuda_beside(__file__, name="dense_tiles", before=(ON_TILES,))  # takes seconds to compile
dense_forward.cuda_kernel("tiles_1d", TILES, block=512, tile=(64, 64))
dense_forward.cuda_kernel("tiles_2d", TILES, block=256, tile=(128, 128))
dense_forward.cuda_kernel("vectorised", TILES, block=256, tile=(128, 128))
dense_forward.cuda_kernel("warp_tiles", TILES, block=256, tile=(128, 128))
dense_forward.cuda_kernel("double_buffered", TILES, block=256, tile=(256, 128))
dense_forward.cuda_kernel("small_tiles", TILES, block=128, tile=(128, 64))


def _tiles(batch: int, n_out: int) -> int:
    """The tiles of `double_buffered` and `stream_k`."""
    return ceil(batch / 128) * ceil(n_out / 256)


def _blocks(sizes: Mapping[str, int]) -> tuple[int, ...]:
    """One block per multiprocessor; fewer if that divides each tile into equal parts, or if steps are too few."""
    most = min(device.multiprocessors() if device.gpu_available() else EMULATED, MOST_BLOCKS)
    tiles = _tiles(sizes["batch"], sizes["n_out"])
    equal = most // tiles * tiles if tiles else 0
    blocks = equal if 10 * equal >= 9 * most else most
    return (min(blocks, tiles * ceil(sizes["n_in"] / 16)),)


dense_forward.cuda_kernel("stream_k", TILES, block=256, grid=_blocks, deterministic=False)


def fastest(batch: int, n_out: int, most: int) -> str:
    """The kernel for these sizes, by the share of `most` multiprocessors that has work in the last round of tiles."""
    tiles = _tiles(batch, n_out)
    busy = tiles / (ceil(tiles / most) * most) if tiles else 1
    return "double_buffered" if busy > 0.9 else "small_tiles" if 2 * tiles < most else "stream_k"


@dense_forward.kernel("by_shape", device="gpu", takes_out=True, deterministic=False)
def by_shape(A: Array, W: Array, b: Array, out: Array | None = None) -> Array:
    """The fastest of the last three."""
    Z: Array = dense_forward[fastest(len(A), len(W), device.multiprocessors())](A, W, b, out=out)
    return Z


def _why_no_tf32() -> str:
    """Why the current GPU's tensor cores cannot multiply TF32; "" if they can, or there is no GPU."""
    if not device.gpu_available() or (capability := device.capability()) >= (8, 0):
        return ""
    return f"tensor cores multiply TF32 from sm_80 (Ampere) on, this GPU is sm_{capability[0]}{capability[1]}"


# Not float32: its factors are rounded to TF32, so networks get it on request only.
ON_TENSOR_CORES = cuda_beside(__file__, name="tensor_cores")
ROUNDED = cuda_beside(__file__, name="dense_tensor_cores", before=(ON_TILES, ON_TENSOR_CORES))
dense_forward.cuda_kernel("tensor_cores", ROUNDED, block=256, tile=(256, 128), mantissa=10, missing=_why_no_tf32)
