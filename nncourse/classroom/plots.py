"""Figures for the notebooks: costs over the epochs, a confusion matrix, times. Each gives back a Figure."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from nncourse.classroom.timing import Row, duration
from nncourse.model.training import History

INK = "0.25"  # a grey that can be read on a light and on a dark page


def plot_history(history: History, title: str = "") -> Figure:
    """The cost after each epoch, in training and, if there was a validation set, in validation."""
    figure, axes = _figure(title)
    epochs = [epoch.number for epoch in history.epochs]
    axes.plot(epochs, history.costs, label="training", color="tab:blue")
    if history.epochs and history.epochs[0].validation_cost is not None:
        axes.plot(epochs, history.validation_costs, label="held out", color="tab:orange", linestyle="--")
    axes.set(xlabel="epoch", ylabel="cost", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False)
    return figure


def plot_confusion(M: np.ndarray, classes: tuple[str, ...], title: str = "") -> Figure:
    """A confusion matrix: true classes down, predicted classes across, the counts in the cells."""
    figure, axes = _figure(title, width=1.6 + 0.6 * max(4, len(classes)))
    axes.grid(False)
    axes.imshow(M, cmap="Blues", vmin=0)
    for i, j in np.ndindex(*M.shape):
        axes.text(j, i, f"{M[i, j]}", ha="center", va="center", color="white" if M[i, j] > M.max() / 2 else "black")
    ticks = range(len(classes))
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.set_xticks(ticks, classes, rotation=0 if len(classes) < 4 else 45)
    axes.set_yticks(ticks, classes)
    return figure


def plot_timing(rows: list[Row], title: str = "") -> Figure:
    """The time of each kernel that was timed, as dots on a logarithmic axis."""
    timed = [row for row in rows if row.seconds]
    figure, axes = _figure(title, height=1.2 + 0.4 * len(timed))
    colours = ["tab:blue" if row.device == "cpu" else "tab:green" for row in timed]
    axes.scatter([row.seconds for row in timed], range(len(timed)), s=70, color=colours)
    for place, row in enumerate(timed):
        axes.annotate(duration(row.seconds), (row.seconds, place), (10, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(timed)), [f"{row.kernel} ({row.device})" for row in timed])
    axes.set(xlabel="time of one call, seconds (further left is faster)", xscale="log")
    axes.grid(False, axis="y")
    axes.margins(x=0.25, y=0.2)
    axes.invert_yaxis()
    return figure


def plot_network(sizes: tuple[int, ...], title: str = "") -> Figure:
    """The layers of a network from left to right; a large layer shows its first and last neurons."""
    figure, axes = _figure(title, height=3.0)
    axes.set_axis_off()
    places = [_rows(size) for size in sizes]
    for x, (left, right) in enumerate(zip(places[:-1], places[1:], strict=True)):
        for y_left in left:
            for y_right in right:
                axes.plot([x, x + 1], [y_left, y_right], color="0.6", linewidth=0.4, zorder=1)
    for x, (size, rows) in enumerate(zip(sizes, places, strict=True)):
        axes.scatter([x] * len(rows), rows, s=90, color="tab:orange" if x else "tab:blue", zorder=2)
        if size > len(rows):
            axes.text(x, 0, "⋮", ha="center", va="center", fontsize=16, color=INK, zorder=3)
        what = "inputs" if x == 0 else "output" if x == len(sizes) - 1 else "hidden"
        axes.text(x, -4.2, f"{size} {what}{'s' if what == 'output' and size > 1 else ''}", ha="center", color=INK)
    axes.set_ylim(-4.8, 3.8)
    return figure


def _rows(size: int) -> list[float]:
    """Heights for the neurons of a layer, at most three above and three below the middle."""
    if size > 7:
        return [3.2, 2.2, 1.2, -1.2, -2.2, -3.2]
    return [(size - 1) / 2 - place for place in range(size)]


def _figure(title: str, width: float = 6.0, height: float = 3.4):
    """A figure with one pair of axes; no pyplot, so that nothing is shown twice and threads do not share a state."""
    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11)
    axes.grid(True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
