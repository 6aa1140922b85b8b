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
