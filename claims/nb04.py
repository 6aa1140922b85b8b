"""The evidence for notebook 04: small computations, one layer on the digits, and recorded times of a GPU."""

import functools

import numpy as np

from claims import Claim
from nnclassroom import choose, find
from nnclassroom.figures import overheads
from nncourse import datasets

CPU = choose("numpy")


@functools.cache
def right_after(seed: int, steps: int, rate: float) -> float:
    """The share of unseen digits that a layer reads which began with zeros; the digits are dealt anew."""
    parts = datasets.split(datasets.load("digits"), 0.3, seed=seed)
    X, X_unseen = (np.hstack([part.X / 16, np.ones((len(part.X), 1))]).astype(np.float32) for part in parts)
    W, step = np.zeros((10, 65), np.float32), find("descent_step")["numpy"]
    for _ in range(steps):
        step(W, CPU.softmax(X @ W.T), parts[0].Y, X, rate)
    return float(((X_unseen @ W.T).argmax(axis=1) == parts[1].labels).mean())


def any_length(seed: int) -> bool:
    """One step reads about ninety of a hundred, and as many with each length."""
    shares = [right_after(seed, 1, rate) for rate in (0.01, 1.0, 10.0)]
    return max(shares) - min(shares) < 0.005 and 0.86 < min(shares) < 0.94


def more_steps(seed: int) -> bool:
    return right_after(seed, 200, 1.0) > 0.94 and right_after(seed, 200, 1.0) > right_after(seed, 1, 1.0)


def waits(start: float, squared: bool) -> tuple[float, int]:
    """A neuron with x = 1, y = 0 and w = b = start: its first output, and the steps until it is below a half."""
    w, first, steps = start, 1 / (1 + np.exp(-2 * start)), 0
    while (a := 1 / (1 + np.exp(-2 * w))) >= 0.5:
        w, steps = w - 0.15 * (a * a * (1 - a) if squared else a), steps + 1
    return float(first), steps


def saturated() -> bool:
    first, steps = waits(5.0, True)
    return round(first, 5) == 0.99995 and 73_400 < steps < 73_600 and waits(2.0, True)[1] == 232


def exactly_one() -> bool:
    z = np.arange(16, 17, 0.01).astype(np.float32)
    return abs(z[np.float32(1) / (1 + np.exp(-z)) == 1].min() - 16.6) < 0.1


def sums() -> bool:
    seconds = overheads.recorded("overheads")["sums"]
    tree, shuffle, atomic, cupy = (seconds[name] for name in ("tree", "shuffle", "atomic", "cupy"))
    rate = (1 << 24) * 8 / tree
    return abs(shuffle / tree - 1) < 0.02 and 2 < atomic / tree < 2.3 and 66 < tree / cupy < 72 and 9e9 < rate < 11e9


BY_HAND = "derived: from the sizes that the sentence names"
SPEC = "definition: what is to be written"
CLAIMS = [
    Claim("one-hot", "Because then taking a 9 for a 7", why="derived: 9 − 7 is less than 9 − 1"),
    Claim("mse-worked-answer", "The squares are 0, 4, 0, 9", why="derived: from the two matrices"),
    Claim("mse-worked-answer", "Their sum is 13", why="derived: (4 + 9) / (2 · 2)"),
    Claim("outlier", "The cell tries 2,501 values", why="definition: of the cell below"),
    Claim("outlier-answer", "for a single sample its slope is 1 or −1", why="derived: the slope of |x|"),
    Claim("surprise", "adds the same amount each time: log 2 = 0.69", why="derived: log 2p = log 2 + log p"),
    Claim("guess-answer", "Always 0.5 costs log 2 = 0.693", why="derived: −log ½"),
    Claim("break-log", "the number after 1 is 1.00000012", once=lambda: np.nextafter(np.float32(1), 2) == 1 + 2.0**-23),
    Claim("break-log-answer", "From z ≈ 16.6 on", once=exactly_one),
    Claim("two-classes-answer", "0.69 for two, 2.30 for ten", once=lambda: round(float(np.log(10)), 2) == 2.3),
    Claim("step-words", "Each image has 64 pixels", why="source: the card of the data set"),
    Claim("step-words", "additional input that is always 1", why="definition: of the bias"),
    Claim("step-use-words", "with all 1,258 training digits as one batch", why="derived: 70 % of 1,797"),
    Claim("step-use-answer", "About ninety of a hundred unseen digits", seeds=any_length),
    Claim("step-use-answer", "more than 94 of a hundred are right", seeds=more_steps),
    Claim(
        "race-words", "Of the additions of 64 threads only one may be left", why="derived: all read before one writes"
    ),
    Claim("tree", "9 rounds instead of 511 additions", why="derived: 2⁹ = 512"),
    Claim(
        "tree-barrier", "It has 1,024 cells, one for each thread of the largest block", why="source: kernels/cost.cu"
    ),
    Claim("tree-budget", "The check counts, with 2,048 numbers", why=SPEC),
    Claim("tree-budget", "no thread may read more than 64 numbers of", why=SPEC),
    Claim("shuffle", "In the last five rounds of the tree one warp adds up its own numbers", why="derived: 2⁵ = 32"),
    Claim("shuffle", "one bit each: here all 32", why="definition: of the mask"),
    Claim("shuffle", "lane 0 ends with the sum of all", why="derived: 16 + 8 + 4 + 2 + 1 = 31"),
    Claim("shuffle", "The figure shows it for 8 lanes", why="definition: of the figure"),
    Claim("two-levels", "The first warp takes these numbers, at most 32", why="derived: 1,024 / 32"),
    Claim("two-levels", "The tree for 512 threads needs 10 barriers", why="derived: 1 + 9"),
    Claim("write-shuffle", "16, 8, 4, 2, 1: add to the sum what the shuffle gives", why=SPEC),
    Claim("write-shuffle", "Yours may do so at most 48 times", why=SPEC),
    Claim("time-words", "compares all ways on 16 million numbers", why=BY_HAND),
    Claim(
        "time-words", "An H200 has 132", once=lambda: overheads.recorded("overheads")["chip"]["multiprocessors"] == 132
    ),
    Claim("time-answer", "atomics are slowest: 16 million additions in one queue", once=sums),
    Claim("time-answer", "Tree and shuffle are alike, twice as fast", once=sums),
    Claim("time-answer", "It gets 10 GB/s out of the 4,200", once=sums),
    Claim("time-answer", "It is 70 times faster", once=sums),
    Claim("time-answer", "For a batch of 10 or 50 one block is the right choice", why="derived: one launch"),
    Claim("try-answers", "the output is 0.99995", once=saturated),
    Claim("try-answers", "It waits about 73,500 steps, against 232", once=saturated),
    Claim("try-answers", "threads 0 and 32", why="derived: 32 lanes a warp"),
    Claim("printed-elsewhere", "has the log loss as its (2.3)", why="source: the draft"),
    Claim("printed-elsewhere", "Its (3.11) keeps a sum over samples", why="source: the draft"),
]
