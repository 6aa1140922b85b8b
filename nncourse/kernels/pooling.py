"""Pooling makes images smaller: each window of pixels is replaced by its largest number, or by its mean.

Images are A[s, c, row, column]: sample, channel, row, column. Windows of size × size pixels begin every `stride`
pixels; with a stride below the size they overlap.
"""

from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.convolution import MOST_IMAGES, NEGATIVE, ONE_IMAGE, one_image
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Mistakes, Trial, exact, sizes_named

SUM_TOLERANCE = 64.0  # a window has up to some hundred pixels
WINDOWS = "h_out = (h_in - size) // stride + 1, w_out = (w_in - size) // stride + 1, size >= 1, stride >= 1"
PADDED = (
    "h_out = (h_in + 2 * padding - size) // stride + 1, w_out = (w_in + 2 * padding - size) // stride + 1, "
    "size >= 1, stride >= 1, padding >= 0, 2 * padding <= size"
)


def _windows(A: Array, size: int, stride: int) -> Array:
    """A view of all windows: (batch, c, h_out, w_out, size, size)."""
    return np.lib.stride_tricks.sliding_window_view(A, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]


_maxpool_sizes = sizes_named("batch c h_in w_in size stride padding")
_images = sizes_named("batch c h w")


def _draw(rng: np.random.Generator) -> Sizes:
    """Small images; windows that are adjacent, that overlap, and with pixels between them."""
    shape, windows = rng.integers(1, 6, 2).tolist() + rng.integers(1, 21, 2).tolist(), rng.integers(1, 8, 2).tolist()
    return _maxpool_sizes(*shape, *windows, int(rng.integers(0, windows[0] // 2 + 1)))


def _without_padding(*cases: Sizes) -> list[Sizes]:
    """The same sizes without padding, if a window then fits into the image."""
    fitting = [case for case in cases if case["size"] <= min(case["h_in"], case["w_in"])]
    return [{name: size for name, size in case.items() if name != "padding"} for case in fitting]


def _flops(batch: int, c: int, h_out: int, w_out: int, size: int, **others: int) -> int:
    return batch * c * h_out * w_out * size * size


# ---- the largest number of each window
#
# The place of a pixel is row · w_in + column. Of equal numbers the first wins, row by row. NaN counts as larger than
# all numbers, so that it is not lost. Windows reach up to `padding` rows and columns past the image, without numbers.


def _maxpool_truth(A: Array, size: int, stride: int, padding: int) -> tuple[Array, Array]:
    """All windows of the image, and the same windows of the pixels' places, −1 outside the image."""
    h_in, w_in = A.shape[2:]
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    numbers = np.pad(np.arange(h_in * w_in).reshape(1, 1, h_in, w_in), around, constant_values=-1)
    values = _windows(np.pad(A, around, constant_values=-np.inf), size, stride)
    numbers = np.broadcast_to(_windows(numbers, size, stride), values.shape)
    flat = (*values.shape[:4], size * size)
    values, numbers = values.reshape(flat), numbers.reshape(flat)
    Z = values.max(axis=-1)
    largest = (values == Z[..., None]) | (np.isnan(values) & np.isnan(Z)[..., None])
    first = np.argmax(largest & (numbers >= 0), axis=-1)
    return Z, np.take_along_axis(numbers, first[..., None], axis=-1)[..., 0]


MAXPOOL_SIZES: dict[str, Any] = {
    "sizes_to_check": [
        _maxpool_sizes(2, 3, 7, 9, 3, 2, 1),  # overlapping, with padding
        _maxpool_sizes(1, 1, 1, 1, 1, 1, 0),  # one pixel
        _maxpool_sizes(2, 1, 8, 8, 4, 4, 0),  # adjacent windows
        _maxpool_sizes(3, 2, 9, 7, 2, 2, 0),  # a row and a column belong to no window
        _maxpool_sizes(1, 3, 5, 5, 5, 1, 0),  # a window as large as the image
        _maxpool_sizes(2, 2, 6, 9, 3, 1, 0),
        _maxpool_sizes(1, 2, 4, 3, 2, 1, 1),
        _maxpool_sizes(2, 1, 1, 2, 6, 1, 3),  # windows much larger than the image
        _maxpool_sizes(1, 1, 9, 11, 2, 3, 1),  # pixels between the windows
        _maxpool_sizes(1, 2, 33, 17, 5, 2, 2),
        _maxpool_sizes(1, 1, 20, 18, 17, 1, 0),  # more than 255 pixels in a window
        _maxpool_sizes(17, 5, 4, 6, 3, 3, 0),
        _maxpool_sizes(7, 45, 4, 3, 2, 1, 0),
        _maxpool_sizes(1, 1, 36, 35, 33, 2, 0),  # more than 1,024 pixels in a window
        _maxpool_sizes(1, 1, 20, 23, 9, 8, 4),
    ],
    "draw_sizes": _draw,
    "large_sizes": [
        _maxpool_sizes(65_919, 1, 2, 2, 2, 2, 0),
        _maxpool_sizes(1, 66_015, 2, 1, 1, 2, 0),
        _maxpool_sizes(1, 1, 66_100, 2, 2, 5, 0),
        _maxpool_sizes(1, 1, 2, 66_200, 2, 5, 1),
        _maxpool_sizes(1, 1, 290, 301, 3, 3, 0),  # places that need more than 16 bits
    ],
    "sizes_to_time": lambda device: _maxpool_sizes(
        *((32, 4, 28, 28, 4, 4, 0) if device == "cpu" else (4096, 16, 28, 28, 2, 2, 0))
    ),
}


def _which_pixels(place: tuple[int, ...], A: Array, size: int, stride: int, padding: int) -> str:
    """The rows and columns of a window inside the image, and whether its largest number occurs twice."""
    first = [at * stride - padding for at in place[2:]]
    inside = [(max(at, 0), min(at + size, side)) for at, side in zip(first, A.shape[2:], strict=True)]
    (top, bottom), (left, right) = inside
    window = A[place[0], place[1], top:bottom, left:right]
    wins = np.isnan(window) if np.isnan(window).any() else window == window.max()
    said = f"that window holds rows {top} to {bottom - 1} and columns {left} to {right - 1}"
    return said + ("; of equal numbers, and of NaNs, the first counts" if wins.sum() > 1 else "")


def _mistakes_of_maxpool(place: tuple[int, ...], A: Array, size: int, stride: int, padding: int) -> Mistakes:
    Z, places = _maxpool_truth(A, size, stride, padding)
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    zeros = _windows(np.pad(A, around), size, stride)
    inside = _windows(np.pad(np.ones_like(A), around), size, stride).sum(axis=(-2, -1))
    sums = zeros.sum(axis=(-2, -1))
    yield "this is the sum of each window: return its largest number", (sums, places)
    yield "this is the mean of each window: return its largest number", (sums / inside, places)
    words = "a 0 from the padding, or from the start of the search, is larger than all pixels: compare pixels alone"
    yield words, (np.maximum(Z, 0), places)
    yield words, (zeros.max(axis=(-2, -1)), places)
    before = ((0, 0), (0, 0), (padding, 0), (padding, 0))
    after = ((0, 0), (0, 0), (0, padding), (0, padding))
    wrapped = np.pad(np.pad(A, before, mode="wrap"), after, constant_values=-np.inf)
    yield NEGATIVE, (_windows(wrapped, size, stride).max(axis=(-2, -1)), places)
    images, h_out = Z.shape[0] * Z.shape[1], Z.shape[2]
    if images <= MOST_IMAGES:
        below = np.pad(A, ((0, 0), (0, 0), (0, images * h_out * stride), (0, 0)), constant_values=-np.inf)
        yield ONE_IMAGE, (one_image(_maxpool_truth(below, size, stride, padding)[0], h_out), places)


maxpool_forward = Operation(
    "maxpool_forward",
    "Z[s, c, y, x] = max A[s, c, y·stride + i − padding, x·stride + j − padding] inside the image, i, j < size",
    contract="A (batch, c, h_in, w_in), size () int, stride () int, padding () int"
    f" -> Z (batch, c, h_out, w_out), places (batch, c, h_out, w_out) int where {PADDED}",
    reference=_maxpool_truth,
    flops=_flops,
    trial=Trial(
        **MAXPOOL_SIZES,
        error_scale=lambda *arguments: (exact(), exact()),
        advice=_which_pixels,
        mistakes=_mistakes_of_maxpool,
        edge_cases=("zeros", "large", "infinite", "ties", "nan"),
    ),
)


@maxpool_forward.kernel("loops", device="cpu")
def maxpool_loops(A: Array, size: int, stride: int, padding: int) -> tuple[Array, Array]:
    """The search starts with a pixel of the window, not with 0: all pixels may be negative."""
    batch, c, h_in, w_in = A.shape
    h_out, w_out = (h_in + 2 * padding - size) // stride + 1, (w_in + 2 * padding - size) // stride + 1
    Z = np.empty((batch, c, h_out, w_out), A.dtype)
    places = np.empty((batch, c, h_out, w_out), np.int32)
    for s in range(batch):
        for k in range(c):
            for y in range(h_out):
                for x in range(w_out):
                    top, left = y * stride - padding, x * stride - padding
                    largest, place = A[s, k, max(top, 0), max(left, 0)], max(top, 0) * w_in + max(left, 0)
                    for row in range(max(top, 0), min(top + size, h_in)):
                        for column in range(max(left, 0), min(left + size, w_in)):
                            a = A[s, k, row, column]
                            if a > largest or (a != a and largest == largest):  # only NaN differs from itself
                                largest, place = a, row * w_in + column
                    Z[s, k, y, x] = largest
                    places[s, k, y, x] = place
    return Z, places


@maxpool_forward.kernel("numba", device="cpu", compiled=True)
def maxpool_numba(A: Array, size: int, stride: int, padding: int) -> tuple[Array, Array]:
    """First the largest pixel of each column of the windows, all columns at once; then the largest of these.

    Comparisons select one of two values instead of branching, because such branches cannot be predicted.
    """
    batch, c, h_in, w_in = A.shape
    h_out, w_out = (h_in + 2 * padding - size) // stride + 1, (w_in + 2 * padding - size) // stride + 1
    Z = np.empty((batch, c, h_out, w_out), A.dtype)
    places = np.empty((batch, c, h_out, w_out), np.int32)
    largest = np.empty(w_in, A.dtype)
    starts = np.empty(w_in, np.int32)  # the place where the largest pixel's row starts
    for s in range(batch):
        for k in range(c):
            for y in range(h_out):
                top = y * stride - padding
                first = max(top, 0)
                for column in range(w_in):
                    largest[column], starts[column] = A[s, k, first, column], first * w_in
                for row in range(first + 1, min(top + size, h_in)):
                    for column in range(w_in):
                        a, z = A[s, k, row, column], largest[column]
                        larger = (a > z) | ((a != a) & (z == z))
                        largest[column] = a if larger else z
                        starts[column] = np.int32(row * w_in) if larger else starts[column]
                for x in range(w_out):
                    left = x * stride - padding
                    first = max(left, 0)
                    z, place = largest[first], starts[first] + np.int32(first)
                    for column in range(first + 1, min(left + size, w_in)):
                        a, another = largest[column], starts[column] + np.int32(column)
                        above = another < place  # of equal numbers, the one in the upper row is the first
                        larger = (a > z) | ((a == z) & above) | ((a != a) & ((z == z) | above))
                        z = a if larger else z
                        place = another if larger else place
                    Z[s, k, y, x] = z
                    places[s, k, y, x] = place
    return Z, places


def _inside(offset: int, stride: int, length: int, count: int) -> tuple[slice, slice]:
    """Two slices: the windows, of `count`, whose pixel at `offset` is inside the image, and these pixels."""
    first = -(offset // stride) if offset < 0 else 0
    end = max(first, min(count, (length - 1 - offset) // stride + 1))
    start = first * stride + offset
    return slice(first, end), slice(start, start + (end - first) * stride, stride)


@maxpool_forward.array_kernel
def maxpool_array(A: Array, size: int, stride: int, padding: int) -> tuple[Array, Array]:
    """The pixels at one place of all windows are a slice of the image.

    The largest number of each window: over its rows, then over its columns. Its place follows from the number of pixels
    of the window before the first one that is equal to it.
    """
    batch, c, h_in, w_in = A.shape
    h_out, w_out = (h_in + 2 * padding - size) // stride + 1, (w_in + 2 * padding - size) // stride + 1
    down = [_inside(i - padding, stride, h_in, h_out) for i in range(size)]
    across = [_inside(j - padding, stride, w_in, w_out) for j in range(size)]
    of_rows = np.full_like(A, -np.inf, shape=(batch, c, h_out, w_in))
    for ys, rows in down:
        np.maximum(of_rows[:, :, ys], A[:, :, rows], out=of_rows[:, :, ys])
    Z = np.full_like(A, -np.inf, shape=(batch, c, h_out, w_out))
    for xs, columns in across:
        np.maximum(Z[..., xs], of_rows[..., columns], out=Z[..., xs])

    nan = bool(np.isnan(Z).any())
    not_yet = np.ones_like(Z, dtype=bool)
    differs = np.ones_like(Z, dtype=bool)
    before = np.zeros_like(Z, dtype=np.min_scalar_type(size * size))  # one byte if that is enough
    for ys, rows in down:
        for xs, columns in across:
            pixels = A[:, :, rows, columns]
            if padding:
                differs.fill(True)
            np.not_equal(pixels, Z[:, :, ys, xs], out=differs[:, :, ys, xs])
            if nan:
                differs[:, :, ys, xs] &= pixels == pixels  # a NaN differs from itself, but is the largest
            not_yet &= differs
            before += not_yet
    in_window = np.arange(size, like=A, dtype=np.int32)[:, None] * w_in + np.arange(size, like=A, dtype=np.int32)
    places = in_window.reshape(-1)[before]
    places += (np.arange(h_out, like=A, dtype=np.int32) * stride - padding)[:, None] * w_in
    places += np.arange(w_out, like=A, dtype=np.int32) * stride - padding
    return Z, places


# ---- backward: a delta belongs to the pixel that was the largest


def _places(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """A pixel of each window: that of an image's largest number, so that windows share pixels; or any pixel."""
    batch, c, h_out, w_out = shape
    h_in, w_in, size, stride, padding = (sizes[name] for name in ("h_in", "w_in", "size", "stride", "padding"))
    if sizes["turn"] % 2:
        image = rng.integers(0, 4, (batch, c, h_in, w_in)).astype(np.float64)
        return _maxpool_truth(image, size, stride, padding)[1].astype(np.int32)
    top = (np.arange(h_out) * stride - padding)[:, None]
    left = np.arange(w_out) * stride - padding
    rows = rng.integers(np.maximum(top, 0), np.minimum(top + size, h_in), shape)
    columns = rng.integers(np.maximum(left, 0), np.minimum(left + size, w_in), shape)
    return (rows * w_in + columns).astype(np.int32)


def _maxpool_backward_truth(
    D: Array, places: Array, h_in: int, w_in: int, size: int, stride: int, padding: int
) -> Array:
    batch, c = D.shape[:2]
    G = np.zeros((batch * c, h_in * w_in))
    np.add.at(G, (np.arange(batch * c)[:, None], places.reshape(batch * c, -1)), D.reshape(batch * c, -1))
    return G.reshape(batch, c, h_in, w_in)


def _mistakes_of_maxpool_backward(
    place: tuple[int, ...], D: Array, places: Array, h_in: int, w_in: int, size: int, stride: int, padding: int
) -> Mistakes:
    """A kernel that compares places with pixels of the whole batch; one that assigns deltas, or takes their mean."""
    of_the_first = np.zeros_like(D)
    of_the_first[0, 0] = D[0, 0]
    words = (
        "only the first channel of the first sample gets deltas: places counts pixels within one image, "
        "as t % (h_in * w_in) does"
    )
    yield words, _maxpool_backward_truth(of_the_first, places, h_in, w_in, size, stride, padding)
    s, k, row, column = place
    deltas = D[s, k][places[s, k] == row * w_in + column]
    if deltas.size > 1:
        shared = f"pixel {row, column} is the largest of {deltas.size} windows"
        yield f"{shared}, and gets the mean of their deltas: add them up", float(deltas.mean())
        for delta in deltas:
            yield f"{shared}, and gets the delta of only one: add them up", float(delta)


maxpool_backward = Operation(
    "maxpool_backward",
    "G[s, c, row, column] = Σ D[s, c, y, x] over all windows with places[s, c, y, x] = row · w_in + column",
    contract="D (batch, c, h_out, w_out), places (batch, c, h_out, w_out) int, h_in () int, w_in () int, size () int, "
    f"stride () int, padding () int -> G (batch, c, h_in, w_in) where {PADDED}",
    reference=_maxpool_backward_truth,
    flops=lambda batch, c, h_out, w_out, **others: batch * c * h_out * w_out,
    trial=Trial(
        **MAXPOOL_SIZES
        | {
            # few windows in each image, for a kernel that looks through all of them for each pixel
            "large_sizes": [
                _maxpool_sizes(65_919, 1, 2, 2, 2, 2, 0),
                _maxpool_sizes(1, 66_015, 2, 1, 1, 2, 0),
                _maxpool_sizes(1, 1, 66_100, 1, 1, 1000, 0),
                _maxpool_sizes(1, 1, 1, 66_200, 2, 1000, 1),
                _maxpool_sizes(1, 1, 290, 301, 2, 100, 0),
            ]
        },
        error_scale=lambda D, places, *sizes: _maxpool_backward_truth(abs(D), places, *sizes),
        tolerance=SUM_TOLERANCE,
        values={"places": _places},
        mistakes=_mistakes_of_maxpool_backward,
        edge_cases=("zeros", "large", "infinite", "nan"),
    ),
)


@maxpool_backward.kernel("loops", device="cpu")
def maxpool_backward_loops(
    D: Array, places: Array, h_in: int, w_in: int, size: int, stride: int, padding: int
) -> Array:
    """Where windows overlap, deltas meet in one pixel, and are added."""
    batch, c, h_out, w_out = D.shape
    G = np.zeros((batch, c, h_in, w_in), D.dtype)
    for s in range(batch):
        for k in range(c):
            for y in range(h_out):
                for x in range(w_out):
                    place = places[s, k, y, x]
                    G[s, k, place // w_in, place % w_in] += D[s, k, y, x]
    return G


@maxpool_backward.kernel("numba", device="cpu", compiled=True)
def maxpool_backward_numba(
    D: Array, places: Array, h_in: int, w_in: int, size: int, stride: int, padding: int
) -> Array:
    """Images as rows of pixels, so that a place is an index."""
    batch, c, h_out, w_out = D.shape
    G = np.zeros((batch, c, h_in, w_in), D.dtype)
    g, d, of = G.reshape(batch * c, -1), D.reshape(batch * c, -1), places.reshape(batch * c, -1)
    for image in range(batch * c):
        for window in range(h_out * w_out):
            g[image, of[image, window]] += d[image, window]
    return G


@maxpool_backward.kernel("numpy", device="cpu")
def maxpool_backward_numpy(
    D: Array, places: Array, h_in: int, w_in: int, size: int, stride: int, padding: int
) -> Array:
    """`G[where] += D` would keep only one of the deltas for a pixel; np.add.at adds them all, one by one in order."""
    batch, c, h_out, w_out = D.shape
    G = np.zeros((batch, c, h_in, w_in), D.dtype)
    images = np.arange(0, G.size, h_in * w_in)[:, None]
    where = images + places.reshape(batch * c, h_out * w_out)
    np.add.at(G.reshape(-1), where.reshape(-1), D.reshape(-1))
    return G


@maxpool_backward.kernel("cupy", device="gpu")
def maxpool_backward_cupy(D: Array, places: Array, h_in: int, w_in: int, size: int, stride: int, padding: int) -> Array:
    """One place in the windows at a time: two deltas whose pixels have the same place there never share a pixel.

    np.add.at on a GPU adds in any order, and the sum differs from call to call.
    """
    batch, c, h_out, w_out = D.shape
    G = np.zeros_like(D, shape=(batch, c, h_in, w_in))
    top = np.arange(h_out, like=D, dtype=np.int32)[:, None] * stride - padding
    in_window = places - (top * w_in + np.arange(w_out, like=D, dtype=np.int32) * stride - padding)
    for i in range(size):
        ys, rows = _inside(i - padding, stride, h_in, h_out)
        for j in range(size):
            xs, columns = _inside(j - padding, stride, w_in, w_out)
            here = in_window[:, :, ys, xs] == i * w_in + j
            G[:, :, rows, columns] += np.where(here, D[:, :, ys, xs], np.float32(0))
    return G


# ---- the mean of each window


AVERAGEPOOL_SIZES: dict[str, Any] = {
    "sizes_to_check": _without_padding(*MAXPOOL_SIZES["sizes_to_check"]),
    "draw_sizes": lambda rng: {name: size for name, size in _draw(rng).items() if name != "padding"},
    "large_sizes": _without_padding(*MAXPOOL_SIZES["large_sizes"]),
    "sizes_to_time": lambda device: _without_padding(MAXPOOL_SIZES["sizes_to_time"](device))[0],
}

averagepool_forward = Operation(
    "averagepool_forward",
    "Z[s, c, y, x] = mean of A[s, c, y·stride + i, x·stride + j] over 0 ≤ i, j < size",
    contract=f"A (batch, c, h_in, w_in), size () int, stride () int -> Z (batch, c, h_out, w_out) where {WINDOWS}",
    reference=lambda A, size, stride: _windows(A, size, stride).mean(axis=(-2, -1)),
    flops=_flops,
    trial=Trial(
        **AVERAGEPOOL_SIZES,
        error_scale=lambda A, size, stride: _windows(abs(A), size, stride).mean(axis=(-2, -1)),
        tolerance=SUM_TOLERANCE,
        sums=True,
    ),
)


@averagepool_forward.kernel("loops", device="cpu")
def averagepool_loops(A: Array, size: int, stride: int) -> Array:
    batch, c, h_in, w_in = A.shape
    h_out, w_out = (h_in - size) // stride + 1, (w_in - size) // stride + 1
    Z = np.empty((batch, c, h_out, w_out), A.dtype)
    for s in range(batch):
        for k in range(c):
            for y in range(h_out):
                for x in range(w_out):
                    total = 0.0
                    for i in range(size):
                        for j in range(size):
                            total += A[s, k, y * stride + i, x * stride + j]
                    Z[s, k, y, x] = total / (size * size)
    return Z


@averagepool_forward.kernel("numba", device="cpu", compiled=True)
def averagepool_numba(A: Array, size: int, stride: int) -> Array:
    """First the sums of the windows' columns, all columns at once; then the sums of these."""
    batch, c, h_in, w_in = A.shape
    h_out, w_out = (h_in - size) // stride + 1, (w_in - size) // stride + 1
    Z = np.empty((batch, c, h_out, w_out), A.dtype)
    sums = np.empty(w_in, A.dtype)
    for s in range(batch):
        for k in range(c):
            for y in range(h_out):
                sums[:] = A[s, k, y * stride]
                for i in range(1, size):
                    for column in range(w_in):
                        sums[column] += A[s, k, y * stride + i, column]
                for x in range(w_out):
                    total = sums[x * stride]
                    for j in range(1, size):
                        total += sums[x * stride + j]
                    Z[s, k, y, x] = total / (size * size)
    return Z


def _every(offset: int, stride: int, count: int) -> slice:
    """The pixels at `offset` of all windows: a slice."""
    return slice(offset, offset + (count - 1) * stride + 1, stride)


@averagepool_forward.array_kernel
def averagepool_array(A: Array, size: int, stride: int) -> Array:
    """The pixels at one place of all windows are a slice of the image. First rows are added, then columns."""
    batch, c, h_in, w_in = A.shape
    h_out, w_out = (h_in - size) // stride + 1, (w_in - size) // stride + 1
    of_rows = np.zeros_like(A, shape=(batch, c, h_out, w_in))
    for i in range(size):
        of_rows += A[:, :, _every(i, stride, h_out)]
    Z = np.zeros_like(A, shape=(batch, c, h_out, w_out))
    for j in range(size):
        Z += of_rows[..., _every(j, stride, w_out)]
    Z /= size * size
    return Z


# ---- backward: every pixel of a window gets the same share of its delta


def _averagepool_backward_truth(D: Array, h_in: int, w_in: int, size: int, stride: int) -> Array:
    """Sums of windows of an image that has the elements of D with zeros between and around them."""
    batch, c, h_out, w_out = D.shape
    spread = np.zeros((batch, c, h_in + size - 1, w_in + size - 1))
    spread[:, :, _every(size - 1, stride, h_out), _every(size - 1, stride, w_out)] = D
    return _windows(spread, size, 1).sum(axis=(-2, -1)) / size**2


averagepool_backward = Operation(
    "averagepool_backward",
    "G[s, c, row, column] = Σ D[s, c, y, x] / size² over all windows that hold the pixel",
    contract="D (batch, c, h_out, w_out), h_in () int, w_in () int, size () int, stride () int"
    f" -> G (batch, c, h_in, w_in) where {WINDOWS}",
    reference=_averagepool_backward_truth,
    flops=_flops,
    trial=Trial(
        **AVERAGEPOOL_SIZES,
        error_scale=lambda D, *sizes: _averagepool_backward_truth(abs(D), *sizes),
        tolerance=SUM_TOLERANCE,
    ),
)


@averagepool_backward.kernel("loops", device="cpu")
def averagepool_backward_loops(D: Array, h_in: int, w_in: int, size: int, stride: int) -> Array:
    batch, c, h_out, w_out = D.shape
    G = np.zeros((batch, c, h_in, w_in), D.dtype)
    for s in range(batch):
        for k in range(c):
            for y in range(h_out):
                for x in range(w_out):
                    share = D[s, k, y, x] / (size * size)
                    for i in range(size):
                        for j in range(size):
                            G[s, k, y * stride + i, x * stride + j] += share
    return G


@averagepool_backward.kernel("numba", device="cpu", compiled=True)
def averagepool_backward_numba(D: Array, h_in: int, w_in: int, size: int, stride: int) -> Array:
    """All pixel rows of a row of windows get the same shares: these are computed once, then added to each."""
    batch, c, h_out, w_out = D.shape
    G = np.zeros((batch, c, h_in, w_in), D.dtype)
    shares = np.empty(w_in, D.dtype)
    for s in range(batch):
        for k in range(c):
            for y in range(h_out):
                shares[:] = 0
                for x in range(w_out):
                    share = D[s, k, y, x] / (size * size)
                    for j in range(size):
                        shares[x * stride + j] += share
                for i in range(size):
                    for column in range(w_in):
                        G[s, k, y * stride + i, column] += shares[column]
    return G


@averagepool_backward.array_kernel
def averagepool_backward_array(D: Array, h_in: int, w_in: int, size: int, stride: int) -> Array:
    """First the shares go to the columns of the windows, then to their rows."""
    batch, c, h_out, w_out = D.shape
    share = D / (size * size)
    of_rows = np.zeros_like(D, shape=(batch, c, h_out, w_in))
    for j in range(size):
        of_rows[..., _every(j, stride, w_out)] += share
    G = np.zeros_like(D, shape=(batch, c, h_in, w_in))
    for i in range(size):
        G[:, :, _every(i, stride, h_out)] += of_rows
    return G


# ---- the mean of a whole image, whatever its height and width


GLOBALPOOL_SIZES: dict[str, Any] = {
    "sizes_to_check": [
        _images(3, 4, 2, 5),
        _images(1, 1, 1, 1),
        _images(2, 3, 5, 7),
        _images(1, 5, 1, 9),
        _images(16, 17, 4, 4),
        _images(2, 70, 3, 1),
        _images(1, 2, 33, 20),
    ],
    "draw_sizes": lambda rng: _images(*rng.integers(1, 12, 4).tolist()),
    "large_sizes": [_images(65_919, 1, 1, 1), _images(1, 66_015, 1, 1), _images(1, 1, 260, 259)],
    "sizes_to_time": lambda device: _images(*((128, 512, 5, 7) if device == "gpu" else (32, 64, 5, 7))),
}

globalpool_forward = Operation(
    "globalpool_forward",
    "M[s, c] = mean of A[s, c, y, x] over y, x",
    contract="A (batch, c, h, w) -> M (batch, c)",
    reference=lambda A: np.einsum("scyx->sc", A) / A[0, 0].size,
    flops=lambda batch, c, h, w: batch * c * h * w,
    trial=Trial(**GLOBALPOOL_SIZES, tolerance=SUM_TOLERANCE, sums=True),
)

globalpool_backward = Operation(
    "globalpool_backward",
    "G[s, c, y, x] = D[s, c] / (h w)",
    contract="D (batch, c), h () int, w () int -> G (batch, c, h, w)",
    reference=lambda D, h, w: np.einsum("sc,yx->scyx", D, np.full((h, w), 1 / (h * w))),
    flops=lambda batch, c, h, w: batch * c * h * w,
    trial=Trial(
        **GLOBALPOOL_SIZES, error_scale=lambda D, h, w: np.einsum("sc,yx->scyx", abs(D), np.full((h, w), 1 / (h * w)))
    ),
)


@globalpool_forward.loops_kernel
def globalpool_loops(A: Array) -> Array:
    batch, c, h, w = A.shape
    M = np.empty((batch, c), A.dtype)
    for s in range(batch):
        for k in range(c):
            total = 0.0
            for y in range(h):
                for x in range(w):
                    total += A[s, k, y, x]
            M[s, k] = total / (h * w)
    return M


@globalpool_forward.array_kernel
def globalpool_array(A: Array) -> Array:
    return A.mean(axis=(2, 3))


@globalpool_backward.loops_kernel
def globalpool_backward_loops(D: Array, h: int, w: int) -> Array:
    batch, c = D.shape
    G = np.empty((batch, c, h, w), D.dtype)
    for s in range(batch):
        for k in range(c):
            for y in range(h):
                for x in range(w):
                    G[s, k, y, x] = D[s, k] / (h * w)
    return G


@globalpool_backward.array_kernel
def globalpool_backward_array(D: Array, h: int, w: int) -> Array:
    G = np.empty_like(D, shape=(*D.shape, h, w))
    G[...] = (D / (h * w))[:, :, None, None]
    return G


SOURCE = cuda_beside(__file__)
for _operation in (maxpool_forward, maxpool_backward, averagepool_forward, averagepool_backward):
    _operation.cuda_kernel("naive", SOURCE)
globalpool_forward.cuda_kernel("naive", SOURCE)
globalpool_backward.cuda_kernel("naive", SOURCE)
