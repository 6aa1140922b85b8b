"""Layer normalisation: each row of n numbers is brought to mean 0 and deviation 1, then scaled by γ and shifted by β.

A[s, t, k] is number k at position t of sample s; rows of numbers (batch, n) are samples with one position. The mean and
the variance of a row are over its n numbers, so no sample depends on another, and training computes the same as
inference. x̂ = (A − mean) scale, scale = 1 / √(variance + ε). The backward pass needs each row's mean and scale.
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
OF_ROWS = "mean (batch, t), scale (batch, t)"
_sizes = sizes_named("batch t n")
ROWS: dict[str, Any] = {
    "sizes_to_check": [
        _sizes(3, 2, 5),
        _sizes(1, 1, 1),  # one number a row: its variance is 0
        _sizes(7, 1, 33),
        _sizes(5, 5, 5),
        _sizes(2, 3, 64),
        _sizes(1, 9, 300),
        _sizes(40, 3, 7),
        _sizes(2, 17, 32),
    ],
    "draw_sizes": lambda rng: _sizes(*rng.integers(1, 11, 3).tolist()),
    "large_sizes": [_sizes(65_919, 1, 1), _sizes(1, 66_015, 1), _sizes(1, 1, 66_015)],
    "edge_cases": ("zeros", "large", "infinite", "nan"),
    "sizes_to_time": lambda device: _sizes(*((64, 256, 768) if device == "gpu" else (32, 16, 64))),
}


def _rows(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Numbers around 0, and harder ones: far from 0, all equal, one far from the others, large, many of them 0."""
    values = rng.standard_normal(shape)
    match sizes["turn"] % 6:
        case 1:
            values += 1000 * rng.choice([-1, 1, 3], shape[:2])[..., None]
        case 2:
            values[...] = rng.integers(-9, 9, shape[:2])[..., None] / 2  # the variance is 0
        case 3:
            values[:, :, 0] += 100
        case 4:
            values = abs(values) * 1000
        case 5:
            values[..., :: int(rng.integers(1, 4))] = 0
    return values.astype(np.float32)


def _scales(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Usual ones, and now and then those of a row of equal numbers."""
    return (rng.uniform(0.3, 3, shape) * (300 if sizes["turn"] % 4 == 3 else 1)).astype(np.float32)


def _epsilon(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    near = 1 if sizes["turn"] < 4 else float(rng.uniform(1, 3))
    return (1e-5, 0.1, 1e-3, 1e-8)[sizes["turn"] % 4] * near


def _each(values: Array) -> Array:
    """A number for each row, in a shape that broadcasts with rows."""
    return values[..., None]


# ---- forward


def _moments(A: Array) -> tuple[Array, Array]:
    return A.mean(axis=2), A.var(axis=2)


def _forward_truth(A: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    mean, variance = _moments(A)
    return _moved(A, mean, np.sqrt(variance + epsilon), gamma, beta)


def _moved(A: Array, mean: Array, deviation: Array, gamma: Array, beta: Array) -> tuple[Array, Array, Array]:
    return (A - _each(mean)) / _each(deviation) * gamma + beta, mean, 1 / deviation


def _forward_magnitude(A: Array, gamma: Array, beta: Array, epsilon: float) -> tuple[Array, Array, Array]:
    """The mean's rounding error affects the variance, and so the scale: once times the deviation, once squared."""
    mean, variance = _moments(A)
    away, size, scale = abs(A - _each(mean)), abs(A).mean(axis=2), 1 / np.sqrt(variance + epsilon)
    farthest = away.max(axis=2)
    of_mean = size + farthest
    of_variance = farthest**2 + np.sqrt(variance) * size + SUM_TOLERANCE * EPS * size**2
    of_scale = scale + scale**3 / 2 * of_variance
    of_x = _each(scale) * (abs(A) + _each(of_mean)) + away * _each(of_scale)
    return abs(gamma) * of_x + abs(beta), of_mean, of_scale


def _mistakes_forward(place: tuple[int, ...], A: Array, gamma: Array, beta: Array, epsilon: float) -> Mistakes:
    mean, variance = _moments(A)
    deviation, n = np.sqrt(variance + epsilon), A.shape[2]
    words = "ε is added after the root: add it to the variance, inside the root"
    yield words, _moved(A, mean, np.sqrt(variance) + epsilon, gamma, beta)
    yield "ε is left out: add it to the variance, inside the root", _moved(A, mean, np.sqrt(variance), gamma, beta)
    yield "the divisor is variance + ε: take its root", _moved(A, mean, variance + epsilon, gamma, beta)
    if n > 1:
        unbiased = np.sqrt(variance * n / (n - 1) + epsilon)
        yield (
            f"the squares are divided by {n - 1} (ddof=1): divide them by {n}, the count of the row",
            _moved(A, mean, unbiased, gamma, beta),
        )
    yield "β is left out: add it at the end", _moved(A, mean, deviation, gamma, 0 * beta)
    yield "γ is left out: multiply by it before β is added", _moved(A, mean, deviation, 0 * gamma + 1, beta)
    yield "γ and β are swapped: γ is the factor, β is added", _moved(A, mean, deviation, beta, gamma)
    yield "the mean is not subtracted: normalise A − mean", _moved(A, 0 * mean, deviation, gamma, beta)
    whole = np.full_like(mean, A.mean()), np.full_like(mean, np.sqrt(A.var() + epsilon))
    yield "mean and variance are those of all rows: each row has its own", _moved(A, *whole, gamma, beta)


layernorm_forward = Operation(
    "layernorm_forward",
    "Z[s, t, k] = γ[k] (A[s, t, k] − mean[s, t]) scale[s, t] + β[k], scale = 1 / √(variance of the row + ε)",
    contract=f"A (batch, t, n), gamma (n,), beta (n,), epsilon () -> Z (batch, t, n), {OF_ROWS}",
    reference=_forward_truth,
    flops=lambda batch, t, n: 8 * batch * t * n,
    trial=Trial(
        **ROWS,
        error_scale=_forward_magnitude,
        tolerance=SUM_TOLERANCE,
        values={"A": _rows, "epsilon": _epsilon},
        mistakes=_mistakes_forward,
    ),
)


@layernorm_forward.loops_kernel
def forward_loops(A: Array, gamma: Array, beta: Array, epsilon: float) -> tuple[Array, Array, Array]:
    """Two passes: for small deviations from a large mean, the sum of squares alone would be all rounding error."""
    batch, t, n = A.shape
    Z, means, scales = np.empty_like(A), np.empty((batch, t), A.dtype), np.empty((batch, t), A.dtype)
    for s in range(batch):
        for place in range(t):
            total, squares = 0.0, 0.0
            for k in range(n):
                total += A[s, place, k]
            mean = total / n
            for k in range(n):
                squares += (A[s, place, k] - mean) ** 2
            scale = 1 / math.sqrt(squares / n + epsilon)
            for k in range(n):
                Z[s, place, k] = (A[s, place, k] - mean) * scale * gamma[k] + beta[k]
            means[s, place], scales[s, place] = mean, scale
    return Z, means, scales


@layernorm_forward.array_kernel
def forward_array(A: Array, gamma: Array, beta: Array, epsilon: float) -> tuple[Array, Array, Array]:
    mean = A.mean(axis=2)
    Z = A - mean[..., None]
    scale = 1 / np.sqrt((Z * Z).mean(axis=2) + np.float32(epsilon))
    Z *= scale[..., None]
    Z *= gamma
    Z += beta
    return Z, mean, scale


# ---- the gradients of γ and β


def _gradients_truth(D: Array, A: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
    normal = (A - _each(mean)) * _each(scale)
    return np.einsum("stk,stk->k", D, normal) / len(D), np.einsum("stk->k", D) / len(D)


def _mistakes_of_gradients(place: tuple[int, ...], D: Array, A: Array, mean: Array, scale: Array) -> Mistakes:
    dgamma, dbeta = _gradients_truth(D, A, mean, scale)
    yield "this is a sum over the samples: divide it by the batch", (dgamma * len(D), dbeta * len(D))
    words = "this is a mean over the rows of a sample too: add them up, and divide by the batch alone"
    yield words, (dgamma / D.shape[1], dbeta / D.shape[1])
    yield "dγ adds up D A: multiply D by the normalised A", (np.einsum("stk,stk->k", D, A) / len(D), dbeta)
    yield "the scale of the rows is left out: multiply A − mean by it", _gradients_truth(D, A, mean, 0 * scale + 1)


layernorm_gradients = Operation(
    "layernorm_gradients",
    "dγ[k] = mean over s of Σ_t D x̂, dβ[k] = mean over s of Σ_t D",
    contract=f"D (batch, t, n), A (batch, t, n), {OF_ROWS} -> dgamma (n,), dbeta (n,)",
    reference=_gradients_truth,
    flops=lambda batch, t, n: 5 * batch * t * n,
    trial=Trial(
        **ROWS,
        error_scale=lambda D, A, mean, scale: _gradients_truth(abs(D), abs(A), -abs(mean), scale),
        tolerance=SUM_TOLERANCE,
        values={"scale": _scales},
        mistakes=_mistakes_of_gradients,
    ),
)


@layernorm_gradients.loops_kernel
def gradients_loops(D: Array, A: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
    batch, t, n = A.shape
    dgamma, dbeta = np.empty(n, A.dtype), np.empty(n, A.dtype)
    for k in range(n):
        products, sums = 0.0, 0.0
        for s in range(batch):
            for place in range(t):
                products += D[s, place, k] * (A[s, place, k] - mean[s, place]) * scale[s, place]
                sums += D[s, place, k]
        dgamma[k], dbeta[k] = products / batch, sums / batch
    return dgamma, dbeta


@layernorm_gradients.array_kernel
def gradients_array(D: Array, A: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
    products = A - mean[..., None]
    products *= scale[..., None]
    products *= D
    return products.sum(axis=(0, 1)) / len(D), D.sum(axis=(0, 1)) / len(D)


# ---- backward: every number also changes the mean and the variance of its row


def _backward_truth(D: Array, A: Array, mean: Array, scale: Array, gamma: Array) -> Array:
    return _sent_back(D * gamma, (A - _each(mean)) * _each(scale), scale)


def _sent_back(H: Array, normal: Array, scale: Array, of_mean: float = 1, of_deviation: float = 1) -> Array:
    H_mean, H_normal = np.einsum("stk->st", H) / H.shape[2], np.einsum("stk,stk->st", H, normal) / H.shape[2]
    return _each(scale) * (H - of_mean * _each(H_mean) - of_deviation * normal * _each(H_normal))


def _backward_magnitude(D: Array, A: Array, mean: Array, scale: Array, gamma: Array) -> Array:
    return _sent_back(abs(D * gamma), (abs(A) + _each(abs(mean))) * _each(scale), scale, -1, -1)


def _mistakes_backward(place: tuple[int, ...], D: Array, A: Array, mean: Array, scale: Array, gamma: Array) -> Mistakes:
    H, normal, n = D * gamma, (A - _each(mean)) * _each(scale), A.shape[2]
    words = "mean and variance count as constants: they change with A, so subtract both means"
    yield words, _sent_back(H, normal, scale, 0, 0)
    yield "the share of the mean is left out: subtract the mean of γ D", _sent_back(H, normal, scale, 0)
    words = "the share of the variance is left out: subtract x̂ times the mean of γ D x̂"
    yield words, _sent_back(H, normal, scale, 1, 0)
    yield f"the sums over the row are not divided: divide them by {n}", _sent_back(H, normal, scale, n, n)
    yield "γ is left out: multiply D by it first", _sent_back(D, normal, scale)
    words = "γ multiplies the whole result: multiply D by it first, since each number has its own"
    yield words, gamma * _sent_back(D, normal, scale)
    yield "the scale of the row is left out: multiply the whole result by it", _sent_back(H, normal, 0 * scale + 1)


layernorm_backward = Operation(
    "layernorm_backward",
    "G = scale (γ D − mean over k of γ D − x̂ · mean over k of γ D x̂)",
    contract=f"D (batch, t, n), A (batch, t, n), {OF_ROWS}, gamma (n,) -> G (batch, t, n)",
    reference=_backward_truth,
    flops=lambda batch, t, n: 9 * batch * t * n,
    trial=Trial(
        **ROWS,
        error_scale=_backward_magnitude,
        tolerance=SUM_TOLERANCE,
        values={"scale": _scales},
        mistakes=_mistakes_backward,
    ),
)


@layernorm_backward.loops_kernel
def backward_loops(D: Array, A: Array, mean: Array, scale: Array, gamma: Array) -> Array:
    batch, t, n = A.shape
    G = np.empty_like(A)
    for s in range(batch):
        for place in range(t):
            sums, products = 0.0, 0.0
            for k in range(n):
                normal = (A[s, place, k] - mean[s, place]) * scale[s, place]
                sums += gamma[k] * D[s, place, k]
                products += gamma[k] * D[s, place, k] * normal
            for k in range(n):
                normal = (A[s, place, k] - mean[s, place]) * scale[s, place]
                G[s, place, k] = scale[s, place] * (gamma[k] * D[s, place, k] - sums / n - normal * products / n)
    return G


@layernorm_backward.array_kernel
def backward_array(D: Array, A: Array, mean: Array, scale: Array, gamma: Array) -> Array:
    normal = A - mean[..., None]
    normal *= scale[..., None]
    G = D * gamma
    of_mean, of_normal = G.mean(axis=2), (G * normal).mean(axis=2)
    normal *= of_normal[..., None]
    G -= of_mean[..., None]
    G -= normal
    G *= scale[..., None]
    return G


# ---- CUDA C

SOURCE = cuda_beside(__file__)
WARPS = ("(batch * t + 7) // 8",)  # a warp for each row; 8 warps a block
for _operation in (layernorm_forward, layernorm_backward):
    _operation.cuda_kernel("naive", SOURCE, over=("batch", "t"))
    _operation.cuda_kernel("warp", SOURCE, grid=WARPS, default=True)
layernorm_gradients.cuda_kernel("naive", SOURCE, over=("n",))
layernorm_gradients.cuda_kernel("shared", SOURCE, block=1024, grid=("(n + 7) // 8",), default=True)
