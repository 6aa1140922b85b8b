"""A convolutional layer: each neuron sees a small window of the image below it, and all windows share their weights.

Images are A[s, c, row, column]: sample, channel, row, column. W[o, c] are the k × k weights of filter o for channel c.
An image is padded with zeros: `before` rows and columns before the first, `after` after the last. The filter is not
flipped: this is a cross-correlation, which all libraries for neural networks call a convolution.
"""

from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.dense import ON_TILES
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Mistakes, Trial, sizes_named

_sizes = sizes_named("batch c_in h_in w_in c_out k stride before after")


def _truth(A: Array, W: Array, b: Array, stride: int, before: int, after: int) -> Array:
    """All windows of the padded image as one view, multiplied by all filters."""
    k = W.shape[-1]
    padded = np.pad(A, ((0, 0), (0, 0), (before, after), (before, after)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("scyxij,ocij->soyx", windows, W) + b[:, None, None]


def _flops(batch: int, c_in: int, c_out: int, k: int, h_out: int, w_out: int, **others: int) -> int:
    return 2 * batch * c_out * h_out * w_out * c_in * k * k


def _sizes_to_time(device: str) -> Sizes:
    """On the CPU the digits CNN's second layer; on a GPU the layers of ResNet-34 that have 64 filters."""
    return _sizes(*((128, 64, 37, 50, 64, 3, 1, 1, 1) if device == "gpu" else (32, 4, 28, 28, 4, 2, 1, 0, 1)))


def _draw(rng: np.random.Generator) -> Sizes:
    """A small convolution: strides of 1 to 3, even and odd filters, different padding before and after."""
    batch, c_in, c_out = rng.integers(1, 6, 3).tolist()
    h_in, w_in = rng.integers(1, 21, 2).tolist()
    k, stride = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    before, after = rng.integers(0, k + 1, 2).tolist()
    return _sizes(batch, c_in, h_in, w_in, c_out, k, stride, before, after)


def _which_window(place: tuple[int, ...], A: Array, W: Array, b: Array, stride: int, before: int, after: int) -> str:
    top, left = (at * stride - before for at in place[2:])
    return f"that window begins in row {top}, column {left} of the image"


TURNED = "the filter is rotated by half a turn: weight i, j belongs to pixel i, j of the window"
TRANSPOSED = "rows and columns of the filter are swapped: weight i, j belongs to row i, column j of the window"
NEGATIVE = "a row or column below 0 counts from the other end: skip pixels outside the image"
NOT_BEFORE = "`before` is left out: window y begins in row y · stride − before"
ONE_IMAGE = "y runs on from one image into the next, and never starts again at 0: is % h_out missing?"
MOST_IMAGES = 64  # that are put below one another
NO_STRIDE = "the windows are one pixel apart: window y begins in row y · stride − before"
EXCHANGED = "`before` and `after` are swapped: `before` is the padding above and on the left"


def one_image(Z: Array, h_out: int) -> Array:
    """The wrong rows that y = pixel / w_out picks for each image without % h_out: it runs on into the next images."""
    images = np.arange(Z.shape[0] * Z.shape[1]).reshape(Z.shape[:2])
    rows = images[..., None] * h_out + np.arange(h_out)
    return np.take_along_axis(Z, rows[..., None], axis=2)


def _mistakes(place: tuple[int, ...], A: Array, W: Array, b: Array, stride: int, before: int, after: int) -> Mistakes:
    h_out, w_out = ((side + before + after - W.shape[-1]) // stride + 1 for side in A.shape[2:])
    yield TURNED, _truth(A, W[:, :, ::-1, ::-1], b, stride, before, after)
    yield TRANSPOSED, _truth(A, W.swapaxes(2, 3), b, stride, before, after)
    yield NO_STRIDE, _truth(A, W, b, 1, before, after)[:, :, :h_out, :w_out]
    yield EXCHANGED, _truth(A, W, b, stride, after, before)
    around = ((0, 0), (0, 0), (before, 0), (before, 0))
    yield NEGATIVE, _truth(np.pad(A, around, mode="wrap"), W, b, stride, 0, after)
    yield NOT_BEFORE, _truth(A, W, b, stride, 0, before + after)
    images = len(A) * len(W)
    if images <= MOST_IMAGES:
        below = np.pad(A, ((0, 0), (0, 0), (0, images * h_out * stride), (0, 0)))
        yield ONE_IMAGE, one_image(_truth(below, W, b, stride, before, after), h_out)
    yield "b is left out: add b[o] to each sum of filter o", _truth(A, W, 0 * b, stride, before, after)
    words = "b is added once per channel: add it once, to the whole sum"
    yield words, _truth(A, W, A.shape[1] * b, stride, before, after)
    words = "b is added once per weight of the window, k² times: add it once, to the whole sum"
    yield words, _truth(A, W, W.shape[-1] ** 2 * b, stride, before, after)
    yield "b is added to each product: add it once, to their sum", _truth(A, W, W[0].size * b, stride, before, after)


convolution_forward = Operation(
    "convolution_forward",
    "Z[s,o,y,x] = b[o] + Σ_c,i,j W[o,c,i,j] A[s,c, y·stride+i−before, x·stride+j−before], 0 outside",
    contract="A (batch, c_in, h_in, w_in), W (c_out, c_in, k, k), b (c_out,), "
    "stride () int, before () int, after () int -> Z (batch, c_out, h_out, w_out)"
    " where h_out = (h_in + before + after - k) // stride + 1, w_out = (w_in + before + after - k) // stride + 1, "
    "k >= 1, stride >= 1",
    reference=_truth,
    flops=_flops,
    trial=Trial(
        advice=_which_window,
        mistakes=_mistakes,
        anywhere=("W", "b"),
        # The first is for the edge cases. It has no padding: an infinite weight times a zero of the padding is NaN, but
        # a kernel that skips the padding is right too.
        sizes_to_check=[
            _sizes(2, 3, 7, 9, 4, 3, 2, 0, 0),
            _sizes(1, 1, 2, 2, 1, 2, 1, 1, 1),  # so small that a verdict shows its numbers, and so is the next
            _sizes(1, 1, 2, 1, 2, 1, 1, 0, 0),
            _sizes(1, 1, 1, 1, 1, 1, 1, 0, 0),
            _sizes(2, 1, 1, 1, 3, 3, 1, 1, 1),  # one pixel
            _sizes(3, 2, 4, 5, 2, 2, 1, 0, 1),  # "same", an even filter
            _sizes(3, 2, 4, 5, 2, 2, 1, 1, 0),  # padded to the same shape: an array that was kept has old pixels in it
            _sizes(1, 4, 6, 5, 3, 3, 1, 1, 1),  # "same", an odd one
            _sizes(2, 2, 5, 5, 3, 5, 1, 0, 0),  # a filter as large as the image
            _sizes(1, 1, 3, 2, 2, 5, 2, 2, 3),  # a larger one
            _sizes(1, 2, 3, 2, 1, 2, 1, 4, 3),  # padding wider than the image: windows lie entirely in it
            _sizes(3, 3, 8, 3, 3, 3, 3, 2, 0),  # as many images as channels as filters
            _sizes(1, 2, 9, 20, 1, 4, 2, 0, 3),
            _sizes(1, 1, 40, 37, 5, 2, 1, 0, 1),  # more than a tile of 16 × 16 or 32 × 8, also with strides
            _sizes(1, 2, 38, 70, 3, 3, 2, 1, 1),
            _sizes(1, 1, 60, 5, 2, 4, 3, 1, 2),
            _sizes(2, 3, 3, 4, 70, 1, 2, 1, 0),
            _sizes(2, 8, 8, 16, 5, 3, 1, 1, 1),
            _sizes(1, 33, 4, 4, 2, 3, 1, 1, 1),
            _sizes(6, 40, 4, 3, 2, 3, 1, 1, 1),  # more than 32 channels, and more samples than four
            _sizes(20, 2, 4, 3, 40, 2, 1, 0, 1),
            _sizes(1, 36, 18, 17, 1, 2, 1, 0, 1),  # more than 32 channels, or filters, of larger images
            _sizes(1, 1, 18, 17, 36, 2, 1, 1, 0),
            _sizes(1, 2, 16, 15, 2, 7, 2, 3, 3),  # the first layer of a ResNet
            _sizes(1, 2, 19, 11, 2, 4, 4, 4, 6),  # 16 windows side by side are 64 pixels wide, as notebook 10 promises
            _sizes(2, 1, 6, 7, 2, 2, 4, 5, 4),  # wide padding
            _sizes(1, 1, 2, 1100, 2, 3, 1, 1, 1),  # long and thin
            _sizes(1, 2, 1060, 1, 1, 2, 2, 0, 1),
        ],
        draw_sizes=_draw,
        large_sizes=[
            _sizes(65_919, 1, 1, 1, 1, 1, 1, 0, 0),
            _sizes(1, 1, 1, 1, 66_303, 1, 1, 0, 0),
            _sizes(1, 1, 260, 259, 1, 2, 1, 0, 1),
            _sizes(1, 300, 15, 15, 1, 1, 1, 0, 0),
            _sizes(1, 2, 34, 33, 9, 33, 1, 0, 0),  # a wide filter; more weights than 64 KB of constant memory hold
        ],
        sizes_to_time=_sizes_to_time,
        budgets={
            "shared": Budget(
                _sizes(1, 1, 32, 32, 1, 3, 1, 1, 1),
                (Limit("reads", "batch * c_out * c_in * h_out * w_out * k * k // 3", "A"),),
                {"batch": 2, "c_in": 3, "c_out": 2, "w_in": 20},
            )
        },
    ),
)


@convolution_forward.kernel("loops", device="cpu")
def loops(A: Array, W: Array, b: Array, stride: int, before: int, after: int) -> Array:
    """The equation written out; places outside the image add nothing."""
    batch, c_in, h_in, w_in = A.shape
    c_out, k = W.shape[0], W.shape[3]
    h_out = (h_in + before + after - k) // stride + 1
    w_out = (w_in + before + after - k) // stride + 1
    Z = np.empty((batch, c_out, h_out, w_out), A.dtype)
    for s in range(batch):
        for o in range(c_out):
            for y in range(h_out):
                for x in range(w_out):
                    z = b[o]
                    for c in range(c_in):
                        for i in range(k):
                            for j in range(k):
                                row, column = y * stride + i - before, x * stride + j - before
                                if 0 <= row < h_in and 0 <= column < w_in:
                                    z += W[o, c, i, j] * A[s, c, row, column]
                    Z[s, o, y, x] = z
    return Z


@convolution_forward.array_kernel
def array(A: Array, W: Array, b: Array, stride: int, before: int, after: int) -> Array:
    """The windows are copied into columns, with k² slices of the images; filters times columns is a matrix product.

    The columns have about k² times as many elements as the images. So they are made for a few samples at a time, or for
    a few rows if one sample is too large.
    """
    batch, c_in, h_in, w_in = A.shape
    c_out, k = W.shape[0], W.shape[3]
    h, w = h_in + before + after, w_in + before + after
    h_out, w_out = (h - k) // stride + 1, (w - k) // stride + 1
    Z = np.empty_like(A, shape=(batch, c_out, h_out, w_out))
    filters = W.reshape(c_out, c_in * k * k)
    # Elements of the columns at a time: 1 MB stays in a CPU's cache; a GPU needs large matrices and few launches.
    most = 1 << 18 if isinstance(A, np.ndarray) else 1 << 27
    fitting = most // (c_in * k * k * w_out)  # rows of Z
    some, rows = min(max(fitting // h_out, 1), batch), min(max(fitting, 1), h_out)
    padded = np.zeros_like(A, shape=(some, c_in, h, w))
    for s in range(0, batch, some):
        n = min(some, batch - s)
        padded[:n, :, before : before + h_in, before : before + w_in] = A[s : s + n]
        for y in range(0, h_out, rows):
            m = min(rows, h_out - y)
            columns = np.empty_like(A, shape=(n, c_in, k, k, m, w_out))
            for i in range(k):
                below = padded[:n, :, y * stride + i :: stride][:, :, :m]
                for j in range(k):
                    columns[:, :, i, j] = below[..., j::stride][..., :w_out]
            product = np.matmul(filters, columns.reshape(n, c_in * k * k, m * w_out))
            product += b[:, None]
            Z[s : s + n, :, y : y + m] = product.reshape(n, c_out, m, w_out)
    return Z


@convolution_forward.kernel("numba", device="cpu", compiled=True)
def fused(A: Array, W: Array, b: Array, stride: int, before: int, after: int) -> Array:
    """One image at a time, which stays in the cache; long loops without tests, for SIMD instructions.

    The padded image is split by stride: `dealt[c, i, j]` has every stride-th row from row i on, and every stride-th
    column from column j on. In it the pixels that a weight is multiplied by are adjacent.
    """
    batch, c_in, h_in, w_in = A.shape
    c_out, k = W.shape[0], W.shape[3]
    h, w = h_in + before + after, w_in + before + after
    h_out, w_out = (h - k) // stride + 1, (w - k) // stride + 1
    h, w = (h + stride - 1) // stride, (w + stride - 1) // stride
    Z = np.empty((batch, c_out, h_out, w_out), A.dtype)
    dealt = np.zeros((c_in, stride, stride, h, w), A.dtype)
    pixels, weights = dealt.reshape(-1), W.reshape((c_out, -1))
    count = weights.shape[1]
    places = np.empty(count, np.int64)  # of the first pixel that each weight is multiplied by
    for t in range(count):
        c, i, j = t // (k * k), t // k % k, t % k
        places[t] = (((c * stride + i % stride) * stride + j % stride) * h + i // stride) * w + j // stride
    n = (h_out - 1) * w + w_out  # pixels of Z, and those between its rows, which are computed but not used
    z = np.empty(n, A.dtype)
    for s in range(batch):
        for c in range(c_in):
            for y in range(h_in):
                row = y + before
                for j in range(stride):
                    x0 = (j - before) % stride
                    a, to = A[s, c, y, x0:], dealt[c, row % stride, j, row // stride, (x0 + before) // stride :]
                    for x in range((w_in - x0 + stride - 1) // stride):
                        to[x] = a[x * stride]
        for o in range(c_out):
            for x in range(n):
                z[x] = b[o]
            for t in range(0, count - 3, 4):  # four weights at a time: z is read and written less often
                w0, w1, w2, w3 = weights[o, t], weights[o, t + 1], weights[o, t + 2], weights[o, t + 3]
                a0, a1 = pixels[places[t] :], pixels[places[t + 1] :]
                a2, a3 = pixels[places[t + 2] :], pixels[places[t + 3] :]
                for x in range(n):
                    z[x] += w0 * a0[x] + w1 * a1[x] + w2 * a2[x] + w3 * a3[x]
            for t in range(count - count % 4, count):
                w0, a0 = weights[o, t], pixels[places[t] :]
                for x in range(n):
                    z[x] += w0 * a0[x]
            for y in range(h_out):
                for x in range(w_out):
                    Z[s, o, y, x] = z[y * w + x]
    return Z


TILES_DOWN, TILES_ACROSS = "(h_out + 15) // 16", "(w_out + 15) // 16"  # of 16 × 16 pixels
SOURCE = cuda_beside(__file__)
convolution_forward.cuda_kernel("naive", SOURCE)
convolution_forward.cuda_kernel("shared", SOURCE, block=(16, 16), grid=("batch * c_out", TILES_DOWN, TILES_ACROSS))
GROUPS = "batch * ((c_out + 7) // 8)"  # of 8 filters
BY_GROUPS: dict[str, Any] = {"grid": (GROUPS, TILES_DOWN, TILES_ACROSS), "constants": {"filters": "W"}}
convolution_forward.cuda_kernel("constant", SOURCE, block=(16, 16), **BY_GROUPS)

TILES = cuda_beside(__file__, name="convolution_tiles", before=(ON_TILES,))
BLOCKS = "((c_out + 63) // 64) * ((batch * h_out * w_out + 127) // 128)"  # a tile of 64 filters and 128 pixels each
# On small images as fast as the others, on large ones far faster.
convolution_forward.cuda_kernel("implicit_gemm", TILES, block=128, grid=(BLOCKS,), default=True)
