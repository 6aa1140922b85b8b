"""Backpropagation by hand: compare the student's intermediate results with those computed in float64, step by step.

    steps = Steps(network, x, y)
    steps.check(z2=[1.5, None, 2.0], a2=None)      # a table; None is open
    steps.check(z2=z2, show_truth=True)            # the same with the right numbers, except where yours is open

If exactly one of KINDS explains a wrong number, the table names it. Layers are numbered as in the handout: the inputs
are layer 1, so z2 are the weighted sums of the first hidden layer. The table has one line per number for a single
sample, and one line per matrix for a batch.

    paths_of_weight(network, x, y, k=1, j=0).check(path_1=None, path_2=None, slope=None)
    softmax_by_hand([1.0, 2.0, 0.5], [0.2, 0.0, 0.8]).check(a=None, g=None)
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nnclassroom.exercises.catalogue import find
from nnclassroom.pages import cells, page
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.network import COSTS, Network, cost_of, first_delta

TOLERANCE = 2e-3  # relative: numbers with three digits pass
UP, DOWN = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"), str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MATRICES = {"db": "db", "dw": "dW", "dx": "dX"}
KINDS = {  # kinds of mistakes, and what the table says about them
    "sign": "the number is right, its sign is not",
    "twice": "two times the right number",
    "half": "half the right number",
    "no bias": "what comes out without the bias",
    "no σ": "what comes out without the activation: z itself",
    "no slope": "what comes out without the factor σ'(z)",
    "sum": "the sum over the batch, where the mean is wanted",
}
SIGNS = {"z": "z", "a": "a", "d": "δ", "db": "∂C/∂b", "dw": "∂C/∂w", "dx": "∂C/∂x"}


@dataclass(frozen=True)
class Table:
    """Lines of (quantity, equation, yours, truth, mark), as text of at most 80 columns and as HTML for a notebook."""

    lines: list[tuple[str, ...]]
    show_truth: bool = False

    HEAD = ("quantity", "equation", "yours", "truth", "")
    WIDTHS = (10, 33, 13, 13, 11)

    def __str__(self) -> str:
        widths = self._shown(self.WIDTHS)
        rows = ["".join(map(str.ljust, self._shown(line), widths)).rstrip() for line in (self.HEAD, *self.lines)]
        return "\n".join([*rows, *self._foot()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = (self._shown(line) for line in (self.HEAD, *self.lines))
        body = cells(head, tag="th", words=2) + "".join(cells(row, words=2) for row in rows)
        return page(f"<table>{body}</table><small>{'<br>'.join(self._foot())}</small>")

    def _shown(self, line: tuple[Any, ...]) -> tuple[Any, ...]:
        """The columns that are shown: the truth only if it was asked for."""
        return line if self.show_truth else (*line[:3], line[4])

    def _foot(self) -> list[str]:
        """The count of each mark, and a line for each of KINDS that is named above."""
        marks = [line[-1][0] for line in self.lines]
        counts = f"{marks.count('✓')} right, {marks.count('✗')} wrong, {marks.count('○')} open."
        named = {line[-1].removeprefix("✗ ") for line in self.lines}
        return [counts, *(f"✗ {kind}: {words}." for kind, words in KINDS.items() if kind in named)]


class Steps:
    """All intermediate results of one forward and backward pass in float64, for example steps["a2"]."""

    def __init__(self, network: Network, X: ArrayLike, Y: ArrayLike):
        X, Y = _as_batch(X), _as_batch(Y)
        self.network, self.batch = network, len(X) > 1
        self.reference = intermediates(network, X, Y)
        self.mistaken = mistaken(network, X, Y, self.reference)
        if not self.batch:  # vectors instead of matrices with one row
            self.reference = {name: _of_one_sample(name, value) for name, value in self.reference.items()}
            for name, kinds in self.mistaken.items():
                self.mistaken[name] = {kind: _of_one_sample(name, value) for kind, value in kinds.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.reference:
            raise CourseError(f"expected a step, one of {', '.join(self.reference)}; got {name!r}")
        return self.reference[name]

    def check(self, show_truth: bool = False, **yours: Any) -> Table:
        """Compare the named quantities with the truth. None, as a value or in a list, means that it is still open.

        `show_truth` shows the truth, except of numbers that are still open.
        """
        lines = [line for name, value in yours.items() for line in self._lines(name, value, show_truth)]
        return Table(lines, show_truth)

    def _lines(self, name: str, value: Any, show_truth: bool) -> list[tuple[str, ...]]:
        truth = self[name]
        entries = np.full(truth.shape, None) if value is None else _objects(value)
        if not (entries.shape == truth.shape or entries.squeeze().shape == truth.squeeze().shape):
            wanted = f"{truth.size} numbers" if truth.ndim < 2 else f"shape {truth.shape}"
            return [(self._quantity(name), f"expected {wanted}", f"shape {entries.shape}", "", "✗")]
        entries = entries.reshape(truth.shape)
        if "all" in os.environ.get("NNCOURSE_SOLVE", "").split(","):
            entries = np.where(np.equal(entries, _objects(None)), truth, entries)
        if self.batch and truth.ndim:
            judged = self._judged_as_one(name, entries)
            return [(self._quantity(name), self._equation_shown(name, (), judged[-1][0] != "○"), *judged)]
        lines: list[tuple[str, ...]] = []
        for place in np.ndindex(truth.shape):
            mark = self._mark(name, entries, place)
            said = "–" if mark[0] == "○" else f"{truth[place]:.5g}"
            equation = self._equation_shown(name, place, mark[0] == "✓" or (show_truth and mark[0] != "○"))
            lines.append((self._quantity(name, place), equation, _text(entries[place]), said, mark))
        return lines

    def _judged_as_one(self, name: str, entries: np.ndarray) -> tuple[str, str, str]:
        """For a batch's matrix: how many of its numbers are wrong, its shape, and the mark."""
        shape, marks = f"{entries.shape}", [self._mark(name, entries, place)[0] for place in np.ndindex(entries.shape)]
        if "✗" in marks:
            return f"{marks.count('✗')} wrong", shape, self._mark(name, entries, ...)
        return ("–", shape, "○ open") if "○" in marks else ("all right", shape, "✓")

    def _mark(self, name: str, entries: np.ndarray, place: tuple[int, ...] | EllipsisType) -> str:
        """The mark of one number, or of all at once if the place is `...`."""
        chosen = entries[place]
        if chosen is None:
            return "○ open"
        try:
            numbers = np.array([float(number) for number in np.ravel(_objects(chosen))])
        except (TypeError, ValueError):
            return "✗"
        truth, scale = np.ravel(self.reference[name][place]), 1e-6 * np.abs(self.reference[name]).max()
        if _close(numbers, truth, scale):
            return "✓"
        found = []
        for kind, values in self.mistaken[name].items():
            given, something = np.ravel(values[place]), TOLERANCE * np.abs(values).max()
            if np.abs(given).max() <= something or _close(truth, given, scale):
                continue  # a 0 can have many causes
            if _close(numbers, given, scale):
                found.append(kind)
        return f"✗ {found[0]}" if len(found) == 1 else "✗"

    def _equation_shown(self, name: str, place: tuple[int, ...], found: bool) -> str:
        """The equation. Of deltas and gradients only its number until they are found: they are the task."""
        equation = self._equation(name, place)
        return equation if found or not name.startswith("d") else equation.partition(" ")[0]

    def _quantity(self, name: str, place: tuple[int, ...] = ()) -> str:
        """z2, (0,) becomes z²₁; dw3, (0, 1) becomes ∂C/∂w³₁₂; for a batch D³ and dW³."""
        kind, layer = name.rstrip("0123456789"), name.lstrip("zadbwxC").translate(UP)
        sign = MATRICES.get(kind, kind.upper()) if self.batch else SIGNS.get(kind, kind)
        return sign + layer + "".join(str(number + 1).translate(DOWN) for number in place)

    def _equation(self, name: str, place: tuple[int, ...]) -> str:
        """The equation's number, and its right-hand side: for this neuron or weight, or for the whole batch."""
        if name == "dx":  # (4b) without a slope
            j = "".join(str(n + 1).translate(DOWN) for n in place)
            return "(4b) D² W²" if self.batch else f"(4b) Σᵢ δ²ᵢ w²ᵢ{j}"
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
        paths = f"(Σᵢ δ{above}ᵢ w{above}ᵢ{j})"
        if not last and self.network.sizes[number] == 1:  # one path, so no sum
            paths = f"δ{above}₁ w{above}₁{j}"
        texts = {
            "z": f"Σₖ w{own}{j}ₖ a{below}ₖ + b{own}{j}",
            "a": f"{activation}(z{own}{j})",
            "hidden_delta": f"{paths} σ'(z{own}{j})",
            "output_delta": f"∂C/∂a{own}{j} · σ'(z{own}{j})",
            "cross_entropy_delta": f"a{own}{j} − y{j}",
            "db": f"δ{own}{j}",
            "dw": f"δ{own}{j} · a{below}{k}",
        }
        return f"{operation.equation} {texts[delta if kind == 'd' else kind]}"


def intermediates(network: Network, X: np.ndarray, Y: np.ndarray) -> dict[str, np.ndarray]:
    """z, a, d, dw and db of every layer, the cost C and dx, dC/dX, in float64, for samples X (batch, n_in)."""
    backend = choose("numpy")
    found: dict[str, np.ndarray] = {}
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
        below, gradients = there.layers[index].backward(D, passes[index], A[index], S_below, backend)
        found |= dict(zip((f"dw{index + 2}", f"db{index + 2}"), gradients, strict=True))
        D = below
    return found | {"dx": D}


def mistaken(
    network: Network, X: np.ndarray, Y: np.ndarray, truth: dict[str, np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    """The value of each quantity with each mistake of KINDS: by quantity and kind, in the shapes of the truth."""
    layers, backend = network.layers, choose("numpy")
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, value in truth.items():
        found[name] = _slips(value)
        if len(X) > 1 and (name == "C" or name[:2] in ("dw", "db")):
            found[name]["sum"] = len(X) * value
    for number, layer in enumerate(layers, 2):
        without_bias = truth[f"z{number}"] - np.asarray(layer.parameters[1], float)
        found[f"z{number}"]["no bias"] = without_bias
        found[f"a{number}"]["no bias"] = getattr(backend, layer.activation)(without_bias)
        found[f"a{number}"]["no σ"] = truth[f"z{number}"]
        if number <= len(layers):
            G = truth[f"d{number + 1}"] @ np.asarray(layers[number - 1].parameters[0], float)
        elif COSTS[network.cost] or network.activation == "softmax":
            continue  # these deltas have no such factor
        else:
            G = getattr(backend, f"{network.cost}_gradient")(truth[f"a{number}"], Y)
        below = truth[f"a{number - 1}"] if number > 2 else X
        without = {"d": G, "dw": G.T @ below / len(X), "db": G.mean(axis=0)}
        for kind, value in without.items():
            found[f"{kind}{number}"]["no slope"] = value
    return found


def _as_batch(numbers: ArrayLike) -> np.ndarray:
    """One sample or a batch of them in float64, (batch, n)."""
    return np.atleast_2d(np.asarray(numbers, float))


def _slips(value: np.ndarray) -> dict[str, np.ndarray]:
    """The KINDS that any quantity can have."""
    return {"sign": -value, "twice": 2 * value, "half": value / 2}


def _objects(value: Any) -> np.ndarray:
    """A number, an array or nested lists as an array of objects, which may contain None."""
    try:
        return np.array(value, dtype=object)
    except ValueError:  # lists of different lengths
        return np.empty(0, object)


def _text(yours: Any) -> str:
    """A student's number, in five digits."""
    if yours is None:
        return "–"
    try:
        return f"{float(yours) + 0:.5g}"  # + 0 turns −0 into 0
    except (TypeError, ValueError):
        return "no number"


def _close(numbers: np.ndarray, wanted: np.ndarray, scale: float) -> bool:
    """Whether all numbers agree with those wanted, to TOLERANCE."""
    return bool(np.all(np.abs(numbers - wanted) <= TOLERANCE * np.abs(wanted) + scale))


def _of_one_sample(name: str, value: np.ndarray) -> np.ndarray:
    """The value without the axis of the batch, if it has one."""
    return value[0] if value.ndim == 2 and "dw" not in name else value


# ---- between the steps: the paths of one weight, and a softmax with its cost


class Derivation(Steps):
    """Named numbers in float64, each with its sign and its text in the table."""

    def __init__(
        self,
        truth: Mapping[str, np.ndarray],
        signs: Mapping[str, str],
        texts: Mapping[str, str],
        without_factors: Sequence[str] = (),
    ):
        """A factor 2 is not named for `without_factors`: there it has other causes, such as another weight."""
        self.batch = False
        self.reference = {name: np.asarray(value, np.float64) + 0 for name, value in truth.items()}  # turns −0 into 0
        self.mistaken = {name: _slips(value) for name, value in self.reference.items()}
        self.mistaken |= {name: {"sign": -self.reference[name]} for name in without_factors}
        self.signs, self.texts = dict(signs), dict(texts)

    def _quantity(self, name: str, place: tuple[int, ...] = ()) -> str:
        """∂a/∂z with the place (0, 1) becomes ∂a₁/∂z₂; a letter is followed by its index."""
        sign, indices = self.signs[name], [str(number + 1).translate(DOWN) for number in place]
        if len(indices) == 2:
            above, _, below = sign.partition("/")
            return f"{above}{indices[0]}/{below}{indices[1]}"
        return sign + "".join(indices)

    def _equation_shown(self, name: str, place: tuple[int, ...], found: bool) -> str:
        return self.texts[name]


def paths_of_weight(network: Network, x: Sequence[float], y: Sequence[float] | float, k: int, j: int) -> Derivation:
    """The products along each path from a weight of the first layer to the cost, and the slope of the cost.

    The weight leads from input k to hidden neuron j, both from 0. The network has two hidden layers and one output.
    """
    if len(network.layers) != 3 or network.sizes[-1] != 1:
        raise CourseError(f"expected two hidden layers and one output; got the network {network.in_words}")
    X, Y = _as_batch(x), _as_batch(y)
    found, backend = intermediates(network, X, Y), choose("numpy")
    slopes = [
        np.asarray(layer.slope(found[f"z{number}"], backend))[0] for number, layer in enumerate(network.layers, 2)
    ]
    first, second, third = (np.asarray(layer.parameters[0], float) for layer in network.layers)
    along = found["d4"][0, 0] * third[0] * slopes[1] * second[:, j] * slopes[0][j] * X[0, k]
    names = [f"path_{number}" for number in range(1, len(along) + 1)]
    signs = {name: f"path {name[5:]}" for name in names} | {"slope": "∂C/∂w"}
    texts = {name: f"the product through a³{name[5:].translate(DOWN)}" for name in names} | {"slope": "from the paths"}
    return Derivation(dict(zip(names, along, strict=True)) | {"slope": found["dw2"][j, k]}, signs, texts, names)


def softmax_by_hand(z: Sequence[float], y: Sequence[float]) -> Derivation:
    """The steps from z to the deltas of softmax with categorical cross-entropy, for one sample with targets y."""
    scores, target = np.asarray(z, float), np.asarray(y, float)
    if scores.ndim != 1 or scores.shape != target.shape:
        raise CourseError(
            f"expected one score and one target for each output; got shapes {scores.shape}, {target.shape}"
        )
    if not np.isclose(target.sum(), 1):
        raise CourseError(f"expected targets that add up to 1; got {target.sum():g}")
    a = np.exp(scores - scores.max())
    a /= a.sum()
    g, J = -target / a, np.diag(a) - np.outer(a, a)
    truth = {"a": a, "g": g, "J": J, "delta": g @ J, "short": a - target}
    signs = {"a": "a", "g": "∂C/∂a", "J": "∂a/∂z", "delta": "δ", "short": "δ"}
    texts = {"a": "softmax", "g": "slope of −Σ y log a", "J": "softmax's slope", "delta": "over all paths"}
    return Derivation(truth, signs, texts | {"short": "from a and y only"})
