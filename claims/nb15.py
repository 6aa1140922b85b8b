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
    used = "setup", "sums", "dense", "root", "network", "train", "looks", "looks-all"
    return defined(NOTEBOOK, *used, display=id, **OWN)


# ---- the dense network


@cache
def digits(seed: int) -> tuple[np.ndarray, float]:
    """The shares of the digits that are right, the ones first, and of the sums."""
    right = cells()["train_dense"](seed)[1]
    return right.mean(axis=0), float(right.all(axis=1).mean())


def less_than_half(seed: int) -> bool:
    return digits(seed)[1] < 0.5


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
    """A network after six epochs, and the share of unseen sums that are right after each."""
    names = cells()
    layers = names["LAYERS"].replace(replaced, by, 1) if replaced else names["LAYERS"]
    with contextlib.redirect_stdout(io.StringIO()):
        return names["train_small"](names["course"], layers=layers, seed=seed)


def adds_after_six_epochs(seed: int) -> bool:
    shares = small(seed)[1]
    return shares[-1] > 0.95 and 3 <= next(n + 1 for n, share in enumerate(shares) if share >= 0.9) <= 5


def some_head_looks_at_both(seed: int) -> bool:
    """From each of the two positions, in one of the two blocks."""
    return all(np.max(heads) > 0.9 for heads in cells()["on_digits_to_add"](small(seed)[0]).values())


def fewer_without_positions(seed: int) -> bool:
    share = small(seed, "embed64", "embed64unordered")[1][-1]
    return 0.1 < share < 0.75 and share < small(seed)[1][-1]


def slopes_vanish() -> bool:
    """The median slope of the largest weight for d = 1,024, undivided and divided."""
    p, other = cells()["undivided"]["d = 1024"], cells()["divided"]["d = 1024"]
    return bool(np.median(p * (1 - p)) < 0.001 and np.median(other * (1 - other)) > 0.1)


def fewer_with_one_block(seed: int) -> bool:
    return small(seed, "block4x128,")[1][-1] < small(seed)[1][-1]


def adds_in_usual_order(seed: int) -> bool:
    kept = [(data, data.X.copy(), data.Y.copy()) for data in (cells()["small"], cells()["small_unseen"])]
    for data, X, _ in kept:
        data.X[:, 6:] = X[:, :5:-1]
        data.Y[:, 5:8] = data.X[:, 6:]
    with contextlib.redirect_stdout(io.StringIO()):
        _, shares = cells()["train_small"](cells()["course"], seed=seed)
    for data, X, Y in kept:
        data.X[...], data.Y[...] = X, Y
    return shares[-1] > 0.95 and adds_after_six_epochs(seed)


# ---- three digits, recorded


def recorded(name: str) -> list[float]:
    """The shares at the end, a seed each, in rising order."""
    return sorted(each["right"][-1] for each in overheads.recorded("sums")["records"] if each["network"] == name)


def transformer_ahead() -> bool:
    found = overheads.recorded("sums")["records"]
    from_6_on = all(
        share >= 0.9995 for each in found if each["network"] == "transformer" for share in each["right"][5:]
    )
    sizes = {each["network"]: each["parameters"] for each in found}
    alike = abs(sizes["transformer"] - sizes["dense"]) < 10
    fifth, quarter = max(recorded("without positions")) < 0.2, max(recorded("dense")) < 0.25
    return from_6_on and alike and fifth and quarter and max(recorded("dense, longer")) <= 0.975


CLAIMS = [
    Claim("lookup-spec", "0.368, 1 and 0.368, with the sum 1.736.", why="derived: exp(−1), 1 and exp(−1)"),
    Claim("attention-spec", "With 64 numbers and 4 heads each lookup", why="derived: 64 / 4"),
    Claim("memory-words", "bytes = 4,608 bytes", why="derived: 8 · 144 · 4, and 8 · 16,777,216 · 4"),
    Claim("memory-words", "takes four times the memory", why="derived: t² numbers"),
    Claim("network-words", "a row of 64 numbers for each kind", why="definition: of the list of layers"),
    Claim(
        "network-words", "a block with 4 heads and a dense half of 128 neurons", why="definition: of the list of layers"
    ),
    Claim("train-words", "There are 6,000 sums to learn from, of 10,000", why="derived: 100 · 100 pairs of two digits"),
    Claim("train-answer", "12,800 sums to learn from, of a million", why="derived: 1,000 · 1,000 pairs"),
    Claim("train-answer", "it has about as many parameters as the dense network", once=transformer_ahead),
    Claim("train-answer", "are twice as wide as yours", why="definition: of benchmarks/sums.py, 256 and not 128"),
    Claim("curves-answer", "From epoch 6 on the transformer gets all 2,000", once=transformer_ahead),
    Claim("curves-answer", "less than a fifth are right", once=transformer_ahead),
    Claim("curves-answer", "gets less than a quarter", once=transformer_ahead),
    Claim("curves-answer", "about 12 times as many multiplications", why="derived: 12 positions, as many parameters"),
    Claim("curves-answer", "12 times as many epochs", why="definition: of benchmarks/sums.py"),
    Claim("curves-answer", "at least 50 of the 2,000 sums stay wrong", once=transformer_ahead),
    Claim("dense-answer", "Less than half of the sums.", seeds=less_than_half),
    Claim("dense-answer", "The thousands are nearly always right", seeds=tens_are_hardest),
    Claim("dense-answer", "and the tens are the hardest", seeds=tens_are_hardest),
    Claim("root-answer", "2, 8 and 32.", why="derived: the roots of 4, 64 and 1,024"),
    Claim("root-answer", "the three histograms of the largest weight nearly coincide", once=alike_if_divided),
    Claim("train-answer", "Three to five epochs.", seeds=adds_after_six_epochs),
    Claim("train-answer", "more than 95 % were right with each of five seeds", seeds=adds_after_six_epochs),
    Claim("looks-answer", "more than 90 % of its weight on the two digits to add", seeds=some_head_looks_at_both),
    Claim("now-try-answer", "Fewer than with positions, in each of the five", seeds=fewer_without_positions),
    Claim("root-answer", "more than half of the lookups have hardly any slope", once=slopes_vanish),
    Claim("now-try-answer", "Fewer than with two blocks", seeds=fewer_with_one_block),
    Claim("now-try-answer", "More than 95 % after six epochs", seeds=adds_in_usual_order),
]
