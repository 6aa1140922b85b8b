"""check() must reject wrong kernels of pooling, in Python; those in CUDA C are in test_wrong_kernels.py."""

import numpy as np
import pytest

from nnclassroom.judge.check import check
from nncourse.kernels.pooling import averagepool_backward, averagepool_forward, maxpool_backward, maxpool_forward

maxpool, backward = maxpool_forward["numpy"].function, maxpool_backward["numpy"].function
average, average_backward = averagepool_forward["numpy"].function, averagepool_backward["numpy"].function


def loops_with(update, first=None, place=lambda row, column, top, left, h_in, w_in: row * w_in + column):
    """maxpool_forward in loops with a mistake: which pixel takes over, what is there first, and what a place is."""

    def kernel(A, size, stride, padding):
        batch, c, h_in, w_in = A.shape
        h_out, w_out = (h_in + 2 * padding - size) // stride + 1, (w_in + 2 * padding - size) // stride + 1
        Z, places = np.empty((batch, c, h_out, w_out), "f"), np.zeros((batch, c, h_out, w_out), "i")
        for s, k, y, x in np.ndindex(Z.shape):
            top, left = y * stride - padding, x * stride - padding
            rows, columns = (
                range(max(start, 0), min(start + size, length)) for start, length in ((top, h_in), (left, w_in))
            )
            z = A[s, k, rows[0], columns[0]] if first is None else np.float32(first)
            at = place(rows[0], columns[0], top, left, h_in, w_in)
            for row in rows:
                for column in columns:
                    if update(A[s, k, row, column], z):
                        z, at = A[s, k, row, column], place(row, column, top, left, h_in, w_in)
            Z[s, k, y, x], places[s, k, y, x] = z, at
        return Z, places

    return kernel


def larger(a, z):
    return a > z or (np.isnan(a) and not np.isnan(z))


def windows_of(fill, first):
    """maxpool_forward by windows of a padded image; the place by argmax among the window's pixels."""

    def kernel(A, size, stride, padding):
        padded = np.pad(A, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=fill)
        views = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))[:, :, ::stride, ::stride]
        flat = views.reshape(*views.shape[:4], size * size)
        y, x = np.ogrid[: views.shape[2], : views.shape[3]]
        at = first(flat)
        places = (y * stride - padding + at // size) * A.shape[3] + x * stride - padding + at % size
        return flat.max(axis=-1), places.astype(np.int32)

    return kernel


def last(flat):
    return flat.shape[-1] - 1 - flat[..., ::-1].argmax(axis=-1)


def places_changed(change):
    def kernel(A, size, stride, padding):
        Z, places = maxpool(A, size, stride, padding)
        return Z, change(places, A, size, stride, padding).astype(np.int32)

    return kernel


def by_columns(A, size, stride, padding):
    """Each window column by column: among equal pixels another is the first."""
    Z, places = maxpool(A.swapaxes(2, 3).copy(), size, stride, padding)
    height = A.shape[2]
    places = places % height * A.shape[3] + places // height
    return Z.swapaxes(2, 3).copy(), places.swapaxes(2, 3).astype(np.int32)


WRONG_MAXPOOL = {
    "right, for comparison": loops_with(larger),
    "starts at 0": loops_with(larger, first=0),
    "starts at a number that is only small": loops_with(larger, first=-1e9),
    "starts at the smallest float": loops_with(larger, first=np.finfo(np.float32).min),
    "the last of equal ones": loops_with(lambda a, z: a >= z or np.isnan(a)),
    "larger by a tolerance": loops_with(lambda a, z: a > z + 1e-6 or (np.isnan(a) and not np.isnan(z))),
    "NaN is passed over": loops_with(lambda a, z: a > z),
    "NaN only where it comes first": loops_with(lambda a, z: a > z and not np.isnan(z)),
    "the last NaN": loops_with(lambda a, z: a > z or np.isnan(a)),
    "what comes behind a NaN": loops_with(lambda a, z: not a <= z),
    "rows and columns exchanged": loops_with(larger, place=lambda row, column, top, left, h, w: column * w + row),
    "place by the image's height": loops_with(larger, place=lambda row, column, top, left, h, w: row * h + column),
    "place in the window": loops_with(larger, place=lambda row, column, top, left, *_: (row - top) * 3 + column - left),
    "place in the padded image": places_changed(
        lambda places, A, size, stride, padding: (
            places // A.shape[3] * (A.shape[3] + 2 * padding) + places % A.shape[3] + padding
        )
    ),
    "place among all images": places_changed(
        lambda places, A, *_: places + np.arange(0, A.size, A[0, 0].size).reshape(*A.shape[:2], 1, 1)
    ),
    "places of the first channel": places_changed(lambda places, *_: np.repeat(places[:, :1], places.shape[1], axis=1)),
    "16 bits for a place": places_changed(lambda places, *_: places.astype(np.int16)),
    "padded with zeros": windows_of(0, lambda flat: flat.argmax(axis=-1)),
    "padded with −∞, which may win": windows_of(-np.inf, lambda flat: flat.argmax(axis=-1)),
    "the last by argmax": windows_of(-np.inf, last),
    "column by column": by_columns,
    "only the largest": lambda *arguments: maxpool(*arguments)[0],
    "places of 64 bits": lambda *a: (maxpool(*a)[0], maxpool(*a)[1].astype(np.int64)),
    "the smallest": lambda A, *window: (lambda Z, places: (-Z, places))(*maxpool(-A, *window)),
    "stride is the size": lambda A, size, stride, padding: maxpool(A, size, size, padding),
    "no padding": lambda A, size, stride, padding: maxpool(
        np.pad(A, ((0, 0), (0, 0), (0, 2 * padding), (0, 2 * padding)), constant_values=-np.inf), size, stride, 0
    ),
    "channels and samples exchanged": lambda A, *window: tuple(
        result.reshape(A.shape[1], A.shape[0], *result.shape[2:]).swapaxes(0, 1).copy()
        for result in maxpool(A, *window)
    ),
    "half precision": lambda A, *window: (
        maxpool(A.astype(np.float16).astype(np.float32), *window)[0],
        maxpool(A, *window)[1],
    ),
}


def overwritten(D, places, h_in, w_in, size, stride, padding):
    batch, c = D.shape[:2]
    G = np.zeros((batch * c, h_in * w_in), "f")
    G[np.arange(batch * c)[:, None], places.reshape(batch * c, -1)] += D.reshape(batch * c, -1)
    return G.reshape(batch, c, h_in, w_in)


def whole_window(D, places, h_in, w_in, size, stride, padding):
    """Every pixel of a window gets its delta."""
    G = average_backward(D * size**2, h_in + 2 * padding, w_in + 2 * padding, size, stride)
    return G[:, :, padding : padding + h_in, padding : padding + w_in].copy()


WRONG_MAXPOOL_BACKWARD = {
    "overlaps overwritten": overwritten,
    "rows and columns exchanged": lambda D, places, h_in, w_in, *window: backward(
        D, places % w_in * h_in + places // w_in, w_in, h_in, *window
    ).reshape(*D.shape[:2], h_in, w_in),
    "all pixels of the window": whole_window,
    "divided by the windows that meet": lambda D, places, *sizes: (
        backward(D, places, *sizes) / np.maximum(backward(np.ones_like(D), places, *sizes), 1)
    ),
    "mean over the batch": lambda D, *others: backward(D, *others) / len(D),
    "places of the first channel": lambda D, places, *sizes: backward(
        D, np.repeat(places[:, :1], places.shape[1], axis=1), *sizes
    ),
}


def running_sums(A, size, stride):
    """Differences of running sums: fast, but a large or infinite number spoils all that follow."""
    sums = np.pad(A.cumsum(axis=2).cumsum(axis=3), ((0, 0), (0, 0), (1, 0), (1, 0)))
    Z = sums[:, :, size:, size:] - sums[:, :, :-size, size:] - sums[:, :, size:, :-size] + sums[:, :, :-size, :-size]
    return (Z[:, :, ::stride, ::stride] / size**2).astype(np.float32)


def first_windows_only(A, size, stride):
    """The last row and the last column of windows are those before."""
    Z = average(A, size, stride)
    Z[:, :, -1], Z[..., -1] = Z[:, :, max(Z.shape[2] - 2, 0)], Z[..., max(Z.shape[3] - 2, 0)]
    return Z


def shares_overwritten(D, h_in, w_in, size, stride):
    G = np.zeros((*D.shape[:2], h_in, w_in), "f")
    for y, x in np.ndindex(D.shape[2:]):
        window = G[:, :, y * stride : y * stride + size, x * stride : x * stride + size]
        window[:] = D[:, :, y : y + 1, x : x + 1] / size**2
    return G


WRONG_MEANS = {
    "sum": lambda A, size, stride: average(A, size, stride) * size**2,
    "divided by the side": lambda A, size, stride: average(A, size, stride) * size,
    "stride is the size": lambda A, size, stride: average(A, size, size),
    "the largest": lambda A, size, stride: maxpool(A, size, stride, 0)[0],
    "running sums": running_sums,
    "first windows only": first_windows_only,
}
WRONG_MEANS_BACKWARD = {
    "the delta to each": lambda D, h_in, w_in, size, stride: average_backward(D * size**2, h_in, w_in, size, stride),
    "overlaps overwritten": shares_overwritten,
    "mean over the batch": lambda D, *sizes: average_backward(D, *sizes) / len(D),
    "image turned over": lambda D, *sizes: average_backward(D, *sizes)[:, :, ::-1].copy(),
}
KERNELS = [
    (operation, mistake, kernel)
    for operation, kernels in (
        (maxpool_forward, WRONG_MAXPOOL),
        (maxpool_backward, WRONG_MAXPOOL_BACKWARD),
        (averagepool_forward, WRONG_MEANS),
        (averagepool_backward, WRONG_MEANS_BACKWARD),
    )
    for mistake, kernel in kernels.items()
]


NOT_FINITE = {  # wrong with NaN and infinities alone, which is said and does not count
    "starts at the smallest float",
    "NaN is passed over",
    "NaN only where it comes first",
    "the last NaN",
    "what comes behind a NaN",
    "padded with −∞, which may win",
}


@pytest.mark.parametrize(
    ("operation", "mistake", "kernel"), KERNELS, ids=[f"{op.name}-{why}" for op, why, _ in KERNELS]
)
def test_a_wrong_kernel_is_rejected_in_one_line(operation, mistake, kernel):
    verdict = check(operation, kernel)
    assert bool(verdict) == (mistake.startswith("right") or mistake in NOT_FINITE), str(verdict)
    assert bool(verdict.facts.get("not finite")) == (mistake in NOT_FINITE)
    assert "\n" not in verdict.line or mistake in NOT_FINITE
