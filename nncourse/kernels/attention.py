"""Attention: each place of a sequence gets a mean of the values V of all places, weighted by how well its query fits
their keys.

Q, K and V (batch, heads, t, d) hold a row of d numbers for each place of each head. The score of place i for place j is
Q[i] · K[j] / √d. A softmax over j turns the scores of place i into its weights P[i], and O = P V. With causal = 1 place
i sees only itself and the places before it: its weights for later ones are 0.

`fused_attention` computes O without P: softmax in one pass over K and V, whose scores are never in global memory.
"""

import math
from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Mistakes, Trial, sizes_named

SUM_TOLERANCE = 32.0
f32 = np.float32

# ---- heads: the numbers of a dense layer, and as many matrices as there are samples and heads

_of_heads = sizes_named("batch t parts heads d")
HEADS: dict[str, Any] = {
    "sizes_to_check": [
        _of_heads(2, 3, 3, 2, 4),
        _of_heads(1, 1, 1, 1, 1),
        _of_heads(3, 3, 3, 3, 3),  # all equal
        _of_heads(2, 5, 1, 4, 3),
        _of_heads(3, 2, 3, 1, 7),
        _of_heads(1, 17, 2, 5, 16),
        _of_heads(5, 4, 3, 6, 33),
        _of_heads(1, 40, 3, 8, 2),
    ],
    "draw_sizes": lambda rng: _of_heads(*rng.integers(1, 8, 5).tolist()),
    "large_sizes": [
        _of_heads(65_900, 1, 2, 1, 1),
        _of_heads(1, 66_000, 1, 2, 1),
        _of_heads(1, 2, 1, 66_000, 1),
        _of_heads(1, 2, 1, 1, 66_000),
    ],
    "edge_cases": ("zeros", "large", "infinite", "nan"),
    "sizes_to_time": lambda device: _of_heads(*((32, 64, 3, 4, 32) if device == "gpu" else (128, 12, 3, 4, 16))),
}


def _mistakes_of_split(place: tuple[int, ...], A: Array) -> Mistakes:
    batch, t, parts, heads, d = A.shape
    shape = parts, batch, heads, t, d
    yield "the numbers are in their old order: move the axes, do not just change the shape", A.reshape(shape)
    words = "the places are cut into heads: heads are the axis before the last of A, so move it before t"
    yield words, np.moveaxis(A, 2, 0).reshape(shape)
    others = A.reshape(batch, t, heads, parts, d)
    words = "A is read as (batch, t, heads, parts, d): the parts come before the heads"
    yield words, np.einsum("sthpd->pshtd", others)
    words = "A is read as (batch, t, parts, d, heads): the d numbers of a head are adjacent"
    yield words, np.einsum("stpdh->pshtd", A.reshape(batch, t, parts, d, heads))


split_heads = Operation(
    "split_heads",
    "H[p, s, h, i] = A[s, i, p, h]: a matrix (t, d) for each part, sample and head",
    contract="A (batch, t, parts, heads, d) -> H (parts, batch, heads, t, d)",
    reference=lambda A: np.einsum("stphd->pshtd", A),
    flops=lambda batch, t, parts, heads, d: 0,
    trial=Trial(**HEADS, mistakes=_mistakes_of_split),
)


@split_heads.loops_kernel
def split_loops(A: Array) -> Array:
    batch, t, parts, heads, d = A.shape
    H = np.empty((parts, batch, heads, t, d), A.dtype)
    for p in range(parts):
        for s in range(batch):
            for h in range(heads):
                for i in range(t):
                    for k in range(d):
                        H[p, s, h, i, k] = A[s, i, p, h, k]
    return H


@split_heads.array_kernel
def split_array(A: Array) -> Array:
    return A.transpose(2, 0, 3, 1, 4).copy()


def _mistakes_of_merge(place: tuple[int, ...], H: Array) -> Mistakes:
    parts, batch, heads, t, d = H.shape
    shape = batch, t, parts, heads, d
    yield "the numbers are in their old order: move the axes, do not just change the shape", H.reshape(shape)
    words = "heads and places keep their order: move t before the parts and the heads"
    yield words, np.moveaxis(H, 0, 1).reshape(shape)
    words = "the heads come before the parts: A is (batch, t, parts, heads, d)"
    yield words, np.einsum("pshtd->sthpd", H).reshape(shape)


merge_heads = Operation(
    "merge_heads",
    "A[s, i, p, h] = H[p, s, h, i]: what split_heads took apart is joined",
    contract="H (parts, batch, heads, t, d) -> A (batch, t, parts, heads, d)",
    reference=lambda H: np.einsum("pshtd->stphd", H),
    flops=lambda parts, batch, heads, t, d: 0,
    trial=Trial(**HEADS, mistakes=_mistakes_of_merge),
)


@merge_heads.loops_kernel
def merge_loops(H: Array) -> Array:
    parts, batch, heads, t, d = H.shape
    A = np.empty((batch, t, parts, heads, d), H.dtype)
    for p in range(parts):
        for s in range(batch):
            for h in range(heads):
                for i in range(t):
                    for k in range(d):
                        A[s, i, p, h, k] = H[p, s, h, i, k]
    return A


@merge_heads.array_kernel
def merge_array(H: Array) -> Array:
    return H.transpose(1, 3, 0, 2, 4).copy()


# ---- forward

_sizes = sizes_named("batch heads t d causal")
ATTENTION: dict[str, Any] = {
    "sizes_to_check": [
        _sizes(2, 2, 3, 4, 1),
        _sizes(1, 1, 2, 1, 0),
        _sizes(1, 1, 1, 1, 1),  # one place: its weight is 1
        _sizes(1, 2, 7, 5, 1),
        _sizes(3, 2, 4, 4, 0),  # as many places as numbers
        _sizes(2, 3, 17, 16, 1),
        _sizes(1, 1, 33, 8, 0),
        _sizes(1, 2, 65, 33, 1),  # one place more than a tile of 64
        _sizes(1, 1, 20, 130, 0),
        _sizes(5, 1, 9, 3, 1),
        _sizes(1, 1, 130, 70, 1),
        _sizes(2, 1, 12, 64, 0),
    ],
    "draw_sizes": lambda rng: _sizes(*rng.integers(1, 9, 4).tolist(), int(rng.integers(2))),
    "large_sizes": [
        _sizes(65_900, 1, 1, 1, 0),
        _sizes(1, 66_000, 1, 1, 1),
        _sizes(1, 1, 260, 1, 1),
        _sizes(1, 1, 2, 66_000, 0),
    ],
    "edge_cases": ("zeros", "large"),
    "sizes_to_time": lambda device: _sizes(*((32, 4, 64, 32, 1) if device == "gpu" else (128, 4, 12, 16, 1))),
}


def _hard(values: Array, sizes: Sizes, sign: int) -> Array:
    """Queries (sign 1), or keys, whose scores are hard in some turns.

    exp of a score overflows, or all of a row vanish; all keys are equal; the last key has by far the largest scores.
    """
    much = (300 / math.sqrt(sizes["d"])) ** 0.5  # d products of such numbers, divided by √d, are 300
    match sizes["turn"] % 6:
        case 1:
            values = values * (30 if sign > 0 else 1)
        case 2:
            values = np.full_like(values, much)
        case 3:
            values = sign * (much + 0.1 * values)
        case 4:
            values[..., ::2, :] = 0
        case 5:
            values = abs(values) * (1 if sign > 0 else 0.1)
            values[..., -1, :] += 0 if sign > 0 else much
    return values.astype(np.float32)


def _queries(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    return _hard(rng.standard_normal(shape), sizes, 1)


def _keys(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    return _hard(rng.standard_normal(shape), sizes, -1)


def _scores(Q: Array, K: Array) -> Array:
    return np.einsum("shid,shjd->shij", Q, K) / math.sqrt(Q.shape[3])


def _seen(t: int, causal: int) -> Array:
    """seen[i, j]: whether place i sees place j."""
    return np.tri(t, dtype=bool) if causal else np.ones((t, t), bool)


def _softmax(S: Array, seen: Array | bool = True, axis: int = 3) -> Array:
    S = np.where(seen, S, -np.inf)
    return np.exp(S - np.logaddexp.reduce(S, axis=axis, keepdims=True))


def _of_weights(P: Array, V: Array) -> Array:
    return np.einsum("shij,shjd->shid", P, V)


def _forward_truth(Q: Array, K: Array, V: Array, causal: int) -> tuple[Array, Array]:
    P = _softmax(_scores(Q, K), _seen(Q.shape[2], causal))
    return _of_weights(P, V), P


def _forward_magnitude(Q: Array, K: Array, V: Array, causal: int) -> tuple[Array, Array]:
    """A score's rounding error changes its weight in proportion, and through the sum all weights of its row."""
    P, of_scores = _forward_truth(Q, K, V, causal)[1], _scores(abs(Q), abs(K))
    of_P = P * (1 + of_scores + (P * of_scores).sum(axis=3, keepdims=True))
    return _of_weights(of_P, abs(V)), of_P


def _mistaken_weights(Q: Array, K: Array, causal: int) -> Mistakes:
    """Usual mistakes, each with the weights that it leads to."""
    t, d = Q.shape[2:]
    S, seen, later = _scores(Q, K), _seen(t, causal), ~np.tri(t, k=-1, dtype=bool)
    yield "the scores are not divided by √d", _softmax(S * math.sqrt(d), seen)
    yield "the scores are multiplied by √d: divide them by it", _softmax(S * d, seen)
    yield "the scores are divided by d: divide them by its root", _softmax(S / math.sqrt(d), seen)
    words = "Q and K are swapped: row i of the scores is query i with all keys"
    yield words, _softmax(S.swapaxes(2, 3), seen)
    if causal:
        words = "the mask is left out: with causal = 1 place i sees no place j > i"
        yield words, _softmax(S)
        words = "the mask hides the wrong side: place i sees places j ≤ i, not j ≥ i"
        yield words, _softmax(S, later)
        words = "hidden scores are 0, which exp makes 1: set them to −∞"
        yield words, _softmax(np.where(seen, S, 0))
        words = "weights are set to 0 after the softmax: hide the scores before it, so that the others sum to 1"
        yield words, _softmax(S) * seen
        if t > 1:
            words = "place i does not see itself: it sees places j ≤ i"
            before = np.where(np.tri(t, k=-1, dtype=bool), S, -np.inf)
            with np.errstate(invalid="ignore"):
                yield words, np.exp(before - np.logaddexp.reduce(before, axis=3, keepdims=True))
    yield "the softmax is along i: the weights of each place i over all j sum to 1", _softmax(S, seen, axis=2)
    single = np.where(seen, S, -np.inf).astype(np.float32)
    E = np.exp(single)
    words = "exp overflows for large scores, or all of a row vanish: subtract the row's largest score first"
    yield words, E / E.sum(axis=3, keepdims=True)
    E = np.exp(single - S.astype(np.float32).max(axis=3, keepdims=True))
    words = "the largest score is taken over hidden places too: take it over those that place i sees"
    yield words, E / E.sum(axis=3, keepdims=True)
    yield "the exponentials are not divided: divide them by the sum of their row", np.exp(S - S.max(axis=3)[..., None])


def _mistakes_forward(place: tuple[int, ...], Q: Array, K: Array, V: Array, causal: int) -> Mistakes:
    O, P = _forward_truth(Q, K, V, causal)
    for words, wrong in _mistaken_weights(Q, K, causal):
        yield words, (_of_weights(wrong, V), wrong)
    yield "O is computed with Pᵀ: row i of O takes row i of P", (_of_weights(P.swapaxes(2, 3), V), P)
    yield "O is P K: take the values V", (_of_weights(P, K), P)
    yield "P holds the scores: it must hold their softmax", (O, np.where(_seen(len(P[0, 0]), causal), _scores(Q, K), 0))


OF_ROWS = "Q (batch, heads, t, d), K (batch, heads, t, d), V (batch, heads, t, d)"
attention_forward = Operation(
    "attention_forward",
    "O = P V, P = softmax over j of Q Kᵀ / √d; with causal = 1 over j ≤ i",
    contract=f"{OF_ROWS}, causal () int -> O (batch, heads, t, d), P (batch, heads, t, t) where causal <= 1",
    reference=_forward_truth,
    flops=lambda batch, heads, t, d, causal: batch * heads * t * (t + causal) * (4 * d + 5) // (1 + causal),
    trial=Trial(
        **ATTENTION,
        error_scale=_forward_magnitude,
        tolerance=SUM_TOLERANCE,
        values={"Q": _queries, "K": _keys},
        mistakes=_mistakes_forward,
    ),
)


@attention_forward.loops_kernel
def forward_loops(Q: Array, K: Array, V: Array, causal: int) -> tuple[Array, Array]:
    """A row of P at a time: its scores and the largest, their exponentials and the sum, then a row of O."""
    batch, heads, t, d = Q.shape
    O, P = np.zeros_like(Q), np.zeros((batch, heads, t, t), Q.dtype)
    for s in range(batch):
        for h in range(heads):
            for i in range(t):
                seen = i + 1 if causal else t
                top = -math.inf
                for j in range(seen):
                    score = 0.0
                    for k in range(d):
                        score += Q[s, h, i, k] * K[s, h, j, k]
                    P[s, h, i, j] = score / math.sqrt(d)
                    top = max(top, P[s, h, i, j])
                total = 0.0
                for j in range(seen):
                    P[s, h, i, j] = math.exp(P[s, h, i, j] - top)
                    total += P[s, h, i, j]
                for j in range(seen):
                    P[s, h, i, j] /= total
                    for k in range(d):
                        O[s, h, i, k] += P[s, h, i, j] * V[s, h, j, k]
    return O, P


def _hidden(like: Array, t: int) -> Array:
    """Numbers to add to scores: −∞ above the diagonal, otherwise 0."""
    return np.triu(np.full_like(like, -np.inf, shape=(t, t)), 1)


def _largest_of_rows(S: Array) -> Array:
    """With short rows NumPy is faster along the first axis, where it compares many rows at once."""
    return S.transpose(3, 0, 1, 2).copy().max(axis=0)


@attention_forward.array_kernel
def forward_array(Q: Array, K: Array, V: Array, causal: int) -> tuple[Array, Array]:
    P = (Q * f32(1 / math.sqrt(Q.shape[3]))) @ K.swapaxes(2, 3)
    if causal:
        P += _hidden(P, P.shape[3])
    P -= _largest_of_rows(P)[..., None]
    np.exp(P, out=P)
    P *= (1 / np.einsum("shij->shi", P))[..., None]
    return P @ V, P


# ---- backward: sums, not means, since attention has no parameters


def _without_causal(given: Any) -> Any:
    """These sizes, or those that this function returns, without `causal`."""
    if callable(given):
        return lambda argument: _without_causal([given(argument)])[0]
    return [{name: size for name, size in sizes.items() if name != "causal"} for sizes in given]


def _weights(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Rows of a softmax, flat ones and steep ones, in some turns causal."""
    S = rng.standard_normal(shape) * (1, 6, 0)[sizes["turn"] % 3]
    return _softmax(S, _seen(shape[3], sizes["turn"] % 4 < 2)).astype(np.float32)


def _of_scores(D: Array, V: Array, P: Array, of_row: float = 1, axis: int = 3) -> Array:
    """dC/dS: P times how far each dC/dP is from its row's mean, weighted by P."""
    dP = np.einsum("shid,shjd->shij", D, V)
    return P * (dP - of_row * (P * dP).sum(axis=axis, keepdims=True))


def _sent_back(dS: Array, D: Array, Q: Array, K: Array, P: Array) -> tuple[Array, Array, Array]:
    dS = dS / math.sqrt(Q.shape[3])
    return _of_weights(dS, K), _of_weights(dS.swapaxes(2, 3), Q), _of_weights(P.swapaxes(2, 3), D)


def _backward_truth(D: Array, Q: Array, K: Array, V: Array, P: Array) -> tuple[Array, Array, Array]:
    return _sent_back(_of_scores(D, V, P), D, Q, K, P)


def _backward_magnitude(D: Array, Q: Array, K: Array, V: Array, P: Array) -> tuple[Array, Array, Array]:
    D, Q, K, V = abs(D), abs(Q), abs(K), abs(V)
    return _sent_back(_of_scores(D, V, P, -1), D, Q, K, P)


def _mistakes_backward(place: tuple[int, ...], D: Array, Q: Array, K: Array, V: Array, P: Array) -> Mistakes:
    dS, root = _of_scores(D, V, P), math.sqrt(Q.shape[3])
    dQ, dK, dV = _sent_back(dS, D, Q, K, P)
    words = "the row's sum is not subtracted: dS = P ⊙ (dP − Σ_j P dP)"
    yield words, _sent_back(_of_scores(D, V, P, 0), D, Q, K, P)
    words = "the sum is over the columns: Σ_j P dP is that of each row"
    yield words, _sent_back(_of_scores(D, V, P, axis=2), D, Q, K, P)
    words = "the sum of the row is divided: Σ_j P dP is a mean already, since the row of P sums to 1"
    yield words, _sent_back(_of_scores(D, V, P, 1 / P.shape[3]), D, Q, K, P)
    dP = np.einsum("shid,shjd->shij", D, V)
    words = "the sum adds up dP alone: multiply by P, Σ_j P dP"
    yield words, _sent_back(P * (dP - dP.sum(axis=3, keepdims=True)), D, Q, K, P)
    words = "P is left out: multiply dP − Σ_j P dP by it"
    yield words, _sent_back(dP - (P * dP).sum(axis=3, keepdims=True), D, Q, K, P)
    words = "the softmax is left out: dS is not dP"
    yield words, _sent_back(dP, D, Q, K, P)
    yield "1/√d is left out of dQ and dK", (dQ * root, dK * root, dV)
    yield "1/√d is left out of dQ", (dQ * root, dK, dV)
    yield "1/√d is left out of dK", (dQ, dK * root, dV)
    yield "dV is divided by √d: only the scores are", (dQ, dK, dV / root)
    yield "dV is P D: transpose P", (dQ, dK, _of_weights(P, D))
    yield "dK is dS Q: transpose dS", (dQ, _of_weights(dS, Q) / root, dV)
    yield "dQ is dSᵀ K: dS is not transposed here", (_of_weights(dS.swapaxes(2, 3), K) / root, dK, dV)
    yield "dQ and dK are swapped", (dK, dQ, dV)
    words = "these are divided by the batch: each sample has its own, of which no mean is taken"
    yield words, tuple(each / len(D) for each in (dQ, dK, dV))


attention_backward = Operation(
    "attention_backward",
    "dV = Pᵀ D, dP = D Vᵀ, dS = P ⊙ (dP − Σ_j P dP), dQ = dS K / √d, dK = dSᵀ Q / √d",
    contract=f"D (batch, heads, t, d), {OF_ROWS}, P (batch, heads, t, t) -> "
    "dQ (batch, heads, t, d), dK (batch, heads, t, d), dV (batch, heads, t, d)",
    reference=_backward_truth,
    flops=lambda batch, heads, t, d: batch * heads * t * t * (8 * d + 4),
    trial=Trial(
        **{**ATTENTION, **{name: _without_causal(ATTENTION[name]) for name in ATTENTION if "size" in name}},
        error_scale=_backward_magnitude,
        tolerance=SUM_TOLERANCE,
        values={"P": _weights},
        mistakes=_mistakes_backward,
    ),
)


@attention_backward.loops_kernel
def backward_loops(D: Array, Q: Array, K: Array, V: Array, P: Array) -> tuple[Array, Array, Array]:
    """A row of dP at a time. With dS from it, the row's share is added to one row of dQ and to all of dK and dV."""
    batch, heads, t, d = Q.shape
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(Q), np.zeros_like(Q)
    dP = np.empty(t, Q.dtype)
    for s in range(batch):
        for h in range(heads):
            for i in range(t):
                mean = 0.0
                for j in range(t):
                    dot = 0.0
                    for k in range(d):
                        dot += D[s, h, i, k] * V[s, h, j, k]
                    dP[j] = dot
                    mean += P[s, h, i, j] * dot
                for j in range(t):
                    dS = P[s, h, i, j] * (dP[j] - mean) / math.sqrt(d)
                    for k in range(d):
                        dQ[s, h, i, k] += dS * K[s, h, j, k]
                        dK[s, h, j, k] += dS * Q[s, h, i, k]
                        dV[s, h, j, k] += P[s, h, i, j] * D[s, h, i, k]
    return dQ, dK, dV


@attention_backward.array_kernel
def backward_array(D: Array, Q: Array, K: Array, V: Array, P: Array) -> tuple[Array, Array, Array]:
    dS = D @ V.swapaxes(2, 3)
    dS -= np.einsum("shij,shij->shi", P, dS)[..., None]
    dS *= P
    dS *= f32(1 / math.sqrt(Q.shape[3]))
    return dS @ K, dS.swapaxes(2, 3) @ Q, P.swapaxes(2, 3) @ D


# ---- fused: a softmax whose scores come one after the other carries two numbers, the largest so far and a sum


def _mistakes_fused(place: tuple[int, ...], Q: Array, K: Array, V: Array, causal: int) -> Mistakes:
    for words, (O, _) in _mistakes_forward(place, Q, K, V, causal):
        yield words, O


fused_attention = Operation(
    "fused_attention",
    "O = softmax over j of (Q Kᵀ / √d) V, without P in memory; with causal = 1 over j ≤ i",
    contract=f"{OF_ROWS}, causal () int -> O (batch, heads, t, d) where causal <= 1",
    reference=lambda *arguments: _forward_truth(*arguments)[0],
    flops=lambda batch, heads, t, d, causal: batch * heads * t * (t + causal) * (4 * d + 5) // (1 + causal),
    trial=Trial(
        **ATTENTION,
        error_scale=lambda *arguments: _forward_magnitude(*arguments)[0],
        tolerance=SUM_TOLERANCE,
        values={"Q": _queries, "K": _keys},
        mistakes=_mistakes_fused,
    ),
)


@fused_attention.loops_kernel
def fused_loops(Q: Array, K: Array, V: Array, causal: int) -> Array:
    """Online softmax: where a larger score comes, sum and O so far are scaled down to it."""
    batch, heads, t, d = Q.shape
    O = np.zeros_like(Q)
    for s in range(batch):
        for h in range(heads):
            for i in range(t):
                top, total = -math.inf, 0.0
                for j in range(i + 1 if causal else t):
                    score = 0.0
                    for k in range(d):
                        score += Q[s, h, i, k] * K[s, h, j, k]
                    score /= math.sqrt(d)
                    old, top = top, max(top, score)
                    shrink, weight = math.exp(old - top), math.exp(score - top)
                    total = total * shrink + weight
                    for k in range(d):
                        O[s, h, i, k] = O[s, h, i, k] * shrink + weight * V[s, h, j, k]
                for k in range(d):
                    O[s, h, i, k] /= total
    return O


TILE = 256  # queries and keys whose scores are in memory at once


@fused_attention.array_kernel
def fused_array(Q: Array, K: Array, V: Array, causal: int) -> Array:
    """A tile of keys after the other, for a tile of queries: only the scores of these are in memory."""
    t, d = Q.shape[2:]
    O = np.empty_like(Q)
    for first in range(0, t, TILE):
        rows = slice(first, first + TILE)
        queries = Q[:, :, rows] * f32(1 / math.sqrt(d))
        top, total, sums = -np.inf, 0.0, 0.0
        for start in range(0, first + 1 if causal else t, TILE):
            tile = slice(start, start + TILE)
            S = queries @ K[:, :, tile].swapaxes(2, 3)
            if causal and start == first:
                S += _hidden(S, S.shape[3])
            new = np.maximum(top, _largest_of_rows(S)[..., None])
            shrink = np.exp(top - new)
            S -= new
            np.exp(S, out=S)
            total = total * shrink + S.sum(axis=3, keepdims=True)
            sums = sums * shrink + S @ V[:, :, tile]
            top = new
        O[:, :, rows] = sums / total
    return O


# ---- CUDA C

SOURCE = cuda_beside(__file__)
for _operation in (split_heads, merge_heads):
    _operation.cuda_kernel("naive", SOURCE)
for _operation in (attention_forward, fused_attention):
    _operation.cuda_kernel("naive", SOURCE, block=128, over=("batch", "heads", "t"))
attention_backward.cuda_kernel("naive", SOURCE, block=32, grid=("batch * heads",))

ON_TILES = cuda_beside(__file__, name="tiles"), cuda_beside(__file__, name="attention_products")
TILES = cuda_beside(__file__, "WARPS=4", name="attention_tiles", before=ON_TILES)
FUSED = cuda_beside(__file__, "WARPS=2", name="fused_attention", before=ON_TILES)
BY_QUERIES = ("batch * heads * ((t + 63) // 64)",)  # a block for 64 queries
attention_forward.cuda_kernel("tiled", TILES, block=128, grid=BY_QUERIES, default=True)
attention_backward.cuda_kernel("tiled", TILES, block=128, grid=("batch * heads",), default=True)
fused_attention.cuda_kernel("tiled", FUSED, block=64, grid=BY_QUERIES, default=True)
