"""Backpropagation by hand: compare the student's intermediate results with those computed in float64, step by step.

    steps = Steps(network, x, y)
    steps.check(z2=[1.5, None, 2.0], a2=None)      # a table; None is open
    steps.check(z2=z2, show_truth=True)            # the same with the right numbers, except where yours is open

If exactly one kind of slip explains a wrong number, the table names it: nb05_slips.py has what each gives. Layers are
numbered as in the handout: the inputs are layer 1, so z2 are the weighted sums of the first hidden layer. The table has
one line per number for a single sample, and one line per matrix for a batch.

    paths_of_weight(network, x, y, k=1, j=0).check(path_1=None, path_2=None, slope=None)
    softmax_by_hand([1.0, 2.0, 0.5], [0.2, 0.0, 0.8]).check(a=None, g=None)
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nnclassroom.exercises.catalogue import find
from nnclassroom.figures.nb05_slips import SLIP_WORDS, Line, Lines, given, of_whole
from nnclassroom.pages import cells, page
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.network import COSTS, Network, cost_of, first_delta

TOLERANCE = 5e-3  # relative: a number that is rounded to three digits passes
UP, DOWN = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"), str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MATRICES = {"db": "db", "dw": "dW", "dx": "dX"}
SIGNS = {"z": "z", "a": "a", "d": "δ", "db": "∂C/∂b", "dw": "∂C/∂w", "dx": "∂C/∂x"}


@dataclass(frozen=True)
class Table:
    """Lines of (quantity, equation, yours, truth, mark), as text of at most 80 columns and as HTML for a notebook."""

    lines: list[tuple[str, ...]]
    show_truth: bool = False

    HEAD = ("quantity", "equation", "yours", "truth", "")
    WIDTHS = (9, 31, 12, 12, 16)

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
        """The count of each mark, and a line for each slip that is named above."""
        marks = [line[-1][0] for line in self.lines]
        counts = f"{marks.count('✓')} right, {marks.count('✗')} wrong, {marks.count('○')} open."
        named = {line[-1].removeprefix("✗ ") for line in self.lines}
        return [counts, *(f"✗ {words}." for words in SLIP_WORDS.values() if words.partition(": ")[0] in named)]


class Steps:
    """All intermediate results of one forward and backward pass in float64, for example steps["a2"]."""

    def __init__(self, network: Network, X: ArrayLike, Y: ArrayLike):
        X, Y = _as_batch(X), _as_batch(Y)
        self.network, self.batch = network, len(X) > 1
        self.reference = intermediates(network, X, Y)
        if self.batch:
            self.mistaken = mistaken(network, X, Y, self.reference)
        else:  # vectors instead of matrices with one row
            self.reference = {name: _of_one_sample(name, value) for name, value in self.reference.items()}
            self.lines = Lines(network, X[0], Y[0], self.reference)

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
        kinds = set()
        for kind, values in self._slips(name, place):
            taken = np.ravel(values)
            if np.abs(taken).max() <= scale or _close(truth, taken, scale):
                continue  # a 0 can have many causes
            if _close(numbers, taken, scale):
                kinds.add(kind)
        return f"✗ {SLIP_WORDS[kinds.pop()].partition(': ')[0]}" if len(kinds) == 1 else "✗"

    def _slips(self, name: str, place: tuple[int, ...] | EllipsisType) -> Iterator[tuple[str, Any]]:
        """What each usual slip gives at the place."""
        if self.batch:
            return ((kind, values[place]) for kind, values in self.mistaken[name].items())
        assert isinstance(place, tuple)
        return self.lines.line(name, place).slips()

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
    """What slips that a whole matrix can have give: by quantity and kind of slip, in the shapes of the truth."""
    layers, backend = network.layers, choose("numpy")
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, value in truth.items():
        found[name] = dict(of_whole(value))
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
        return "not a number"


def _close(numbers: np.ndarray, wanted: np.ndarray, scale: float) -> bool:
    """Whether all numbers agree with those wanted, to TOLERANCE."""
    return bool(np.all(np.abs(numbers - wanted) <= TOLERANCE * np.abs(wanted) + scale))


def _of_one_sample(name: str, value: np.ndarray) -> np.ndarray:
    """The value without the axis of the batch, if it has one."""
    return value[0] if value.ndim == 2 and "dw" not in name else value


# ---- between the steps: the paths of one weight, and a softmax with its cost


class Derivation(Steps):
    """Named numbers in float64, each with its sign and its text in the table."""

    def __init__(self, lines: Mapping[str, Any], signs: Mapping[str, str], texts: Mapping[str, str]):
        self.batch, self.signs, self.texts = False, dict(signs), dict(texts)
        self.numbers: dict[str, Any] = {name: np.array(each, object) for name, each in lines.items()}
        self.reference = {name: np.vectorize(lambda line: line.right)(each) for name, each in self.numbers.items()}

    def _slips(self, name: str, place: tuple[int, ...] | EllipsisType) -> Iterator[tuple[str, Any]]:
        line: Line = self.numbers[name][place]
        return line.slips()

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
    steps = Steps(network, X, Y).lines
    first = [steps.G[4][0], steps.slopes[4][0]] if steps.G[4] is not steps.found["d4"] else [steps.G[4][0]]
    own = np.array([steps.W[4][0], steps.slopes[3], steps.W[3][:, j]])  # these three differ from path to path
    lines = []
    for path, factors in enumerate(own.T):
        product = [*first, *factors, steps.slopes[2][j], X[0, k]]
        instead = [("other path", len(first) + at, value) for at in range(3) for value in np.delete(own[at], path)]
        if j < len(own.T) and path < len(steps.W[3].T):
            instead.append(("transposed", len(first) + 2, steps.W[3][j, path]))
        lines.append(Line.of_product("factor", product, instead))
    named = {f"path_{number}": line for number, line in enumerate(lines, 1)}
    signs = {name: f"path {name[5:]}" for name in named} | {"slope": "∂C/∂w"}
    texts = {name: f"the product through a³{name[5:].translate(DOWN)}" for name in named} | {"slope": "from the paths"}
    return Derivation(named | {"slope": Line([("", np.array([line.right for line in lines]))])}, signs, texts)


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
    g, J, count = -target / a, np.diag(a) - np.outer(a, a), range(len(a))
    E = np.exp(scores)
    lines = {
        "a": [
            given(a[i], ("no exp", scores[i] / scores.sum()), ("no sum", E[i]), ("other sum", E[i] / (E.sum() - E[i])))
            for i in count
        ],
        "g": [Line.of_product("factor", [-target[i], 1 / a[i]], [("a for 1/a", 1, a[i])]) for i in count],
        "J": [[_slope_of_softmax(a, i, j) for j in count] for i in count],
        "delta": [Line([("factor", g), ("factor", J[:, j])]) for j in count],
        "short": [Line([("", np.array([a[j], -target[j]]))]) for j in count],
    }
    signs = {"a": "a", "g": "∂C/∂a", "J": "∂a/∂z", "delta": "δ", "short": "δ"}
    texts = {"a": "softmax", "g": "slope of −Σ y log a", "J": "softmax's slope", "delta": "over all paths"}
    return Derivation(lines, signs, texts | {"short": "from a and y only"})


def _slope_of_softmax(a: np.ndarray, i: int, j: int) -> Line:
    """How output i reacts to sum j."""
    if i == j:
        return Line.of_product("factor", [a[i], 1 - a[i]], [("other case", 1, -a[i])])
    return Line.of_product("factor", [-a[i], a[j]], [("other case", 1, a[j] - 1), ("other case", 1, a[i] - 1)])
