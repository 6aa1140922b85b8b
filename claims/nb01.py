"""Evidence for notebook 01."""

import itertools

import numpy as np
from scipy.optimize import linprog

from claims import Claim
from nncourse import datasets


def _parted(features: slice | list[str]) -> bool:
    """Whether a line, or a plane, parts the tumours by these measurements: a linear programme finds it."""
    data = datasets.load("breast_cancer")
    X = datasets.fit_scaling(data.X, "standardization").apply(data.X)
    chosen = [data.features.index(name) for name in features] if isinstance(features, list) else features
    sides = np.column_stack([X[:, chosen], np.ones(len(X))]) * np.where(data.labels == 1, 1, -1)[:, None]
    found = linprog(np.zeros(sides.shape[1]), -sides, -np.ones(len(X)), bounds=(None, None))
    return found.status == 0


def two_overlap() -> bool:
    return not _parted(["mean concave points", "worst radius"])


def thirty_do_not() -> bool:
    return _parted(slice(None))


def two_of_three() -> bool:
    cases = np.array(list(itertools.product((0, 1), repeat=3)))
    return bool(np.array_equal(cases.sum(axis=1) - 1.5 > 0, cases.sum(axis=1) >= 2))


CLAIMS = [
    Claim("real-words", "Benign and malignant tumours overlap", once=two_overlap),
    Claim("real-alt", "With all thirty measurements the two classes are separable", once=thirty_do_not),
    Claim("now-try-answers", "all weights 1 and bias −1.5 do it", once=two_of_three),
]
