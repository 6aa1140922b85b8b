"""Operations of the exercises of notebook 15b: a softmax in pieces. No network calls them, no backend has kernels.

    carry_key       one more key for many queries, whose largest scores and sums so far are carried
    merge_parts     the same numbers for two sets of keys, merged to those for all
    softmax_sums    the two numbers of each row's softmax, by a warp that reads each score once

`top` is the largest score so far, `total` the sum of exp(score − top), and `O` the sum of the values, each with the
weight exp(score − top). Before the first key they are −∞, 0 and 0.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Mistakes, Trial

SUM_TOLERANCE = 32.0
Part = tuple[np.ndarray, np.ndarray, np.ndarray]  # top (n,), total (n,), O (n, d)


def _merged(one: Part, other: Part, *, mistake: str = "") -> Part:
    """What two parts are together; or what a usual mistake makes of them."""
    (top_1, total_1, O_1), (top_2, total_2, O_2) = one, other
    top = np.logaddexp(top_1, top_2) if mistake == "adds tops" else np.maximum(top_1, top_2)
    factors, ones = (np.exp(top_1 - top), np.exp(top_2 - top)), (np.ones_like(top), np.ones_like(top))
    if mistake == "upside down":
        with np.errstate(over="ignore"):
            factors = np.exp(top - top_1), np.exp(top - top_2)
    if mistake == "only the first":
        factors = factors[0], ones[1]
    for_total, for_O = (ones if mistake == each else factors for each in ("total", "O"))
    with np.errstate(invalid="ignore"):
        total = for_total[0] * total_1 + for_total[1] * total_2
        O = for_O[0][:, None] * O_1 + for_O[1][:, None] * O_2
    return top, total, O / total[:, None] if mistake == "divided" else O


def _magnitude(one: Part, other: Part) -> Part:
    """A rounding error of a difference of scores changes its exponential in proportion."""
    top = np.maximum(one[0], other[0])
    found = []
    for part_top, total, O in (one, other):
        by = np.exp(part_top - top) * (1 + np.where(np.isinf(part_top), 0, abs(part_top - top)))
        found.append((by * total, by[:, None] * abs(O)))
    (total_1, O_1), (total_2, O_2) = found
    return np.zeros_like(top), total_1 + total_2, O_1 + O_2


def _tops(of_empty: int | None = None) -> Callable[..., np.ndarray]:
    """Scores; now and then far apart, so large that exp overflows, or those of a part without keys."""

    def values(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
        turn = sizes["turn"] % 4
        tops = rng.standard_normal(shape) * (1, 1, 100, 1)[turn]
        return (tops + (500 if turn == 3 else 0) if turn != of_empty else np.full(shape, -np.inf)).astype(np.float32)

    return values


def _at_least_one(of_empty: int) -> Callable[..., np.ndarray]:
    """Sums of exponentials of which the largest is 1; 0 without keys."""

    def values(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
        there = float(sizes["turn"] % 4 != of_empty)
        return ((1 + abs(rng.standard_normal(shape))) * there).astype(np.float32)

    return values


def _sums(of_empty: int) -> Callable[..., np.ndarray]:
    def values(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
        return (rng.standard_normal(shape) * float(sizes["turn"] % 4 != of_empty)).astype(np.float32)

    return values


WORDS = {
    "adds tops": "the largest score is a maximum, not a sum",
    "upside down": "the factors are upside down: with the new top the old sums become smaller, exp(old − new)",
    "total": "total keeps its old scale: multiply it by exp(old top − new top)",
    "O": "O keeps its old scale: multiply it by exp(old top − new top), like total",
    "divided": "O is divided by total: that is done once, after the last key",
}

# ---- one more key


def _parts(top: Any, total: Any, O: Any, s: Any, v: Any) -> tuple[Part, Part]:
    """What is carried, and the new key as a part of its own: the largest of its scores is its only one."""
    return (top, total, O), (s, np.ones_like(s), np.broadcast_to(v, O.shape))


def _mistaken_keys(place: tuple[int, ...], top: Any, total: Any, O: Any, s: Any, v: Any) -> Mistakes:
    for mistake in ("adds tops", "upside down", "divided"):
        yield WORDS[mistake], _merged(*_parts(top, total, O, s, v), mistake=mistake)
    new = np.maximum(top, s)
    shrink, weight = np.exp(top - new), np.exp(s - new)
    total_new, O_new = shrink * total + weight, shrink[:, None] * O + weight[:, None] * v
    yield WORDS["total"], (new, total + weight, O_new)
    yield WORDS["O"], (new, total_new, O + weight[:, None] * v)
    yield "the new key's weight is missing in total", (new, shrink * total, O_new)
    with np.errstate(over="ignore", invalid="ignore"):
        weight = np.exp((s - top).astype(np.float32)).astype(float)
        of_old = new, shrink * total + weight, shrink[:, None] * O + weight[:, None] * v
    yield "the weight of the new key is exp(s − new top), not exp(s − old top)", of_old


PARTS: dict[str, Any] = {"tolerance": SUM_TOLERANCE, "edge_cases": ()}
carry_key = Operation(
    "carry_key",
    "top' = max(top, s), total' = total e^(top − top') + e^(s − top'), O' = O e^(top − top') + e^(s − top') v",
    contract="top (n,), total (n,), O (n, d), s (n,), v (d,) -> top_new (n,), total_new (n,), O_new (n, d)",
    reference=lambda *five: _merged(*_parts(*five)),
    flops=None,
    trial=Trial(
        **PARTS,
        error_scale=lambda *five: _magnitude(*_parts(*five)),
        values={"top": _tops(1), "total": _at_least_one(1), "O": _sums(1), "s": _tops()},
        mistakes=_mistaken_keys,
    ),
)


@carry_key.kernel("numpy", device="cpu")
def one_more(top: np.ndarray, total: np.ndarray, O: np.ndarray, s: np.ndarray, v: np.ndarray) -> Part:
    new = np.maximum(top, s)
    shrink, weight = np.exp(top - new), np.exp(s - new)
    return new, total * shrink + weight, O * shrink[:, None] + weight[:, None] * v


# ---- two parts


def _of_six(top_1: Any, total_1: Any, O_1: Any, top_2: Any, total_2: Any, O_2: Any, **how: str) -> Part:
    return _merged((top_1, total_1, O_1), (top_2, total_2, O_2), **how)


def _mistaken_parts(place: tuple[int, ...], *arguments: Any) -> Mistakes:
    for mistake in ("adds tops", "upside down", "total", "O", "divided"):
        yield WORDS[mistake], _of_six(*arguments, mistake=mistake)
    words = "the second part keeps its old scale: its top may be the smaller one, so it shrinks too"
    yield words, _of_six(*arguments, mistake="only the first")


merge_parts = Operation(
    "merge_parts",
    "top = max(top_1, top_2), total = Σ total_i e^(top_i − top), O = Σ O_i e^(top_i − top)",
    contract="top_1 (n,), total_1 (n,), O_1 (n, d), top_2 (n,), total_2 (n,), O_2 (n, d) -> "
    "top (n,), total (n,), O (n, d)",
    reference=_of_six,
    flops=None,
    trial=Trial(
        **PARTS,
        error_scale=lambda *six: _magnitude(six[:3], six[3:]),
        values={
            **{"top_1": _tops(1), "total_1": _at_least_one(1), "O_1": _sums(1)},
            **{"top_2": _tops(2), "total_2": _at_least_one(2), "O_2": _sums(2)},
        },
        mistakes=_mistaken_parts,
    ),
)


@merge_parts.kernel("numpy", device="cpu")
def both(top_1: Any, total_1: Any, O_1: Any, top_2: Any, total_2: Any, O_2: Any) -> Part:
    top = np.maximum(top_1, top_2)
    one, two = np.exp(top_1 - top), np.exp(top_2 - top)
    return top, one * total_1 + two * total_2, one[:, None] * O_1 + two[:, None] * O_2


# ---- a warp for each row


def _row_sums(S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    top = S.max(axis=1)
    return top, np.exp(S - top[:, None]).sum(axis=1)


def _row_magnitude(S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    far = S.max(axis=1, keepdims=True) - S
    return np.zeros(len(S)), (np.exp(-far) * (1 + far)).sum(axis=1)


def _mistaken_rows(place: tuple[int, ...], S: np.ndarray) -> Mistakes:
    top, total = _row_sums(S)
    lanes = [S[:, lane::32] for lane in range(min(S.shape[1], 32))]
    tops, totals = (np.stack(each, axis=1) for each in zip(*map(_row_sums, lanes), strict=True))
    yield "the lanes' totals are added as they are: they belong to different tops", (top, totals.sum(axis=1))
    yield "this is the part of lane 0: merge the parts of all 32 lanes", (tops[:, 0], totals[:, 0])
    yield "only the first 32 scores of a row count: lane l takes l, l + 32, l + 64, …", _row_sums(S[:, :32])
    with np.errstate(over="ignore"):
        yield "exp(score) overflows: it is exp(score − top)", (top, np.exp(S.astype(np.float32)).sum(axis=1))


softmax_sums = Operation(
    "softmax_sums",
    "top[i] = max over j of S[i, j], total[i] = Σ_j exp(S[i, j] − top[i])",
    contract="S (n, t) -> top (n,), total (n,)",
    reference=_row_sums,
    flops=None,
    trial=Trial(
        **PARTS,
        error_scale=_row_magnitude,
        values={"S": _tops()},
        mistakes=_mistaken_rows,
        budgets={
            "warp": Budget(
                {"n": 3, "t": 96},
                (Limit("reads", "n * t", "S"), Limit("reads by a thread", "t // 16", "S"), Limit("writes", "2 * n")),
                {"n": 5, "t": 200},
            )
        },
    ),
)


softmax_sums.kernel("numpy", device="cpu")(_row_sums)
softmax_sums.cuda_kernel("warp", cuda_beside(__file__), block=32, grid=("n",))
