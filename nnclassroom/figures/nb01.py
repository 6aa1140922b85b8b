"""Figures and checks of notebook 01: a neuron's parts, the lines that it tries, the gap, and XOR by two layers."""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnclassroom.figures.common import MARKS, SHADES, draw_arrow, drawing
from nnclassroom.figures.described import Described
from nnclassroom.pages import page
from nncourse.errors import CourseError

__all__ = [
    "TwoLayers",
    "plot_gates",
    "plot_learning",
    "plot_parts",
    "plot_two_layers",
    "plot_wrongness",
    "widest_gap",
]

Weights = Sequence[float] | np.ndarray  # (w1, w2, b)
Answer = Callable[[np.ndarray, Sequence[float], float], int]  # a neuron: inputs, weights, bias -> 0 or 1
CORNERS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
XOR = np.array([0, 1, 1, 0])
TRIED = 20_000  # directions per round of widest_gap()


def plot_parts() -> Described:
    """A neuron with three inputs, as boxes and arrows."""
    figure, (axes,) = drawing(1, 7, 3)
    middle = {"ha": "center", "va": "center"}
    for row, (entry, weight) in enumerate((("x1", "w1"), ("x2", "w2"), ("x3", "w3"), ("1", "b"))):
        draw_arrow(axes, (0.3, 3 - row), (2.7, 1.5), "0.4")
        axes.text(0, 3 - row, entry, bbox={"boxstyle": "circle", "fc": "#a9cbe8"}, **middle)
        axes.text(1.1, 2.5 - 0.66 * row, weight, color="tab:red", backgroundcolor="white", **middle)
    for x, sign, words in ((3, "Σ", "sum z"), (5, "f", "activation: step"), (7, "a", "output: 0 or 1")):
        axes.text(x, 1.5, sign, size=15, bbox={"boxstyle": "circle", "fc": "#ffd0a1"}, **middle)
        axes.text(x, 0.5, words, color="0.25", **middle)
        if x < 7:
            draw_arrow(axes, (x + 0.3, 1.5), (x + 1.7, 1.5), "0.4")
    axes.set(xlim=(-0.4, 7.7), ylim=(-0.4, 3.5), title="A neuron with three inputs and a bias")
    words = "Inputs x1, x2, x3 with weights w1, w2, w3, and a constant 1 with weight b, enter a sum; "
    return Described(figure, words + "its result z goes through the activation f, which gives the output a.")


def plot_learning(
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    mistakes: Sequence[int],
    names: Sequence[str] = ("input x1", "input x2"),
) -> Described:
    """Plot the line of each w = (w1, w2, b), from faint to dark, the last one red; and the mistakes in each epoch."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    _lines(left, X, y, weights, f"The last {len(weights)} lines, the very last one red")
    left.set(xlabel=names[0], ylabel=names[1])
    left.legend(frameon=False)
    right.bar(range(1, len(mistakes) + 1), mistakes)
    right.set(title="Mistakes", xlabel="epoch", ylabel=f"wrong answers out of {len(y)}")
    words = f"Points of two classes and {len(weights)} lines that turn, the last one red. Mistakes in each epoch: "
    return Described(figure, words + ", ".join(map(str, mistakes)) + ".")


def plot_gates(learnt: Mapping[str, tuple[Sequence[int], np.ndarray]]) -> Described:
    """Plot a square with lines for each gate -> (targets of the four corners, the weights tried last)."""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    said = []
    for axes, (name, (targets, weights)) in zip(
        figure.subplots(1, len(learnt), sharey=True), learnt.items(), strict=True
    ):
        _lines(axes, CORNERS, np.array(targets), weights, name)
        axes.set_aspect("equal")
        wrong = int(sum(_side(CORNERS, weights[-1]) != np.array(targets)))
        said.append(f"{name}: the last line leaves {wrong} of 4 corners on the wrong side")
    figure.suptitle("The last lines of each, the last one red (triangles: target 1; on a line the answer is 0)")
    return Described(figure, "; ".join(said) + ".")


def plot_wrongness(
    lines: Mapping[str, tuple[np.ndarray, np.ndarray]], steps: tuple[Sequence[float], Sequence[float]] | None = None
) -> Described:
    """Plot label -> (weights tried, how wrong the neuron is with each): the first line solid, the others dashed.

    steps: the weights of a descent, and how wrong the neuron is with each, as dots.
    """
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes, said = figure.subplots(), []
    for number, (label, (tried, wrong)) in enumerate(lines.items()):
        axes.plot(tried, wrong, "--" if number else "-", label=label)
        said.append(
            f"{label} takes {len(np.unique(wrong))} different values, from {min(wrong):.3f} to {max(wrong):.3f}"
        )
    if steps is not None:
        axes.plot(*steps, "o-", color="tab:red", markersize=4, linewidth=1, label="the steps")
        (first, *_, last), places = steps[0], len(steps[0])
        said.append(f"{places} dots go from w1 = {first:.2f} to {last:.2f}".replace("-", "−"))
    axes.set(title="One weight is changed", xlabel="weight w1", ylabel="how wrong the neuron is")
    axes.legend(frameon=False)
    return Described(figure, "How wrong the neuron is, over one weight. " + "; ".join(said) + ".")


def widest_gap(inputs: np.ndarray, y: np.ndarray) -> float:
    """γ = max over unit vectors u of min_i ±u·x_i: the distance from the best border to the nearest sample.

    inputs (n, 3) with the constant 1 of the bias, y (n,) 0 or 1. Negative or 0 if no line separates the classes.
    It tries random directions, then others near the best one: exact to about three digits.
    """
    rng, signed = np.random.default_rng(0), inputs * np.where(y == 1, 1, -1)[:, None]
    best, gap, width = np.zeros(3), -np.inf, 1.0
    for _ in range(12):
        tried = best + width * rng.standard_normal((TRIED, 3))
        tried /= np.linalg.norm(tried, axis=1, keepdims=True)
        gaps = (tried @ signed.T).min(axis=1)
        if gaps.max() > gap:
            best, gap = tried[gaps.argmax()], float(gaps.max())
        width /= 3
    return gap


class TwoLayers:
    """XOR by two hidden neurons and an output neuron: the student's nine numbers, checked at each corner.

    Each neuron is (w1, w2, b). A None among them leaves it open.
    """

    def __init__(self, answer: Answer, hidden: Sequence[Sequence[float | None]], output: Sequence[float | None]):
        self.neurons = [*hidden, output]
        if len(hidden) != 2 or any(len(neuron) != 3 for neuron in self.neurons):
            raise CourseError("expected two hidden neurons and one output, each of them (w1, w2, b)")
        found = [neuron for neuron in self.neurons if _is_found(neuron)]
        self.open = len(found) < len(self.neurons)
        self.rows = [] if self.open else [_row(answer, found, x) for x in CORNERS]

    @property
    def right(self) -> bool:
        """Whether all four corners are right."""
        return not self.open and [row[2] for row in self.rows] == XOR.tolist()

    def __repr__(self) -> str:
        if self.open:
            return "○ XOR by two layers: open. Nine numbers are expected; all that compute XOR are right."
        lines = ["x1 x2   h1 h2   a   expected"]
        for x, (first, second, a), wanted in zip(CORNERS, self.rows, XOR, strict=True):
            sign = "✓" if a == wanted else "✗"
            lines.append(f"{x[0]:2.0f} {x[1]:2.0f}{first:5}{second:3}{a:4}{wanted:9}  {sign}")
        wrong = sum(row[2] != wanted for row, wanted in zip(self.rows, XOR, strict=True))
        return "\n".join([*lines, self._verdict(wrong)])

    def _verdict(self, wrong: int) -> str:
        if not wrong:
            return "✓ XOR by two layers: right at all four corners."
        ones, zeros = ({row[:2] for row, target in zip(self.rows, XOR, strict=True) if target == y} for y in (1, 0))
        why = (
            ", and no third neuron can fix it: corners of both classes have the same h1 and h2" if ones & zeros else ""
        )
        return f"✗ XOR by two layers: {wrong} of 4 corners wrong{why}."

    def _repr_html_(self) -> str:
        state = "open" if self.open else "right" if self.right else "wrong"
        *table, verdict = repr(self).splitlines()
        return (f"<pre>{html.escape(chr(10).join(table))}</pre>" if table else "") + page(html.escape(verdict), state)


def _is_found(neuron: Sequence[float | None]) -> TypeGuard[Sequence[float]]:
    """Whether the neuron has all three numbers."""
    return all(value is not None for value in neuron)


def _row(answer: Answer, neurons: Sequence[Sequence[float]], x: np.ndarray) -> tuple[int, int, int]:
    """The answers of the three neurons at one corner."""
    first, second = (answer(x, neuron[:2], neuron[2]) for neuron in neurons[:2])
    return first, second, answer(np.array([first, second]), neurons[2][:2], neurons[2][2])


def plot_two_layers(layers: TwoLayers) -> Described:
    """Plot the network's answers over the plane with its two lines, and what its third neuron sees.

    While `layers` is open: the four corners, and the lines of the neurons that have all three numbers.
    """
    *hidden, output = layers.neurons
    found = [neuron for neuron in hidden if _is_found(neuron)]
    third = [output] if _is_found(output) else []
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    if not layers.open:
        side = np.linspace(-0.5, 1.5, 201)
        both = _seen(np.stack(np.meshgrid(side, side), axis=-1), found)
        left.imshow(_side(both, third[0]), SHADES, extent=(-0.5, 1.5) * 2, origin="lower", vmin=0, vmax=1)
    title = "The four corners, and your lines as you find them" if layers.open else "The answer, and your two lines"
    for lines in ([], *([neuron] for neuron in found)):
        _lines(left, CORNERS, XOR, lines, title)
    left.set_aspect("equal")
    words = f"Left, the plane of the inputs: the corners of XOR, and the lines of {len(found)} of the 2 hidden neurons"
    words += ". " if layers.open else ", and where the answer is 1. "
    if len(found) == 2:
        seen = _seen(CORNERS, found)
        _lines(right, seen, XOR, third, "What the third neuron sees")
        places = len({tuple(row) for row in seen.tolist()})
        words += f"Right, the plane of h1 and h2: the four corners have become {places} points"
        words += ", and the line of the third neuron." if third else "."
    else:
        wanted = "empty until h1 and h2\nhave their numbers"
        right.text(0.5, 0.5, wanted, ha="center", va="center", color="0.4")
        right.set(title="What the third neuron sees")
        words += "Right, the plane of h1 and h2: empty until both have their numbers."
    right.set(xlabel="h1", ylabel="h2", xlim=(-0.5, 1.5), ylim=(-0.5, 1.5), aspect="equal")
    return Described(figure, words)


def _seen(X: np.ndarray, hidden: Sequence[Sequence[float]]) -> np.ndarray:
    """The answers of the hidden neurons for each point X (…, 2), side by side."""
    return np.stack([_side(X, neuron) for neuron in hidden], axis=-1)


def _side(X: np.ndarray, w: Weights) -> np.ndarray:
    """0 or 1 for each point X (…, 2), by a neuron (w1, w2, b) with the step activation."""
    return (X @ np.asarray(w[:2], float) + w[2] > 0).astype(int)


def _lines(axes: Axes, X: np.ndarray, y: np.ndarray, weights: Sequence[Weights] | np.ndarray, title: str) -> None:
    """Plot the points, and the line of each w = (w1, w2, b) from faint to dark, the last one red."""
    for label, (colour, mark) in enumerate(MARKS):
        axes.plot(*X[y == label].T, mark, color=colour, label=f"class {label}")
    for number, w in enumerate(weights, start=1):
        direction = np.asarray(w[:2], float)
        if direction.any():  # weights of 0 have no line
            foot = -w[2] * direction / (direction @ direction)
            style: dict[str, Any] = {"color": "black", "alpha": 0.1 + 0.7 * (number / len(weights)) ** 3}
            style = {"color": "tab:red", "linewidth": 2} if number == len(weights) else style
            axes.axline(foot, foot + [-direction[1], direction[0]], **style)
    low, high = X.min(axis=0) - 0.5, X.max(axis=0) + 0.5
    axes.set(title=title, xlabel="input x1", ylabel="input x2")
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
