"""Batch normalisation: each channel is shifted and scaled to mean β and standard deviation γ over the batch.

Images are A[s, k, y, x]: sample, channel, row, column; rows of numbers (batch, n) are images of one pixel. The mean and
the variance of a channel are over all samples and pixels; the variance divides by their number.
x̂ = (A − mean) / √(variance + ε).

Statistics and gradients are separate operations, because several devices have to combine theirs first. In inference,
running means replace those of the batch.
"""

import math
from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Mistakes, Trial, sizes_named

SUM_TOLERANCE = 32.0
EPS = float(np.finfo(np.float32).eps)
OF_CHANNELS = "mean (c,), variance (c,)"
_sizes = sizes_named("batch c h w")


def _each_channel(values: Array) -> Array:
    """A number for each channel, in a shape that broadcasts with images."""
    return values[:, None, None]


def _variances(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Usual variances; sometimes 0, the variance of equal numbers, and sometimes tiny ones."""
    values = rng.uniform(0.1, 4, shape) * (1e-6 if sizes["turn"] % 4 == 3 else 1)
    if sizes["turn"] % 3 == 1:
        values[rng.random(shape) < 0.5] = 0
    return values.astype(np.float32)


def _epsilon(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    near = 1 if sizes["turn"] < 4 else float(rng.uniform(1, 3))
    return (1e-5, 0.1, 1e-3, 1e-8)[sizes["turn"] % 4] * near


IMAGES: dict[str, Any] = {
    "sizes_to_check": [
        _sizes(3, 4, 2, 5),
        _sizes(1, 1, 1, 1),
        _sizes(1, 5, 1, 1),  # one pixel a channel: its variance is 0
        _sizes(2, 7, 7, 9),  # as many rows as channels
        _sizes(4, 1, 3, 3),
        _sizes(17, 33, 1, 1),  # rows of numbers
        _sizes(1, 3, 40, 37),
        _sizes(2, 2, 16, 16),
        _sizes(5, 8, 9, 8),  # as many columns as channels
        _sizes(40, 3, 5, 7),
        _sizes(2, 70, 2, 3),
    ],
    "draw_sizes": lambda rng: _sizes(*rng.integers(1, 11, 4).tolist()),
    "large_sizes": [_sizes(65_919, 1, 1, 1), _sizes(1, 66_015, 1, 1), _sizes(1, 1, 260, 259)],
    "edge_cases": ("zeros", "large", "infinite", "nan"),
    "sizes_to_time": lambda device: _sizes(*((128, 64, 37, 50) if device == "gpu" else (32, 16, 14, 14))),
}
NUMBERS = {"variance": _variances, "epsilon": _epsilon}


# ---- mean and variance of each channel


def _channels(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Numbers around 0, and harder ones.

    With mean 1000 and deviation 1, the mean of the squares minus the square of the mean is all rounding error.
    """
    values = rng.standard_normal(shape)
    match sizes["turn"] % 6:
        case 1:
            values += 1000 * _each_channel(rng.choice([-1, 1, 3], shape[1]))
        case 2:
            values[...] = _each_channel(rng.integers(-9, 9, shape[1]) / 2)  # equal numbers: the variance is 0
        case 3:
            values[0, :, 0, 0] += 100  # an outlier in the first place
        case 4:
            values = abs(values) * 1000
        case 5:
            values[:, :: int(rng.integers(1, 4))] = 0
    return values.astype(np.float32)


def _statistics_magnitude(A: Array) -> tuple[Array, Array]:
    """Mean and variance may be computed from the distances to any of the numbers, be it the farthest from the mean.

    The mean's rounding error affects the variance twice: once times the deviation, once squared.
    """
    size, variance = abs(A).mean(axis=(0, 2, 3)), A.var(axis=(0, 2, 3))
    farthest = abs(A - _each_channel(A.mean(axis=(0, 2, 3)))).max(axis=(0, 2, 3))
    return size + farthest, farthest**2 + np.sqrt(variance) * size + SUM_TOLERANCE * EPS * size**2


def _what_a_channel_has(place: tuple[int, ...], A: Array) -> str:
    numbers = A[:, place[0]].astype(np.float64)
    return f"channel {place[0]} has {numbers.size:,} numbers, and {numbers.mean():.6g} is their mean"


def _mistakes_of_statistics(place: tuple[int, ...], A: Array) -> Mistakes:
    mean, variance, count = A.mean(axis=(0, 2, 3)), A.var(axis=(0, 2, 3)), A[:, 0].size
    yield "this is the standard deviation: return the variance, without the root", (mean, np.sqrt(variance))
    less = f"the squares are divided by {count - 1} (ddof=1): divide them by {count}, the count of the channel"
    yield less, (mean, variance * count / np.float64(count - 1))
    yield "this is the mean of the squares: subtract the mean before you square", (mean, (A**2).mean(axis=(0, 2, 3)))
    yield "this is a sum: divide it by the count of the channel", (mean * count, variance * count)


batchnorm_statistics = Operation(
    "batchnorm_statistics",
    "mean[k] = mean of A[s, k, y, x] over s, y, x; variance[k] = mean of (A[s, k, y, x] − mean[k])²",
    contract=f"A (batch, c, h, w) -> {OF_CHANNELS}",
    reference=lambda A: (np.einsum("skyx->k", A) / A[:, 0].size, A.var(axis=(0, 2, 3))),
    flops=lambda batch, c, h, w: 4 * batch * c * h * w,
    trial=Trial(
        **IMAGES,
        error_scale=_statistics_magnitude,
        tolerance=SUM_TOLERANCE,
        values={"A": _channels},
        advice=_what_a_channel_has,
        mistakes=_mistakes_of_statistics,
    ),
)


@batchnorm_statistics.loops_kernel
def statistics_loops(A: Array) -> tuple[Array, Array]:
    """Two passes: for small deviations from a large mean, the sum of squares alone would be all rounding error."""
    batch, c, h, w = A.shape
    mean, variance = np.empty(c, A.dtype), np.empty(c, A.dtype)
    for k in range(c):
        total = 0.0
        for s in range(batch):
            for y in range(h):
                for x in range(w):
                    total += A[s, k, y, x]
        mean[k] = total / (batch * h * w)
        total = 0.0
        for s in range(batch):
            for y in range(h):
                for x in range(w):
                    difference = A[s, k, y, x] - mean[k]
                    total += difference * difference
        variance[k] = total / (batch * h * w)
    return mean, variance


@batchnorm_statistics.array_kernel
def statistics_array(A: Array) -> tuple[Array, Array]:
    mean = A.mean(axis=(0, 2, 3))
    differences = A - _each_channel(mean)
    differences *= differences
    return mean, differences.mean(axis=(0, 2, 3))


# ---- forward


def _normalised(A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    return np.einsum("skyx,k->skyx", A - _each_channel(mean), gamma / np.sqrt(variance + epsilon)) + _each_channel(beta)


def _forward_magnitude(A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    """As if A and the mean were scaled separately, which kernels may do."""
    return _normalised(abs(A), -abs(mean), variance, abs(gamma), abs(beta), epsilon)


FORWARD = f"A (batch, c, h, w), {OF_CHANNELS}, gamma (c,), beta (c,), epsilon ()"


def _what_is_given(
    place: tuple[int, ...], A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float
) -> str:
    k = place[1]
    given = f"mean {mean[k]:.4g}, variance {variance[k]:.4g}, γ {gamma[k]:.4g}, β {beta[k]:.4g}"
    return f"that is channel {k}, for which {given} are given; ε is inside the root"


def _wrong_deviations(variance: Array, epsilon: float) -> Mistakes:
    """What kernels divide by that confuse variance and deviation, or put ε in another place; each with words."""
    yield "ε is added after the root: add it to the variance, inside the root", np.sqrt(variance) + epsilon
    yield "ε is left out: add it to the variance, inside the root", np.sqrt(variance)
    for other in (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        if other != epsilon:
            yield f"expected ε = {epsilon:g}, got {other:g}", np.sqrt(variance + other)
    yield "the divisor is variance + ε: take its root", variance + epsilon
    yield "the divisor is the variance: divide by √(variance + ε)", variance
    yield "the root is taken twice: the argument is the variance, so take it once", np.sqrt(np.sqrt(variance + epsilon))


def _mistakes_forward(
    place: tuple[int, ...], A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float
) -> Mistakes:
    for words, deviation in _wrong_deviations(variance, epsilon):
        yield words, _normalised(A, mean, deviation**2, gamma, beta, 0)
    yield "γ and β are swapped: γ is the factor, β is added", _normalised(A, mean, variance, beta, gamma, epsilon)
    yield "β is left out: add it at the end", _normalised(A, mean, variance, gamma, 0 * beta, epsilon)
    words = "γ is left out: multiply by it before β is added"
    yield words, _normalised(A, mean, variance, 0 * gamma + 1, beta, epsilon)
    yield "the mean is not subtracted: normalise A − mean", _normalised(A, 0 * mean, variance, gamma, beta, epsilon)


batchnorm_forward = Operation(
    "batchnorm_forward",
    "Z[s, k, y, x] = γ[k] (A[s, k, y, x] − mean[k]) / √(variance[k] + ε) + β[k]",
    contract=f"{FORWARD} -> Z (batch, c, h, w)",
    reference=_normalised,
    flops=lambda batch, c, h, w: 2 * batch * c * h * w,
    trial=Trial(
        **IMAGES, error_scale=_forward_magnitude, values=NUMBERS, advice=_what_is_given, mistakes=_mistakes_forward
    ),
)


@batchnorm_forward.loops_kernel
def forward_loops(A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    batch, c, h, w = A.shape
    Z = np.empty_like(A)
    for s in range(batch):
        for k in range(c):
            scale = gamma[k] / math.sqrt(variance[k] + epsilon)
            for y in range(h):
                for x in range(w):
                    Z[s, k, y, x] = (A[s, k, y, x] - mean[k]) * scale + beta[k]
    return Z


@batchnorm_forward.array_kernel
def forward_array(A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    Z = A - _each_channel(mean)
    Z *= _each_channel(gamma / np.sqrt(variance + np.float32(epsilon)))
    Z += _each_channel(beta)
    return Z


# ---- the gradients of γ and β


def _gradients_truth(D: Array, A: Array, mean: Array, variance: Array, epsilon: float) -> tuple[Array, Array]:
    deviation = np.sqrt(variance + epsilon)
    dgamma = np.einsum("skyx,skyx->k", D, A - _each_channel(mean)) / deviation
    return dgamma / len(D), np.einsum("skyx->k", D) / len(D)


def _mistakes_of_gradients(
    place: tuple[int, ...], D: Array, A: Array, mean: Array, variance: Array, epsilon: float
) -> Mistakes:
    for words, deviation in _wrong_deviations(variance, epsilon):
        yield words, _gradients_truth(D, A, mean, deviation**2, 0)
    yield "dγ adds up D A: multiply D by the normalised A", (np.einsum("skyx,skyx->k", D, A) / len(D), D.sum((0, 2, 3)))


batchnorm_gradients = Operation(
    "batchnorm_gradients",
    "dγ[k] = mean over s of Σ_y,x D x̂, dβ[k] = mean over s of Σ_y,x D",
    contract=f"D (batch, c, h, w), A (batch, c, h, w), {OF_CHANNELS}, epsilon () -> dgamma (c,), dbeta (c,)",
    reference=_gradients_truth,
    flops=lambda batch, c, h, w: 4 * batch * c * h * w,
    trial=Trial(
        **IMAGES,
        error_scale=lambda D, A, mean, *others: _gradients_truth(abs(D), abs(A), -abs(mean), *others),
        tolerance=SUM_TOLERANCE,
        values=NUMBERS,
        mistakes=_mistakes_of_gradients,
    ),
)


@batchnorm_gradients.loops_kernel
def gradients_loops(D: Array, A: Array, mean: Array, variance: Array, epsilon: float) -> tuple[Array, Array]:
    batch, c, h, w = A.shape
    dgamma, dbeta = np.empty(c, A.dtype), np.empty(c, A.dtype)
    for k in range(c):
        products, sums = 0.0, 0.0
        for s in range(batch):
            for y in range(h):
                for x in range(w):
                    products += D[s, k, y, x] * (A[s, k, y, x] - mean[k])
                    sums += D[s, k, y, x]
        dgamma[k] = products / math.sqrt(variance[k] + epsilon) / batch
        dbeta[k] = sums / batch
    return dgamma, dbeta


@batchnorm_gradients.array_kernel
def gradients_array(D: Array, A: Array, mean: Array, variance: Array, epsilon: float) -> tuple[Array, Array]:
    products = A - _each_channel(mean)
    products *= D
    deviation = np.sqrt(variance + np.float32(epsilon))
    return products.sum(axis=(0, 2, 3)) / deviation / len(D), D.sum(axis=(0, 2, 3)) / len(D)


# ---- backward: every number also changes the mean and the variance of its channel


def _backward_truth(
    D: Array, A: Array, mean: Array, variance: Array, gamma: Array, dgamma: Array, dbeta: Array, epsilon: float
) -> Array:
    deviation = np.sqrt(variance + epsilon)
    normal = np.einsum("skyx,k->skyx", A - _each_channel(mean), 1 / deviation)
    means = (_each_channel(dbeta) + normal * _each_channel(dgamma)) / A[0, 0].size
    return np.einsum("skyx,k->skyx", D - means, gamma / deviation)


def _backward_magnitude(
    D: Array, A: Array, mean: Array, variance: Array, gamma: Array, dgamma: Array, dbeta: Array, epsilon: float
) -> Array:
    numbers = abs(D), abs(A), -abs(mean), variance, abs(gamma), -abs(dgamma), -abs(dbeta)
    return _backward_truth(*numbers, epsilon)


def _mistakes_backward(
    place: tuple[int, ...], D: Array, A: Array, mean: Array, variance: Array, gamma: Array, dgamma: Array,
    dbeta: Array, epsilon: float,
) -> Mistakes:  # fmt: skip
    for words, deviation in _wrong_deviations(variance, epsilon):
        yield words, _backward_truth(D, A, mean, deviation**2, gamma, dgamma, dbeta, 0)
    parts = D, A, mean, variance, gamma
    words = "mean and variance count as constants: they change with A, so subtract the parts with dβ and dγ"
    yield words, _backward_truth(*parts, 0 * dgamma, 0 * dbeta, epsilon)
    whole = A[:, 0].size / A[0, 0].size
    yield (
        "dβ and dγ are divided by all numbers of a channel: divide by h w, they are means over the samples already",
        _backward_truth(D, A, mean, variance, gamma, dgamma / whole, dbeta / whole, epsilon),
    )


batchnorm_backward = Operation(
    "batchnorm_backward",
    "G = γ / √(variance + ε) (D − (dβ + x̂ dγ) / (h w)), with dγ and dβ of the channel, means over the samples",
    contract=f"D (batch, c, h, w), A (batch, c, h, w), {OF_CHANNELS}, gamma (c,), dgamma (c,), dbeta (c,), epsilon ()"
    " -> G (batch, c, h, w)",
    reference=_backward_truth,
    flops=lambda batch, c, h, w: 5 * batch * c * h * w,
    trial=Trial(
        **IMAGES,
        error_scale=_backward_magnitude,
        values=NUMBERS,
        advice=lambda place, D, *others: (
            f"dβ and dγ, over h w = {D[0, 0].size}, are means over all numbers of a channel; "
            "dγ goes with the normalised A"
        ),
        mistakes=_mistakes_backward,
    ),
)


@batchnorm_backward.loops_kernel
def backward_loops(
    D: Array, A: Array, mean: Array, variance: Array, gamma: Array, dgamma: Array, dbeta: Array, epsilon: float
) -> Array:
    batch, c, h, w = A.shape
    G = np.empty_like(A)
    for s in range(batch):
        for k in range(c):
            deviation = math.sqrt(variance[k] + epsilon)
            for y in range(h):
                for x in range(w):
                    normal = (A[s, k, y, x] - mean[k]) / deviation
                    G[s, k, y, x] = gamma[k] / deviation * (D[s, k, y, x] - (dbeta[k] + normal * dgamma[k]) / (h * w))
    return G


@batchnorm_backward.array_kernel
def backward_array(
    D: Array, A: Array, mean: Array, variance: Array, gamma: Array, dgamma: Array, dbeta: Array, epsilon: float
) -> Array:
    pixels, deviation = A.shape[2] * A.shape[3], np.sqrt(variance + np.float32(epsilon))
    G = A - _each_channel(mean)
    G *= _each_channel(dgamma / deviation)
    G += _each_channel(dbeta)
    G /= -pixels
    G += D
    G *= _each_channel(gamma / deviation)
    return G


# ---- for inference: running means over the last batches; the newest batch has the weight `momentum`

batchnorm_running = Operation(
    "batchnorm_running",
    "R_mean ← (1 − m) R_mean + m mean, R_variance ← (1 − m) R_variance + m correction · variance",
    contract="running_mean (c,), running_variance (c,), mean (c,), variance (c,), momentum (), correction ()"
    " -> running_mean (c,), running_variance (c,)",
    reference=lambda running_mean, running_variance, mean, variance, momentum, correction: (
        running_mean + momentum * (mean - running_mean),
        running_variance + momentum * (correction * variance - running_variance),
    ),
    flops=lambda c: 7 * c,
    trial=Trial(
        error_scale=lambda running_mean, running_variance, mean, variance, momentum, correction: (
            abs(running_mean) * (1 + abs(momentum)) + abs(momentum * mean),
            abs(running_variance) * (1 + abs(momentum)) + abs(momentum * correction * variance),
        ),
        edge_cases=("zeros", "large"),
    ),
)


@batchnorm_running.loops_kernel
def running_loops(
    running_mean: Array, running_variance: Array, mean: Array, variance: Array, momentum: float, correction: float
) -> tuple[Array, Array]:
    for k in range(mean.size):
        running_mean[k] = (1 - momentum) * running_mean[k] + momentum * mean[k]
        running_variance[k] = (1 - momentum) * running_variance[k] + momentum * correction * variance[k]
    return running_mean, running_variance


@batchnorm_running.array_kernel
def running_array(
    running_mean: Array, running_variance: Array, mean: Array, variance: Array, momentum: float, correction: float
) -> tuple[Array, Array]:
    running_mean *= 1 - momentum
    running_mean += momentum * mean
    running_variance *= 1 - momentum
    running_variance += (momentum * correction) * variance
    return running_mean, running_variance


# ---- forward fused with the operations that often follow, in one pass over memory

batchnorm_relu = Operation(
    "batchnorm_relu",
    "Z = max(0, batchnorm_forward(A, …))",
    contract=f"{FORWARD} -> Z (batch, c, h, w)",
    reference=lambda *arguments: np.where((Z := _normalised(*arguments)) > 0, Z, 0.0),
    flops=lambda batch, c, h, w: 3 * batch * c * h * w,
    fuses=("batchnorm_forward", "relu"),
    trial=Trial(**IMAGES, error_scale=_forward_magnitude, values=NUMBERS),
)

batchnorm_shortcut_relu = Operation(
    "batchnorm_shortcut_relu",
    "Z = max(0, batchnorm_forward(A, …) + B)",
    contract=f"{FORWARD}, B (batch, c, h, w) -> Z (batch, c, h, w)",
    reference=lambda *arguments: np.maximum(_normalised(*arguments[:-1]) + arguments[-1], 0),
    flops=lambda batch, c, h, w: 4 * batch * c * h * w,
    fuses=("batchnorm_forward", "shortcut_sum", "relu"),
    trial=Trial(
        **IMAGES,
        error_scale=lambda *arguments: _forward_magnitude(*arguments[:-1]) + abs(arguments[-1]),
        values=NUMBERS,
    ),
)


@batchnorm_relu.loops_kernel
def relu_loops(A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    batch, c, h, w = A.shape
    Z = np.empty_like(A)
    for s in range(batch):
        for k in range(c):
            scale = gamma[k] / math.sqrt(variance[k] + epsilon)
            for y in range(h):
                for x in range(w):
                    Z[s, k, y, x] = max((A[s, k, y, x] - mean[k]) * scale + beta[k], 0.0)
    return Z


@batchnorm_relu.array_kernel
def relu_array(A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    Z = forward_array(A, mean, variance, gamma, beta, epsilon)
    return np.maximum(Z, 0, out=Z)


@batchnorm_shortcut_relu.loops_kernel
def shortcut_relu_loops(
    A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float, B: Array
) -> Array:
    batch, c, h, w = A.shape
    Z = np.empty_like(A)
    for s in range(batch):
        for k in range(c):
            scale = gamma[k] / math.sqrt(variance[k] + epsilon)
            for y in range(h):
                for x in range(w):
                    Z[s, k, y, x] = max((A[s, k, y, x] - mean[k]) * scale + beta[k] + B[s, k, y, x], 0.0)
    return Z


@batchnorm_shortcut_relu.array_kernel
def shortcut_relu_array(
    A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float, B: Array
) -> Array:
    Z = forward_array(A, mean, variance, gamma, beta, epsilon)
    Z += B
    return np.maximum(Z, 0, out=Z)


# ---- CUDA C

SOURCE = cuda_beside(__file__)
PIECES = ("(batch * c * ((h * w + 255) // 256) + 7) // 8",)  # a warp for each 256 pixels of a channel; 8 warps a block
batchnorm_statistics.cuda_kernel("naive", SOURCE, over=("c",))
batchnorm_statistics.cuda_kernel("tree", SOURCE, block=1024, grid=("c",), default=True)
batchnorm_gradients.cuda_kernel("naive", SOURCE, over=("c",))
batchnorm_gradients.cuda_kernel("tree", SOURCE, block=1024, grid=("c",), default=True)
batchnorm_running.cuda_kernel("naive", SOURCE)
for _operation in (batchnorm_forward, batchnorm_backward, batchnorm_relu, batchnorm_shortcut_relu):
    _operation.cuda_kernel("naive", SOURCE)
    _operation.cuda_kernel("pieces", SOURCE, grid=PIECES, default=True)
