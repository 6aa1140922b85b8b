"""Embedding: each token, the number of its kind, is replaced by a row of n numbers; its position adds another row.

tokens[s, i] is the kind at position i of sample s. E has a row for each kind, P one for each position. Looking up a row
gives the same as a product with a one-hot row. In the backward pass a row of E gets the deltas of all positions where
its kind occurs: a kind that occurs twice in a sample adds twice.
"""

from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Mistakes, Trial, sizes_named

_sizes = sizes_named("batch t kinds n")
TOKENS: dict[str, Any] = {
    "sizes_to_check": [
        _sizes(3, 4, 5, 2),
        _sizes(1, 1, 1, 1),
        _sizes(4, 4, 4, 4),
        _sizes(2, 7, 3, 33),
        _sizes(9, 5, 40, 3),  # most kinds occur once or never
        _sizes(5, 12, 12, 64),
        _sizes(1, 300, 2, 7),
        _sizes(37, 1, 6, 65),
    ],
    "draw_sizes": lambda rng: _sizes(*rng.integers(1, 14, 4).tolist()),
    # One-hot rows of more kinds would not fit into the memory of an answer.
    "large_sizes": [_sizes(65_900, 1, 3, 1), _sizes(1, 66_000, 3, 1), _sizes(1, 2, 5_000, 1), _sizes(1, 1, 2, 66_200)],
    "sizes_to_time": lambda device: _sizes(*((64, 256, 128, 384) if device == "gpu" else (128, 12, 12, 64))),
}


def _tokens(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Any kinds; now and then only the last, the last two, or the first half of them."""
    kinds = sizes["kinds"]
    least, end = ((0, kinds), (kinds - 1, kinds), (max(0, kinds - 2), kinds), (0, (kinds + 1) // 2))[sizes["turn"] % 4]
    return rng.integers(least, end, shape, dtype=np.int32)


def _mistakes(place: tuple[int, ...], tokens: Array, E: Array, P: Array) -> Mistakes:
    batch, t = tokens.shape
    yield "P is left out: add row i of P at position i", E[tokens]
    yield "every position gets row 0 of P: position i gets row i", E[tokens] + P[0]
    yield "E is left out: add row tokens[s, i] of E", np.broadcast_to(P, (batch, *P.shape))
    yield "the rows of E are counted from 1: kind 0 has row 0", E[tokens - 1] + P
    yield "every sample gets the tokens of sample 0: take tokens[s, i]", E[tokens[:1]].repeat(batch, axis=0) + P
    if batch == t:
        yield "this is tokens[i, s]: the sample comes first", E[tokens.T] + P
        yield "sample s gets row s of P: position i gets row i", E[tokens] + P[:, None]


embedding = Operation(
    "embedding",
    "A[s, i] = E[tokens[s, i]] + P[i]",
    contract="tokens (batch, t) int, E (kinds, n), P (t, n) -> A (batch, t, n)",
    reference=lambda tokens, E, P: np.stack([np.take(E, row, axis=0) for row in tokens]) + P,
    flops=lambda batch, t, kinds, n: batch * t * n,
    trial=Trial(
        **TOKENS, values={"tokens": _tokens}, edge_cases=("zeros", "large", "infinite", "nan"), mistakes=_mistakes
    ),
)


@embedding.loops_kernel
def loops(tokens: Array, E: Array, P: Array) -> Array:
    batch, t = tokens.shape
    n = E.shape[1]
    A = np.empty((batch, t, n), E.dtype)
    for s in range(batch):
        for i in range(t):
            for k in range(n):
                A[s, i, k] = E[tokens[s, i], k] + P[i, k]
    return A


@embedding.array_kernel
def array(tokens: Array, E: Array, P: Array) -> Array:
    A = E[tokens]
    A += P
    return A


# ---- backward


def _one_hot(tokens: Array, kinds: int) -> Array:
    """(batch, t, kinds): 1 where the token is of that kind."""
    return (np.arange(kinds) == tokens[..., None]).astype(np.float64)


def _mistakes_of_gradient(place: tuple[int, ...], tokens: Array, D: Array, kinds: int) -> Mistakes:
    batch, t, _ = D.shape
    every = np.einsum("stv,stn->vn", _one_hot(tokens, kinds), D)
    yield "this is the sum over the batch: divide it by the batch", every
    yield "the sum is divided by batch · t: divide it by the batch alone", every / (batch * t)
    last = np.zeros((kinds, D.shape[2]))
    last[tokens.ravel()] = D.reshape(batch * t, -1)
    yield "of a kind that occurs several times only the last delta is kept: add all of them", last / batch
    times = np.maximum(1, _one_hot(tokens, kinds).sum(axis=(0, 1)))[:, None]
    yield "each sum is divided by how often its kind occurs: divide it by the batch", every / times


embedding_gradient = Operation(
    "embedding_gradient",
    "dE[v] = mean over s of the sum of D[s, i] over all positions i with tokens[s, i] = v",
    contract="tokens (batch, t) int, D (batch, t, n), kinds () int -> dE (kinds, n)",
    reference=lambda tokens, D, kinds: np.einsum("stv,stn->vn", _one_hot(tokens, kinds), D) / len(D),
    flops=lambda batch, t, n, kinds: batch * t * n,
    trial=Trial(
        **TOKENS,
        values={"tokens": _tokens},
        edge_cases=("zeros", "large"),
        mistakes=_mistakes_of_gradient,
        budgets={  # each delta is read once, by the warps of its kind, and no two threads add to one number
            "ballot": Budget(
                _sizes(8, 16, 5, 40),
                (Limit("reads", "batch * t * n", "D"), Limit("atomics", "0", "dE")),
                {"batch": 12, "kinds": 9},
            )
        },
    ),
)


@embedding_gradient.loops_kernel
def gradient_loops(tokens: Array, D: Array, kinds: int) -> Array:
    batch, t, n = D.shape
    dE = np.zeros((kinds, n), D.dtype)
    for s in range(batch):
        for i in range(t):
            for k in range(n):
                dE[tokens[s, i], k] += D[s, i, k]
    for v in range(kinds):
        for k in range(n):
            dE[v, k] /= batch
    return dE


@embedding_gradient.array_kernel
def gradient_array(tokens: Array, D: Array, kinds: int) -> Array:
    """A product with one-hot columns adds the deltas of each kind; the order is always the same, also on a GPU."""
    one_hot = np.arange(kinds, like=tokens, dtype=tokens.dtype)[:, None] == tokens.reshape(-1)
    dE = one_hot.astype(D.dtype) @ D.reshape(tokens.size, -1)
    dE /= len(D)
    return dE


SOURCE = cuda_beside(__file__)
embedding.cuda_kernel("naive", SOURCE)
embedding_gradient.cuda_kernel("naive", SOURCE)
embedding_gradient.cuda_kernel("ballot", SOURCE, grid=("kinds", "(n + 31) // 32"), default=True)
