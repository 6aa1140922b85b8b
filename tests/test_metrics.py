"""Metrics, against scikit-learn and by hand; no division by zero anywhere."""

import warnings

import numpy as np
import pytest

from nncourse.backend import choose
from nncourse.kernels.confusion import confusion_matrix
from nncourse.model import metrics
from nncourse.model.layers import Dense
from nncourse.model.network import Network

MEASURES = metrics.precision, metrics.recall, metrics.f1

ON_A_GPU = [pytest.param(name, marks=pytest.mark.gpu) for name in ("cupy", "cuda")]


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("classes", (2, 3, 10))
@pytest.mark.parametrize("present", ("all", "few"))
@pytest.mark.parametrize("seed", range(5))
def test_scikit_learn_finds_the_same(classes, present, seed):
    oracle = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng([classes, seed])
    high = classes if present == "all" else classes // 2  # the classes above are absent from the labels
    labels = rng.integers(0, high, 40).astype(np.int32)
    predictions = rng.integers(0, classes, 40).astype(np.int32)
    M = choose("numpy").confusion_matrix(labels, predictions, classes)
    every = list(range(classes))
    np.testing.assert_array_equal(M, oracle.confusion_matrix(labels, predictions, labels=every))
    wanted = oracle.precision_recall_fscore_support(labels, predictions, labels=every, zero_division=0)
    for measure, column in zip(MEASURES, wanted, strict=False):
        np.testing.assert_allclose(measure(M), column, rtol=1e-6)
    assert metrics.accuracy(M) == pytest.approx(oracle.accuracy_score(labels, predictions))


@pytest.mark.parametrize(
    ("place", "said"),
    (
        ((0, 1), "the pair of label 0 and prediction 1 occurs 2×, that of label 1 and prediction 0 1×"),
        ((1, 1), "the pair of label 1 and prediction 1 occurs 3×"),
    ),
)
def test_a_wrong_count_is_told_with_the_exchanged_one(place, said):
    labels, predictions = np.array([0, 0, 1, 1, 1, 1], np.int32), np.array([1, 1, 0, 1, 1, 1], np.int32)
    assert confusion_matrix.trial.advice(place, labels, predictions, 2) == said


@pytest.mark.parametrize(
    ("M", "precision", "recall", "f1", "accuracy"),
    [
        (np.zeros((2, 2), np.int32), [0, 0], [0, 0], [0, 0], 0),
        (np.array([[9, 0], [4, 0]]), [9 / 13, 0], [1, 0], [9 / 11, 0], 9 / 13),  # all taken for class 0
        (np.array([[9, 0], [0, 0]]), [1, 0], [1, 0], [1, 0], 1),  # nobody is of class 1
        (np.array([[0, 5], [5, 0]]), [0, 0], [0, 0], [0, 0], 0),
        (np.array([[7]]), [1], [1], [1], 1),
    ],
    ids=("nothing", "one prediction", "one class", "all wrong", "one class only"),
)
def test_degenerate_matrices(M, precision, recall, f1, accuracy):
    for measure, wanted in zip(MEASURES, (precision, recall, f1), strict=True):
        np.testing.assert_allclose(measure(M), wanted, rtol=1e-6)
    assert metrics.accuracy(M) == pytest.approx(accuracy)


@pytest.mark.parametrize("backend", ("loops", "numpy", "numba", *ON_A_GPU))
@pytest.mark.parametrize("outputs", (1, 2, 3))
def test_the_confusion_of_a_network(backend, outputs, request):
    """An identity network gives out its input, so the predictions are known."""
    if backend in ("cupy", "cuda"):
        request.getfixturevalue("gpu")
    network = Network([Dense(np.eye(outputs, dtype=np.float32), np.zeros(outputs, np.float32), "identity")])
    labels = [0, 1, 1, 0, 1, 0] if outputs < 3 else [0, 1, 2, 0, 1, 2]
    predictions = [0, 1, 0, 1, 1, 0] if outputs < 3 else [0, 1, 1, 2, 1, 2]
    X, Y = (
        np.array(numbers, np.float32)[:, None] if outputs == 1 else np.eye(outputs, dtype=np.float32)[numbers]
        for numbers in (predictions, labels)
    )
    M = metrics.confusion(network, 0.7 * X, Y, choose(backend))
    wanted = np.zeros((max(2, outputs),) * 2, int)
    for pair in zip(labels, predictions, strict=True):
        wanted[pair] += 1
    np.testing.assert_array_equal(M, wanted)
    assert isinstance(M, np.ndarray)


def test_a_single_output_is_class_1_above_one_half():
    outputs = np.array([[0.0], [0.5], [np.nextafter(np.float32(0.5), np.float32(1))], [1.0]], np.float32)
    assert metrics.predicted_classes(outputs).tolist() == [0, 0, 1, 1]


def test_the_report_holds_every_class_and_the_averages():
    M = np.array([[50, 10, 0], [5, 35, 0], [0, 3, 0]])
    lines = metrics.report(M, ("sane", "ill", "a very long name of a class")).splitlines()
    columns = zip(*(measure(M) for measure in MEASURES), M.sum(axis=1), strict=True)
    for line, name, wanted in zip(lines[1:4], ("sane", "ill", "a very long name of a class"), columns, strict=True):
        assert line.startswith(name)
        assert [float(word) for word in line[len(name) :].split()] == pytest.approx(wanted, abs=1e-4)
    averages = [float(word) for word in lines[4].split()[1:]]
    assert averages == pytest.approx([*(measure(M).mean() for measure in MEASURES), 103], abs=1e-4)
    assert float(lines[5].split()[1]) == pytest.approx(85 / 103, abs=1e-4)
    assert len(set(map(len, lines[:5]))) == 1
