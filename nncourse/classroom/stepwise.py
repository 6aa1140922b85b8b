"""Backpropagation by hand: compare the student's intermediate results with those computed in float64, step by step.

    steps = Steps(network, x, y)
    steps.check(z2=[1.5, None, 2.0], a2=None)      # a table; None is open

Layers are numbered as in the handout; the inputs are layer 1, so z2 are the weighted sums of the first hidden layer.
The table has one line per number for a single sample, and one line per matrix for a batch.
"""

import os
from dataclasses import dataclass

import numpy as np

from nncourse.classroom.html import cells, page
from nncourse.errors import CourseError
from nncourse.kernels.backend import choose
from nncourse.kernels.catalogue import find
from nncourse.model.network import COSTS, Network, cost_of, first_delta

TOLERANCE = 2e-3  # relative: three digits written down by hand pass
UP, DOWN = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"), str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MATRICES = {"db": "db", "dw": "dW"}
SIGNS = {"z": "z", "a": "a", "d": "δ", "db": "∂C/∂b", "dw": "∂C/∂w"}


@dataclass(frozen=True)
class Table:
    """Lines of (quantity, equation, yours, truth, mark), as text of at most 80 columns and as HTML for a notebook."""

    lines: list[tuple[str, ...]]

    HEAD = ("quantity", "equation", "yours", "truth", "")
    WIDTHS = (10, 33, 13, 13, 8)

    def __str__(self) -> str:
        rows = ["".join(map(str.ljust, line, self.WIDTHS)).rstrip() for line in (self.HEAD, *self.lines)]
        return "\n".join([*rows, self._foot()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = cells(self.HEAD, tag="th", words=2) + "".join(cells(line, words=2) for line in self.lines)
        return page(f"<table>{body}</table><small>{self._foot()}</small>")

    def _foot(self) -> str:
        marks = [line[-1][0] for line in self.lines]
        return f"{marks.count('✓')} right, {marks.count('✗')} wrong, {marks.count('○')} open."


class Steps:
    """All intermediate results of one forward and backward pass in float64, for example steps["a2"]."""

    def __init__(self, network: Network, X, Y):
        X, Y = np.atleast_2d(np.float64(X)), np.atleast_2d(np.float64(Y))
        self.network, self.batch = network, len(X) > 1
        self.truth = intermediates(network, X, Y)
        if not self.batch:  # vectors instead of matrices with one row
            self.truth |= {name: v[0] for name, v in self.truth.items() if v.ndim == 2 and "dw" not in name}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.truth:
            raise CourseError(f"wanted a step, one of {', '.join(self.truth)}; got {name!r}")
        return self.truth[name]

    def check(self, **yours) -> Table:
        """Compare the named quantities with the truth. None, as a value or in a list, means that it is still open."""
        return Table([line for name, value in yours.items() for line in self._lines(name, value)])

    def _lines(self, name: str, value) -> list[tuple[str, ...]]:
        truth = self[name]
        entries = np.full(truth.shape, None) if value is None else _objects(value)
        if not (entries.shape == truth.shape or entries.squeeze().shape == truth.squeeze().shape):
            wanted = f"{truth.size} numbers" if truth.ndim < 2 else f"shape {truth.shape}"
            return [(self._quantity(name), f"wanted {wanted}", f"shape {entries.shape}", "", "✗")]
        entries = entries.reshape(truth.shape)
        if "all" in os.environ.get("NNCOURSE_SOLVE", "").split(","):
            entries = np.where(np.equal(entries, None), truth, entries)
        close = TOLERANCE * np.abs(truth) + 1e-6 * np.abs(truth).max()
        judged = [_judged(*three) for three in zip(entries.flat, truth.flat, close.flat, strict=True)]
        places = list(np.ndindex(truth.shape))
        if self.batch and truth.ndim:
            marks = [mark[0] for *_, mark in judged]
            wrong, places = marks.count("✗"), [()]
            said = f"{wrong} wrong" if wrong else "–" if "○" in marks else "all right"
            judged = [(said, f"{truth.shape}", "✗" if wrong else "○ open" if "○" in marks else "✓")]
        return [
            (self._quantity(name, place), self._shown(name, place, three[-1]), *three)
            for place, three in zip(places, judged, strict=True)
        ]

    def _shown(self, name: str, place: tuple[int, ...], mark: str) -> str:
        """The equation; of deltas and gradients that are open its number alone, since it is to be found."""
        equation = self._equation(name, place)
        return equation.partition(" ")[0] if mark == "○ open" and name.startswith("d") else equation

    def _quantity(self, name: str, place: tuple[int, ...] = ()) -> str:
        """z2, (0,) becomes z²₁; dw3, (0, 1) becomes ∂C/∂w³₁₂; for a batch D³ and dW³."""
        kind, layer = name.rstrip("0123456789"), name.lstrip("zadbwC").translate(UP)
        sign = MATRICES.get(kind, kind.upper()) if self.batch else SIGNS.get(kind, kind)
        return sign + layer + "".join(str(number + 1).translate(DOWN) for number in place)

    def _equation(self, name: str, place: tuple[int, ...]) -> str:
        """The equation's number, and its right-hand side: for this neuron or weight, or for the whole batch."""
        kind, number = name.rstrip("0123456789"), int(name.lstrip("zadbwC") or 0)
        last, short = number == len(self.network.layers) + 1, COSTS[self.network.cost]
        delta = "hidden_delta" if not last else "cross_entropy_delta" if short else "output_delta"
        activation = self.network.layers[number - 2].activation
        names = {"z": "dense_forward", "a": activation, "d": delta, "db": "bias_gradient", "dw": "weight_gradient"}
        operation = find(names.get(kind, self.network.cost))
        if self.batch or kind == "C":
            return f"{operation.equation} {operation.formula.partition('= ')[2].partition(',')[0]}"
        own, below, above = (str(layer).translate(UP) for layer in (number, number - 1, number + 1))
        j, k = [*(str(n + 1).translate(DOWN) for n in place), ""][:2]
        texts = {
            "z": f"Σₖ w{own}{j}ₖ a{below}ₖ + b{own}{j}",
            "a": f"{activation}(z{own}{j})",
            "hidden_delta": f"(Σᵢ δ{above}ᵢ w{above}ᵢ{j}) σ'(z{own}{j})",
            "output_delta": f"∂C/∂a{own}{j} · σ'(z{own}{j})",
            "cross_entropy_delta": f"a{own}{j} − y{j}",
            "db": f"δ{own}{j}",
            "dw": f"δ{own}{j} · a{below}{k}",
        }
        return f"{operation.equation} {texts[delta if kind == 'd' else kind]}"


def intermediates(network: Network, X: np.ndarray, Y: np.ndarray) -> dict[str, np.ndarray]:
    """z, a, d, dw and db of every layer, and the cost C, in float64, for samples X (batch, n_in)."""
    backend, found = choose("numpy"), {}
    there = network.with_flat_parameters(np.float64(network.flat_parameters))
    passes = there.forward(X, backend).kept
    Z, A = [each.Z for each in passes], [X, *(each.A for each in passes)]
    for number, (z, a) in enumerate(zip(Z, A[1:], strict=True), 2):
        found |= {f"z{number}": z, f"a{number}": a}
    found["C"] = np.array(cost_of(there, Z, A, Y, backend))
    D = first_delta(there, Z, A, Y, backend)
    for index in reversed(range(len(there.layers))):
        found[f"d{index + 2}"] = D
        S_below = there.layers[index - 1].slope(Z[index - 1], backend) if index else None
        below, gradients = there.layers[index].backward(D, passes[index], A[index], S_below, backend, below=index > 0)
        found |= dict(zip((f"dw{index + 2}", f"db{index + 2}"), gradients, strict=True))
        D = below
    return found


def _objects(value) -> np.ndarray:
    """Nested lists, a number or an array, as an array of objects, which may contain None."""
    try:
        return np.array(value, dtype=object)
    except ValueError:  # lists of different lengths
        return np.empty(0, object)


def _judged(yours, truth: float, close: float) -> tuple[str, str, str]:
    """Texts for both numbers, and the mark. The truth is hidden while the number is open."""
    if yours is None:
        return "–", "–", "○ open"
    try:
        number = float(yours)
    except (TypeError, ValueError):
        return "no number", f"{truth:.5g}", "✗"
    mark = "✓" if abs(number - truth) <= close else "✗ sign?" if abs(number + truth) <= close else "✗"
    return f"{number + 0:.5g}", f"{truth:.5g}", mark  # + 0 turns −0 into 0
