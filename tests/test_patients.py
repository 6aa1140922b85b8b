"""Figures of notebook 05, and its ward: nothing that is shown there gives a diagnosis away."""

import numpy as np
import pytest
from matplotlib.text import Annotation

from nnclassroom.figures import nb05
from nnclassroom.figures.nb05 import DIAGNOSES, Ward
from nncourse.errors import CourseError
from tests.figures import fits_on_its_page

RNG = np.random.default_rng(3)
G, S, D, A = (RNG.standard_normal((4, 2)) for _ in range(4))
W, S_BELOW = RNG.standard_normal((2, 3)), RNG.standard_normal((4, 3))


def symptoms(equations) -> str:
    """The diagnosis that follows from what the four equations compute."""
    to_output, below, to_bias, to_weights = equations
    found = []
    if not np.allclose(to_output(G, S), G * S):
        found.append("sign" if np.allclose(to_output(G, S), -G * S) else "?")
    if not np.allclose(below(D, W, S_BELOW), (D @ W) * S_BELOW):
        found.append("slope" if np.allclose(below(D, W, S_BELOW), D @ W) else "?")
    if not (np.allclose(to_bias(D), D.mean(axis=0)) and np.allclose(to_weights(D, A), D.T @ A / 4)):
        summed = np.allclose(to_bias(D), D.sum(axis=0)) and np.allclose(to_weights(D, A), D.T @ A)
        found.append("mean" if summed else "?")
    return ", ".join(found) or "healthy"


@pytest.mark.parametrize("seed", range(4))
def test_what_is_measured_is_the_right_diagnosis_and_no_other(seed):
    ward = Ward(seed)
    measured = {name: symptoms(ward[name]) for name in ward.names}
    assert sorted(measured.values()) == ["healthy", "mean", "sign", "slope"]
    for name, right in measured.items():
        for diagnosis in DIAGNOSES:
            (line,) = ward.check(**{name: diagnosis})
            assert ("✓" in line) is (diagnosis == right)
        assert "○ open" in repr(ward.check(**{name: None}))


def test_the_seed_shuffles_and_nothing_that_is_shown_says_who_has_what():
    orders = {tuple(symptoms(Ward(seed)[name]) for name in Ward(seed).names) for seed in range(12)}
    assert len(orders) > 4
    ward = Ward(7)
    shown = repr(ward) + "".join(repr(equation) for name in ward.names for equation in ward[name])
    assert not any(diagnosis in shown for diagnosis in DIAGNOSES)


def test_an_unknown_patient_and_an_unknown_diagnosis_are_refused():
    with pytest.raises(CourseError, match="one of Ada, Ben, Cleo, Dora; got 'Eve'"):
        Ward(1)["Eve"]
    with pytest.raises(CourseError, match="got 'tired'"):
        Ward(1).check(Ada="tired")


# ---- figures of the ways back: which lines are marked


def marked(axes) -> int:
    """The lines with an arrow's head."""
    lines = [text.arrowprops for text in axes.texts if isinstance(text, Annotation)]
    return sum(line["arrowstyle"] != "-" for line in lines)


@pytest.mark.parametrize(
    ("sizes", "k", "j", "lines"),
    [((2, 3, 1), 1, 0, 3), ((2, 3, 2, 1), 0, 2, 1 + 2 + 2 + 1), ((2, 3, 3, 3, 1), 0, 0, 17)],
)
def test_a_weight_acts_through_its_own_line_and_all_that_follow(sizes, k, j, lines):
    shown = nb05.plot_influence(sizes, k, j)
    assert [marked(axes) for axes in shown.figure.axes] == [lines, lines]
    assert f"from input {k + 1} to hidden neuron {j + 1}" in shown.words and "-".join(map(str, sizes)) in shown.words
    assert fits_on_its_page(shown.figure)


def test_a_sum_before_a_softmax_acts_through_all_outputs():
    shown = nb05.plot_softmax(outputs=4, j=2)
    assert [marked(axes) for axes in shown.figure.axes] == [8, 8]
    assert "z3 to each of the 4 outputs" in shown.words and fits_on_its_page(shown.figure)


@pytest.mark.parametrize(("sizes", "k", "j"), [((2, 3, 1), 2, 0), ((2, 3, 1), 0, 3), ((2, 7, 1), 0, 0), ((2,), 0, 0)])
def test_a_weight_that_is_not_there_is_refused(sizes, k, j):
    with pytest.raises(CourseError, match="expected"):
        nb05.plot_influence(sizes, k, j)
    with pytest.raises(CourseError, match="expected"):
        nb05.plot_softmax(3, 3)


def test_shapes_name_each_size_and_what_is_summed():
    shown = nb05.plot_shapes()
    red = [{text.get_text() for text in axes.texts if text.get_color() == "tab:red"} for axes in shown.figure.axes]
    assert red == [set(), {"n_out"}, {"batch"}, {"batch"}]
    assert "dW (n_out, n_in) = Dᵀ (n_out, batch)" in shown.words and fits_on_its_page(shown.figure)
