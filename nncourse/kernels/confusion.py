"""The confusion matrix, whose element (i, j) counts samples of class i predicted as j; and precision, recall and F1."""

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Trial


def _classes(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Random classes, as labels or predictions; now and then one class for all, as of a network that has not learnt."""
    few = 1 if sizes["turn"] % 5 == 3 else sizes["classes"]
    return (rng.integers(0, few, shape) + rng.integers(0, sizes["classes"] - few + 1)).astype(np.int32)


def _labels(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Random classes; often in order, or all equal."""
    labels = _classes(rng, shape, sizes | {"turn": sizes["turn"] // 2})
    return np.sort(labels) if sizes["turn"] % 3 == 1 else labels


def _truth(labels: Array, predictions: Array, classes: int) -> Array:
    M = np.zeros((classes, classes), np.int64)
    np.add.at(M, (labels, predictions), 1)
    return M


def _occurs(labels: Array, predictions: Array, label: int, prediction: int) -> str:
    """The counts of a pair and of the exchanged pair, which may have been counted in its place."""
    M = _truth(labels, predictions, 1 + max(label, prediction, labels.max(), predictions.max()))
    said = f"the pair of label {label} and prediction {prediction} occurs {M[label, prediction]}×"
    if label == prediction:
        return said
    return f"{said}, that of label {prediction} and prediction {label} {M[prediction, label]}×"


COUNTED, MORE = {"n": 2048, "classes": 2}, {"n": 5000}

confusion_matrix = Operation(
    "confusion_matrix",
    "M[i, j] = number of samples with label i and prediction j",
    contract="labels (n,) int, predictions (n,) int, classes () int -> M (classes, classes) int",
    output="accumulated",
    reference=_truth,
    flops=lambda n, classes: n,
    trial=Trial(
        values={"labels": _labels, "predictions": _classes},
        edge_cases=(),
        advice=lambda place, labels, predictions, classes: _occurs(labels, predictions, *place),
        budgets={
            "atomic": Budget(
                COUNTED, (Limit("additions", "n // 32"), Limit("reads by a thread", "n // 32", "labels")), MORE
            ),
            "shared": Budget(COUNTED, (Limit("atomics", "n // 4", "M"),), MORE),
        },
    ),
)


@confusion_matrix.loops_kernel
def loops(labels: Array, predictions: Array, classes: int) -> Array:
    M = np.zeros((classes, classes), np.int32)
    for i in range(labels.size):
        M[labels[i], predictions[i]] += 1
    return M


@confusion_matrix.array_kernel
def array(labels: Array, predictions: Array, classes: int) -> Array:
    """Encode each pair (label, prediction) as one number, and count the numbers."""
    counts = np.bincount(labels * classes + predictions, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.int32)


# Integer sums do not depend on the order of addition, so the atomics are deterministic.
SOURCE = cuda_beside(__file__)
confusion_matrix.cuda_kernel("atomic", SOURCE, over=("n",))

# ---- measures of each class from the confusion matrix. If a denominator is 0, the quotient is 0.


def _counts(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """A confusion matrix in which some classes are absent, some never predicted, and some both; some occur once."""
    most = int(10 ** rng.uniform(0.5, 8)) // shape[0] + 2  # so that sums fit into 32 bits
    M = rng.integers(0, most, shape, dtype=np.int32)
    M[rng.random(shape[0]) < 0.3, :] = 0
    M[:, rng.random(shape[1]) < 0.3] = 0
    if sizes["turn"] % 3 == 2:
        once = rng.integers(shape[0])
        M[once, :] = M[:, once] = 0
        M[once, once] = 1
    return M


def _quotient(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)


def _sums(place: tuple[int, ...], M: Array) -> str:
    """The sums for a class."""
    j = place[0]
    return f"M[{j}, {j}] is {int(M[j, j])}, row {j} adds up to {int(M[j].sum())}, column {j} to {int(M[:, j].sum())}"


FROM_M = Trial(values={"M": _counts}, edge_cases=(), advice=_sums)

precision = Operation(
    "precision",
    "P[j] = TP / (TP + FP) = M[j, j] / Σ_i M[i, j]",
    equation="(5)",
    contract="M (classes, classes) int -> P (classes,)",
    reference=lambda M: _quotient(np.einsum("jj->j", M), np.einsum("ij->j", M)),
    flops=lambda classes: classes * classes + classes,
    trial=FROM_M,
)

recall = Operation(
    "recall",
    "R[i] = TP / (TP + FN) = M[i, i] / Σ_j M[i, j]",
    equation="(6)",
    contract="M (classes, classes) int -> R (classes,)",
    reference=lambda M: _quotient(np.einsum("ii->i", M), np.einsum("ij->i", M)),
    flops=lambda classes: classes * classes + classes,
    trial=FROM_M,
)

f1 = Operation(
    "f1",
    "F[i] = 2 TP / (2 TP + FP + FN) = 2 P R / (P + R)",
    equation="(7)",
    contract="M (classes, classes) int -> F (classes,)",
    reference=lambda M: _quotient(
        2 * precision.reference(M) * recall.reference(M), precision.reference(M) + recall.reference(M)
    ),
    flops=lambda classes: 2 * classes * classes + 2 * classes,
    trial=FROM_M,
)


@precision.loops_kernel
def precision_loops(M: Array) -> Array:
    P = np.zeros(len(M), np.float32)
    for j in range(len(M)):
        taken = 0
        for i in range(len(M)):
            taken += M[i, j]
        if taken > 0:
            P[j] = M[j, j] / taken
    return P


@precision.array_kernel
def precision_array(M: Array) -> Array:
    """If a column's sum is 0, so is its diagonal element, and dividing by 1 gives 0."""
    return (M.diagonal() / np.maximum(M.sum(axis=0), 1)).astype(np.float32)


@recall.loops_kernel
def recall_loops(M: Array) -> Array:
    R = np.zeros(len(M), np.float32)
    for i in range(len(M)):
        there = 0
        for j in range(len(M)):
            there += M[i, j]
        if there > 0:
            R[i] = M[i, i] / there
    return R


@recall.array_kernel
def recall_array(M: Array) -> Array:
    return (M.diagonal() / np.maximum(M.sum(axis=1), 1)).astype(np.float32)


@f1.loops_kernel
def f1_loops(M: Array) -> Array:
    F = np.zeros(len(M), np.float32)
    for i in range(len(M)):
        both = 0
        for j in range(len(M)):
            both += M[i, j] + M[j, i]
        if both > 0:
            F[i] = 2 * M[i, i] / both
    return F


@f1.array_kernel
def f1_array(M: Array) -> Array:
    """2 TP + FP + FN is the sum of the class's row plus the sum of its column."""
    return (2 * M.diagonal() / np.maximum(M.sum(axis=0) + M.sum(axis=1), 1)).astype(np.float32)


for _operation in (precision, recall, f1):
    _operation.cuda_kernel("naive", SOURCE)
