"""The ward of notebook 05: each patient has the fault of its diagnosis, and nothing that is shown gives it away."""

import numpy as np
import pytest

from nnclassroom.figures.nb05 import DIAGNOSES, Ward
from nncourse.errors import CourseError

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
