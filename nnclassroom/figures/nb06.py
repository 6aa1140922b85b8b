"""Figures of notebook 06: descents, the arrays of a step, effects of batch size, learning rate and first weights."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnclassroom.figures.common import (
    INK,
    MARKS,
    SHADES,
    draw_arrow,
    draw_box,
    drawing,
    few_ticks,
    plain_numbers,
    plot_history,
    row_of_axes,
    with_title,
)
from nnclassroom.figures.described import WordedFigure
from nncourse.backend import choose
from nncourse.calls import Calls
from nncourse.model.network import Network
from nncourse.model.training import History

__all__ = [
    "activations_at_start",
    "arrays_of_a_step",
    "batch_sizes",
    "costs_by_epoch",
    "decision_regions",
    "first_costs",
    "plot_descent",
    "plot_history",
    "searches",
    "under_and_over",
]

STYLES = ("-", "--", "-.", ":")
BLUE, ORANGE, RED = "tab:blue", "tab:orange", "tab:red"
Function = Callable[..., Any]  # of two weights, which are numbers or arrays
SURFACES: dict[str, tuple[Function, Function]] = {  # name: cost (x, y), its gradient
    "bowl": (lambda x, y: (x**2 + 10 * y**2) / 2, lambda x, y: (x, 10 * y)),
    "two valleys": (
        lambda x, y: (x**2 - 1) ** 2 + 0.3 * x + y**2 + 0.31,
        lambda x, y: (4 * x * (x**2 - 1) + 0.3, 2 * y),
    ),
}
SURFACE_WORDS = {"bowl": "bowl", "two valleys": "two valleys"}
TOO_HIGH = 1e6  # a descent stops if the cost exceeds this


# ---- descents


def heights(surface: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Grids of w1 and w2, their costs, and the costs for which a map has lines."""
    x, y = np.meshgrid(np.linspace(-2.2, 2.2, 120), np.linspace(-1.6, 1.6, 120))
    costs = SURFACES[surface][0](x, y)
    return x, y, costs, np.geomspace(0.05, costs.max(), 14)


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
    figure, (left, right) = row_of_axes(title, 2, width=9.0)
    x, y, height, levels = heights(surface)
    lines = left.contour(x, y, height, levels=levels, cmap="Greys_r", linewidths=0.8)
    lines.set_alpha(0.7)
    said = []
    for number, rate in enumerate(rates):
        path, costs = descend(surface, start, rate, steps)
        style = {"color": f"C{number}", "marker": "os^Dv"[number % 5], "markersize": 4, "linewidth": 1.2}
        left.plot(*path.T, label=f"learning rate {rate:.3g}", **style)
        right.plot(costs, **style)
        said.append(f"Learning rate {rate:.3g}: cost {costs[0]:.3g}, after {len(costs) - 1} steps {costs[-1]:.3g}.")
    left.plot(*start, "*", color="black", markersize=12, label="start")
    left.set_title("Lines of equal cost, and the path", fontsize=9)
    left.set(xlabel="weight w1", ylabel="weight w2", xlim=(-2.2, 2.2), ylim=(-1.6, 1.6))
    right.set(xlabel="step", ylabel="cost", yscale="log")
    few_ticks(right)
    plain_numbers(right.yaxis)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    named = SURFACE_WORDS[surface]
    begins = f"Descents from w1 = {start[0]:g}, w2 = {start[1]:g} on the cost {named!r}: paths on lines of equal cost"
    figure.words = with_title(title, f"{begins}, and beside them the cost at each step.".replace("-", "−"), *said)
    return figure


# ---- the arrays of a step


def arrays_of_a_step() -> WordedFigure:
    """Draw a network of two layers as the arrays of a step: forward in the upper row, back in the lower one."""
    figure, (axes,) = drawing(1, 9.0, 2.9)
    free = {"shrinkA": 0, "shrinkB": 0}
    forward = [("X", "A[0]"), ("W[0]  b[0]", "layer 0"), ("Z[0]", ""), ("A[1]", "σ of Z[0]")]
    forward += [("W[1]  b[1]", "layer 1"), ("Z[1]", ""), ("A[2]", "σ of Z[1]"), ("Y", "targets")]
    for x, (name, below) in enumerate(forward):
        weights = name.startswith("W")
        face = "#ffe3c2" if weights else "#e3e3e3" if name == "Y" else "#d3e4f3"
        draw_box(axes, (x - 0.4, 0.68), (0.8, 0.64), name, 10, facecolor=face, edgecolor="0.6")
        axes.text(x, 1.42, below, ha="center", va="bottom", fontsize=9, color=INK)
        if 0 < x < 7:
            draw_arrow(axes, (x - 0.58, 1), (x - 0.42, 1), BLUE, **free)
    for x, name in ((5, "D\nof layer 1"), (2, "D\nof layer 0")):
        draw_box(axes, (x - 0.4, -0.72), (0.8, 0.64), name, 10, facecolor="#f7d4d4", edgecolor="0.6")
        draw_arrow(axes, (x - 0.42, -0.3), (x - 1, 0.66), RED, **free)
    draw_arrow(axes, (6.5, 0.66), (5.43, -0.3), RED, **free)
    draw_arrow(axes, (4.57, -0.5), (2.43, -0.5), RED, **free)
    axes.text(6.4, -0.12, "(4a)", color=RED, ha="center")
    axes.text(3.5, -0.78, "(4b)", color=RED, ha="center")
    for right in (0.9, 3.9):
        axes.text(right - 0.02, -0.12, "(4d), (4c)", color=RED, ha="center")
    axes.set(xlim=(-0.6, 7.6), ylim=(-1.0, 1.85))
    figure.words = (
        "The arrays of a step with two layers. Upper row, from left to right: X, which is A[0]; W[0] and b[0]; Z[0]; "
        "A[1]; W[1] and b[1]; Z[1]; A[2]; and the targets Y. Lower row, from right to left: D of layer 1 comes from "
        "A[2] and Y by (4a), D of layer 0 from that by (4b). From each D an arrow leads up to W and b of its layer, "
        "(4d) and (4c)."
    )
    return figure


# ---- costs


def costs_by_epoch(histories: Mapping[str, History], title: str) -> WordedFigure:
    """Plot the training cost after each epoch of several trainings, on a logarithmic axis."""
    figure, (axes,) = row_of_axes(None, 1, 6.0, 3.4)
    said = []
    for style, (name, history) in zip(STYLES, histories.items(), strict=False):
        epochs = [epoch.number for epoch in history.epochs]
        axes.plot(epochs, history.costs, linestyle=style, label=name)
        said.append(f"{name}: {history.costs[0]:.3g} after the first epoch, {history.costs[-1]:.3g} after the last.")
    axes.set(xlabel="epoch", ylabel="cost on the training data", yscale="log", title=title)
    plain_numbers(axes.yaxis)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)
    figure.words = f"{title}. Cost over epochs. {' '.join(said)}"
    return figure


def batch_sizes(by_step: Mapping[int, Sequence[float]], by_time: Mapping[int, History]) -> WordedFigure:
    """Plot costs after each step, and beside them after each epoch, over the seconds of training."""
    figure, (left, right) = row_of_axes(None, 2, 9.0, 3.4)
    said = []
    for number, (size, history) in enumerate(by_time.items()):
        style = {"color": f"C{number}", "linestyle": STYLES[number], "label": f"batch size {size}"}
        costs, seconds = by_step[size], np.cumsum([epoch.seconds for epoch in history.epochs])
        left.plot(range(1, len(costs) + 1), costs, **style)
        right.plot(seconds, history.costs, **style)
        rises = int((np.diff(costs) > 0).sum())
        said.append(
            f"Batch size {size}: the cost rises in {rises} of {len(costs)} steps; {len(history.epochs)} epochs take "
            f"{seconds[-1]:.2g} s and end at {history.costs[-1]:.2g}."
        )
    label = "cost on all training data"
    left.set(xlabel="step", ylabel=label, title=f"The first {len(costs)} steps")
    right.set(xlabel="seconds of training", ylabel=label, yscale="log", title="By the clock")
    plain_numbers(right.yaxis)
    right.locator_params(axis="x", nbins=6)
    left.legend(frameon=False)
    figure.words = f"Left, the cost after each step; right, over the seconds. {' '.join(said)}"
    return figure


def first_costs(rates: np.ndarray, costs: np.ndarray, chosen: float) -> WordedFigure:
    """Plot the last of the costs (n, columns) of each learning rate; a line marks the first, which they must beat."""
    figure, (axes,) = row_of_axes(None, 1, 6.0, 3.4)
    same, at_end = float(costs[0, 0]), costs[:, -1]
    falls = at_end < costs[:, 0]
    axes.axhline(same, color=INK, linestyle="--", linewidth=1, label="the same answer for everybody")
    axes.plot(rates[falls], at_end[falls], "o", color=BLUE, markersize=8, label="beats it")
    axes.plot(rates[~falls], at_end[~falls], "X", color=RED, markersize=9, label="does not beat it")
    axes.axvline(chosen, color=ORANGE, label=f"chosen: η = {chosen:g}")
    axes.set(xlabel="learning rate η", ylabel=f"cost after {costs.shape[1] - 1} epochs", xscale="log", yscale="log")
    plain_numbers(axes.xaxis, axes.yaxis)
    axes.legend(frameon=False, fontsize=9)
    said = "; ".join(f"η = {rate:g}: {cost:.3g}" for rate, cost in zip(rates, at_end, strict=True))
    figure.words = (
        f"Cost after {costs.shape[1] - 1} epochs for each η; the same answer for everybody costs {same:.3g}. {said}. "
        f"{chosen:g} is chosen."
    )
    return figure


def under_and_over(histories: Mapping[str, History], stop: int, best: int) -> WordedFigure:
    """Plot training and held-out costs of two trainings; for the second, where to stop and the best epoch."""
    figure, places = row_of_axes(None, 2, 9.0, 3.2, sharey=True)
    said = []
    for axes, (name, history) in zip(places, histories.items(), strict=True):
        epochs = range(1, len(history.costs) + 1)
        axes.plot(epochs, history.costs, color=BLUE, label="training")
        axes.plot(epochs, history.validation_costs, color=ORANGE, linestyle="--", label="held out")
        axes.set(xlabel="epoch", title=name, yscale="log")
        plain_numbers(axes.yaxis)
        held_out = [cost for cost in history.validation_costs if cost is not None]
        last, lowest = held_out[-1], min(held_out)
        said.append(
            f"{name}: training ends at {history.costs[-1]:.2g}, held out at {last:.2g}, its lowest is {lowest:.2g}."
        )
    places[1].axvline(best, color="tab:green", label=f"best: epoch {best}")
    places[1].axvline(stop, color=RED, linestyle=":", label=f"stop: epoch {stop}")
    places[0].set_ylabel("cost (binary cross-entropy)")
    figure.legend(
        *places[1].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    figure.words = f"Costs over epochs. {' '.join(said)} There the best epoch is {best}, and training stops at {stop}."
    return figure


# ---- outputs of networks


def activations_at_start(layers: Mapping[str, tuple[np.ndarray, Sequence[float]]]) -> WordedFigure:
    """Plot histograms of a layer's activations for several initial weights, with mean slopes in the titles."""
    figure, places = row_of_axes(None, len(layers), 9.0, 3.2, sharey=True)
    said = []
    for axes, (name, (A, slopes)) in zip(places, layers.items(), strict=True):
        axes.hist(A.ravel(), np.linspace(0, 1, 41), color=BLUE)
        shown = ", ".join(f"{slope:.1g}" for slope in slopes)
        axes.set(xlabel="activation in hidden layer 2", title=f"{name}: mean slopes σ' {shown}", xlim=(0, 1.01))
        said.append(f"{name}: activations from {A.min():.2g} to {A.max():.2g}, mean slopes {shown}.")
    places[0].set_ylabel("number of activations\n(10 neurons, all samples)")
    figure.words = f"Histograms of activations before any training. {' '.join(said)}"
    return figure


def decision_regions(networks: Mapping[str, Network], points: Any, backend: Calls) -> WordedFigure:
    """Draw the output of networks with two inputs over the plane, the line where it is ½, and points of a data set."""
    figure, places = row_of_axes(None, len(networks), 9.5, 3.4, sharey=True)
    low, high = float(points.X.min()) - 0.4, float(points.X.max()) + 0.4
    said = [f"Outputs over the plane, the border where they are ½, and {len(points.X)} points of two classes."]
    lines = np.linspace(low, high, 120, dtype=np.float32)
    plane = np.stack(np.meshgrid(lines, lines), axis=-1).reshape(-1, 2)
    for axes, (name, network) in zip(places, networks.items(), strict=True):
        shade = network.predict(plane, backend).reshape(120, 120)
        axes.grid(False)
        axes.imshow(shade, SHADES, extent=(low, high, low, high), origin="lower", vmin=0, vmax=1)
        axes.contour(lines, lines, shade, levels=[0.5], colors=INK, linewidths=1.2)
        for label, (colour, mark) in enumerate(MARKS):
            axes.plot(*points.X[points.labels == label].T, mark, color=colour, markersize=5, label=f"class {label}")
        axes.set(xlabel="input x1", title=name)
        right = int(((network.predict(points.X, backend)[:, 0] > 0.5) == points.labels).sum())
        said.append(f"{name}: {right} points are on the correct side of the border.")
    places[0].set_ylabel("input x2")
    places[0].legend(loc="lower left", fontsize=8)
    figure.words = " ".join(said)
    return figure


# ---- searches


def searches(trials: Mapping[str, Sequence[tuple[Any, ...]]], seconds: float) -> WordedFigure:
    """Plot the trainings (learning rate, neurons, validation cost, …) of each search; a ring marks the best."""
    figure, places = row_of_axes(None, len(trials), 9.0, 3.3, sharey=True)
    said = []
    for axes, (name, tried) in zip(places, trials.items(), strict=True):
        rates, neurons, costs = ([trial[at] for trial in tried] for at in range(3))
        dots = axes.scatter(rates, neurons, c=np.log10(costs), cmap="viridis", vmin=-3, vmax=-0.7, s=90)
        best = int(np.argmin(costs))
        axes.plot(rates[best], neurons[best], "o", markersize=16, fillstyle="none", color=RED, label="the best")
        axes.set(xscale="log", xlim=(5e-3, 200), xlabel="learning rate η")
        plain_numbers(axes.xaxis)
        axes.set_title(f"{name}: {len(tried)} trainings in {seconds:.1f} s")
        said.append(
            f"{name}: {len(tried)} trainings with {len(set(rates))} learning rates; the best, {costs[best]:.2g}, has "
            f"η = {rates[best]:.2g} and {neurons[best]} neurons."
        )
    places[0].set_ylabel("neurons in hidden layer 1")
    figure.legend(*places[-1].get_legend_handles_labels(), loc="outside lower center", frameon=False)
    figure.colorbar(dots, ax=places, label="log10 of the validation cost")
    figure.words = f"Trainings as dots, learning rate across, neurons up, dark for a low cost. {' '.join(said)}"
    return figure
