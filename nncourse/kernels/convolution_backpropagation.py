"""Backpropagation through a convolution: three gradients, all computed from the deltas D = dC/dZ.

Images are (batch, channels, height, width). The gradients of weights and biases are means over the batch. The gradient
with respect to the input is a sum, which the layer below multiplies by its slope.
"""

import functools
from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from nncourse.device import Array, array_module, multiprocessors, on_gpu
from nncourse.kernels.contract import Sizes
from nncourse.kernels.convolution import EXCHANGED, NO_STRIDE, TRANSPOSED, TURNED
from nncourse.kernels.convolution import convolution_forward as forward
from nncourse.kernels.dense import ON_TILES
from nncourse.kernels.kernel import launching
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Mistakes, Trial, shared_sum, sizes_named

OUT = (
    "where h_out = (h_in + before + after - k) // stride + 1, w_out = (w_in + before + after - k) // stride + 1, "
    "k >= 1, stride >= 1"
)
LARGE_STRIDES = [
    dict(zip(forward.shapes.free_names, sizes, strict=True))
    for sizes in ((1, 2, 19, 11, 2, 6, 5, 4, 6), (2, 1, 13, 8, 3, 2, 7, 1, 0))
]
LIKE_FORWARD: dict[str, Any] = {
    "tolerance": 16.0,
    "edge_cases": ("zeros", "large"),  # kernels may put zeros between the deltas, and ∞ · 0 is NaN
    "sizes_to_check": [*forward.trial.sizes_to_check, *LARGE_STRIDES],
    "draw_sizes": forward.trial.draw_sizes,
    "large_sizes": forward.trial.large_sizes,
    "sizes_to_time": forward.trial.sizes_to_time,
}


def _weight_gradient_truth(D: Array, A: Array, k: int, stride: int, before: int, after: int) -> Array:
    """All windows of the padded image as one view, each times its delta."""
    padded = np.pad(A, ((0, 0), (0, 0), (before, after), (before, after)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("soyx,scyxij->ocij", D, windows) / len(D)


def _input_gradient_truth(D: Array, W: Array, h_in: int, w_in: int, stride: int, before: int, after: int) -> Array:
    """The deltas with stride − 1 zeros between them and k − 1 around, correlated with the filters turned around."""
    k, (h_out, w_out) = W.shape[-1], D.shape[2:]
    apart = np.zeros((*D.shape[:2], h_in + before + after + k - 1, w_in + before + after + k - 1))
    apart[:, :, k - 1 :, k - 1 :][:, :, ::stride, ::stride][:, :, :h_out, :w_out] = D
    windows = np.lib.stride_tricks.sliding_window_view(apart, (k, k), axis=(2, 3))
    G = np.einsum("soyxij,ocij->scyx", windows, W[:, :, ::-1, ::-1])
    return G[:, :, before : before + h_in, before : before + w_in]


def _listed(rows: Sequence[int], columns: Sequence[int]) -> str:
    """The first of some rows and columns in words: rows 0, 2, 4, 6, … and column 1."""
    first = [", ".join([*map(str, numbers[:4]), *["…"] * (len(numbers) > 4)]) for numbers in (rows, columns)]
    down = f"rows {first[0]}" if len(rows) > 1 else f"row {first[0]}"
    return f"{down} and columns {first[1]}" if len(columns) > 1 else f"{down} and column {first[1]}"


def _what_a_weight_meets(
    place: tuple[int, ...], D: Array, A: Array, k: int, stride: int, before: int, after: int
) -> str:
    rows, columns = (range(at, at + stride * count, stride) for at, count in zip(place[2:], D.shape[2:], strict=True))
    of = "the padded image" if before or after else "the image"
    return f"that weight meets {_listed(rows, columns)} of {of}"


def _mistakes_of_weights(
    place: tuple[int, ...], D: Array, A: Array, k: int, stride: int, before: int, after: int
) -> Mistakes:
    gradient = _weight_gradient_truth(D, A, k, stride, before, after)
    yield TURNED, gradient[:, :, ::-1, ::-1]
    yield TRANSPOSED, gradient.swapaxes(2, 3)
    yield EXCHANGED, _weight_gradient_truth(D, A, k, stride, after, before)
    padded = np.pad(A, ((0, 0), (0, 0), (before, after), (before, after)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))
    yield NO_STRIDE, np.einsum("soyx,scyxij->ocij", D, windows[:, :, : D.shape[2], : D.shape[3]]) / len(D)


def _windows_with(place: tuple[int, ...], shape: tuple[int, ...], k: int, stride: int, before: int) -> list[list[int]]:
    """The rows and the columns of the windows that hold a pixel."""
    return [
        [at for at in range(count) if 0 <= pixel + before - at * stride < k]
        for pixel, count in zip(place[2:], shape[2:], strict=True)
    ]


def _what_reaches_a_pixel(
    place: tuple[int, ...], D: Array, W: Array, h_in: int, w_in: int, stride: int, before: int, after: int
) -> str:
    rows, columns = _windows_with(place, D.shape, W.shape[-1], stride, before)
    if not rows or not columns:
        return "no window contains that pixel: nothing comes back to it"
    return f"the deltas of {_listed(rows, columns)} come back to that pixel"


def _mistakes_of_pixels(
    place: tuple[int, ...], D: Array, W: Array, h_in: int, w_in: int, stride: int, before: int, after: int
) -> Mistakes:
    yield TURNED, _input_gradient_truth(D, W[:, :, ::-1, ::-1], h_in, w_in, stride, before, after)
    yield TRANSPOSED, _input_gradient_truth(D, W.swapaxes(2, 3), h_in, w_in, stride, before, after)
    yield EXCHANGED, _input_gradient_truth(D, W, h_in, w_in, stride, after, before)
    yield (
        "G is divided by the batch: only the gradients of parameters are means over it",
        (_input_gradient_truth(D, W, h_in, w_in, stride, before, after) / len(D)),
    )
    rows, columns = _windows_with(place, D.shape, W.shape[-1], stride, before)
    if len(rows) * len(columns) > 1:
        words = (
            f"pixel {place[2:]} is in {len(rows) * len(columns)} windows, but only one gives back: add up all of them"
        )
        for y in rows:
            for x in columns:
                i, j = place[2] + before - y * stride, place[3] + before - x * stride
                yield words, float(D[place[0], :, y, x] @ W[:, place[1], i, j])


def _exchanged(sizes: Sizes) -> Sizes:
    """The sizes with filters and channels swapped: sums run over filters here, over channels in the forward pass."""
    return sizes | {"c_in": sizes["c_out"], "c_out": sizes["c_in"]}


_bias_sizes = sizes_named("batch c_out h_out w_out")
BIAS_SIZES = [
    _bias_sizes(3, 4, 2, 5),  # for the edge cases: few terms, since the rounding errors of equal terms add up
    _bias_sizes(1, 1, 1, 1),
    _bias_sizes(1, 3, 1, 7),
    _bias_sizes(2, 1, 9, 1),
    _bias_sizes(2, 4, 28, 28),
    _bias_sizes(16, 16, 4, 4),
    _bias_sizes(17, 33, 3, 2),
    _bias_sizes(3, 70, 1, 2),
]
BIAS_LARGE = [_bias_sizes(65_919, 1, 1, 1), _bias_sizes(1, 66_015, 1, 1), _bias_sizes(1, 1, 301, 221)]


convolution_weight_gradient = Operation(
    "convolution_weight_gradient",
    "dW[o,c,i,j] = mean over s of Σ_y,x D[s,o,y,x] A[s,c, y·stride+i−before, x·stride+j−before]",
    contract="D (batch, c_out, h_out, w_out), A (batch, c_in, h_in, w_in), k () int, stride () int, before () int, "
    f"after () int -> dW (c_out, c_in, k, k) {OUT}",
    reference=_weight_gradient_truth,
    flops=forward.flops,
    trial=Trial(**LIKE_FORWARD, advice=_what_a_weight_meets, mistakes=_mistakes_of_weights),
)


def _deltas_that_lie_together(place: tuple[int, ...], D: Array) -> Mistakes:
    words = "deltas of other filters are added too: those of filter o are D[s, o, y, x] for all s, y and x"
    yield words, D.reshape(D.shape[1], -1).sum(axis=1) / len(D)


convolution_bias_gradient = Operation(
    "convolution_bias_gradient",
    "db[o] = mean over s of Σ_y,x D[s,o,y,x]",
    contract="D (batch, c_out, h_out, w_out) -> db (c_out,)",
    reference=lambda D: np.einsum("soyx->o", D) / len(D),
    flops=lambda batch, c_out, h_out, w_out: batch * c_out * h_out * w_out,
    trial=Trial(
        tolerance=16.0,
        mistakes=_deltas_that_lie_together,
        sizes_to_check=BIAS_SIZES,
        draw_sizes=lambda rng: _bias_sizes(*rng.integers(1, 21, 4).tolist()),
        large_sizes=BIAS_LARGE,
        sizes_to_time=lambda device: _bias_sizes(*((128, 64, 37, 50) if device == "gpu" else (32, 4, 28, 28))),
        budgets={
            "tree": Budget(
                _bias_sizes(8, 2, 16, 16),
                shared_sum("batch * h_out * w_out", "D", "db"),
                more={"batch": 11, "h_out": 21, "w_out": 18},
            ),
        },
    ),
)

convolution_input_gradient = Operation(
    "convolution_input_gradient",
    "G[s,c,row,column] = Σ D[s,o,y,x] W[o,c,i,j], row = y·stride+i−before, column = x·stride+j−before",
    contract="D (batch, c_out, h_out, w_out), W (c_out, c_in, k, k), h_in () int, w_in () int, stride () int, "
    f"before () int, after () int -> G (batch, c_in, h_in, w_in) {OUT}",
    reference=_input_gradient_truth,
    flops=forward.flops,
    trial=Trial(
        **LIKE_FORWARD | {"large_sizes": [_exchanged(sizes) for sizes in forward.trial.large_sizes]},
        advice=_what_reaches_a_pixel,
        mistakes=_mistakes_of_pixels,
        anywhere=("W",),
    ),
)


# ---- loops: the equations written out


@convolution_weight_gradient.kernel("loops", device="cpu")
def weight_gradient_loops(D: Array, A: Array, k: int, stride: int, before: int, after: int) -> Array:
    """Each delta is multiplied by the pixels of its window; the products for one weight are added and averaged."""
    batch, c_out, h_out, w_out = D.shape
    _, c_in, h_in, w_in = A.shape
    dW = np.zeros((c_out, c_in, k, k), D.dtype)
    for s in range(batch):
        for o in range(c_out):
            for y in range(h_out):
                for x in range(w_out):
                    for c in range(c_in):
                        for i in range(k):
                            for j in range(k):
                                row, column = y * stride + i - before, x * stride + j - before
                                if 0 <= row < h_in and 0 <= column < w_in:
                                    dW[o, c, i, j] += D[s, o, y, x] * A[s, c, row, column]
    return dW / batch


@convolution_bias_gradient.kernel("loops", device="cpu")
def bias_gradient_loops(D: Array) -> Array:
    """A filter has one bias, which is added to every pixel of its image."""
    batch, c_out, h_out, w_out = D.shape
    db = np.zeros(c_out, D.dtype)
    for s in range(batch):
        for o in range(c_out):
            for y in range(h_out):
                for x in range(w_out):
                    db[o] += D[s, o, y, x]
    return db / batch


@convolution_input_gradient.kernel("loops", device="cpu")
def input_gradient_loops(D: Array, W: Array, h_in: int, w_in: int, stride: int, before: int, after: int) -> Array:
    """Each delta goes back to the pixels of its window, times the weights through which they were read."""
    batch, c_out, h_out, w_out = D.shape
    _, c_in, k, _ = W.shape
    G = np.zeros((batch, c_in, h_in, w_in), D.dtype)
    for s in range(batch):
        for o in range(c_out):
            for y in range(h_out):
                for x in range(w_out):
                    for c in range(c_in):
                        for i in range(k):
                            for j in range(k):
                                row, column = y * stride + i - before, x * stride + j - before
                                if 0 <= row < h_in and 0 <= column < w_in:
                                    G[s, c, row, column] += D[s, o, y, x] * W[o, c, i, j]
    return G


# ---- arrays: the k² pixels of each window are a column; columns of a few samples or a few rows are made at a time


def _at_a_time(D: Array, column: int) -> tuple[int, int]:
    """The numbers of samples, and of rows of D, whose columns of `column` numbers each are in memory at once."""
    batch, _, h_out, w_out = D.shape
    most, enough = (1 << 18, 2048) if isinstance(D, np.ndarray) else (1 << 27, 1)  # elements; windows worth a product
    rows = max(most // (column * w_out), enough // w_out, 1)
    turns = -(-batch // max(rows // h_out, 1))  # rounded up, with about the same number of samples each
    return -(-batch // turns), min(rows, h_out)


@convolution_weight_gradient.array_kernel
def weight_gradient_array(D: Array, A: Array, k: int, stride: int, before: int, after: int) -> Array:
    """A matrix product: a row for each filter's deltas, a column for each weight's pixels."""
    batch, c_out, h_out, w_out = D.shape
    c_in, h_in, w_in = A.shape[1:]
    some, rows = _at_a_time(D, c_in * k * k)
    padded = np.zeros_like(A, shape=(c_in, some, h_in + before + after, w_in + before + after))
    dW = np.zeros_like(D, shape=(c_out, c_in * k * k))
    for s in range(0, batch, some):
        n = min(some, batch - s)
        padded[:, :n, before : before + h_in, before : before + w_in] = A[s : s + n].swapaxes(0, 1)
        for y in range(0, h_out, rows):
            deltas = D[s : s + n, :, y : y + rows].swapaxes(0, 1)
            columns = np.empty_like(A, shape=(c_in, k, k, *deltas.shape[1:]))
            for i in range(k):
                below = padded[:, :n, y * stride + i :: stride][:, :, : deltas.shape[2]]
                for j in range(k):
                    columns[:, i, j] = below[..., j::stride][..., :w_out]
            dW += deltas.reshape(c_out, -1) @ columns.reshape(c_in * k * k, -1).T
    dW /= batch
    return dW.reshape(c_out, c_in, k, k)


@convolution_bias_gradient.array_kernel
def bias_gradient_array(D: Array) -> Array:
    return D.sum(axis=(0, 2, 3)) / len(D)


@convolution_input_gradient.array_kernel
def input_gradient_array(D: Array, W: Array, h_in: int, w_in: int, stride: int, before: int, after: int) -> Array:
    """A matrix product gives each delta times each weight; then k² slices are added to their pixels."""
    batch, c_out, h_out, w_out = D.shape
    c_in, k = W.shape[1:3]
    some, rows = _at_a_time(D, c_in * k * k)
    G = np.empty_like(D, shape=(batch, c_in, h_in, w_in))
    for s in range(0, batch, some):
        n = min(some, batch - s)
        padded = np.zeros_like(D, shape=(c_in, n, h_in + before + after, w_in + before + after))
        for y in range(0, h_out, rows):
            deltas = D[s : s + n, :, y : y + rows].swapaxes(0, 1)
            sent = (W.reshape(c_out, -1).T @ deltas.reshape(c_out, -1)).reshape(c_in, k, k, *deltas.shape[1:])
            for i in range(k):
                below = padded[:, :, y * stride + i :: stride][:, :, : deltas.shape[2]]
                for j in range(k):
                    met = below[..., j::stride][..., :w_out]
                    met += sent[:, i, j]
        G[s : s + n] = padded[:, :, before : before + h_in, before : before + w_in].swapaxes(0, 1)
    return G


# ---- numba: one image at a time, which stays in the cache; all rows as one long row, for SIMD instructions
#
# As in the forward pass an image is split by stride: the pixels that a weight is multiplied by are adjacent, in the
# order of the deltas. The deltas are spread to rows as long as those of the image, with zeros at their ends, so that
# one loop goes through all of them. Four filters share each pixel that is read; after the last filter there are zeros.

f32 = np.float32


@convolution_weight_gradient.kernel("numba", device="cpu", compiled=True)
def weight_gradient_fused(D: Array, A: Array, k: int, stride: int, before: int, after: int) -> Array:
    batch, c_out, h_out, w_out = D.shape
    c_in, h_in, w_in = A.shape[1:]
    h, w = (h_in + before + after - 1) // stride + 1, (w_in + before + after - 1) // stride + 1
    dealt = np.zeros((c_in, stride, stride, h * w), D.dtype)
    spread = np.zeros((c_out + 3, h_out * w), D.dtype)
    dW = np.zeros((c_out + 3, c_in, k, k), D.dtype)
    n = (h_out - 1) * w + w_out
    for s in range(batch):
        for c in range(c_in):
            for y in range(h_in):
                row = y + before
                for j in range(stride):
                    x0 = (j - before) % stride
                    a, to = A[s, c, y, x0:], dealt[c, row % stride, j, row // stride * w + (x0 + before) // stride :]
                    for x in range((w_in - x0 + stride - 1) // stride):
                        to[x] = a[x * stride]
        for o in range(c_out):
            for y in range(h_out):
                d, to = D[s, o, y], spread[o, y * w :]
                for x in range(w_out):
                    to[x] = d[x]
        for o in range(0, c_out, 4):
            d0, d1, d2, d3 = spread[o], spread[o + 1], spread[o + 2], spread[o + 3]
            for c in range(c_in):
                for i in range(k):
                    for j in range(k):
                        met = dealt[c, i % stride, j % stride, i // stride * w + j // stride :]
                        g0 = g1 = g2 = g3 = f32(0)
                        for x in range(n):
                            g0 += d0[x] * met[x]
                            g1 += d1[x] * met[x]
                            g2 += d2[x] * met[x]
                            g3 += d3[x] * met[x]
                        dW[o, c, i, j] += g0
                        dW[o + 1, c, i, j] += g1
                        dW[o + 2, c, i, j] += g2
                        dW[o + 3, c, i, j] += g3
    weights = dW.reshape(-1)
    for x in range(weights.size):
        weights[x] /= f32(batch)
    return dW[:c_out]


@convolution_bias_gradient.kernel("numba", device="cpu", compiled=True)
def bias_gradient_fused(D: Array) -> Array:
    batch, c_out, h_out, w_out = D.shape
    deltas = D.reshape((batch, c_out, h_out * w_out))
    db = np.zeros(c_out, D.dtype)
    for s in range(batch):
        for o in range(c_out):
            total = f32(0)
            for n in range(h_out * w_out):
                total += deltas[s, o, n]
            db[o] += total / f32(batch)
    return db


@convolution_input_gradient.kernel("numba", device="cpu", compiled=True)
def input_gradient_fused(D: Array, W: Array, h_in: int, w_in: int, stride: int, before: int, after: int) -> Array:
    """The products are added up in an image that is split by stride, whose parts are then joined."""
    batch, c_out, h_out, w_out = D.shape
    c_in, k = W.shape[1:3]
    h, w = (h_in + before + after - 1) // stride + 1, (w_in + before + after - 1) // stride + 1
    dealt = np.empty((stride, stride, h * w), D.dtype)
    spread = np.zeros((c_out + 3, h_out * w), D.dtype)
    weights = np.zeros((c_out + 3, c_in, k, k), D.dtype)
    flat, W_flat, weights_flat = dealt.reshape(-1), W.reshape(-1), weights.reshape(-1)
    for n in range(W_flat.size):
        weights_flat[n] = W_flat[n]
    G = np.empty((batch, c_in, h_in, w_in), D.dtype)
    n = (h_out - 1) * w + w_out
    for s in range(batch):
        for o in range(c_out):
            for y in range(h_out):
                d, to = D[s, o, y], spread[o, y * w :]
                for x in range(w_out):
                    to[x] = d[x]
        for c in range(c_in):
            for x in range(flat.size):
                flat[x] = f32(0)
            for i in range(k):
                for j in range(k):
                    met = dealt[i % stride, j % stride, i // stride * w + j // stride :]
                    for o in range(0, c_out, 4):
                        d0, d1, d2, d3 = spread[o], spread[o + 1], spread[o + 2], spread[o + 3]
                        w0, w1 = weights[o, c, i, j], weights[o + 1, c, i, j]
                        w2, w3 = weights[o + 2, c, i, j], weights[o + 3, c, i, j]
                        for x in range(n):
                            met[x] += w0 * d0[x] + w1 * d1[x] + w2 * d2[x] + w3 * d3[x]
            for y in range(h_in):
                row = y + before
                for j in range(stride):
                    x0 = (j - before) % stride
                    g, at = G[s, c, y, x0:], dealt[row % stride, j, row // stride * w + (x0 + before) // stride :]
                    for x in range((w_in - x0 + stride - 1) // stride):
                        g[x * stride] = at[x]
    return G


# ---- CUDA C

SOURCE = cuda_beside(__file__)
convolution_weight_gradient.cuda_kernel("naive", SOURCE)
convolution_weight_gradient.cuda_kernel("tree", SOURCE, grid=("c_out * c_in * k * k",))
convolution_weight_gradient.cuda_kernel("tiles", SOURCE, grid=("(c_in * k * k + 7) // 8", "(c_out + 7) // 8"))
convolution_bias_gradient.cuda_kernel("naive", SOURCE)
convolution_bias_gradient.cuda_kernel("tree", SOURCE, block=512, grid=("c_out",))
convolution_input_gradient.cuda_kernel("naive", SOURCE)
PIXELS_OF_CHANNELS = "(batch * h_in * w_in + 255) // 256", "(c_in + 7) // 8"
convolution_input_gradient.cuda_kernel("shared", SOURCE, grid=PIXELS_OF_CHANNELS)

TILES = cuda_beside(__file__, name="convolution_input_gradient_tiles", before=(ON_TILES,))
BLOCKS = "((c_in + 63) // 64) * ((batch * h_in * w_in + 127) // 128)"  # a tile of 64 channels and 128 pixels each
convolution_input_gradient.cuda_kernel("implicit_gemm", TILES, block=128, grid=(BLOCKS,), default=True)

WEIGHT_TILES = cuda_beside(__file__, name="convolution_weight_gradient_tiles", before=(ON_TILES,))
BLOCKS_AT_ONCE = 3  # on a multiprocessor
LEAST_PIXELS = 64  # of a part: with fewer, adding the parts takes longer than it saves


@functools.lru_cache(maxsize=256)
def _parts(tiles: int, pixels: int, at_once: int) -> int:
    """In how many parts the sums are split, so that no multiprocessor is idle at the end; `at_once` blocks run."""

    def share(parts: int) -> float:
        rounds = ceil(tiles * parts / at_once)
        return tiles * parts / (rounds * at_once)

    fewest_first = sorted({max(1, rounds * at_once // tiles) for rounds in range(1, 5)})
    parts = next((parts for parts in fewest_first if share(parts) > 0.95), max(fewest_first, key=share))
    return max(1, min(parts, pixels // LEAST_PIXELS))


@convolution_weight_gradient.kernel("implicit_gemm", device="gpu", cuda=True, takes_out=True, default=True)
def weight_gradient_implicit_gemm(
    D: Array, A: Array, k: int, stride: int, before: int, after: int, out: Array = None, **emulator: Any
) -> Array:
    """A product of two matrices in convolution_weight_gradient_tiles.cu; `out` is the array for the result."""
    convolution_weight_gradient.sizes(D, A, k, stride, before, after)
    (batch, c_out, h_out, w_out), (c_in, h_in, w_in), xp = D.shape, A.shape[1:], array_module(D)
    dW = xp.empty((c_out, c_in, k, k), np.float32) if out is None else out
    rows, columns = (64, 128) if c_out <= 64 else (128, 64)
    tiles, pixels = ceil(c_out / rows) * ceil(c_in * k * k / columns), batch * h_out * w_out
    parts = _parts(tiles, pixels, BLOCKS_AT_ONCE * (multiprocessors() if on_gpu(D) else 2))
    span = ceil(pixels / parts)
    sums = dW if parts == 1 else xp.empty((parts, dW.size), np.float32)
    arguments = D, A, sums, batch, c_out, c_in, h_in, w_in, k, stride, before, h_out, w_out, span
    entry = f"convolution_weight_gradient_part_{rows}x{columns}"
    launching().launch(WEIGHT_TILES, entry, (tiles, parts), (128,), arguments, **emulator)
    if parts > 1:
        together = 8 if parts >= 32 else 1
        blocks, joined = ceil(dW.size * together / 256), (sums, dW, parts, dW.size, together)
        launching().launch(WEIGHT_TILES, "convolution_weight_gradient_join", (blocks,), (256,), joined, **emulator)
    return dW
