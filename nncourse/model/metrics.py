"""Measures of a model, from its confusion matrix M: M[i, j] is the number of samples of class i predicted as class j.

A quotient whose denominator is zero is 0: a class that was never predicted has precision 0.
"""

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array, Calls
from nncourse.datasets import predicted_classes
from nncourse.group import ALONE, Group, shard, total
from nncourse.kernels import confusion as counting
from nncourse.model.network import Network


def confusion(
    network: Network, X: Array, Y: Array, backend: Calls, group: Group = ALONE, threads: int | None = None
) -> np.ndarray:
    """The confusion matrix of a network on samples X with targets Y, counted by the backend's kernel.

    Every member of a group counts its own rows and gets the sum.
    """
    classes = max(2, network.sizes[-1])
    own = shard(len(X), group.rank, group.size)
    counts = np.zeros((classes, classes), np.int64)
    if own.start < own.stop:
        predictions = predicted_classes(network.predict(X[own], backend, threads))
        labels = predicted_classes(backend.to_device(Y[own]))
        counts += devices.to_device(backend.confusion_matrix(labels, predictions, classes), "cpu")
    return total(counts.ravel(), group).reshape(counts.shape)


def tokens_right(
    network: Network, X: Array, Y: Array, backend: Calls, group: Group = ALONE, threads: int | None = None
) -> tuple[float, float]:
    """The share of the tokens that count, and of samples with all of them, that a network of sequences gets right.

    At each position the network sees the right tokens before it. Greedy generation, which goes on with the network's
    own tokens, gets a sample entirely right if and only if all of them are right here: up to its first mistake it sees
    the same tokens. Every member of a group computes its own rows and gets the shares of all.
    """
    own = shard(len(X), group.rank, group.size)
    counts = np.zeros(3)
    if own.start < own.stop:
        A, wanted = network.predict(X[own], backend, threads), np.asarray(Y[own])
        counted = wanted >= 0
        right = (devices.to_device(A.argmax(axis=2), "cpu") == wanted) & counted
        counts += right.sum(), counted.sum(), (right == counted).all(axis=1).sum()
    right, counted, whole = total(counts, group)
    return float(right / max(1, counted)), float(whole / max(1, len(X)))


def accuracy(M: np.ndarray) -> float:
    """The share of samples on the diagonal."""
    return float(np.trace(M) / max(1, M.sum()))


def precision(M: np.ndarray) -> np.ndarray:
    """TP / (TP + FP) of each class, equation (5): the share of the samples predicted as the class that are of it."""
    return counting.precision["numpy"](M)


def recall(M: np.ndarray) -> np.ndarray:
    """TP / (TP + FN) of each class, equation (6): the share of the samples of the class that were predicted as it."""
    return counting.recall["numpy"](M)


def f1(M: np.ndarray) -> np.ndarray:
    """2 TP / (2 TP + FP + FN) of each class, equation (7): the harmonic mean of precision and recall."""
    return counting.f1["numpy"](M)


def report(M: np.ndarray, classes: tuple[str, ...]) -> str:
    """Precision, recall and F1 of each class and their plain averages, as lines of text."""
    average = "average"
    width = max(8, *(len(name) for name in (*classes, average)))
    scores = precision(M), recall(M), f1(M)
    rows = [*zip(classes, *scores, M.sum(axis=1), strict=True), (average, *map(np.mean, scores), M.sum())]
    lines = [f"{name:{width}}  {p:9.4f}  {r:6.4f}  {f:6.4f}  {n:7d}" for name, p, r, f, n in rows]
    return "\n".join([f"{'':{width}}  precision  recall      F1  samples", *lines, f"accuracy {accuracy(M):.4f}"])
