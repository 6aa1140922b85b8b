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
    """The confusion matrix (classes, classes) int64 of a network, for samples X (n, …) with targets Y (n, n_out).

    The backend's kernel counts the pairs. Every member of a group counts its own rows and gets the sum.
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
    """The share of counted tokens that a network predicts correctly, and the share of samples without a mistake.

    X and Y are (n, t); a target of −1 does not count. At each position the network sees the correct tokens before it.
    Greedy generation continues from the network's own tokens. It gets the same samples entirely right, since it sees
    the same tokens up to its first mistake. Every member of a group computes its own rows and gets the shares of all.
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
    """The share of samples that are predicted correctly: the sum of the diagonal over the sum of M."""
    return float(np.trace(M) / max(1, M.sum()))


def precision(M: np.ndarray) -> np.ndarray:
    """TP / (TP + FP) of each class, equation (5): of samples predicted as the class, the share that belong to it."""
    return counting.precision["numpy"](M)


def recall(M: np.ndarray) -> np.ndarray:
    """TP / (TP + FN) of each class, equation (6): of samples of the class, the share that are predicted as it."""
    return counting.recall["numpy"](M)


def f1(M: np.ndarray) -> np.ndarray:
    """2 TP / (2 TP + FP + FN) of each class, equation (7): the harmonic mean of precision and recall."""
    return counting.f1["numpy"](M)


def report(M: np.ndarray, classes: tuple[str, ...]) -> str:
    """A text with precision, recall and F1 of each class, their unweighted averages, and the accuracy."""
    average = "average"
    width = max(8, *(len(name) for name in (*classes, average)))
    scores = precision(M), recall(M), f1(M)
    rows = [*zip(classes, *scores, M.sum(axis=1), strict=True), (average, *map(np.mean, scores), M.sum())]
    lines = [f"{name:{width}}  {p:9.4f}  {r:6.4f}  {f:6.4f}  {n:7d}" for name, p, r, f, n in rows]
    return "\n".join([f"{'':{width}}  precision  recall      F1  samples", *lines, f"accuracy {accuracy(M):.4f}"])
