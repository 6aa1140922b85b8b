"""Figures for the notebooks: costs over epochs, confusion matrices, times and others."""

from collections.abc import Mapping, Sequence
from itertools import pairwise, product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, NullFormatter

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.hints import by_notebook
from nnclassroom.figures.described import Described, WordedFigure
from nnclassroom.formats import duration, times_as_fast
from nnclassroom.timing import Row
from nncourse.backend import choose
from nncourse.model.metrics import f1, precision, recall
from nncourse.model.training import History

INK = "0.25"  # a dark grey
DARK = 0.7  # of the largest count: from there on black is harder to read than white
MISTAKES = 3  # of a confusion matrix, that are said in words

Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # label -> (x, y)


def plot_history(history: History, title: str = "") -> WordedFigure:
    """Plot the training cost after each epoch and, if there was a validation set, the validation cost."""
    figure, axes = _figure(title)
    epochs = [epoch.number for epoch in history.epochs]
    axes.plot(epochs, history.costs, label="training", color="tab:blue")
    if history.epochs and history.epochs[0].validation_cost is not None:
        axes.plot(epochs, history.validation_costs, label="held out", color="tab:orange", linestyle="--")
    axes.set(xlabel="epoch", ylabel="cost", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain_numbers(axes.yaxis)
    axes.legend(frameon=False)
    figure.words = _said(title, f"Cost over {len(epochs)} epochs.", *map(_course_of, axes.get_lines()))
    return figure


def _course_of(line: Line2D) -> str:
    """A curve in words: its label, its ends, and its lowest point where that is neither of them."""
    x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    if not np.isfinite(y).any():
        return f"{line.get_label()}: no finite value."
    lowest = int(np.argmin(np.where(np.isfinite(y), y, np.inf)))
    dip = f", lowest {y[lowest]:.3g} at {x[lowest]:g}" if 0 < lowest < len(y) - 1 else ""
    return f"{line.get_label()}: {y[0]:.3g} at {x[0]:g}, {y[-1]:.3g} at {x[-1]:g}{dip}."


def plot_confusion(M: np.ndarray, classes: tuple[str, ...], title: str = "") -> WordedFigure:
    """Plot a confusion matrix M (classes, classes): rows are true classes, columns are predicted classes."""
    figure, axes = _figure(title, width=1.6 + 0.6 * max(4, len(classes)), height=max(3.4, 0.8 + 0.4 * len(classes)))
    _counts(axes, M, M.astype(str))
    ticks = range(len(classes))
    axes.set_xticks(ticks, classes, rotation=0 if len(classes) < 4 else 45)
    axes.set_yticks(ticks, classes)
    figure.words = _said(title, _confusion_in_words(np.asarray(M), classes))
    return figure


def _confusion_in_words(M: np.ndarray, classes: Sequence[str]) -> str:
    """How many samples of each class are predicted rightly; all other counts, or the three largest of many classes."""
    said = [f"Confusion matrix of {M.sum():,} samples; {np.trace(M):,} lie on the diagonal, predicted rightly."]
    rightly = (f"{name} {M[i, i]:,} of {M[i].sum():,}" for i, name in enumerate(classes))
    said.append(f"Rightly: {'; '.join(rightly)}.")
    mistakes = sorted(((M[i, j], i, j) for i, j in np.ndindex(*M.shape) if i != j and M[i, j]), key=lambda one: -one[0])
    if mistakes:
        told = (f"{classes[i]} for {classes[j]} {count:,}×" for count, i, j in mistakes[:MISTAKES])
        said.append(f"{'Wrongly' if len(mistakes) <= MISTAKES else 'The most frequent mistakes'}: {'; '.join(told)}.")
    return " ".join(said)


def _counts(axes: Axes, M: np.ndarray, texts: Sequence[Sequence[str]]) -> None:
    """Draw the elements of a confusion matrix, darker for more samples, with their texts."""
    axes.grid(False)
    axes.imshow(M, cmap="Blues", vmin=0)
    for i, j in np.ndindex(*M.shape):
        axes.text(j, i, texts[i][j], ha="center", va="center", color="white" if M[i, j] > DARK * M.max() else "black")
    axes.set(xlabel="predicted class", ylabel="true class")


def plot_misread(shares: Sequence[float], epochs: Sequence[int], title: str = "") -> WordedFigure:
    """Plot the shares of the test digits that are read wrongly after some epochs, in percent, from 0 up."""
    figure, axes = _figure(title)
    axes.plot(epochs, 100 * np.asarray(shares), "o-")
    axes.set(xlabel="epoch", ylabel="test digits read wrongly, %", xticks=epochs)
    axes.set_ylim(bottom=0, top=110 * max(*shares, 1e-3))
    axes.grid(alpha=0.3)
    told = ", ".join(f"{share:.1%}" for share in shares)
    figure.words = _said(title, f"Test digits read wrongly after epochs {', '.join(map(str, epochs))}: {told}.")
    return figure


def plot_timing(rows: list[Row], title: str = "") -> WordedFigure:
    """Plot the time of each kernel that was timed, as dots on a logarithmic axis."""
    timed = [row for row in rows if row.seconds]
    figure, axes = _figure(title, height=1.2 + 0.4 * len(timed))
    colours = ["tab:blue" if row.device == "cpu" else "tab:green" for row in timed]
    labels = [f"{row.kernel} ({row.device})" for row in timed]
    _dots(axes, labels, [row.seconds for row in timed], size=70, color=colours, fontsize=10)
    axes.set_xlabel("time of one call, seconds (further left is faster)")
    axes.margins(x=0.25, y=0.2)
    said = [f"{label} {duration(row.seconds)}" for label, row in zip(labels, timed, strict=True)]
    figure.words = _said(title, f"Time of one call, as dots on a logarithmic axis: {'; '.join(said) or 'none'}.")
    return figure


def _dots(axes: Axes, labels: Sequence[str], seconds: Sequence[float], size: float, color, fontsize: float) -> None:
    """Draw times as dots on a logarithmic axis, one row each, the first at the top."""
    axes.scatter(seconds, range(len(seconds)), s=size, color=color, label="measured")
    for place, time in enumerate(seconds):
        beside = {"textcoords": "offset points", "va": "center", "fontsize": fontsize}
        axes.annotate(duration(time), (time, place), (fontsize, 0), **beside)
    axes.set_yticks(range(len(seconds)), labels, fontsize=fontsize)
    axes.set_xscale("log")
    axes.grid(False, axis="y")
    axes.invert_yaxis()


def plot_speedups(speedups: dict[str, float], base: str, by_batch: dict[str, dict[int, float]]) -> WordedFigure:
    """Plot speedups over `base` as bars and, beside them, speedups over numpy against the batch size."""
    figure, (left, right) = _row("", 2, width=11.0, height=1.6 + 0.35 * max(4, len(speedups)))
    left.barh(list(speedups), [value - 1 for value in speedups.values()], left=1, height=0.6, color="tab:blue")
    for place, value in enumerate(speedups.values()):
        left.annotate(times_as_fast(value), (max(1, value), place), (5, 0), textcoords="offset points", va="center")
    left.set(xlabel=f"speedup: times as fast as {base} (right is faster)", xscale="log")
    left.grid(False, axis="y")
    left.margins(x=0.2)
    left.invert_yaxis()
    for number, (label, values) in enumerate(by_batch.items()):
        sizes = sorted(values)
        right.plot(sizes, [values[size] for size in sizes], label=label, **_line_style(number))
    right.set(xlabel="batch size, samples", ylabel="speedup: times as fast as numpy", xscale="log", yscale="log")
    right.set_xticks(sorted({size for values in by_batch.values() for size in values}))
    _few_ticks(right)
    plain_numbers(right.xaxis, right.yaxis)
    if by_batch:
        right.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    said = "; ".join(f"{label} {times_as_fast(value)}" for label, value in speedups.items())
    curves = " ".join(_course_of(line) for line in right.get_lines())
    figure.words = f"Bars of the speedup over {base}: {said}. Speedup over numpy against the batch size: {curves}"
    return figure


def plot_network(sizes: tuple[int, ...], title: str = "") -> WordedFigure:
    """Draw the layers of a network from left to right; of a large layer only its first and last neurons."""
    figure, axes = _figure(title, height=3.0)
    axes.set_axis_off()
    places = [_rows(size) for size in sizes]
    for x, layers in enumerate(pairwise(places)):
        axes.plot([x, x + 1], np.array(list(product(*layers))).T, color="0.6", linewidth=0.4, zorder=1)
    for x, (size, rows) in enumerate(zip(sizes, places, strict=True)):
        axes.scatter([x] * len(rows), rows, s=90, color="tab:orange" if x else "tab:blue", zorder=2)
        if size > len(rows):
            axes.text(x, 0, "⋮", ha="center", va="center", fontsize=16, color=INK, zorder=3)
        last = "outputs" if size > 1 else "output"
        what = "inputs" if x == 0 else last if x == len(sizes) - 1 else "hidden"
        axes.text(x, -4.2, f"{size} {what}", ha="center", color=INK)
    axes.set_ylim(-4.8, 3.8)
    kinds = ["input", *["neuron"] * (len(sizes) - 1)]
    layers = " → ".join(f"{size} {kind}{'s' * (size > 1)}" for size, kind in zip(sizes, kinds, strict=True))
    figure.words = _said(
        title, f"A network from left to right: {layers}. A line joins each with each of the next layer."
    )
    return figure


def plot_progress() -> WordedFigure:
    """Draw one box per exercise, one row per notebook; a box is filled if its kernel is kept."""
    record, rows = kept_kernels.progress(), by_notebook()
    figure, axes = _figure("Exercises: filled ones are done", width=9.0, height=0.7 + 0.55 * len(rows))
    for y, entries in enumerate(rows.values()):
        for x, exercise in enumerate(entries):
            done = exercise.key in record
            face, ink = ("tab:green", "white") if done else ("white", INK)
            axes.add_patch(Rectangle((x + 0.03, y + 0.08), 0.94, 0.84, facecolor=face, edgecolor="0.6"))
            words = f"{'✓' if done else '○'} {exercise.operation.replace('_', chr(10), 1)}\n({exercise.kernel})"
            axes.text(x + 0.5, y + 0.5, words, ha="center", va="center", fontsize=6, color=ink)
    axes.set(xlim=(0, max(map(len, rows.values()))), ylim=(len(rows), 0), xticks=[])
    axes.set_yticks([y + 0.5 for y in range(len(rows))], list(rows))
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    done = {name: sum(entry.key in record for entry in entries) for name, entries in rows.items()}
    said = "; ".join(f"{name}: {done[name]} of {len(entries)}" for name, entries in rows.items())
    figure.words = f"A box for each exercise, by notebook. Done are {sum(done.values())} in all. {said}."
    return figure


def _rows(size: int) -> list[float]:
    """Vertical positions of a layer's neurons; of more than seven only three at the top and three at the bottom."""
    if size > 7:
        return [3.2, 2.2, 1.2, -1.2, -2.2, -3.2]
    return [(size - 1) / 2 - place for place in range(size)]


def _said(title: str, *sentences: str) -> str:
    """The title, if there is one, and the sentences."""
    return " ".join([*([title.rstrip(".:") + "."] if title else []), *sentences])


def _figure(title: str, width: float = 6.0, height: float = 3.4) -> tuple[WordedFigure, Axes]:
    """A figure with one pair of axes."""
    figure, (axes,) = _row(None, 1, width, height)
    axes.set_title(title, fontsize=11)
    return figure, axes


def _row(
    title: str | None, count: int, width: float, height: float = 3.6, ratios: Sequence[float] | None = None
) -> tuple[WordedFigure, np.ndarray]:
    """A figure with `count` axes side by side, and a common title.

    It does not use pyplot, so that figures are not displayed twice and threads share no state.
    """
    figure = WordedFigure(figsize=(width, height), dpi=100, layout="constrained")
    if title is not None:  # an empty title would take up space too
        figure.suptitle(title, fontsize=11)
    places = figure.subplots(1, count, squeeze=False, width_ratios=ratios)[0]
    for axes in places:
        axes.grid(True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, places


# ---- the figures of the widgets

MARKS = (("tab:blue", "o"), ("tab:orange", "^"))  # of classes 0 and 1, which differ in colour and shape
SHADES = LinearSegmentedColormap.from_list("two classes", ["#a9cbe8", "#ffffff", "#ffd0a1"])
SURFACES = {  # name: cost (x, y), its gradient
    "bowl": (lambda x, y: (x**2 + 10 * y**2) / 2, lambda x, y: (x, 10 * y)),
    "two valleys": (
        lambda x, y: (x**2 - 1) ** 2 + 0.3 * x + y**2 + 0.31,
        lambda x, y: (4 * x * (x**2 - 1) + 0.3, 2 * y),
    ),
}
SURFACE_WORDS = {"bowl": "bowl", "two valleys": "two valleys"}
OUTPUT_WORDS = {  # activation: what the output of a neuron with it is
    "identity": "identity of z",
    "step": "step of z",
    "sigmoid": "sigmoid of z",
    "tanh": "tanh of z",
    "relu": "relu of z",
    "leaky_relu": "leaky_relu of z",
    "softplus": "softplus of z",
}
TOO_HIGH = 1e6  # a descent stops if the cost exceeds this


def neuron_says(w: Sequence[float], b: float, X: np.ndarray) -> np.ndarray:
    """The class, 0 or 1, that a neuron with the step activation predicts for each point of X (n, 2)."""
    backend = choose("numpy")
    Z = backend.dense_forward(X, np.array([w], X.dtype), np.array([b], X.dtype))
    return backend.step(Z)[:, 0].astype(int)


def plot_neuron(
    w: Sequence[float], b: float, X: np.ndarray, y: np.ndarray, title: str = "", activation: str = "step"
) -> WordedFigure:
    """Plot a neuron with two inputs: its output over the plane, the line z = 0, and points X (n, 2) of classes y (n,).

    Points on the wrong side of the line are circled.
    """
    figure, axes = _figure(title, width=6.0, height=4.4)
    low, high = X.min(axis=0) - 0.4, X.max(axis=0) + 0.4
    plane, w = np.stack(np.meshgrid(*np.linspace(low, high, 160).T), axis=-1), np.asarray(w, float)
    a = getattr(choose("numpy"), activation)(plane @ w + b)
    extent = (low[0], high[0], low[1], high[1])
    shades = axes.imshow(a, SHADES, extent=extent, origin="lower", vmin=0, vmax=1)
    figure.colorbar(shades, label="output a of the neuron", shrink=0.8)
    for label, (colour, mark) in enumerate(MARKS):
        axes.plot(*X[y == label].T, mark, color=colour, markeredgecolor="white", markersize=7, label=f"class {label}")
    wrong = neuron_says(w, b, X) != y
    axes.plot(*X[wrong].T, "o", color="tab:red", markersize=12, fillstyle="none", label=f"wrong side: {wrong.sum()}")
    if w.any():
        middle = (low + high) / 2
        foot = middle - (w @ middle + b) * w / (w @ w)
        axes.axline(foot, foot + [-w[1], w[0]], color=INK, label="z = 0")
        if (low < foot).all() and (foot < high).all():
            axes.annotate("", foot + 0.3 * w, foot, arrowprops={"arrowstyle": "-|>", "color": INK})
            axes.annotate("w", foot + 0.3 * w, (4, 4), textcoords="offset points", color=INK, fontweight="bold")
    axes.set(xlabel="input x1", ylabel="input x2", xlim=extent[:2], ylim=extent[2:])
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    lie = f"z = {w[0]:g}·x1 {w[1]:+g}·x2 {b:+g}. The output is {_range(a)} over the plane, {OUTPUT_WORDS[activation]}."
    side = (
        f"on the wrong side of the line z = 0{', and circled' * bool(wrong.any())}" if w.any() else "wrong, and circled"
    )
    figure.words = _said(title, lie.replace("-", "−"), f"{wrong.sum()} of {len(y)} points are {side}.")
    return figure


def _range(values: np.ndarray) -> str:
    low, high = np.min(values), np.max(values)
    return f"{low:.3g} everywhere" if low == high else f"from {low:.3g} to {high:.3g}"


def plot_activation(names: str | Sequence[str], title: str = "", at: float | None = None) -> WordedFigure:
    """Plot activations and, beside them, their derivatives; `at` marks a weighted sum z and draws the tangent there."""
    figure, (left, right) = _row(title, 2, width=8.0)
    backend, z, said = choose("numpy"), np.linspace(-5, 5, 1001), []
    for number, name in enumerate([names] if isinstance(names, str) else names):
        value, slope = getattr(backend, name), getattr(backend, f"{name}_derivative")
        style = _line_style(number) | {"label": name, "markevery": 100}
        style["marker"] = style["marker"] if number > 3 else ""  # curves may coincide; marks where dashes are used up
        left.plot(z, value(z), **style)
        right.plot(z, slope(z), **style)
        ends = f"{value(z[:1])[0]:.3g} at z = −5, {value(z[500:501])[0]:.3g} at 0, {value(z[-1:])[0]:.3g} at 5"
        said.append(f"{name}: {ends}; its slope {_range(slope(z))}.".replace("-", "−"))
        if at is not None:
            (a,), (s,) = value(np.array([at])), slope(np.array([at]))
            near = np.array([at - 1.5, at + 1.5])
            left.plot(near, a + s * (near - at), color="tab:red", linestyle="--", label=f"tangent at z = {at:g}")
            left.plot([at], [a], "o", color="tab:red")
            right.plot([at], [s], "o", color="tab:red", label=f"slope {s:.3g}")
            said.append(f"At z = {at:g} it is {a:.3g}, and the tangent there has the slope {s:.3g}.".replace("-", "−"))
    left.set(xlabel="weighted sum z", ylabel="activation a = σ(z)")
    right.set(xlabel="weighted sum z", ylabel="slope σ'(z)")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9)
    figure.words = _said(title, "Left the activations, right their slopes, over z from −5 to 5.", *said)
    return figure


def descend(surface: str, start: Sequence[float], rate: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradient descent on one of SURFACES. Returns the points (steps + 1, 2) and their costs (steps + 1,).

    There are fewer points if the cost exceeds TOO_HIGH.
    """
    cost, gradient = SURFACES[surface]
    update, points = choose("numpy").sgd_update, [np.array(start, float)]
    while len(points) <= steps and cost(*points[-1]) < TOO_HIGH:
        points.append(update(points[-1].copy(), np.array(gradient(*points[-1])), rate))
    path = np.array(points)
    return path, cost(*path.T)


def plot_descent(
    rates: Sequence[float] = (0.02, 0.18, 0.21),
    steps: int = 30,
    surface: str = "bowl",
    start: Sequence[float] = (-1.8, 1.0),
    title: str = "",
) -> WordedFigure:
    """Plot gradient descent with several learning rates: paths on contours of the cost, and the cost at each step."""
    figure, (left, right) = _row(title, 2, width=9.0)
    x, y = np.meshgrid(np.linspace(-2.2, 2.2, 120), np.linspace(-1.6, 1.6, 120))
    heights = SURFACES[surface][0](x, y)
    lines = left.contour(x, y, heights, levels=np.geomspace(0.05, heights.max(), 14), cmap="Greys_r", linewidths=0.8)
    lines.set_alpha(0.7)
    said = []
    for number, rate in enumerate(rates):
        path, costs = descend(surface, start, rate, steps)
        style = {"color": f"C{number}", "marker": "os^Dv"[number % 5], "markersize": 4, "linewidth": 1.2}
        left.plot(*path.T, label=f"learning rate {rate:.3g}", **style)
        right.plot(costs, **style)
        said.append(f"Learning rate {rate:.3g}: cost {costs[0]:.3g}, after {len(costs) - 1} steps {costs[-1]:.3g}.")
    left.plot(*start, "*", color="black", markersize=12, label="start")
    left.set_title("lines of equal cost, and the path", fontsize=9)
    left.set(xlabel="weight w1", ylabel="weight w2", xlim=(-2.2, 2.2), ylim=(-1.6, 1.6))
    right.set(xlabel="step", ylabel="cost", yscale="log")
    _few_ticks(right)
    plain_numbers(right.yaxis)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    named = SURFACE_WORDS[surface]
    begins = f"Descents from w1 = {start[0]:g}, w2 = {start[1]:g} on the cost {named!r}: paths on lines of equal cost"
    figure.words = _said(title, f"{begins}, and beside them the cost at each step.".replace("-", "−"), *said)
    return figure


def counts_at(scores: np.ndarray, labels: np.ndarray, threshold: float) -> np.ndarray:
    """The confusion matrix (2, 2) if scores (n,) above the threshold are predicted as class 1."""
    predictions = (np.asarray(scores) > threshold).astype(np.int32)
    return choose("numpy").confusion_matrix(np.asarray(labels).astype(np.int32), predictions, 2)


def plot_threshold(scores: np.ndarray, labels: np.ndarray, threshold: float = 0.5, title: str = "") -> WordedFigure:
    """Plot the effect of a threshold: scores of both classes, confusion matrix, and precision against recall."""
    figure, (left, middle, right) = _row(title, 3, width=10.0, ratios=(1.3, 0.8, 1))
    bins = np.linspace(min(0, np.min(scores)), max(1, np.max(scores)), 31)
    for label, (colour, _) in enumerate(MARKS):
        own = scores[labels == label]
        weights = np.full(len(own), 100 / max(1, len(own)))  # so that a rare class is visible
        fill = {"color": colour, "alpha": 0.55, "hatch": "//" if label else ""}
        left.hist(own, bins, weights=weights, label=f"class {label} ({len(own)} samples)", **fill)
    left.axvline(threshold, color="black", linestyle="--", label=f"threshold {threshold:.2f}")
    left.set(xlabel="score: the network's output", ylabel="share of the class, %")
    left.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1))  # above the bars
    M = counts_at(scores, labels, threshold)
    (tn, fp), (fn, tp) = M
    names = ((f"{tn}\ntrue\nnegative", f"{fp}\nfalse\npositive"), (f"{fn}\nfalse\nnegative", f"{tp}\ntrue\npositive"))
    _counts(middle, M, names)
    middle.set(xticks=(0, 1), yticks=(0, 1))
    tried = [counts_at(scores, labels, t) for t in np.unique(np.quantile(scores, np.linspace(0, 1, 200)))]
    curve = [(recall(m)[1], precision(m)[1]) for m in tried if m[:, 1].any()]  # otherwise precision is undefined
    right.plot(*np.array(curve).reshape(-1, 2).T, color="tab:green")
    right.plot([recall(M)[1]], [precision(M)[1]], "o", color="black", markersize=8, label=f"F1 {f1(M)[1]:.3f}")
    right.set(xlabel="recall (class 1)", ylabel="precision (class 1)", xlim=(-0.03, 1.03), ylim=(-0.03, 1.05))
    right.legend(frameon=False, fontsize=9, loc="lower left")
    counts = f"{tp} true positives, {fp} false positives, {fn} false negatives, {tn} true negatives"
    rates = f"precision {precision(M)[1]:.3f}, recall {recall(M)[1]:.3f}, F1 {f1(M)[1]:.3f}"
    three = "Histograms of the scores of both classes, the confusion matrix, and precision against recall."
    figure.words = _said(title, f"At threshold {threshold:.2f}: {counts}; {rates}.", three)
    return figure


# ---- notebook 08: what limits the speed of training


def plot_amdahl(shares: Mapping[str, float], title: str = "") -> Described:
    """Plot Amdahl's law: overall speedup against the speedup of a part, for parts with these shares of the time."""
    figure, axes = _figure(title, width=6.5, height=4.0)
    faster = np.geomspace(1, 1000, 200)
    said = []
    for number, (label, share) in enumerate(shares.items()):
        style = _line_style(number) | {"color": f"C{number}", "marker": ""}
        axes.plot(faster, 1 / (1 - share + share / faster), label=f"{label}: {share:.0%}", **style)
        if share < 1:
            axes.axhline(1 / (1 - share), color=f"C{number}", linewidth=0.7, alpha=0.6)
            style = {"va": "center", "color": f"C{number}", "fontsize": 9}
            axes.text(1.0, 1 / (1 - share), f" {1 / (1 - share):.3g}", transform=axes.get_yaxis_transform(), **style)
            said.append(f"{label}, a share of {share:.0%}, never passes {1 / (1 - share):.3g}")
    axes.set(xlabel="times as fast: the part that was moved", ylabel="times as fast: the whole step")
    axes.set(xscale="log", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    plain_numbers(axes.xaxis, axes.yaxis)
    figure.legend(loc="outside lower center", frameon=False, fontsize=9, title="share of the time")
    return Described(figure, f"Speedup of the whole step over the speedup of its part. {'; '.join(said)}.")


def plot_lines(
    lines: Lines, xlabel: str, ylabel: str, title: str = "", xscale: str = "log", below: bool = False
) -> Described:
    """Plot lines with markers on a logarithmic y axis; `below` puts the legend under it, where lines fill the axes."""
    figure, axes = _figure(title, width=6.5)
    _lines(axes, lines)
    if below:
        axes.get_legend().remove()
        figure.legend(loc="outside lower center", ncols=len(lines), frameon=False, fontsize=9)
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale)
    return Described(figure, f"{ylabel} over {xlabel}. {_ends(lines)}")


def plot_bars(
    values: Mapping[str, float],
    xlabel: str,
    title: str = "",
    marks: Mapping[str, float] | None = None,
    limits: tuple[float, float] | None = None,
) -> Described:
    """Plot times in seconds as labelled dots on a logarithmic axis; `marks` are calculated times, as hollow dots.

    Labels that begin with "nncourse" are orange. `limits` are the lower and upper end of the axis.
    """
    figure, axes = _figure("", width=7.0, height=1.2 + 0.36 * len(values))
    figure.suptitle(title, fontsize=10)
    colours = ["tab:orange" if label.startswith("nncourse") else "tab:blue" for label in values]
    _dots(axes, list(values), list(values.values()), size=60, color=colours, fontsize=9)
    said = [f"{label} {duration(seconds)}" for label, seconds in values.items()]
    if marks:
        there = [(marks[label], place) for place, label in enumerate(values) if label in marks]
        axes.scatter(*zip(*there, strict=True), s=60, facecolor="none", edgecolor="tab:red", label="calculated")
        axes.legend(frameon=False, fontsize=9, loc="best")
        said += [f"calculated for {label} {duration(seconds)}" for label, seconds in marks.items() if label in values]
    axes.set_xlabel(xlabel)
    axes.margins(x=0.2, y=0.12)
    if limits:
        axes.set_xlim(limits)
    return Described(figure, f"{xlabel}: {'; '.join(said)}.")


def plot_timelines(lines: Mapping[str, tuple[Sequence, Sequence]], title: str = "") -> Described:
    """Plot timelines: label -> (CPU launches, GPU executions), each a sequence of (start, end) in seconds."""
    figure, axes = _figure(title, width=8.0, height=0.9 + 0.75 * len(lines))
    said, ticks = [], {}
    for place, (label, (launches, runs)) in enumerate(lines.items()):
        for row, (bars, colour, hatch) in enumerate(((launches, "tab:orange", "//"), (runs, "tab:green", ""))):
            spans = [(1e6 * start, 1e6 * (end - start)) for start, end in bars]
            style = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.8}
            axes.broken_barh(spans, (3 * place + row, 0.8), **style)
            ticks[3 * place + row + 0.4] = f"{label}: CPU" if row == 0 else "GPU"
        busy, end = sum(end - start for start, end in runs), max(end for _, end in runs)
        axes.text(1e6 * end, 3 * place + 1.4, f"  {duration(end)}, GPU busy {busy / end:.0%}", va="center", fontsize=9)
        count = f"{len(launches)} launch{'es' * (len(launches) > 1)}"
        said.append(f"{label}: {count}, done after {duration(end)}, the GPU is busy {busy / end:.0%} of it")
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=9)
    axes.set_xlabel("time, µs (orange, hatched: the CPU launches; green: the GPU computes)")
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    axes.grid(False, axis="y")
    axes.invert_yaxis()
    return Described(figure, f"Timelines. {'; '.join(said)}.")


def plot_roofline(
    roofs: Mapping[str, tuple[float, float]], dots: Mapping[str, tuple[float, float]], title: str = ""
) -> Described:
    """Plot a roofline diagram.

    roofs: label -> (bytes per second, FLOP per second); dots: label -> (FLOP per byte, FLOP per second).
    """
    figure, axes = _figure(title, width=7.0, height=4.2)
    x = np.geomspace(0.1, 1000, 300)
    for number, (label, (bandwidth, rate)) in enumerate(roofs.items()):
        style = {"linestyle": ("-", "--", ":")[number % 3], "color": "0.35"}
        axes.plot(x, np.minimum(bandwidth * x, rate) / 1e12, label=f"roof: {label}", **style)
    said = [f"roof {label}" for label in roofs]
    for number, (label, (intensity, rate)) in enumerate(dots.items()):
        axes.plot(intensity, rate / 1e12, "os^Dv<>P*X"[number % 10], color=f"C{number % 10}", label=label, markersize=8)
        said.append(f"{label}: {intensity:.3g} FLOP per byte, {rate / 1e12:.3g} TFLOP/s")
    axes.set(xlabel="arithmetic intensity, FLOP per byte", ylabel="rate, TFLOP/s", xscale="log", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain_numbers(axes.yaxis)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return Described(figure, f"Roofline, rate over arithmetic intensity: {'; '.join(said)}.")


def plot_batches(speed: Lines, quality: Lines, measure: str, title: str = "") -> Described:
    """Plot two quantities against the batch size: microseconds per sample on the left, `measure` on the right."""
    figure, (left, right) = _row(title, 2, width=9.0)
    _lines(left, speed)
    left.set(xlabel="batch size, samples", ylabel="time a sample, µs")
    left.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=8)
    _lines(right, quality)
    right.set(xlabel="batch size, samples", ylabel=measure, yscale="linear", ylim=(0, 1))
    right.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=8)
    plain_numbers(left.xaxis, left.yaxis, right.xaxis)
    words = f"Left, time a sample in µs over the batch size: {_ends(speed)} Right, {measure}: {_ends(quality)}"
    return Described(figure, words)


def _line_style(number: int) -> dict[str, str]:
    """Marker and dashes, so that lines differ not only in colour."""
    return {"marker": "os^Dv"[number % 5], "linestyle": ("-", "--", "-.", ":")[number % 4]}


def _lines(axes: Axes, lines: Lines) -> None:
    for number, (label, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, label=label, markersize=5, **_line_style(number))
    axes.set(xscale="log", yscale="log")
    axes.legend(frameon=False, fontsize=9)


def _ends(lines: Lines) -> str:
    """The first and the last point of each line, in words; and the lowest, where it lies between them."""
    said = []
    for label, (x, y) in lines.items():
        lowest = min(range(len(y)), key=y.__getitem__)
        between = y[lowest] < min(y[0], y[-1])
        dip = f", lowest {y[lowest]:.3g} at {x[lowest]:,.4g}" if between else ""
        said.append(f"{label}: {y[0]:.3g} at {x[0]:,.4g}{dip}, {y[-1]:.3g} at {x[-1]:,.4g}.")
    return " ".join(said)


def plain_numbers(*axes: Axis) -> None:
    """Label ticks as 1, 10, 100 instead of powers of ten."""
    for axis in axes:
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _few_ticks(axes: Axes) -> None:
    """Set ticks of a logarithmic y axis at 1, 2, 5, 10, …, or at 1, 10, … if it spans two decades or more."""
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
