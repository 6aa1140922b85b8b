"""Attention (Vaswani and others, 2017): each position of a sequence gets a mean of the values V of all positions. A
value has a large weight if the key of its position fits the query of the position that gets the mean.

Q, K and V (batch, heads, t, d) hold a row of d numbers for each position of each head. The score of position i for
position j is Q[i] · K[j] / √d. A softmax over j turns the scores of position i into its weights P[i], and O = P V. With
causal = 1 position i sees only itself and earlier positions: its weights for later ones are 0.

`fused_attention` computes O without P, in one pass over K and V: the scores are never in global memory.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Mistakes, Trial, sizes_named

SUM_TOLERANCE = 32.0
f32 = np.float32

# ---- heads: from a dense layer's rows to a matrix for each sample and head, and back

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
    words = "the sequence is cut into heads: the heads are the axis of A before d, so move that axis before t"
    yield words, np.moveaxis(A, 2, 0).reshape(shape)
    others = A.reshape(batch, t, heads, parts, d)
    words = "A is read as (batch, t, heads, parts, d): in A the parts come before the heads"
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
    words = "heads and positions keep their order: move t before the parts and the heads"
    yield words, np.moveaxis(H, 0, 1).reshape(shape)
    words = "the heads come before the parts: in A the parts come first"
    yield words, np.einsum("pshtd->sthpd", H).reshape(shape)


merge_heads = Operation(
    "merge_heads",
    "A[s, i, p, h] = H[p, s, h, i]: the inverse of split_heads",
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
        _sizes(1, 1, 1, 1, 1),  # one position: its weight is 1
        _sizes(1, 2, 7, 5, 1),
        _sizes(3, 2, 4, 4, 0),  # as many positions as numbers
        _sizes(2, 3, 17, 16, 1),
        _sizes(1, 1, 33, 8, 0),
        _sizes(1, 1, 65, 33, 1),  # one position more than a tile of 64
        _sizes(1, 1, 20, 130, 0),
        _sizes(5, 1, 9, 3, 1),
        _sizes(1, 1, 66, 66, 1),
        _sizes(2, 1, 12, 64, 0),
        _sizes(1, 1, 130, 4, 0),  # three tiles
    ],
    "draw_sizes": lambda rng: _sizes(*rng.integers(1, 9, 4).tolist(), int(rng.integers(2))),
    "large_sizes": [
        _sizes(65_900, 1, 1, 1, 0),
        _sizes(1, 66_000, 1, 1, 1),
        _sizes(1, 1, 260, 1, 1),
        _sizes(1, 1, 2, 3000, 0),
    ],
    "edge_cases": ("zeros", "large"),
    "sizes_to_time": lambda device: _sizes(*((32, 4, 64, 32, 1) if device == "gpu" else (128, 4, 12, 16, 1))),
}


def _tiled(arrays: str, writes: bool = False, **sizes: int) -> dict[str, Budget]:
    """The budget of `tiled` and `shared`: each array is read once for each tile of queries or keys, by all threads."""
    shares = Limit("reads", "batch * heads * t * t * d // 8"), Limit("reads by a thread", "t * d // 4")
    limits = [replace(limit, of=name) for name in arrays.split() for limit in shares]
    limits += [Limit("writes", "batch * heads * t * d")] if writes else []
    # A thread of `shared` reads PART numbers of each key, so with more keys the emulator could not record all accesses.
    return {
        "tiled": Budget({"batch": 1, "heads": 2, "t": 32, "d": 16, **sizes}, tuple(limits), {"t": 80}),
        "shared": Budget({"batch": 1, "heads": 1, "t": 16, "d": 16, **sizes}, tuple(limits), {"t": 32}),
    }


def _hard(sign: int, rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Queries (sign 1), or keys (−1), whose scores are hard in some turns.

    exp of a score overflows, or all of a row vanish; all keys are equal; the last key has by far the largest scores.
    """
    values = rng.standard_normal(shape)
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


HARD = {"Q": partial(_hard, 1), "K": partial(_hard, -1)}


def scores_of(Q: Array, K: Array) -> Array:
    return np.einsum("shid,shjd->shij", Q, K) / math.sqrt(Q.shape[3])


def _seen(t: int, causal: int) -> Array:
    """seen[i, j]: whether position i sees position j."""
    return np.tri(t, dtype=bool) if causal else np.ones((t, t), bool)


def softmax_of(S: Array, seen: Array | bool = True, axis: int = -1) -> Array:
    S = np.where(seen, S, -np.inf)
    return np.exp(S - np.logaddexp.reduce(S, axis=axis, keepdims=True))


def weighted(P: Array, V: Array) -> Array:
    return np.einsum("shij,shjd->shid", P, V)


def forward_truth(Q: Array, K: Array, V: Array, causal: int) -> tuple[Array, Array]:
    P = softmax_of(scores_of(Q, K), _seen(Q.shape[2], causal))
    return weighted(P, V), P


def forward_magnitude(Q: Array, K: Array, V: Array, causal: int) -> tuple[Array, Array]:
    """A score's rounding error changes its weight in proportion, and through the sum all weights of its row."""
    P, of_scores = forward_truth(Q, K, V, causal)[1], scores_of(abs(Q), abs(K))
    of_P = P * (1 + of_scores + (P * of_scores).sum(axis=3, keepdims=True))
    return weighted(of_P, abs(V)), of_P


def mistaken_softmax(S: Array, causal: int) -> Mistakes:
    """Usual mistakes in a softmax over j of scores (…, i, j), each with the weights that it leads to."""
    t = S.shape[-1]
    seen, before = _seen(t, causal), np.tri(t, k=-1, dtype=bool)
    masked = np.where(seen, S, -np.inf)
    if causal:
        yield "the mask is left out: position i sees no position j > i", softmax_of(S)
        words = "the mask is on the wrong side: position i sees positions j ≤ i, not j ≥ i"
        yield words, softmax_of(S, ~before)
        words = "masked scores are 0, whose exp is 1: set them to −∞"
        yield words, softmax_of(np.where(seen, S, 0))
        words = "weights are set to 0 after the softmax: mask the scores before it, so that the other weights sum to 1"
        yield words, softmax_of(S) * seen
        if t > 1 or S.max() < 80:  # a larger one overflows alone
            with np.errstate(invalid="ignore"):
                yield "position i does not see itself: it sees positions j ≤ i", softmax_of(S, before)
    words = "the softmax is along i: the weights of each position i over all j must sum to 1"
    yield words, softmax_of(S, seen, axis=-2)
    single = masked.astype(np.float32)
    E = np.exp(single)
    E /= E.sum(axis=-1, keepdims=True)
    words = "exp overflows, or a whole row becomes 0: subtract the largest score of the row first"
    yield words, E
    yield words, np.where(seen, E, 0)  # of a row of zeros, masked weights may be left alone
    E = np.exp(single - S.astype(np.float32).max(axis=-1, keepdims=True))
    words = "the largest score may be a masked one: take the largest of those that position i sees"
    yield words, E / E.sum(axis=-1, keepdims=True)
    words = "the exponentials are not divided: divide each by the sum of its row"
    yield words, np.exp(masked - masked.max(axis=-1, keepdims=True))


def _mistaken_weights(Q: Array, K: Array, causal: int) -> Mistakes:
    """Usual mistakes, each with the weights that it leads to."""
    t, d = Q.shape[2:]
    S, seen = scores_of(Q, K), _seen(t, causal)
    yield "the scores are not divided by √d", softmax_of(S * math.sqrt(d), seen)
    yield "the scores are multiplied by √d: divide them by it", softmax_of(S * d, seen)
    yield "the scores are divided by d: divide them by its root", softmax_of(S / math.sqrt(d), seen)
    words = "Q and K are swapped: row i of the scores is query i with all keys"
    yield words, softmax_of(S.swapaxes(2, 3), seen)
    yield from mistaken_softmax(S, causal)


def _mistakes_forward(place: tuple[int, ...], Q: Array, K: Array, V: Array, causal: int) -> Mistakes:
    O, P = forward_truth(Q, K, V, causal)
    for words, wrong in _mistaken_weights(Q, K, causal):
        yield words, (weighted(wrong, V), wrong)
    yield "O is computed with Pᵀ: row i of O takes row i of P", (weighted(P.swapaxes(2, 3), V), P)
    yield "O is P K: take the values V", (weighted(P, K), P)
    S = np.where(_seen(len(P[0, 0]), causal), scores_of(Q, K), 0)
    yield "P holds the scores: apply the softmax to them", (O, S)


def _flops(batch: int, heads: int, t: int, d: int, causal: int) -> int:
    return batch * heads * t * (t + causal) * (4 * d + 5) // (1 + causal)


OF_ROWS = "Q (batch, heads, t, d), K (batch, heads, t, d), V (batch, heads, t, d)"
attention_forward = Operation(
    "attention_forward",
    "O = P V, P = softmax over j of Q Kᵀ / √d; with causal = 1 over j ≤ i",
    contract=f"{OF_ROWS}, causal () int -> O (batch, heads, t, d), P (batch, heads, t, t) where causal <= 1",
    reference=forward_truth,
    flops=_flops,
    trial=Trial(
        **ATTENTION,
        error_scale=forward_magnitude,
        tolerance=SUM_TOLERANCE,
        values=HARD,
        mistakes=_mistakes_forward,
        budgets=_tiled("Q K V", causal=0),
    ),
)


@attention_forward.loops_kernel
def forward_loops(Q: Array, K: Array, V: Array, causal: int) -> tuple[Array, Array]:
    """One row of P at a time: its scores and their maximum, the exponentials and their sum, then a row of O."""
    batch, heads, t, d = Q.shape
    O, P = np.zeros_like(Q), np.zeros((batch, heads, t, t), Q.dtype)
    for s in range(batch):
        for h in range(heads):
            for i in range(t):
                seen = i + 1 if causal else t
                top = -math.inf
                for j in range(seen):
                    score = f32(0)  # in 64 bits SIMD instructions would take half as many numbers
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


def _mask(like: Array, t: int) -> Array:
    """Numbers to add to scores: −∞ for later positions, above the diagonal, otherwise 0."""
    return np.triu(np.full_like(like, -np.inf, shape=(t, t)), 1)


def _largest_of_rows(S: Array) -> Array:
    """Short rows are faster along the first axis: there NumPy compares many rows at once."""
    return S.max(axis=3) if S.shape[3] >= 64 else S.transpose(3, 0, 1, 2).copy().max(axis=0)


@attention_forward.array_kernel
def forward_array(Q: Array, K: Array, V: Array, causal: int) -> tuple[Array, Array]:
    P = (Q * Q.shape[3] ** -0.5) @ K.swapaxes(2, 3)
    if causal:
        P += _mask(P, P.shape[3])
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
    return softmax_of(S, _seen(shape[3], sizes["turn"] % 4 < 2)).astype(np.float32)


def _of_scores(D: Array, V: Array, P: Array, of_row: float = 1, axis: int = 3) -> Array:
    """dC/dS: P times how far each dC/dP is from its row's mean, weighted by P."""
    dP = np.einsum("shid,shjd->shij", D, V)
    return P * (dP - of_row * (P * dP).sum(axis=axis, keepdims=True))


def _sent_back(dS: Array, D: Array, Q: Array, K: Array, P: Array) -> tuple[Array, Array, Array]:
    dS = dS / math.sqrt(Q.shape[3])
    return weighted(dS, K), weighted(dS.swapaxes(2, 3), Q), weighted(P.swapaxes(2, 3), D)


def _backward_truth(D: Array, Q: Array, K: Array, V: Array, P: Array) -> tuple[Array, Array, Array]:
    return _sent_back(_of_scores(D, V, P), D, Q, K, P)


def _backward_magnitude(D: Array, Q: Array, K: Array, V: Array, P: Array) -> tuple[Array, Array, Array]:
    D, Q, K, V = abs(D), abs(Q), abs(K), abs(V)
    return _sent_back(_of_scores(D, V, P, -1), D, Q, K, P)


def _mistakes_backward(place: tuple[int, ...], D: Array, Q: Array, K: Array, V: Array, P: Array) -> Mistakes:
    dS, root = _of_scores(D, V, P), math.sqrt(Q.shape[3])
    dQ, dK, dV = _sent_back(dS, D, Q, K, P)
    words = "the sum of the row is not subtracted: dS = P ⊙ (dP − Σ_j P dP)"
    yield words, _sent_back(_of_scores(D, V, P, 0), D, Q, K, P)
    words = "the sums are over the columns: Σ_j P dP is the sum of each row"
    yield words, _sent_back(_of_scores(D, V, P, axis=2), D, Q, K, P)
    words = "the sum of the row is divided by t: Σ_j P dP is a mean already, since each row of P sums to 1"
    yield words, _sent_back(_of_scores(D, V, P, 1 / P.shape[3]), D, Q, K, P)
    dP = np.einsum("shid,shjd->shij", D, V)
    words = "the sum is over dP alone: multiply by P first, Σ_j P dP"
    yield words, _sent_back(P * (dP - dP.sum(axis=3, keepdims=True)), D, Q, K, P)
    words = "P is left out: multiply dP − Σ_j P dP by it"
    yield words, _sent_back(dP - (P * dP).sum(axis=3, keepdims=True), D, Q, K, P)
    words = "the softmax is left out: dS is P ⊙ (dP − Σ_j P dP), not dP"
    yield words, _sent_back(dP, D, Q, K, P)
    yield "1/√d is left out: multiply both dQ and dK by it", (dQ * root, dK * root, dV)
    yield "dV is divided by √d: divide dQ and dK only", (dQ, dK, dV / root)
    yield "dV is P D: transpose P", (dQ, dK, weighted(P, D))
    yield "dK is dS Q: transpose dS", (dQ, weighted(dS, Q) / root, dV)
    yield "dQ is dSᵀ K: do not transpose dS here", (weighted(dS.swapaxes(2, 3), K) / root, dK, dV)
    yield "dQ and dK are swapped", (dK, dQ, dV)
    words = "these are divided by the batch: each sample has its own gradients, so take no mean"
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
        budgets=_tiled("D Q K V"),
    ),
)


@attention_backward.loops_kernel
def backward_loops(D: Array, Q: Array, K: Array, V: Array, P: Array) -> tuple[Array, Array, Array]:
    """One row of dP at a time. It gives a row of dS, whose share is added to one row of dQ and to all of dK and dV."""
    batch, heads, t, d = Q.shape
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(Q), np.zeros_like(Q)
    dP = np.empty(t, Q.dtype)
    for s in range(batch):
        for h in range(heads):
            for i in range(t):
                mean = 0.0
                for j in range(t):
                    dot = f32(0)
                    for k in range(d):
                        dot += D[s, h, i, k] * V[s, h, j, k]
                    dP[j] = dot
                    mean += P[s, h, i, j] * dot
                for j in range(t):
                    dS = f32(P[s, h, i, j] * (dP[j] - mean) / math.sqrt(d))
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
    dS *= Q.shape[3] ** -0.5
    return dS @ K, dS.swapaxes(2, 3) @ Q, P.swapaxes(2, 3) @ D


# ---- fused: a softmax over scores that come one after the other keeps two numbers, the largest so far and a sum


def _mistakes_fused(place: tuple[int, ...], Q: Array, K: Array, V: Array, causal: int) -> Mistakes:
    for words, (O, _) in _mistakes_forward(place, Q, K, V, causal):
        yield words, O


fused_attention = Operation(
    "fused_attention",
    "O = softmax over j of (Q Kᵀ / √d) V, without P in memory; with causal = 1 over j ≤ i",
    contract=f"{OF_ROWS}, causal () int -> O (batch, heads, t, d) where causal <= 1",
    reference=lambda *arguments: forward_truth(*arguments)[0],
    flops=_flops,
    trial=Trial(
        **ATTENTION,
        error_scale=lambda *arguments: forward_magnitude(*arguments)[0],
        tolerance=SUM_TOLERANCE,
        values=HARD,
        mistakes=_mistakes_fused,
        budgets=_tiled("Q K V", writes=True, causal=0),
    ),
)


@fused_attention.loops_kernel
def fused_loops(Q: Array, K: Array, V: Array, causal: int) -> Array:
    """Online softmax: if a score is larger than all before it, the sums so far are scaled down."""
    batch, heads, t, d = Q.shape
    O = np.zeros_like(Q)
    for s in range(batch):
        for h in range(heads):
            for i in range(t):
                top, total = -math.inf, 0.0
                for j in range(i + 1 if causal else t):
                    dot = f32(0)
                    for k in range(d):
                        dot += Q[s, h, i, k] * K[s, h, j, k]
                    score, old = float(dot) / math.sqrt(d), top
                    top = max(top, score)
                    shrink, weight = f32(math.exp(old - top)), f32(math.exp(score - top))
                    total = total * float(shrink) + float(weight)
                    for k in range(d):
                        O[s, h, i, k] = O[s, h, i, k] * shrink + weight * V[s, h, j, k]
                for k in range(d):
                    O[s, h, i, k] /= total
    return O


TILE = 256  # queries and keys whose scores are in memory at once


@fused_attention.array_kernel
def fused_array(Q: Array, K: Array, V: Array, causal: int) -> Array:
    """For a tile of queries, one tile of keys after another: only the scores of these two tiles are in memory."""
    t, d = Q.shape[2:]
    O = np.empty_like(Q)
    for first in range(0, t, TILE):
        rows = slice(first, first + TILE)
        queries = Q[:, :, rows] * d**-0.5
        top, total, sums = -np.inf, 0.0, 0.0
        for start in range(0, first + 1 if causal else t, TILE):
            tile = slice(start, start + TILE)
            S = queries @ K[:, :, tile].swapaxes(2, 3)
            if causal and start == first:
                S += _mask(S, S.shape[3])
            new = np.maximum(top, _largest_of_rows(S)[..., None])
            shrink = np.exp(top - new)
            S -= new
            np.exp(S, out=S)
            total = total * shrink + np.einsum("shij->shi", S)[..., None]
            sums = sums * shrink + S @ V[:, :, tile]
            top = new
        O[:, :, rows] = sums / total
    return O


# ---- CUDA C

SOURCE = cuda_beside(__file__)
for _operation in (split_heads, merge_heads):
    _operation.cuda_kernel("rows", SOURCE, grid=("batch * t",))
for _operation in (attention_forward, fused_attention):
    _operation.cuda_kernel("naive", SOURCE, block=128, over=("batch", "heads", "t"))
attention_backward.cuda_kernel("naive", SOURCE, block=32, grid=("batch * heads",))

ON_TILES = cuda_beside(__file__, name="tiles"), cuda_beside(__file__, name="attention_products")
TILES = cuda_beside(__file__, name="attention_tiles", before=ON_TILES)
FUSED = cuda_beside(__file__, name="fused_attention", before=ON_TILES)
BY_QUERIES = ("batch * heads * ((t + 63) // 64)",)  # a block for 64 queries
attention_forward.cuda_kernel("tiled", TILES, block=128, grid=BY_QUERIES, default=True)
# A block for each head: with few heads most of a GPU is idle.
attention_backward.cuda_kernel("tiled", TILES, block=128, grid=("batch * heads",), default=True)
fused_attention.cuda_kernel("shared", SOURCE, block=128, grid=("batch * heads * ((t + 127) // 128)",))
fused_attention.cuda_kernel("tiled", FUSED, block=128, grid=BY_QUERIES, default=True)
