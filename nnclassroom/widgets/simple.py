"""The widgets of notebooks 01, 02, 06 and 07; each has a still counterpart among the figures of its notebook."""

from typing import Any

import numpy as np

from nnclassroom.figures import nb02, nb06, nb07
from nnclassroom.widgets import widget
from nncourse import calls, datasets
from nncourse.backend import choose
from nncourse.model import metrics

ACTIVATIONS = tuple(name for name, unit in calls.ACTIVATIONS.items() if unit == "number")
PLANE = 120  # numbers along each side of a plane of colours


def neuron(X: np.ndarray | None = None, y: np.ndarray | None = None) -> widget.BrowserWidget:
    """One neuron with two inputs: change its weights and bias until its line separates classes 0 and 1 of y."""
    if X is None or y is None:
        data = datasets.blobs(120, noise=0.45, seed=3)
        X, y = data.X[data.labels < 2], data.labels[data.labels < 2]
    X, y = np.asarray(X, float), np.asarray(y).astype(int).reshape(-1)
    low, high = X.min(axis=0) - 0.4, X.max(axis=0) + 0.4
    plane = np.stack(np.meshgrid(*np.linspace(low, high, PLANE).T), axis=-1).reshape(-1, 2)
    controls = {
        "w1": widget.slider("weight w1", "How much the first input counts", 1, -5, 5),
        "w2": widget.slider("weight w2", "How much the second input counts", 1, -5, 5),
        "b": widget.slider("bias b", "Moves the line away from the origin", 0, -5, 5),
        "activation": widget.menu("activation", "What turns z into the output", "step", ("step", "sigmoid")),
    }

    def answer(w1: float, w2: float, b: float, activation: str) -> tuple[dict[str, Any], str]:
        backend, w = choose("numpy"), np.array([w1, w2], float)
        z = backend.dense_forward(plane, w[None], np.array([b], float))
        shades = getattr(backend, activation)(z).reshape(PLANE, PLANE)
        wrong = nb02.neuron_says(w, b, X) != y
        frame = {"plane": np.uint8(255 * shades), "wrong": np.uint8(wrong), **_line_of(w, b, low, high)}
        words = f"z = {w1:g}·x1 {w2:+g}·x2 {b:+g}. {wrong.sum()} of {len(y)} points are on the wrong side."
        return frame, words

    return widget.BrowserWidget(
        "neuron.js",
        controls,
        answer,
        "The plane of the two inputs, the neuron's decision line, and points of two classes.",
        given={"X": X, "y": y, "low": low.tolist(), "high": high.tolist()},
        still=lambda: nb02.plot_neuron((1, 1), 0, X, y),
    )


def _line_of(w: np.ndarray, b: float, low: np.ndarray, high: np.ndarray) -> dict[str, Any]:
    """Two points of the line z = 0 beyond the plane, and the arrow w if the plane shows the line; nothing if w is 0."""
    if not w.any():
        return {}
    middle, length = (low + high) / 2, np.linalg.norm(high - low)
    nearest = middle - (w @ middle + b) * w / (w @ w)
    along = length * np.array([-w[1], w[0]]) / np.linalg.norm(w)
    found: dict[str, Any] = {"line": np.array([nearest - along, nearest + along])}
    if (foot := nb02.middle_of_line(w, b, low, high)) is not None:
        found |= {"foot": foot.tolist(), "tip": (foot + 0.3 * w).tolist()}
    return found


def activations() -> widget.BrowserWidget:
    """An activation with its tangent at z, and its derivative, which is the tangent's slope."""
    controls = {
        "name": widget.menu("activation", "The function σ", "sigmoid", ACTIVATIONS),
        "z": widget.slider("weighted sum z", "Where to look at the function", 1, -5, 5),
    }
    along = np.linspace(-5, 5, 1001)
    curves = {name: np.array(value_and_slope(name, along)) for name in ACTIVATIONS}

    def answer(name: str, z: float) -> tuple[dict[str, Any], str]:
        value, slope = (float(numbers[0]) for numbers in value_and_slope(name, np.array([float(z)])))
        words = f"{name}({z:g}) = {value:.4g}, slope {slope:.4g}: {effect_of_a_small_change(name, z, slope)}."
        near = np.array([z - 1.5, z + 1.5])
        tangent = np.stack([near, value + slope * (near - z)], axis=1)
        return {"name": name, "z": z, "value": value, "slope": slope, "tangent": tangent}, words

    return widget.BrowserWidget(
        "activations.js",
        controls,
        answer,
        "The activation with its tangent at z, and beside it the slope.",
        given={"z": along, "curves": curves},
        still=lambda: nb02.plot_activation("sigmoid", at=1),
    )


def effect_of_a_small_change(name: str, z: float, slope: float) -> str:
    """The effect of a small change of z on the activation of that name, in words."""
    if z == 0 and name == "step":
        return "here it jumps, so a small change of z may change a by 1; everywhere else it changes nothing"
    if z == 0 and name in ("relu", "leaky_relu"):
        return f"here is a kink; to its right the slope is 1, and at the kink the course takes {slope:g}"
    return (
        "a small change of z changes nothing"
        if slope == 0
        else f"a changes {slope:.3g} times as much as z, if z changes only a little"
    )


def value_and_slope(name: str, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation of that name and its derivative, at each z."""
    backend = choose("numpy")
    return getattr(backend, name)(z), getattr(backend, f"{name}_derivative")(z)


def descent() -> widget.BrowserWidget:
    """Gradient descent on a cost of two weights: slow if the learning rate is too small, divergent if too large."""
    controls = {
        "surface": widget.menu("cost", "The shape of the cost", "bowl", nb06.SURFACE_WORDS),
        "rate": widget.learning_rate(0.05),
        "steps": widget.slider("steps", "How many steps to take", 20, 1, 100, 1),
        "w1": widget.slider("start w1", "Where the first weight begins", -1.8, -2, 2),
        "w2": widget.slider("start w2", "Where the second weight begins", 1.0, -1.5, 1.5),
    }
    maps = {name: widget.contours(*nb06.heights(name)) for name in nb06.SURFACES}

    def answer(surface: str, rate: float, steps: int, w1: float, w2: float) -> tuple[dict[str, Any], str]:
        path, costs = nb06.descend(surface, (w1, w2), rate, int(steps))
        words = (
            f"Cost {costs[0]:.3g} at the start, {costs[-1]:.3g} after {len(path) - 1} steps, "
            f"at w1 = {path[-1, 0]:.3g}, w2 = {path[-1, 1]:.3g}."
        )
        if costs[-1] > costs[0]:
            lengths = np.linalg.norm(np.diff(path[len(path) // 2 :], axis=0), axis=1)
            grows = bool((np.diff(lengths) > 0).all())
            leaps = "diverges: each step leaps further than the one before"
            words += f" It {leaps if grows else 'ends higher than it began, and does not settle'}."
            words += " Take a smaller learning rate."
        if len(path) <= steps:
            words += f" Above a cost of {nb06.TOO_HIGH:,.0f} no further step is taken."
        return {"surface": surface, "path": path, "costs": costs, "limits": decades(costs), "steps": steps}, words

    return widget.BrowserWidget(
        "descent.js",
        controls,
        answer,
        "A map of the cost with the path of the descent, and the cost after each step.",
        given={"maps": maps, "x": [-2.2, 2.2], "y": [-1.6, 1.6]},
        still=lambda: nb06.plot_descent((0.05,), 20, "bowl", (-1.8, 1.0)),
    )


def decades(values: np.ndarray) -> list[float]:
    """The ends of a logarithmic axis for positive values: 1, 2 or 5 times a power of ten, a factor 10 apart or more."""
    values = values[np.isfinite(values) & (values > 1e-30)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)
    marks = [digit * 10.0**power for power in range(-31, 32) for digit in (1, 2, 5)]
    bottom = max(mark for mark in marks if mark <= low)
    return [bottom, max(10 * bottom, min(mark for mark in marks if mark >= high))]


def threshold(scores: np.ndarray, labels: np.ndarray) -> widget.BrowserWidget:
    """Precision and recall against a threshold, for scores (n,) of samples with labels (n,) 0 and 1."""
    scores, labels = np.asarray(scores, float).reshape(-1), np.asarray(labels).astype(int).reshape(-1)
    low, high = float(min(0.0, scores.min())), float(max(1.0, scores.max()))
    controls = {"threshold": widget.slider("threshold", "Scores above it count as class 1", 0.5, low, high, 0.01)}
    bins = np.linspace(low, high, 31)
    shares = [100 * np.histogram(own, bins)[0] / max(1, len(own)) for own in (scores[labels == 0], scores[labels == 1])]

    def answer(threshold: float) -> tuple[dict[str, Any], str]:
        M = nb07.counts_at(scores, labels, threshold)
        (tn, fp), (fn, tp) = M
        precision, recall, f1 = (float(measure(M)[1]) for measure in (metrics.precision, metrics.recall, metrics.f1))
        words = (
            f"True positives {tp}, false positives {fp}, false negatives {fn}, true negatives {tn}. "
            f"Precision {precision:.3f}, recall {recall:.3f}, F1 {f1:.3f}."
        )
        frame = {"threshold": threshold, "M": M.tolist(), "precision": precision, "recall": recall, "f1": f1}
        return frame, words

    return widget.BrowserWidget(
        "threshold.js",
        controls,
        answer,
        "Histogram of the scores, confusion matrix, and precision against recall.",
        given={
            "bins": bins,
            "shares": shares,
            "sizes": [int((labels == label).sum()) for label in (0, 1)],
            "curve": nb07.recall_and_precision(scores, labels),
        },
        still=lambda: nb07.plot_threshold(scores, labels, 0.5),
    )
