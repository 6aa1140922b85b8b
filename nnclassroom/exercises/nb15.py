"""Operations of the exercises of notebook 15. No network calls them, no backend has kernels for them.

lookup            a mean of values, each weighted by how well its key fits a query
masked_softmax    a softmax of each row, over the positions up to the row's own
"""

import numpy as np

from nncourse.kernels.attention import mistaken_softmax
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Mistakes, Trial

SUM_TOLERANCE = 32.0


def _softmax(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores - np.logaddexp.reduce(scores))


# ---- a lookup with one query


def _query(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """In every third case so long that exp overflows."""
    return (rng.standard_normal(shape) * (300 if sizes["turn"] % 3 == 1 else 1)).astype(np.float32)


def _lookup_magnitude(q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    """A score's rounding error changes its weight in proportion, and through the sum all weights."""
    weights, of_scores = _softmax(K @ q), abs(K) @ abs(q)
    return (weights * (1 + of_scores + weights @ of_scores)) @ abs(V)


def _mistaken_lookups(place: tuple[int, ...], q: np.ndarray, K: np.ndarray, V: np.ndarray) -> Mistakes:
    scores, weights = K @ q, _softmax(K @ q)
    yield "the scores weigh the values as they are: put them through a softmax first", scores @ V
    yield "the exponentials are not divided by their sum", np.exp(scores - scores.max()) @ V
    yield "all values have the same weight: a value's weight is the softmax of its key's score", V.mean(axis=0)
    yield "only the value of the best key counts: a soft lookup adds up all values", V[scores.argmax()]
    yield "the scores are divided by √d, which comes later in the notebook", _softmax(scores / np.sqrt(len(q))) @ V
    single = np.exp(scores.astype(np.float32))
    words = "exp overflows for large scores, or all of them vanish: subtract the largest score first"
    yield words, single / single.sum() @ V
    if K.shape == V.shape:
        yield "the weights are applied to the keys: the result is a mean of the values", weights @ K


lookup = Operation(
    "lookup",
    "o = Σ_j p[j] V[j], p = softmax of the scores q · K[j]",
    contract="q (d,), K (n, d), V (n, m) -> o (m,)",
    reference=lambda q, K, V: np.einsum("j,jm->m", _softmax(np.einsum("jd,d->j", K, q)), V),
    flops=None,
    trial=Trial(
        tolerance=SUM_TOLERANCE,
        error_scale=_lookup_magnitude,
        values={"q": _query},
        edge_cases=("zeros", "large"),
        mistakes=_mistaken_lookups,
    ),
)


@lookup.kernel("numpy", device="cpu")
def array(q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    scores = K @ q
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ V


# ---- a softmax that looks back only


def _scores(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Now and then so large that exp overflows, or with by far the largest ones where no position may look.

    None is from 80 to 100: whether a sum of such exponentials overflows depends on the order of the additions.
    """
    S = rng.standard_normal(shape) * (1, 1, 100)[sizes["turn"] % 3]
    S += 20 * (S > 80)
    later = np.triu(np.full(shape, 300.0), 1)
    return (S + later * (sizes["turn"] % 3 == 1)).astype(np.float32)


def _row_by_row(S: np.ndarray) -> np.ndarray:
    P = np.zeros_like(S)
    for i, row in enumerate(S):
        P[i, : i + 1] = _softmax(row[: i + 1])
    return P


def _softmax_magnitude(S: np.ndarray) -> np.ndarray:
    P = _row_by_row(S)
    return P * (1 + abs(S) + (P * abs(S)).sum(axis=1, keepdims=True))


masked_softmax = Operation(
    "masked_softmax",
    "P[i] = softmax of S[i, 0], …, S[i, i], and 0 for j > i",
    contract="S (t, t) -> P (t, t)",
    reference=_row_by_row,
    flops=None,
    trial=Trial(
        tolerance=SUM_TOLERANCE,
        error_scale=_softmax_magnitude,
        values={"S": _scores},
        edge_cases=("zeros", "large"),
        mistakes=lambda place, S: mistaken_softmax(S, causal=1),
    ),
)


@masked_softmax.kernel("numpy", device="cpu")
def masked_first(S: np.ndarray) -> np.ndarray:
    seen = np.tri(len(S), dtype=bool)
    S = np.where(seen, S, -np.inf)
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)
