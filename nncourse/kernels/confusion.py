"""Counting hits and misses: cell (i, j) is how many samples of class i were taken for class j."""

import numpy as np

from nncourse.kernels.operation import Operation, cuda_beside


def _classes(rng, shape, sizes):
    """Random classes, as labels or predictions."""
    return rng.integers(0, sizes["classes"], shape, dtype=np.int32)


def _truth(labels, predictions, classes):
    M = np.zeros((classes, classes), np.int64)
    np.add.at(M, (labels, predictions), 1)
    return M


confusion_matrix = Operation(
    "confusion_matrix",
    "M[i, j] = number of samples with label i and prediction j",
    arguments="labels (n,) int, predictions (n,) int, classes () int",
    result="M (classes, classes) int",
    output="accumulated",
    truth=_truth,
    values={"labels": _classes, "predictions": _classes},
    hostile=(),
    flops=lambda n, classes: n,
)


@confusion_matrix.loops_kernel
def loops(labels, predictions, classes):
    M = np.zeros((classes, classes), np.int32)
    for i in range(labels.size):
        M[labels[i], predictions[i]] += 1
    return M


@confusion_matrix.array_kernel
def array(labels, predictions, classes):
    """Each pair of classes becomes one number, and the numbers are counted."""
    counts = np.bincount(labels * classes + predictions, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.int32)


# Integer sums do not depend on the order of adding: these atomics give the same counts every time.
confusion_matrix.cuda_kernel(
    "atomic", source=cuda_beside(__file__), function="confusion_matrix_atomic", block=(256,), over=("n",)
)
