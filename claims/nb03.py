"""Evidence for notebook 03: ten neurons read the digits of scikit-learn."""

from functools import cache

import numpy as np

from claims import Claim
from nnclassroom import choose
from nncourse import datasets

COURSE = choose("numpy", mine=False)
EPOCHS = 10


@cache
def learnt(seed: int, batch: int, activation: str = "step") -> tuple[float, np.ndarray]:
    """The % of held-out digits read rightly, mean of the last five epochs; how many neurons fire for each at the end.

    The seed chooses which digits are held out, and the order of the others.
    """
    train, held_out = datasets.split(datasets.load("digits"), 0.2, seed=seed)
    X, unseen, rng = train.X / 16, held_out.X / 16, np.random.default_rng(seed)
    W, b, shares = np.zeros((10, 64), np.float32), np.zeros(10, np.float32), []
    for _ in range(EPOCHS):
        for rows in np.split(rng.permutation(len(X)), range(batch, len(X), batch)):
            E = train.Y[rows] - getattr(COURSE, activation)(COURSE.dense_forward(X[rows], W, b))
            W += E.T @ X[rows]
            b += E.sum(axis=0)
        Z = COURSE.dense_forward(unseen, W, b)
        shares.append(100 * float(np.mean(Z.argmax(axis=1) == held_out.labels)))
    alone = (Z > 0).sum(axis=1) == 1
    fires = 100 * float(np.mean(alone & (Z.argmax(axis=1) == held_out.labels)))
    return float(np.mean(shares[-5:])), np.array([shares[-1], fires])


def more_than_90(seed: int) -> bool:
    return learnt(seed, 1)[0] > 90


def batches_read_as_well(seed: int) -> bool:
    return all(abs(learnt(seed, batch)[0] - learnt(seed, 1)[0]) < 3 for batch in (10, 50))


def sigmoids_read_better(seed: int) -> bool:
    return learnt(seed, 1, "sigmoid")[0] > learnt(seed, 1)[0]


def the_largest_sum_is_right_more_often(seed: int) -> bool:
    best, alone = learnt(seed, 1)[1]
    return bool(best > alone)


def in_the_notebook() -> bool:
    """Which neurons fire after the notebook's own training: its order, its held-out digits."""
    train, held_out = datasets.split(datasets.load("digits"), 0.2, seed=1)
    X, rng = train.X / 16, np.random.default_rng(0)
    W, b = np.zeros((10, 64), np.float32), np.zeros(10, np.float32)
    for i in np.concatenate([rng.permutation(len(X)) for _ in range(EPOCHS)]):
        e = train.Y[i] - (W @ X[i] + b > 0)
        W, b = W + np.outer(e, X[i]), b + e
    return np.bincount((held_out.X / 16 @ W.T + b > 0).sum(axis=1)).tolist() == [44, 305, 10]


CLAIMS = [
    Claim("digits-run-answer", "More than 90 of a hundred", seeds=more_than_90),
    Claim("end", "read more than 90 of a hundred digits", seeds=more_than_90),
    Claim("batch-answer", "It reads about as well", seeds=batches_read_as_well),
    Claim("try-answers", "A little better.", seeds=sigmoids_read_better),
    Claim("try-answers", "For 305 of 359.", once=in_the_notebook),
    Claim("try-answers", "For 44 no neuron fires", once=in_the_notebook),
    Claim("try-answers", "it is right more often than", seeds=the_largest_sum_is_right_more_often),
    Claim("appendix", "784-192-10 of the Cantabria thesis", why="source: Nielsen's book, and the Cantabria thesis"),
]
