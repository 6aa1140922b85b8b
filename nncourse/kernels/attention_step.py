"""Attention of one new position to itself and all earlier positions, whose keys and values are kept.

A network that continues a text computes one more position at a time. Keys and values never change once they are
computed, so they are kept in arrays with room for `most` positions, of which `length` are filled. Only the last
position has a query.
"""

import math

import numpy as np

from nncourse.device import Array
from nncourse.kernels.attention import (
    HARD,
    SUM_TOLERANCE,
    f32,
    forward_magnitude,
    forward_truth,
    scores_of,
    softmax_of,
    weighted,
)
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Mistakes, Trial, sizes_named

_sizes = sizes_named("batch heads most d length")


def _alone(q: Array, K: Array, V: Array, length: int) -> tuple[Array, Array, Array, int]:
    """The arguments of attention_forward, in which the new position is the only query."""
    return q[:, :, None], K[:, :, :length], V[:, :, :length], 0


def _mistakes(place: tuple[int, ...], q: Array, K: Array, V: Array, length: int) -> Mistakes:
    def result(P: Array, values: Array) -> Array:
        return weighted(P, values)[:, :, 0]

    d, (Q, keys, values, _) = q.shape[2], _alone(q, K, V, length)
    S = scores_of(Q, keys)
    yield "the places after the first `length` are not filled: leave them out", result(softmax_of(scores_of(Q, K)), V)
    if length > 1:
        words = "the last of the first `length` positions is left out: the new position sees itself"
        yield words, result(softmax_of(S[..., :-1]), values[:, :, :-1])
    yield "the scores are not divided by √d", result(softmax_of(S * math.sqrt(d)), values)
    yield "the scores are divided by d: divide them by its root", result(softmax_of(S / math.sqrt(d)), values)
    yield "every value has the same weight: take the softmax of the scores", values.mean(axis=2)
    yield "the weights are applied to the keys: take the values", result(softmax_of(S), keys)
    shifted = np.exp(S - S.max(axis=3, keepdims=True))
    yield "the exponentials are not divided: divide them by their sum", result(shifted, values)
    raised = np.exp(S.astype(np.float32))
    words = "exp overflows, or all become 0: subtract the largest score first"
    yield words, result(raised / raised.sum(axis=3, keepdims=True), values)


attention_step = Operation(
    "attention_step",
    "o = Σ_j p[j] V[j], p = softmax of q · K[j] / √d over j < length",
    contract="q (batch, heads, d), K (batch, heads, most, d), V (batch, heads, most, d), length () int -> "
    "o (batch, heads, d) where length >= 1, length <= most",
    reference=lambda *arguments: forward_truth(*_alone(*arguments))[0][:, :, 0],
    flops=lambda batch, heads, d, most, length: batch * heads * length * (4 * d + 5),
    trial=Trial(
        tolerance=SUM_TOLERANCE,
        error_scale=lambda *arguments: forward_magnitude(*_alone(*arguments))[0][:, :, 0],
        values={"q": HARD["Q"], "K": HARD["K"]},
        edge_cases=("zeros", "large"),
        mistakes=_mistakes,
        sizes_to_check=[
            _sizes(2, 2, 5, 4, 3),
            _sizes(1, 1, 1, 1, 1),
            _sizes(1, 2, 7, 5, 1),  # the first position of a text
            _sizes(3, 2, 4, 4, 4),  # no room left
            _sizes(2, 3, 40, 16, 33),
            _sizes(1, 1, 70, 33, 64),
            _sizes(1, 3, 20, 130, 17),
            _sizes(5, 1, 9, 3, 8),
        ],
        draw_sizes=lambda rng: _sizes(*rng.integers(1, 9, 2).tolist(), 8, *rng.integers(1, 9, 2).tolist()),
        large_sizes=[
            _sizes(65_900, 1, 2, 1, 1),
            _sizes(1, 66_000, 1, 1, 1),
            _sizes(1, 1, 66_100, 1, 65_900),
            _sizes(1, 1, 2, 66_200, 2),
        ],
        sizes_to_time=lambda device: _sizes(*((32, 8, 1024, 64, 1000) if device == "gpu" else (1, 4, 256, 16, 200))),
    ),
)


@attention_step.loops_kernel
def loops(q: Array, K: Array, V: Array, length: int) -> Array:
    batch, heads, d = q.shape
    o = np.zeros_like(q)
    p = np.empty(length, q.dtype)
    for s in range(batch):
        for h in range(heads):
            top, total = -math.inf, 0.0
            for j in range(length):
                dot = f32(0)
                for k in range(d):
                    dot += q[s, h, k] * K[s, h, j, k]
                p[j] = dot / math.sqrt(d)
                top = max(top, p[j])
            for j in range(length):
                p[j] = math.exp(p[j] - top)
                total += p[j]
            for j in range(length):
                for k in range(d):
                    o[s, h, k] += f32(p[j] / total) * V[s, h, j, k]
    return o


@attention_step.array_kernel
def array(q: Array, K: Array, V: Array, length: int) -> Array:
    p = K[:, :, :length] @ (q * q.shape[2] ** -0.5)[..., None]
    p -= p.max(axis=2, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=2, keepdims=True)
    return (p.swapaxes(2, 3) @ V[:, :, :length])[:, :, 0]


attention_step.cuda_kernel("warp", cuda_beside(__file__), block=32, grid=("batch * heads",))
