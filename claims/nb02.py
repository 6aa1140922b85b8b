"""Evidence for notebook 02."""

import numpy as np

from claims import Claim
from nnclassroom import choose

COURSE = choose("numpy", mine=False)


def at(name: str, *numbers: float) -> np.ndarray:
    """An activation, or its slope, at these numbers."""
    return np.asarray(getattr(COURSE, name)(np.array(numbers)))


def nothing_is_left_far_out() -> bool:
    return not at("sigmoid_derivative", -np.inf, -1000, 1000, np.inf).any()


def tanh_is_four_times_as_steep() -> bool:
    z = np.linspace(-5, 5, 1001)
    same = np.allclose(COURSE.tanh(z), 2 * COURSE.sigmoid(2 * z) - 1)  # twice as high, half as wide
    return same and bool(at("tanh_derivative", 0) == 4 * at("sigmoid_derivative", 0))


def slopes_of_the_sigmoid() -> bool:
    best = COURSE.sigmoid_derivative(np.linspace(-9, 9, 1801)).max()
    return best == 0.25 and round(float(at("sigmoid_derivative", 5)[0]), 4) == 0.0066


def temperature() -> bool:
    scores = np.array([[1.0, 2.0, 4.0]])
    alike, apart = COURSE.softmax(scores / 10)[0], COURSE.softmax(scores / 0.1)[0]
    return alike.round(2).tolist() == [0.29, 0.32, 0.39] and apart[2] > 0.999


CLAIMS = [
    Claim("slope-spec", "at ±1000 and ±∞ the slope is 0", once=nothing_is_left_far_out),
    Claim("relatives-alt", "so it is four times as steep", once=tanh_is_four_times_as_steep),
    Claim("saturation-words", "The sigmoid's slope is 0.25 at best", once=slopes_of_the_sigmoid),
    Claim("now-try-activations-answers", "the probabilities become 0.29, 0.32 and 0.39", once=temperature),
    Claim("printed-elsewhere", "in its (3.13)", why="source: the Granada thesis draft"),
]
