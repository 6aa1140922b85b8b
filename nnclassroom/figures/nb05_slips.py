"""Usual slips in a calculation by hand: what each of them gives, for every number of notebook 05's tables.

Nearly all numbers are sums of products. A slip leaves a factor or a term out, takes another one for it, or turns a
sign. Layers are numbered from 1, the inputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nncourse.backend import choose
from nncourse.model.network import COSTS, Network

SLIP_WORDS = {  # the mark in the table, and what is said of it below
    "sign": "sign: the number is right, its sign is not",
    "twice": "twice: two times the right number",
    "half": "half: half the right number",
    "sum": "sum: the sum over the batch, where the mean is asked for",
    "terms": "terms: one or more terms of the sum are missing",
    "one sign": "one sign: one term of the sum has the wrong sign",
    "no bias": "no bias: what comes out without the bias",
    "no input": "no input: what comes out without an input",
    "no weight": "no weight: what comes out without a weight",
    "no delta": "no delta: what comes out without the delta",
    "no error": "no error: what comes out without the factor ∂C/∂a",
    "no slope": "no slope: what comes out without the factor σ'(z)",
    "no σ": "no σ: what comes out without the activation: z itself",
    "no exp": "no exp: what comes out without the exponential",
    "no target": "no target: what comes out without the target",
    "no sum": "no sum: what comes out without dividing by the sum",
    "no square": "no square: the difference is not squared",
    "factor": "factor: one factor of the product is missing",
    "other σ": "other σ: a different activation",
    "other sum": "other sum: the sum lacks the output's own term",
    "other case": "other case: the formula for i = j is taken for i ≠ j, or the reverse",
    "other path": "other path: a factor of the other path",
    "other weight": "other weight: the weights of another neuron",
    "other input": "other input: an input of another weight or layer",
    "other delta": "other delta: the delta of another neuron or layer",
    "other slope": "other slope: the slope of another neuron or layer",
    "slope at a": "slope at a: the slope is taken at a, not at z",
    "a for σ'": "a for σ': the activation is taken for its slope",
    "a for 1/a": "a for 1/a: the output is a factor, and should divide",
    "w for a": "w for a: the weight is taken for its input",
    "transposed": "transposed: the two indices are swapped",
    "slope": "slope: the factor σ'(z) is in it, which cancels with this cost",
    "input": "input: an input is a factor in it, and a bias has none",
}
Slips = Iterator[tuple[str, float]]  # kinds, and what each gives


@dataclass(frozen=True)
class Line:
    """A number as a sum of products, plus a bias.

    factors: each with the slip that forgets it, and its values in the terms. A single one is never forgotten.
    instead: slips that take something else for the factor with this index, and its values in the terms.
    more: other slips, and what they give.
    """

    factors: Sequence[tuple[str, np.ndarray]]
    instead: Sequence[tuple[str, int, np.ndarray]] = ()
    more: Sequence[tuple[str, float]] = ()
    bias: float = 0.0

    @classmethod
    def of_product(cls, slip: str, factors: Sequence[float], instead: Sequence[tuple[str, int, float]] = ()) -> "Line":
        """One product of numbers; `slip` forgets any of them."""
        each = [(kind, index, np.array([value])) for kind, index, value in instead]
        return cls([(slip, np.array([factor])) for factor in factors], each)

    @property
    def right(self) -> float:
        return float(np.prod([values for _, values in self.factors], axis=0).sum() + self.bias)

    def slips(self) -> Slips:
        """What each slip gives; some kinds give several numbers."""
        columns, right = [np.asarray(values, float) for _, values in self.factors], self.right
        terms = np.prod(columns, axis=0)
        yield from (*of_whole(right), *self.more)
        for index, (slip, _) in enumerate(self.factors) if len(columns) > 1 else ():
            without = np.prod([*columns[:index], *columns[index + 1 :]], axis=0)
            yield slip, without.sum() + self.bias
            yield from ((slip, right + more) for more in without - terms)
        for slip, index, values in self.instead:
            taken = np.prod([*columns[:index], values, *columns[index + 1 :]], axis=0)
            yield slip, taken.sum() + self.bias
        if self.bias:
            yield from (("no bias", right - self.bias), ("one sign", right - 2 * self.bias))
        for term in terms if np.count_nonzero(terms) > 1 else ():
            yield from (("terms", right - term), ("terms", term + self.bias), ("one sign", right - 2 * term))


def of_whole(value: Any) -> Iterator[tuple[str, Any]]:
    """The slips that any number or array can have."""
    yield from (("sign", -value), ("twice", 2 * value), ("half", value / 2))


def given(value: float, *more: tuple[str, float]) -> Line:
    """A number that is no product, with its slips."""
    return Line([("", np.array([value]))], more=more)


class Lines:
    """The numbers of one sample's passes through a network of dense layers, as the table names them."""

    def __init__(self, network: Network, x: np.ndarray, y: np.ndarray, found: Mapping[str, np.ndarray]):
        self.network, self.y, self.found, self.backend = network, y, found, choose("numpy")
        self.last = len(network.layers) + 1
        self.a = {1: x} | {number: found[f"a{number}"] for number in range(2, self.last + 1)}
        parameters = [[np.asarray(array, float) for array in layer.parameters] for layer in network.layers]
        self.W, self.b = ({number: each[index] for number, each in enumerate(parameters, 2)} for index in (0, 1))
        self.slopes = {number: self._slope(number, found[f"z{number}"]) for number in self.W}
        self.G = {number: self._without_slope(number) for number in self.W}

    def line(self, name: str, place: tuple[int, ...]) -> Line:
        """The number `name`, such as dw3, at its place."""
        kind, number = name.rstrip("0123456789"), int(name.lstrip("zadbwxC") or 2)
        line: Line = getattr(self, f"_{kind}")(number, *place)
        return line

    def _slope(self, number: int, z: np.ndarray) -> np.ndarray:
        """σ' of a layer; ones for softmax, whose delta has no such factor."""
        layer = self.network.layers[number - 2]
        return np.ones(len(z)) if layer.activation == "softmax" else np.asarray(layer.slope(z[None], self.backend))[0]

    def _without_slope(self, number: int) -> np.ndarray:
        """The deltas of a layer without the factor σ'(z); those of an output layer may have none."""
        if number < self.last:
            return np.asarray(self.found[f"d{number + 1}"] @ self.W[number + 1])
        if COSTS[self.network.cost] or self.network.activation == "softmax":
            return self.found[f"d{number}"]
        return np.asarray(getattr(self.backend, f"{self.network.cost}_gradient")(self.a[number][None], self.y[None])[0])

    def _z(self, number: int, j: int) -> Line:
        a, instead = self.a[number - 1], _other_weights(self.W[number], j, 0)
        if number > 2:
            instead.append(("no σ", 1, self.found[f"z{number - 1}"]))
        factors = ("no weight", self.W[number][j]), ("no input", a)
        return Line(factors, instead, bias=self.b[number][j])

    def _a(self, number: int, j: int) -> Line:
        z, own = self.found[f"z{number}"], self.network.layers[number - 2].activation
        more = [("no σ", z[j]), ("no bias", getattr(self.backend, own)((z - self.b[number])[None])[0, j])]
        if own != "sigmoid":
            more.append(("other σ", self.backend.sigmoid(z[None])[0, j]))
        return given(self.a[number][j], *more)

    def _C(self, number: int) -> Line:  # noqa: N802
        error, C = self.a[self.last] - self.y, float(self.found["C"])
        if self.network.cost != "mse":
            return given(C)
        halves = ("no square", error.sum() / 2), ("no square", -error.sum() / 2)
        return given(C, ("no target", (self.a[self.last] ** 2).sum() / 2), *halves)

    def _d(self, number: int, j: int) -> Line:
        a, slope = self.a[number][j], self.slopes[number]
        if number == self.last and COSTS[self.network.cost]:
            return Line([("", np.array([a, -self.y[j]]))], more=[("slope", (a - self.y[j]) * slope[j])])
        above = number + 1
        count = 1 if number == self.last else len(self.W[above])
        taken = [("slope at a", self._slope(number, self.a[number])[j]), ("a for σ'", a)]
        taken += [("other slope", other) for other in np.delete(slope, j) if other not in (0, 1)]  # as those of ReLU
        instead = [(slip, 0, np.full(count, value)) for slip, value in taken]
        factors = [("no slope", np.full(count, slope[j]))]
        if number == self.last:
            return Line([*factors, ("no error", self.G[number][[j]])], instead)
        instead += [("other slope", 0, self.slopes[above]), *_other_weights(self.W[above].T, j, 1)]
        instead += [("other delta", 2, np.full(count, d)) for d in self.found.get(f"d{above + 1}", ())]
        return Line([*factors, ("no weight", self.W[above][:, j]), ("no delta", self.found[f"d{above}"])], instead)

    def _db(self, number: int, j: int) -> Line:
        d = self.found[f"d{number}"][[j]]
        return Line([("", d)], self._other_deltas(number, j), [("input", d[0] * a) for a in self.a[number - 1]])

    def _dw(self, number: int, j: int, k: int) -> Line:
        d, a, below = self.found[f"d{number}"], self.a[number - 1], number - 1
        layers = [self.a[other] for other in (below - 1, below + 1) if other in self.a]
        inputs = [*np.delete(a, k), *(values[k] for values in layers if k < len(values))]
        instead = [*self._other_deltas(number, j), *(("other input", 1, np.array([value])) for value in inputs)]
        instead.append(("w for a", 1, self.W[number][j, [k]]))
        if number > 2:
            instead.append(("no σ", 1, self.found[f"z{below}"][[k]]))
        more = [("transposed", d[k] * a[j])] if k < len(d) and j < len(a) and j != k else []
        return Line([("no delta", d[[j]]), ("no input", a[[k]])], instead, more)

    def _dx(self, number: int, k: int) -> Line:
        W, d = self.W[2], self.found["d2"]
        instead = [*_other_weights(W.T, k, 0), ("no slope", 1, self.G[2])]
        return Line([("no weight", W[:, k]), ("no delta", d)], instead)

    def _other_deltas(self, number: int, j: int) -> list[tuple[str, int, np.ndarray]]:
        others = [*np.delete(self.found[f"d{number}"], j), *self.found.get(f"d{number + 1}", ())]
        return [("no slope", 0, self.G[number][[j]]), *(("other delta", 0, np.array([d])) for d in others)]


def _other_weights(W: np.ndarray, j: int, index: int) -> list[tuple[str, int, np.ndarray]]:
    """What is taken for row j of a matrix of weights: another row, or a column that is long enough."""
    found = [("other weight", index, row) for row in np.delete(W, j, axis=0)]
    if j < W.shape[1] <= len(W):
        found.append(("transposed", index, W[: W.shape[1], j]))
    return found
