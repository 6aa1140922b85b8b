"""The evidence for notebook 15: trainings of its networks with the course's kernels, and recorded ones."""

import contextlib
import io
from functools import cache
from typing import Any

import numpy as np

from claims import Claim
from claims.cells import defined
from nnclassroom import find
from nnclassroom.figures import overheads

NOTEBOOK = "15_attention"
OWN = {name: find(name)["numpy"] for name in ("attention_forward", "attention_backward", "embedding_gradient")}


@cache
def cells() -> dict[str, Any]:
    return defined(NOTEBOOK, "setup", "sums", "dense", "root", "network", "train", "looks", "looks-all", **OWN)


# ---- the dense network


@cache
def digits(seed: int) -> tuple[np.ndarray, float]:
    """The shares of the digits that are right, the ones first, and of the sums."""
    right = cells()["train_dense"](seed)[1]
    return right.mean(axis=0), float(right.all(axis=1).mean())


def less_than_half(seed: int) -> bool:
    return 0.2 < digits(seed)[1] < 0.5


def tens_are_hardest(seed: int) -> bool:
    ones, tens, hundreds, thousands = digits(seed)[0]
    return bool(ones > 0.98 and thousands > 0.98 and tens < hundreds < 0.9)


# ---- random scores


def alike_if_divided() -> bool:
    """The means of the largest weight, for the three d; undivided they are far apart."""
    divided, undivided = ([p.mean() for p in cells()[name].values()] for name in ("divided", "undivided"))
    return bool(np.ptp(divided) < 0.03 and undivided[2] > 0.9 and np.ptp(undivided) > 0.4)


# ---- the transformer for two digits


@cache
def small(seed: int, replaced: str = "", by: str = "") -> tuple[Any, list[float]]:
    names = cells()
    layers = names["LAYERS"].replace(replaced, by, 1) if replaced else names["LAYERS"]
    with contextlib.redirect_stdout(io.StringIO()):
        return names["train_small"](names["course"], layers=layers, seed=seed)


def adds_after_six_epochs(seed: int) -> bool:
    shares = small(seed)[1]
    return shares[-1] > 0.98 and 3 <= next(n + 1 for n, share in enumerate(shares) if share > 0.9) <= 5


def one_head_looks_at_both(seed: int) -> bool:
    """In both rows the same head; the mean over the heads; and how alike the two digits are."""
    found = cells()["shares_of"](small(seed)[0]).values()
    sharp = np.min([pair.sum(axis=1) for pair, _ in found], axis=0).max() > 0.9
    mean = all(pair.mean(axis=0).sum() > 4 * others.mean(axis=0).sum() for pair, others in found)
    alike = all(abs(np.diff(pair.mean(axis=0))[0]) < 0.2 * pair.mean(axis=0).sum() for pair, _ in found)
    return bool(sharp and mean and alike)


def few_without_positions(seed: int) -> bool:
    return small(seed, "embed32", "embed32unordered")[1][-1] < 0.5


# ---- three digits, recorded


def recorded(name: str) -> list[dict[str, Any]]:
    return [each for each in overheads.recorded("sums")["records"] if each["network"] == name]


CLAIMS = [
    Claim("dense-answer", "Less than half of the sums.", seeds=less_than_half),
    Claim("dense-answer", "The thousands are nearly always right", seeds=tens_are_hardest),
    Claim("dense-answer", "The tens are the hardest", seeds=tens_are_hardest),
]
