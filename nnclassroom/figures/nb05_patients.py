"""Backward passes of which most have a fault. Notebook 05 lets students find out by measuring who has which.

    ward = patients.Ward(seed=3)
    ward["Ada"]                              # four equations, (4a) to (4d), to be used like any others
    ward.check(Ada="healthy", Ben=None)      # a line each: right, wrong or open

Which fault belongs to whom follows from the seed. Nothing that is displayed says it.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from nncourse.backend import choose
from nncourse.errors import CourseError

NAMES = ("Ada", "Ben", "Cleo", "Dora")
DIAGNOSES = {  # what can be said of a patient; not all of it is in the ward
    "healthy": "all four equations are right",
    "sign": "(4a) has the wrong sign",
    "slope": "(4b) lacks the slopes S",
    "slope twice": "(4b) multiplies by the slopes twice",
    "mean": "(4c) and (4d) add up, and do not divide by the batch",
    "activation": "(4d) lacks the activations A",
    "bias": "(4c) gives zeros",
}
Equations = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]


def _equations(diagnosis: str) -> Equations:
    """(4a) to (4d) of a patient in the ward, with NumPy."""
    right = choose("numpy")
    healthy = (right.output_delta, right.hidden_delta, right.bias_gradient, right.weight_gradient)
    found: dict[str, Equations] = {
        "healthy": healthy,
        "sign": (lambda G, S: -G * S, *healthy[1:]),
        "slope": (healthy[0], lambda D, W, S: D @ W, *healthy[2:]),
        "mean": (*healthy[:2], lambda D: D.sum(axis=0), lambda D, A: D.T @ A),
    }
    return found[diagnosis]


class Ward:
    """Four patients: three with one fault each, and one without."""

    def __init__(self, seed: int):
        there = ["healthy", "sign", "slope", "mean"]
        random.Random(seed).shuffle(there)
        self._diagnoses = dict(zip(NAMES, there, strict=True))

    def __repr__(self) -> str:
        return f"a ward with {', '.join(self.names)}"

    @property
    def names(self) -> tuple[str, ...]:
        """The patients, in the order of the alphabet."""
        return tuple(self._diagnoses)

    def __getitem__(self, name: str) -> Equations:
        """The patient's four equations: functions of (G, S), (D, W, S), (D) and (D, A)."""
        there = _equations(self._diagnosis(name))
        return tuple(_nameless(equation) for equation in there)  # type: ignore[return-value]

    def _diagnosis(self, name: str) -> str:
        if name not in self._diagnoses:
            raise CourseError(f"wanted a patient, one of {', '.join(self.names)}; got {name!r}")
        return self._diagnoses[name]

    def check(self, **said: str | None) -> "Visit":
        """Compare diagnoses with the truth, which is not shown. None is still open."""
        lines = []
        for name, diagnosis in said.items():
            right = self._diagnosis(name)
            if diagnosis is not None and diagnosis not in DIAGNOSES:
                raise CourseError(f"wanted a diagnosis, one of {', '.join(map(repr, DIAGNOSES))}; got {diagnosis!r}")
            mark = "○ open" if diagnosis is None else "✓" if diagnosis == right else "✗ look again"
            lines.append(f"{name:6} {diagnosis or '–':12} {mark}")
        return Visit(lines)


class Visit:
    """Lines of (patient, diagnosis, mark)."""

    def __init__(self, lines: list[str]):
        self.lines = lines

    def __repr__(self) -> str:
        return "\n".join(self.lines)


def diagnoses() -> str:
    """What can be said of a patient, a line each."""
    return "\n".join(f"{name!r:14} {words}" for name, words in DIAGNOSES.items())


def _nameless(equation: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """The same function, without its name or its text."""

    def equation_of_a_patient(*arrays):
        return equation(*arrays)

    return equation_of_a_patient
