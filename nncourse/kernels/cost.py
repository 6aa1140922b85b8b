"""Five costs, each one number for a batch, and the gradients with which backpropagation starts.

Costs are summed over the outputs and averaged over the batch, as in (3). Gradients are per sample: (4c) and (4d) take
the mean over the batch. The cross-entropies are computed from the weighted sums Z, before the activation, because
log(sigmoid(z)) overflows for very negative z and softplus(z) − y z does not. Their delta is A − Y.
"""

import math
from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Mistakes, Trial, shared_sum, sizes_named

SOURCE = cuda_beside(__file__)
# For sums of thousands of float32 numbers; a missing summand is a larger error than this tolerance.
TOLERANCE = 64.0


def _one_hot(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Targets with a single 1 in each row."""
    Y = np.zeros(shape, np.float32)
    Y[np.arange(sizes["batch"]), rng.integers(0, sizes["n"], sizes["batch"])] = 1
    return Y


def _zeros_and_ones(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    return rng.integers(0, 2, shape).astype(np.float32)


# ---- mean squared error

SUMMED, MORE, ITS_LIMITS = {"batch": 512, "n": 4}, {"batch": 896, "n": 5}, shared_sum("batch * n", "A", "C")


def _mistakes_of_mse(place: tuple[int, ...], A: Array, Y: Array) -> Mistakes:
    D = A - Y
    yield "the ½ is left out: divide the sum by 2 · batch", (D**2).sum() / len(D)
    yield "these are the costs of the single samples: add them up", (D**2).sum(axis=1) / (2 * len(D))
    unsquared = "the differences are not squared: the sum is over (a − y)²"
    yield unsquared, D.sum() / (2 * len(D))
    yield unsquared, np.abs(D).sum() / (2 * len(D))
    if len(D) > 1:
        words = "the sum is halved and then multiplied by batch: divide by both, as in / (2 * batch)"
        yield words, (D**2).sum() / 2 * len(D)


mse = Operation(
    "mse",
    "C = 1/(2 batch) Σ (a − y)²",
    equation="(3)",
    contract="A (batch, n), Y (batch, n) -> C ()",
    reference=lambda A, Y: np.linalg.norm(A - Y) ** 2 / (2 * len(A)),
    flops=lambda batch, n: 3 * batch * n,
    output="accumulated",
    trial=Trial(
        tolerance=TOLERANCE,
        sums=True,
        error_scale=lambda A, Y: np.linalg.norm(A - Y) ** 2 / (2 * len(A)),  # of near numbers a − y is exact
        mistakes=_mistakes_of_mse,
        budgets={
            "tree": Budget(SUMMED, ITS_LIMITS, MORE),
            "shuffle": Budget(SUMMED, (Limit("shared writes", "48"), *ITS_LIMITS), MORE),
        },
    ),
)


@mse.loops_kernel
def mse_loops(A: Array, Y: Array) -> float:
    a, y = A.reshape(-1), Y.reshape(-1)
    total = 0.0
    for i in range(a.size):
        total += (a[i] - y[i]) ** 2
    return float(total / (2 * len(A)))


@mse.array_kernel
def mse_array(A: Array, Y: Array) -> float:
    D = A - Y
    return (D * D).sum() / (2 * len(A))


mse.cuda_kernel("atomic", SOURCE, over=("batch", "n"), deterministic=False)
mse.cuda_kernel("tree", SOURCE, block=512, grid=(1,))
mse.cuda_kernel("shuffle", SOURCE, block=512, grid=(1,))


def difference(name: str, result: str, formula: str, equation: str = "") -> Operation:
    """An operation that computes A − Y: the gradient of mse, and the delta of both cross-entropies."""
    operation = Operation(
        name,
        formula,
        equation=equation,
        contract=f"A (batch, n), Y (batch, n) -> {result} (batch, n)",
        reference=np.subtract,
        flops=lambda batch, n: batch * n,
        trial=Trial(error_scale=lambda A, Y: abs(A) + abs(Y)),
    )
    operation.loops_kernel(difference_loops)
    operation.array_kernel(difference_array)
    operation.cuda_kernel("naive", SOURCE, function="difference_naive")
    return operation


def difference_loops(A: Array, Y: Array) -> Array:
    G = np.empty_like(A)
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            G[i, j] = A[i, j] - Y[i, j]
    return G


def difference_array(A: Array, Y: Array) -> Array:
    return A - Y


mse_gradient = difference("mse_gradient", "G", "G = A − Y")

# ---- mean absolute error

mae = Operation(
    "mae",
    "C = 1/batch Σ |a − y|",
    contract="A (batch, n), Y (batch, n) -> C ()",
    reference=lambda A, Y: np.linalg.norm((A - Y).ravel(), 1) / len(A),
    flops=lambda batch, n: 3 * batch * n,
    output="accumulated",
    trial=Trial(tolerance=TOLERANCE, sums=True, error_scale=lambda A, Y: np.sum(abs(A) + abs(Y)) / len(A)),
)


@mae.loops_kernel
def mae_loops(A: Array, Y: Array) -> float:
    a, y = A.reshape(-1), Y.reshape(-1)
    total = 0.0
    for i in range(a.size):
        total += abs(a[i] - y[i])
    return float(total / len(A))


@mae.array_kernel
def mae_array(A: Array, Y: Array) -> float:
    return np.abs(A - Y).sum() / len(A)


mae.cuda_kernel("tree", SOURCE, block=512, grid=(1,))

mae_gradient = Operation(
    "mae_gradient",
    "G = sign(A − Y)",
    contract="A (batch, n), Y (batch, n) -> G (batch, n)",
    reference=lambda A, Y: (A > Y) * 1.0 - (A < Y) * 1.0,
    flops=lambda batch, n: 2 * batch * n,
)


@mae_gradient.loops_kernel
def mae_gradient_loops(A: Array, Y: Array) -> Array:
    G = np.zeros_like(A)
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            if A[i, j] > Y[i, j]:
                G[i, j] = 1
            elif A[i, j] < Y[i, j]:
                G[i, j] = -1
    return G


@mae_gradient.array_kernel
def mae_gradient_array(A: Array, Y: Array) -> Array:
    return np.sign(A - Y)


mae_gradient.cuda_kernel("naive", SOURCE)

# ---- cross-entropies, from Z

binary_cross_entropy = Operation(
    "binary_cross_entropy",
    "C = 1/batch Σ (softplus(z) − y z), with a = sigmoid(z)",
    contract="Z (batch, n), Y (batch, n) -> C ()",
    reference=lambda Z, Y: np.sum(np.logaddexp(0, Z) - Y * Z) / len(Z),
    flops=lambda batch, n: 8 * batch * n,
    output="accumulated",
    trial=Trial(
        tolerance=TOLERANCE,
        sums=True,
        error_scale=lambda Z, Y: np.sum(1 + abs(Z)) / len(Z),
        values={"Y": _zeros_and_ones},
        edge_cases=("zeros", "large"),
    ),
)


@binary_cross_entropy.loops_kernel
def binary_cross_entropy_loops(Z: Array, Y: Array) -> float:
    total = 0.0
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            z = Z[i, j]
            total += max(z, 0.0) + math.log1p(math.exp(-abs(z))) - Y[i, j] * z
    return float(total / len(Z))


@binary_cross_entropy.array_kernel
def binary_cross_entropy_array(Z: Array, Y: Array) -> float:
    return (np.maximum(Z, 0) + np.log1p(np.exp(-np.abs(Z))) - Y * Z).sum() / len(Z)


binary_cross_entropy.cuda_kernel("tree", SOURCE, block=512, grid=(1,))

categorical_cross_entropy = Operation(
    "categorical_cross_entropy",
    "C = 1/batch Σ (log Σ exp(z) − Σ y z), with a = softmax(z) and Σ y = 1",
    contract="Z (batch, n), Y (batch, n) -> C ()",
    reference=lambda Z, Y: np.sum(np.logaddexp.reduce(Z, axis=1) - np.sum(Y * Z, axis=1)) / len(Z),
    flops=lambda batch, n: 6 * batch * n,
    output="accumulated",
    trial=Trial(
        tolerance=TOLERANCE,
        sums=True,
        error_scale=lambda Z, Y: np.sum(np.max(1 + abs(Z), axis=1) + np.sum(abs(Y * Z), axis=1)) / len(Z),
        values={"Y": _one_hot},
        edge_cases=("zeros", "large", "low"),
    ),
)


@categorical_cross_entropy.loops_kernel
def categorical_cross_entropy_loops(Z: Array, Y: Array) -> float:
    """The largest z of each row is subtracted first, so that no exponential overflows."""
    batch, n = Z.shape
    total = 0.0
    for i in range(batch):
        top = Z[i, 0]
        for j in range(n):
            top = max(top, Z[i, j])
        exponentials = 0.0
        for j in range(n):
            exponentials += math.exp(Z[i, j] - top)
            total += Y[i, j] * (top - Z[i, j])
        total += math.log(exponentials)
    return float(total / batch)


@categorical_cross_entropy.array_kernel
def categorical_cross_entropy_array(Z: Array, Y: Array) -> float:
    below = Z - Z.max(axis=1, keepdims=True)
    return (np.log(np.exp(below).sum(axis=1)) - (Y * below).sum(axis=1)).sum() / len(Z)


categorical_cross_entropy.cuda_kernel("tree", SOURCE, block=512, grid=(1,))

cross_entropy_delta = difference(
    "cross_entropy_delta",
    "D",
    "D = A − Y, for sigmoid with binary and softmax with categorical cross-entropy",
    equation="(4a)",
)

# ---- of sequences: the number of the right kind at each position, and −1 at positions that do not count


def _next_tokens(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Kinds, of which some do not count; now and then all count, or none of a sample."""
    Y = rng.integers(0, sizes["kinds"], shape, dtype=np.int32)
    if sizes["turn"] % 3:
        Y[rng.random(shape) < 0.6] = -1
    if sizes["turn"] % 3 == 2:
        Y[rng.random(len(Y)) < 0.4] = -1
    return Y


def _shares(Y: Array) -> Array:
    """1 / the number of positions of the sample that count, 0 where a position does not."""
    counts = Y >= 0
    return counts / np.maximum(1, counts.sum(axis=1, keepdims=True))


def _of_kinds(Z: Array, Y: Array) -> Array:
    """The z of the right kind; of the last one where a position does not count."""
    return np.take_along_axis(Z, Y[..., None], axis=2)[..., 0]


def _losses(Z: Array, Y: Array) -> Array:
    return np.logaddexp.reduce(Z, axis=2) - _of_kinds(Z, Y)


def _mistakes_of_tokens(place: tuple[int, ...], Z: Array, Y: Array) -> Mistakes:
    counts, losses = Y >= 0, _losses(Z, Y)
    every = (counts * losses).sum()
    words = "this is the sum of all positions that count: divide that of each sample by its number of them"
    yield words, every / len(Z)
    if counts.any():
        yield "this is the mean over all positions: take that of each sample, then their mean", every / counts.sum()
    words = "each sample is divided by t: divide it by the number of its positions that count"
    yield words, every / Y.size
    yield "this is the sum over the batch: divide it by the batch", (_shares(Y) * losses).sum()
    yield "positions with −1 are taken for the last kind: leave them out", losses.mean()


_token_sizes = sizes_named("batch t kinds")
OF_TOKENS: dict[str, Any] = {
    "sizes_to_check": [
        _token_sizes(3, 4, 5),
        _token_sizes(1, 1, 1),
        _token_sizes(2, 7, 33),
        _token_sizes(5, 5, 5),
        _token_sizes(12, 3, 12),
        _token_sizes(1, 40, 70),
        _token_sizes(70, 1, 9),
        _token_sizes(17, 16, 2),
    ],
    "draw_sizes": lambda rng: _token_sizes(*rng.integers(1, 14, 3).tolist()),
    "large_sizes": [_token_sizes(65_900, 1, 1), _token_sizes(1, 66_000, 1), _token_sizes(1, 1, 66_100)],
    "sizes_to_time": lambda device: _token_sizes(*((64, 256, 128) if device == "gpu" else (128, 12, 12))),
    "values": {"Y": _next_tokens},
    "edge_cases": ("zeros", "large"),
}

token_cross_entropy = Operation(
    "token_cross_entropy",
    "C = mean over samples of the mean over positions with Y ≥ 0, if there are any, of log Σ exp(z) − z[Y]",
    contract="Z (batch, t, kinds), Y (batch, t) int -> C ()",
    reference=lambda Z, Y: np.sum(_shares(Y) * _losses(Z, Y)) / len(Z),
    flops=lambda batch, t, kinds: 5 * batch * t * kinds,
    output="accumulated",
    trial=Trial(
        **OF_TOKENS,
        tolerance=TOLERANCE,
        error_scale=lambda Z, Y: np.sum(_shares(Y) * (1 + 2 * abs(Z).max(axis=2))) / len(Z),
        mistakes=_mistakes_of_tokens,
    ),
)


@token_cross_entropy.loops_kernel
def token_cross_entropy_loops(Z: Array, Y: Array) -> float:
    batch, t, kinds = Z.shape
    total = 0.0
    for s in range(batch):
        count, sample = 0, 0.0
        for i in range(t):
            if Y[s, i] < 0:
                continue
            top = Z[s, i, 0]
            for k in range(kinds):
                top = max(top, Z[s, i, k])
            exponentials = 0.0
            for k in range(kinds):
                exponentials += math.exp(Z[s, i, k] - top)
            sample += math.log(exponentials) + top - Z[s, i, Y[s, i]]
            count += 1
        total += sample / max(count, 1)
    return float(total / batch)


@token_cross_entropy.array_kernel
def token_cross_entropy_array(Z: Array, Y: Array) -> float:
    below, counts = Z - Z.max(axis=2, keepdims=True), Y >= 0
    right = np.take_along_axis(below, (Y * counts)[..., None], axis=2)[..., 0]
    losses = np.log(np.exp(below).sum(axis=2)) - right
    return ((losses * counts).sum(axis=1) / np.maximum(counts.sum(axis=1), 1).astype(Z.dtype)).sum() / len(Z)


token_cross_entropy.cuda_kernel("tree", SOURCE, block=512, grid=(1,))


def _softmax(Z: Array) -> Array:
    return np.exp(Z - np.logaddexp.reduce(Z, axis=2)[..., None])


def _one_hot_of(Z: Array, Y: Array) -> Array:
    return np.arange(Z.shape[2]) == Y[..., None]


def _mistakes_of_token_delta(place: tuple[int, ...], Z: Array, Y: Array) -> Mistakes:
    counts, A = (Y >= 0)[..., None], _softmax(Z)
    shares, right = _shares(Y)[..., None], _one_hot_of(Z, Y)
    D = shares * (A - right)
    yield "each delta is divided by the batch too: the gradients take that mean", D / len(Z)
    words = "the deltas are not divided: divide them by the number of positions of the sample that count"
    yield words, counts * (A - right)
    words = "each delta is divided by t: divide it by the number of positions of the sample that count"
    yield words, counts * (A - right) / Y.shape[1]
    words = "positions with −1 have deltas too: theirs are 0"
    yield words, (A - right) / np.maximum(1, counts.sum(axis=1, keepdims=True))
    yield "this is the softmax: subtract 1 at the right kind, Y[s, i]", shares * A
    yield "the sign is wrong: the delta at the right kind is softmax − 1", -D


token_delta = Operation(
    "token_delta",
    "D = (softmax(Z) − 1 at the kind Y) / the number of positions of the sample with Y ≥ 0; 0 where Y < 0",
    equation="(4a)",
    contract="Z (batch, t, kinds), Y (batch, t) int -> D (batch, t, kinds)",
    reference=lambda Z, Y: _shares(Y)[..., None] * (_softmax(Z) - _one_hot_of(Z, Y)),
    flops=lambda batch, t, kinds: 6 * batch * t * kinds,
    trial=Trial(
        **OF_TOKENS,
        # exp(z − log Σ exp z) is right too: a logarithm as large as the largest |z| is rounded.
        error_scale=lambda Z, Y: _shares(Y)[..., None] * (1 + _softmax(Z) * abs(Z).max(axis=2, keepdims=True)),
        mistakes=_mistakes_of_token_delta,
    ),
)


@token_delta.loops_kernel
def token_delta_loops(Z: Array, Y: Array) -> Array:
    batch, t, kinds = Z.shape
    D = np.zeros_like(Z)
    for s in range(batch):
        count = 0
        for i in range(t):
            count += Y[s, i] >= 0
        for i in range(t):
            if Y[s, i] < 0:
                continue
            top = Z[s, i, 0]
            for k in range(kinds):
                top = max(top, Z[s, i, k])
            exponentials = 0.0
            for k in range(kinds):
                D[s, i, k] = math.exp(Z[s, i, k] - top)
                exponentials += D[s, i, k]
            for k in range(kinds):
                D[s, i, k] = (D[s, i, k] / exponentials - (k == Y[s, i])) / count
    return D


@token_delta.array_kernel
def token_delta_array(Z: Array, Y: Array) -> Array:
    D = Z - Z.max(axis=2, keepdims=True)
    np.exp(D, out=D)
    D /= D.sum(axis=2, keepdims=True)
    D -= np.arange(Z.shape[2], like=Y, dtype=Y.dtype) == Y[..., None]
    counts = Y >= 0
    D *= (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)).astype(Z.dtype)[..., None]
    return D


token_delta.cuda_kernel("naive", SOURCE, over=("batch", "t"))
token_delta.cuda_kernel("warp", SOURCE, grid=("(batch * t + 7) // 8",), default=True)
