"""Pooling: an image becomes smaller, because of each window only the largest number is kept, or the mean.

Images are A[s, c, row, column]: sample, channel, row, column. Windows of size × size pixels begin every `stride`
pixels; with a stride below the size they overlap.
"""

import numpy as np

from nncourse.kernels.operation import Operation, cuda_beside

SOURCE = cuda_beside(__file__)
SUM_TOLERANCE = 64.0  # a window has up to some hundred pixels
WINDOWS = "h_out = (h_in - size) // stride + 1, w_out = (w_in - size) // stride + 1, size >= 1, stride >= 1"
PADDED = (
    "h_out = (h_in + 2 * padding - size) // stride + 1, w_out = (w_in + 2 * padding - size) // stride + 1, "
    "size >= 1, stride >= 1, padding >= 0, 2 * padding <= size"
)


def _windows(A, size, stride):
    """A view of all windows: (batch, c, h_out, w_out, size, size)."""
    return np.lib.stride_tricks.sliding_window_view(A, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]


def _sizes(*cases, names):
    return [dict(zip(names, case, strict=True)) for case in cases]


# ---- the largest of each window
#
# The place of a pixel is row · w_in + column. Of equally large ones the first counts, row by row. NaN counts as larger
# than all numbers, so that it shows. `padding` rows and columns around the image are in windows, but hold no numbers.


def _maxpool_truth(A, size, stride, padding):
    """All windows at once, and beside them the windows of the pixels' numbers, −1 outside the image."""
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


def _maxpool_flops(batch, c, h_in, w_in, size, stride, padding, h_out, w_out):
    return batch * c * h_out * w_out * size * size


MAXPOOL = ("batch", "c", "h_in", "w_in", "size", "stride", "padding")
MAXPOOL_SIZES = _sizes(
    (2, 3, 7, 9, 3, 2, 1),
    (1, 1, 1, 1, 1, 1, 0),  # one pixel
    (2, 1, 8, 8, 4, 4, 0),  # windows side by side
    (3, 2, 9, 7, 2, 2, 0),  # a row and a column belong to no window
    (1, 3, 5, 5, 5, 1, 0),  # a window as large as the image
    (2, 2, 6, 9, 3, 1, 0),  # overlapping
    (1, 2, 4, 3, 2, 1, 1),
    (2, 1, 3, 2, 4, 1, 2),
    (1, 1, 9, 11, 2, 3, 1),  # pixels between the windows
    (1, 2, 33, 17, 5, 2, 2),
    (17, 5, 4, 6, 3, 3, 0),
    names=MAXPOOL,
)

maxpool_forward = Operation(
    "maxpool_forward",
    "Z[s, c, y, x] = max A[s, c, y·stride + i − padding, x·stride + j − padding] inside the image, i, j < size",
    contract="A (batch, c, h_in, w_in), size () int, stride () int, padding () int"
    f" -> Z (batch, c, h_out, w_out), places (batch, c, h_out, w_out) int where {PADDED}",
    truth=_maxpool_truth,
    sizes_to_check=MAXPOOL_SIZES,
    flops=_maxpool_flops,
)


@maxpool_forward.loops_kernel
def maxpool_loops(A, size, stride, padding):
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
                    place = max(top, 0) * w_in + max(left, 0)
                    largest = A[s, k, max(top, 0), max(left, 0)]
                    for row in range(max(top, 0), min(top + size, h_in)):
                        for column in range(max(left, 0), min(left + size, w_in)):
                            a = A[s, k, row, column]
                            if a > largest or (a != a and largest == largest):  # only NaN differs from itself
                                largest, place = a, row * w_in + column
                    Z[s, k, y, x] = largest
                    places[s, k, y, x] = place
    return Z, places


def _inside(offset, stride, length, count):
    """Of `count` windows those whose pixel at `offset` is inside the image, and these pixels, as two slices."""
    first = -(offset // stride) if offset < 0 else 0
    last = min(count, (length - 1 - offset) // stride + 1)
    start = first * stride + offset
    return slice(first, last), slice(start, max(start, (last - 1) * stride + offset + 1), stride)


@maxpool_forward.array_kernel
def maxpool_array(A, size, stride, padding):
    """The pixels at the same place of all windows are a slice of the image. From the last place to the first."""
    batch, c, h_in, w_in = A.shape
    h_out, w_out = (h_in + 2 * padding - size) // stride + 1, (w_in + 2 * padding - size) // stride + 1
    Z = np.empty_like(A, shape=(batch, c, h_out, w_out))
    places = np.empty_like(A, shape=Z.shape, dtype=np.int32)
    Z.fill(-np.inf)
    top = (np.cumsum(np.ones_like(places[0, 0, :, :1]), axis=0, dtype=np.int32) - 1) * stride - padding
    left = (np.cumsum(np.ones_like(places[0, 0, :1]), axis=1, dtype=np.int32) - 1) * stride - padding
    corner = top * w_in + left
    for i in reversed(range(size)):
        ys, rows = _inside(i - padding, stride, h_in, h_out)
        for j in reversed(range(size)):
            xs, columns = _inside(j - padding, stride, w_in, w_out)
            a, z = A[:, :, rows, columns], Z[:, :, ys, xs]
            larger = (a >= z) | (a != a)
            np.copyto(z, a, where=larger)
            np.copyto(places[:, :, ys, xs], corner[ys, xs] + (i * w_in + j), where=larger)
    return Z, places


# ---- its way back: a delta belongs to the pixel that was the largest


def _places(rng, shape, sizes):
    """A pixel of each window: those of an image's largest, so that windows meet in one pixel, or any."""
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


def _maxpool_backward_truth(D, places, h_in, w_in, size, stride, padding):
    batch, c = D.shape[:2]
    G = np.zeros((batch * c, h_in * w_in))
    np.add.at(G, (np.arange(batch * c)[:, None], places.reshape(batch * c, -1)), D.reshape(batch * c, -1))
    return G.reshape(batch, c, h_in, w_in)


def _maxpool_backward_magnitude(D, places, *sizes):
    return _maxpool_backward_truth(abs(D), places, *sizes)


maxpool_backward = Operation(
    "maxpool_backward",
    "G[s, c, row, column] = Σ D[s, c, y, x] over all windows with places[s, c, y, x] = row · w_in + column",
    contract="D (batch, c, h_out, w_out), places (batch, c, h_out, w_out) int, h_in () int, w_in () int, size () int, "
    f"stride () int, padding () int -> G (batch, c, h_in, w_in) where {PADDED}",
    truth=_maxpool_backward_truth,
    magnitude=_maxpool_backward_magnitude,
    tolerance=SUM_TOLERANCE,
    values={"places": _places},
    sizes_to_check=MAXPOOL_SIZES,
    flops=lambda batch, c, h_out, w_out, **others: batch * c * h_out * w_out,
)


@maxpool_backward.loops_kernel
def maxpool_backward_loops(D, places, h_in, w_in, size, stride, padding):
    batch, c, h_out, w_out = D.shape
    G = np.zeros((batch, c, h_in, w_in), D.dtype)
    for s in range(batch):
        for k in range(c):
            for y in range(h_out):
                for x in range(w_out):
                    place = places[s, k, y, x]
                    G[s, k, place // w_in, place % w_in] += D[s, k, y, x]
    return G


@maxpool_backward.array_kernel
def maxpool_backward_array(D, places, h_in, w_in, size, stride, padding):
    """The deltas whose largest pixel is at the same place of the window never meet: they are added at once."""
    batch, c, h_out, w_out = D.shape
    G = np.zeros_like(D, shape=(batch, c, h_in, w_in))
    top = (np.cumsum(np.ones_like(places[0, 0, :, :1]), axis=0, dtype=np.int32) - 1) * stride - padding
    left = (np.cumsum(np.ones_like(places[0, 0, :1]), axis=1, dtype=np.int32) - 1) * stride - padding
    in_window = places - (top * w_in + left)
    for i in range(size):
        ys, rows = _inside(i - padding, stride, h_in, h_out)
        for j in range(size):
            xs, columns = _inside(j - padding, stride, w_in, w_out)
            here = in_window[:, :, ys, xs] == i * w_in + j
            G[:, :, rows, columns] += np.where(here, D[:, :, ys, xs], D.dtype.type(0))
    return G


# ---- the mean of each window


def _averagepool_flops(batch, c, h_in, w_in, size, stride, h_out, w_out):
    return batch * c * h_out * w_out * size * size


AVERAGEPOOL = ("batch", "c", "h_in", "w_in", "size", "stride")
AVERAGEPOOL_SIZES = _sizes(
    (2, 3, 7, 9, 3, 2),
    (1, 1, 1, 1, 1, 1),  # one pixel
    (2, 1, 8, 8, 4, 4),  # windows side by side
    (3, 2, 9, 7, 2, 2),  # a row and a column belong to no window
    (1, 3, 5, 5, 5, 1),  # a window as large as the image
    (2, 2, 6, 9, 3, 1),  # overlapping
    (1, 1, 9, 11, 2, 3),  # pixels between the windows
    (1, 2, 33, 17, 5, 2),
    (17, 5, 4, 6, 3, 3),
    names=AVERAGEPOOL,
)

averagepool_forward = Operation(
    "averagepool_forward",
    "Z[s, c, y, x] = mean of A[s, c, y·stride + i, x·stride + j] over 0 ≤ i, j < size",
    contract=f"A (batch, c, h_in, w_in), size () int, stride () int -> Z (batch, c, h_out, w_out) where {WINDOWS}",
    truth=lambda A, size, stride: _windows(A, size, stride).mean(axis=(-2, -1)),
    magnitude=lambda A, size, stride: _windows(abs(A), size, stride).mean(axis=(-2, -1)),
    tolerance=SUM_TOLERANCE,
    sizes_to_check=AVERAGEPOOL_SIZES,
    flops=_averagepool_flops,
)


@averagepool_forward.loops_kernel
def averagepool_loops(A, size, stride):
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


@averagepool_forward.array_kernel
def averagepool_array(A, size, stride):
    batch, c, h_in, w_in = A.shape
    h_out, w_out = (h_in - size) // stride + 1, (w_in - size) // stride + 1
    Z = np.zeros_like(A, shape=(batch, c, h_out, w_out))
    for i in range(size):
        _, rows = _inside(i, stride, h_in, h_out)
        for j in range(size):
            _, columns = _inside(j, stride, w_in, w_out)
            Z += A[:, :, rows, columns]
    Z /= size * size
    return Z


# ---- its way back: every pixel of a window gets the same share of its delta


def _averagepool_backward_truth(D, h_in, w_in, size, stride):
    """D with zeros between and around its elements; a pixel gets the sum of a window of that."""
    batch, c, h_out, w_out = D.shape
    spread = np.zeros((batch, c, h_in + size - 1, w_in + size - 1))
    last = size - 1
    spread[:, :, last : last + h_out * stride : stride, last : last + w_out * stride : stride][:, :, :h_out, :w_out] = D
    return _windows(spread, size, 1).sum(axis=(-2, -1)) / size**2


averagepool_backward = Operation(
    "averagepool_backward",
    "G[s, c, row, column] = Σ D[s, c, y, x] / size² over all windows that hold the pixel",
    contract="D (batch, c, h_out, w_out), h_in () int, w_in () int, size () int, stride () int"
    f" -> G (batch, c, h_in, w_in) where {WINDOWS}",
    truth=_averagepool_backward_truth,
    magnitude=lambda D, *sizes: _averagepool_backward_truth(abs(D), *sizes),
    tolerance=SUM_TOLERANCE,
    sizes_to_check=AVERAGEPOOL_SIZES,
    flops=_averagepool_flops,
)


@averagepool_backward.loops_kernel
def averagepool_backward_loops(D, h_in, w_in, size, stride):
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


@averagepool_backward.array_kernel
def averagepool_backward_array(D, h_in, w_in, size, stride):
    batch, c, h_out, w_out = D.shape
    G = np.zeros_like(D, shape=(batch, c, h_in, w_in))
    share = D / (size * size)
    for i in range(size):
        _, rows = _inside(i, stride, h_in, h_out)
        for j in range(size):
            _, columns = _inside(j, stride, w_in, w_out)
            G[:, :, rows, columns] += share
    return G


for _operation in (maxpool_forward, maxpool_backward, averagepool_forward, averagepool_backward):
    _operation.cuda_kernel("naive", SOURCE)
