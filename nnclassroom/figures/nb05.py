"""Figures of notebook 05: paths to the cost, the four equations as shapes; and backward passes with faults to find.

figures.plot_influence((2, 3, 1), k=1, j=0)      # a weight of the first layer, forward and backward
figures.plot_softmax(outputs=3, j=0)             # one sum z before a softmax
figures.plot_shapes()                            # (4a) to (4d) as rectangles
figures.plot_graph(a=2.0, w=-0.25)               # C = tanh(a + w a): values forward, slopes backward (05c)

ward = figures.Ward(seed=3)                      # the seed decides which patient has which fault
ward["Ada"]                                      # four equations, (4a) to (4d), to be used like any others
ward.check(Ada="healthy", Ben=None)              # a line for each: right, wrong or open
"""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nnclassroom.figures.common import drawing, plot_lines
from nnclassroom.figures.described import Described
from nnclassroom.figures.nb05_by_hand import Steps, paths_of_weight, softmax_by_hand
from nncourse.backend import choose
from nncourse.errors import CourseError

__all__ = [
    "Steps",
    "Ward",
    "diagnoses",
    "paths_of_weight",
    "plot_graph",
    "plot_influence",
    "plot_lines",
    "plot_shapes",
    "plot_softmax",
    "softmax_by_hand",
]

LINE = {"shrinkA": 11, "shrinkB": 11}  # points between a circle's middle and a line
LARGEST = 6  # most neurons of a layer, so that circles do not touch
Column = Sequence[str]  # the names in a layer, from top to bottom
OnPath = Callable[[int, int, int], bool]  # is the line from column x, row start, to row end on a path?


def plot_influence(sizes: tuple[int, ...], k: int, j: int) -> Described:
    """Draw the paths from the weight of input k and hidden neuron j (both from 0) to the cost, and back.

    Raises CourseError for layers of more than 6 neurons and for an unknown weight.
    """
    if len(sizes) < 2 or not all(1 <= size <= LARGEST for size in sizes):
        raise CourseError(f"expected two layers or more of 1 to {LARGEST} neurons each; got {sizes}")
    if not (0 <= k < sizes[0] and 0 <= j < sizes[1]):
        raise CourseError(f"expected k from 0 to {sizes[0] - 1} and j from 0 to {sizes[1] - 1}; got k={k}, j={j}")
    columns: list[Column] = [[_a(x + 1, row + 1) for row in range(size)] for x, size in enumerate(sizes)]
    figure = _two_ways(
        [*columns, ["C"]],
        lambda x, start, end: (start, end) == (k, j) if x == 0 else x > 1 or start == j,
        f"the weight from {_a(1, k + 1)} to {_a(2, j + 1)}",
    )
    marked = [f"from layer {x} to layer {x + 1} {_marked(sizes, x, k, j)}" for x in range(1, len(sizes))]
    words = (
        f"A network {'-'.join(map(str, sizes))} with its cost C, drawn twice. The marked lines are those through "
        f"which the weight from input {k + 1} to hidden neuron {j + 1} acts: {'; '.join(marked)}; and on to C. "
        "Left, blue arrows lead to C; right, red ones lead back along the same lines. All other lines are grey."
    )
    return Described(figure, words)


def _marked(sizes: tuple[int, ...], x: int, k: int, j: int) -> str:
    """The marked lines from layer x to the next, in words."""
    if x == 1:
        return f"the line from input {k + 1} to neuron {j + 1}"
    if x > 2:
        return "all lines"
    return (
        f"the line{'s' if sizes[2] > 1 else ''} from neuron {j + 1} to {'every neuron' if sizes[2] > 1 else 'neuron 1'}"
    )


def plot_softmax(outputs: int, j: int) -> Described:
    """Draw the paths from the sum z of output j (from 0) through a softmax to the cost, and back."""
    if not (2 <= outputs <= LARGEST and 0 <= j < outputs):
        raise CourseError(f"expected 2 to {LARGEST} outputs and j below their number; got {outputs} and {j}")
    names = [[f"${letter}_{row + 1}$" for row in range(outputs)] for letter in "za"]
    figure = _two_ways([*names, ["C"]], lambda x, start, end: x > 0 or start == j, f"the sum $z_{j + 1}$")
    words = (
        f"{outputs} sums z, {outputs} outputs a of a softmax and the cost C, drawn twice. The marked lines lead from "
        f"z{j + 1} to each of the {outputs} outputs, and from each output to C: blue and forward on the left, red and "
        "back on the right. The lines from the other sums are grey."
    )
    return Described(figure, words)


def _two_ways(columns: Sequence[Column], on_path: OnPath, what: str) -> Figure:
    """Draw columns of circles twice: with blue arrows to the right, and with red ones to the left."""
    high = max(map(len, columns))
    figure, places = drawing(2, 9, 0.7 + 0.7 * high)
    ways = (("forward", "tab:blue", "-|>"), ("backward", "tab:red", "<|-"))
    for axes, (way, colour, arrow) in zip(places, ways, strict=True):
        axes.set_title(f"{way.capitalize()}: {what}", fontsize=11)
        for x, (starts, ends) in enumerate(pairwise(columns)):
            for start, end in np.ndindex(len(starts), len(ends)):
                style: dict[str, Any] = {"arrowstyle": "-", "color": "0.8"}
                if on_path(x, start, end):
                    style = {"arrowstyle": arrow, "color": colour, "lw": 2}
                left, right = (x, _height(starts, start)), (x + 1, _height(ends, end))
                axes.annotate("", right, left, arrowprops={**style, **LINE})
        for x, names in enumerate(columns):
            for row, name in enumerate(names):
                box = {"boxstyle": "circle", "facecolor": "white", "edgecolor": "0.4"}
                axes.text(x, _height(names, row), name, ha="center", va="center", bbox=box)
        axes.set(xlim=(-0.4, len(columns) - 0.6), ylim=(-high / 2, high / 2))
    return figure


def _height(names: Column, row: int) -> float:
    return (len(names) - 1) / 2 - row


def _a(layer: int, neuron: int) -> str:
    return f"$a^{layer}_{neuron}$"


# The graph of C = tanh(a + w a): each node's place, and its arrows.
PLACES = {"w": (0, 1), "a": (0, -1), "w a": (1.3, 0.55), "a + w a": (2.6, -0.4), "C": (3.9, -0.4)}
ARROWS = (("w", "w a"), ("a", "w a"), ("w a", "a + w a"), ("a", "a + w a"), ("a + w a", "C"))


def plot_graph(a: float, w: float) -> Described:
    """Draw the graph of C = tanh(a + w a) twice: with the value of each node, and with the slope at each arrow."""
    values = {"w": w, "a": a, "w a": w * a, "a + w a": a + w * a, "C": np.tanh(a + w * a)}
    slopes = dict(zip(ARROWS, (a, w, 1.0, 1.0, 1 - values["C"] ** 2), strict=True))
    figure, places = drawing(2, 9.5, 3.2)
    for axes, forward in zip(places, (True, False), strict=True):
        axes.set_title("Forward: values" if forward else "Backward: the slope at each arrow", fontsize=11)
        for (start, end), slope in slopes.items():
            (x, y), (right, above) = PLACES[start], PLACES[end]
            ends = (PLACES[end], PLACES[start]) if forward else (PLACES[start], PLACES[end])  # the head, then the tail
            arrow = {
                "arrowstyle": "-|>",
                "color": "tab:blue" if forward else "tab:red",
                "lw": 2,
                "shrinkA": 17,
                "shrinkB": 17,
            }
            axes.annotate("", *ends, arrowprops=arrow)
            if not forward:
                middle = (x + right) / 2, (y + above) / 2
                axes.text(*middle, f"{slope:.3g}", ha="center", va="center", fontsize=9, backgroundcolor="white")
        for name, (x, y) in PLACES.items():
            axes.scatter(x, y, s=1000, facecolor="white", edgecolor="0.4", zorder=3)
            shown = f"{values[name]:.3g}" if forward else ""
            axes.text(x, y, shown, ha="center", va="center", fontsize=9, zorder=4)
            axes.text(x, y - 0.62, name, ha="center", va="center", fontsize=10)
        axes.set(xlim=(-0.5, 4.4), ylim=(-2, 1.6))
    made = "; ".join(f"{name} is {value:.3g}" for name, value in values.items())
    said = "; ".join(f"from {end} to {start} {slope:.3g}" for (start, end), slope in slopes.items())
    words = (
        "The graph of C = tanh(a + w a), drawn twice. On the left blue arrows lead from w and a to their product, from "
        f"the product and from a to their sum, and from the sum to C: {made}. On the right red arrows lead back, each "
        f"with its slope: {said}. Two arrows end at a."
    )
    return Described(figure, words)


Box = tuple[str, str, str, str]  # a matrix of an equation: the sign before it, its name, the names of its sizes
SIZES = {"batch": 4, "n_out": 2, "n_in": 3, "": 1}
EQUATIONS: dict[str, tuple[str, tuple[Box, ...]]] = {  # title: the size that is summed over, and the matrices
    "(4a)  nothing is summed": ("-", (("", "D", "batch", "n_out"), ("=", "G", "batch", "n_out"),
                                      ("⊙", "S", "batch", "n_out"))),
    "(4b)  summed over n_out": ("n_out", (("", "D below", "batch", "n_in"), ("= (", "D", "batch", "n_out"),
                                          ("", "W", "n_out", "n_in"), (") ⊙", "S", "batch", "n_in"))),
    "(4c)  averaged over batch": ("batch", (("", "db", "", "n_out"), ("= Σ", "D /\nbatch", "batch", "n_out"))),
    "(4d)  averaged over batch": ("batch", (("", "dW", "n_out", "n_in"), ("=", "Dᵀ", "n_out", "batch"),
                                            ("", "A / batch", "batch", "n_in"))),
}  # fmt: skip


def plot_shapes() -> Described:
    """Draw (4a) to (4d) for a batch of 4, 3 neurons below and 2 above: each matrix as a rectangle with its sizes."""
    figure = Figure(figsize=(9.5, 3.8), dpi=100, layout="constrained")
    said = []
    for axes, (title, (summed, boxes)) in zip(figure.subplots(2, 2).flat, EQUATIONS.items(), strict=True):
        _draw_shapes(axes, boxes, summed)
        axes.set_title(title, fontsize=10)
        sizes = (f"({rows}, {columns})" if rows else f"({columns},)" for *_, rows, columns in boxes)
        named = (
            f"{sign} {name.replace(chr(10), ' ')} {size}" for (sign, name, *_), size in zip(boxes, sizes, strict=True)
        )
        said.append(f"{title.replace('  ', ', ')}: {' '.join(named).strip()}")
    return Described(figure, f"The four equations as rectangles with their sizes. {'. '.join(said)}.")


def _draw_shapes(axes: Axes, boxes: Sequence[Box], summed: str) -> None:
    """Draw one equation; the size that is summed over is red."""
    left = 0.0
    for sign, name, rows, columns in boxes:
        high, wide = SIZES[rows], SIZES[columns]
        axes.add_patch(Rectangle((left, -high / 2), wide, high, facecolor="#dbe9f6", edgecolor="0.4"))
        texts = [(name, left + wide / 2, 0.0, 0), (sign, left - 1.4, 0.0, 0)]
        texts += [(columns, left + wide / 2, high / 2 + 0.35, 0), (rows, left - 0.35, 0.0, 90)]
        for text, x, y, turn in texts:
            colour = "tab:red" if text == summed else "black"
            axes.text(x, y, text, rotation=turn, ha="center", va="center", fontsize=9, color=colour)
        left += wide + 2.6
    axes.set(xlim=(-0.8, 19.2), ylim=(-2.1, 2.7), aspect="equal")
    axes.set_axis_off()


# ---- backward passes, most of them faulty

NAMES = ("Ada", "Ben", "Cleo", "Dora")
DIAGNOSES = {  # the word for each, which the student types, and what it means; not all of them occur in the ward
    "healthy": "healthy: all four equations are right",
    "sign": "sign: (4a) has the wrong sign",
    "slope": "slope: (4b) lacks the slopes S",
    "slope twice": "slope twice: (4b) multiplies by the slopes twice",
    "mean": "mean: (4c) and (4d) add up, and do not divide by the batch",
    "activation": "activation: (4d) lacks the activations A",
    "bias": "bias: (4c) gives zeros",
}
TYPED = {words.partition(": ")[0]: name for name, words in DIAGNOSES.items()}  # in the language of the words
Equations = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]


def _equations(diagnosis: str) -> Equations:
    """(4a) to (4d) with this diagnosis, with NumPy."""
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
        """The patients in alphabetical order."""
        return tuple(self._diagnoses)

    def __getitem__(self, name: str) -> Equations:
        """The patient's four equations: functions of (G, S), (D, W, S), (D) and (D, A)."""
        return tuple(map(_nameless, _equations(self._diagnosis(name))))  # type: ignore[return-value]

    def _diagnosis(self, name: str) -> str:
        if name not in self._diagnoses:
            raise CourseError(f"expected a patient, one of {', '.join(self.names)}; got {name!r}")
        return self._diagnoses[name]

    def check(self, **said: str | None) -> "Visit":
        """Compare diagnoses with the truth, which is not shown. None means that one is still open."""
        lines = []
        for name, diagnosis in said.items():
            right = self._diagnosis(name)
            meant = TYPED.get(diagnosis or "", diagnosis)
            if meant is not None and meant not in DIAGNOSES:
                raise CourseError(f"expected a diagnosis, one of {', '.join(map(repr, TYPED))}; got {diagnosis!r}")
            mark = "○ open" if meant is None else "✓" if meant == right else "✗ look again"
            lines.append(f"{name:6} {diagnosis or '–':12} {mark}")
        return Visit(lines)


class Visit(list[str]):
    """Lines of (patient, diagnosis, mark)."""

    def __repr__(self) -> str:
        return "\n".join(self)


def diagnoses() -> str:
    """DIAGNOSES, one in each line: the word to type, and what it means."""
    lines = (words.partition(": ") for words in DIAGNOSES.values())
    return "\n".join(f"{typed!r:14} {meaning}" for typed, _, meaning in lines)


def _nameless(equation: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """The same function without its name and its text."""

    def equation_of_a_patient(*arrays: Any) -> np.ndarray:
        return equation(*arrays)

    return equation_of_a_patient
