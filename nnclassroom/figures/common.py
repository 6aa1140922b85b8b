"""Figures of several notebooks: costs, confusion matrices, lines, roofs; and helpers that draw."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import LogLocator, NullFormatter

from nnclassroom.figures.described import Described, WordedFigure
from nnclassroom.formats import duration, times_as_fast
from nncourse.model.training import History

INK = "0.25"  # a dark grey
MARKS = (("tab:blue", "o"), ("tab:orange", "^"))  # colour and marker of classes 0 and 1
SHADES = LinearSegmentedColormap.from_list("two classes", ["#a9cbe8", "#ffffff", "#ffd0a1"])
DARK = 0.7  # share of the largest count above which text is white
MISTAKES = 3  # most mistakes of a confusion matrix that are named in words

Numbers = Sequence[float] | np.ndarray
Lines = Mapping[str, tuple[Numbers, Numbers]]  # label -> (x, y)


def plot_history(history: History, title: str = "") -> WordedFigure:
    """Plot the training cost after each epoch and, if there is a validation set, the validation cost."""
    figure, axes = figure_with_axes(title)
    epochs = [epoch.number for epoch in history.epochs]
    axes.plot(epochs, history.costs, label="training", color="tab:blue")
    if history.epochs and history.epochs[0].validation_cost is not None:
        axes.plot(
            epochs, np.array(history.validation_costs, float), label="held out", color="tab:orange", linestyle="--"
        )
    axes.set(xlabel="epoch", ylabel="cost", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain_numbers(axes.yaxis)
    axes.legend(frameon=False)
    figure.words = with_title(title, f"Cost over {len(epochs)} epochs.", *map(course_in_words, axes.get_lines()))
    return figure


def course_in_words(line: Line2D) -> str:
    """A curve in words: its label, its ends, and its lowest point if that is neither of them."""
    x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    if not np.isfinite(y).any():
        return f"{line.get_label()}: no finite value."
    lowest = int(np.argmin(np.where(np.isfinite(y), y, np.inf)))
    dip = f", lowest {y[lowest]:.3g} at {x[lowest]:g}" if 0 < lowest < len(y) - 1 else ""
    return f"{line.get_label()}: {y[0]:.3g} at {x[0]:g}, {y[-1]:.3g} at {x[-1]:g}{dip}."


def plot_confusion(M: np.ndarray, classes: tuple[str, ...], title: str = "") -> WordedFigure:
    """Plot a confusion matrix M (classes, classes): rows are true classes, columns are predicted classes."""
    figure, axes = figure_with_axes(
        title, width=1.6 + 0.6 * max(4, len(classes)), height=max(3.4, 0.8 + 0.4 * len(classes))
    )
    draw_counts(axes, M, M.astype(str).tolist())
    ticks = range(len(classes))
    axes.set_xticks(ticks, classes, rotation=0 if len(classes) < 4 else 45)
    axes.set_yticks(ticks, classes)
    figure.words = with_title(title, _confusion_in_words(np.asarray(M), classes))
    return figure


def _confusion_in_words(M: np.ndarray, classes: Sequence[str]) -> str:
    """The number of samples of each class that are predicted rightly, and the most frequent mistakes."""
    said = [f"Confusion matrix of {M.sum():,} samples; {np.trace(M):,} are on the diagonal, predicted correctly."]
    rightly = (f"{name} {M[i, i]:,} of {M[i].sum():,}" for i, name in enumerate(classes))
    said.append(f"Correct: {'; '.join(rightly)}.")
    mistakes = sorted(((M[i, j], i, j) for i, j in np.ndindex(*M.shape) if i != j and M[i, j]), key=lambda one: -one[0])
    if mistakes:
        told = (f"{classes[i]} taken for {classes[j]} {count:,}×" for count, i, j in mistakes[:MISTAKES])
        said.append(f"{'Wrong' if len(mistakes) <= MISTAKES else 'The most frequent mistakes'}: {'; '.join(told)}.")
    return " ".join(said)


def draw_counts(axes: Axes, M: np.ndarray, texts: Sequence[Sequence[str]]) -> None:
    """Draw a confusion matrix with a text in each cell; cells with more samples are darker."""
    axes.grid(False)
    axes.imshow(M, cmap="Blues", vmin=0)
    for i, j in np.ndindex(*M.shape):
        axes.text(j, i, texts[i][j], ha="center", va="center", color="white" if M[i, j] > DARK * M.max() else "black")
    axes.set(xlabel="predicted class", ylabel="true class")


def draw_dots(
    axes: Axes, labels: Sequence[str], seconds: Sequence[float], size: float, color: Sequence[str], fontsize: float
) -> None:
    """Draw times as dots on a logarithmic axis, one row each, the first at the top."""
    axes.scatter(seconds, range(len(seconds)), s=size, color=color, label="measured")
    for place, time in enumerate(seconds):
        beside: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": fontsize}
        axes.annotate(duration(time), (time, place), (fontsize, 0), **beside)
    axes.set_yticks(range(len(seconds)), labels, fontsize=fontsize)
    axes.set_xscale("log")
    axes.grid(False, axis="y")
    axes.invert_yaxis()


def plot_speedups(speedups: dict[str, float], base: str, by_batch: dict[str, dict[int, float]]) -> WordedFigure:
    """Plot speedups over `base` as bars and, beside them, speedups over numpy against the batch size."""
    figure, (left, right) = row_of_axes("", 2, width=11.0, height=1.6 + 0.35 * max(4, len(speedups)))
    left.barh(list(speedups), [value - 1 for value in speedups.values()], left=1, height=0.6, color="tab:blue")
    for place, value in enumerate(speedups.values()):
        left.annotate(times_as_fast(value), (max(1, value), place), (5, 0), textcoords="offset points", va="center")
    left.set(xlabel=f"speedup: times as fast as {base} (right is faster)", xscale="log")
    left.grid(False, axis="y")
    left.margins(x=0.2)
    left.invert_yaxis()
    for number, (label, values) in enumerate(by_batch.items()):
        sizes = sorted(values)
        right.plot(sizes, [values[size] for size in sizes], label=label, **line_style(number))
    right.set(xlabel="batch size, samples", ylabel="speedup: times as fast as numpy", xscale="log", yscale="log")
    right.set_xticks(sorted({size for values in by_batch.values() for size in values}))
    few_ticks(right)
    plain_numbers(right.xaxis, right.yaxis)
    if by_batch:
        right.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    said = "; ".join(f"{label} {times_as_fast(value)}" for label, value in speedups.items())
    curves = " ".join(course_in_words(line) for line in right.get_lines())
    figure.words = f"Bars of the speedup over {base}: {said}. Speedup over numpy against the batch size: {curves}"
    return figure


def with_title(title: str, *sentences: str) -> str:
    """The title, if there is one, and the sentences."""
    return " ".join([*([title.rstrip(".:") + "."] if title else []), *sentences])


def figure_with_axes(title: str, width: float = 6.0, height: float = 3.4) -> tuple[WordedFigure, Axes]:
    """A figure with one pair of axes."""
    figure, (axes,) = row_of_axes(None, 1, width, height)
    axes.set_title(title, fontsize=11)
    return figure, axes


def row_of_axes(
    title: str | None,
    count: int,
    width: float,
    height: float = 3.6,
    layout: str | None = "constrained",
    **options: Any,
) -> tuple[WordedFigure, np.ndarray]:
    """A figure with `count` axes side by side and a common title; `options` are those of Figure.subplots().

    It does not use pyplot: figures are not displayed twice, and threads share no state.
    """
    figure = WordedFigure(figsize=(width, height), dpi=100, layout=layout)
    if title is not None:  # an empty title would take up space too
        figure.suptitle(title, fontsize=11)
    places = figure.subplots(1, count, squeeze=False, **options)[0]
    for axes in places:
        axes.grid(True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, places


def drawing(count: int, width: float, height: float) -> tuple[WordedFigure, np.ndarray]:
    """A figure for shapes and texts: `count` axes side by side, without ticks, grid and frame."""
    figure, places = row_of_axes(None, count, width, height)
    for axes in places:
        axes.set_axis_off()
    return figure, places


def draw_cell(axes: Axes, x: float, y: float, text: str = "", fontsize: float = 10, **style: Any) -> None:
    """Draw a square of side 1 with the corner (x, y), and a text in its middle; `style` of a Rectangle."""
    axes.add_patch(Rectangle((x, y), 1, 1, **style))
    axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=fontsize)


def draw_grid(axes: Axes, corner: tuple[float, float], marks: np.ndarray, name: str = "") -> None:
    """Draw a grid below and to the right of a corner, with a name above it: marks of 1 are blue, of 2 hatched."""
    for (row, column), mark in np.ndenumerate(marks):
        style: dict[str, Any] = {"edgecolor": "0.5", "hatch": "///" if mark == 2 else ""}
        draw_cell(axes, corner[0] + column, corner[1] - row - 1, facecolor="#1f77b4" if mark == 1 else "white", **style)
    axes.text(corner[0] + marks.shape[1] / 2, corner[1] + 0.5, name, ha="center", va="center", fontsize=12)


def draw_box(
    axes: Axes, corner: tuple[float, float], size: tuple[float, float], text: str, fontsize: float, **style: Any
) -> None:
    """Draw a rectangle with round corners and a text in its middle; `style` of a patch."""
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle="round,pad=0.02", **style))
    axes.text(corner[0] + size[0] / 2, corner[1] + size[1] / 2, text, ha="center", va="center", fontsize=fontsize)


def draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, **style: Any) -> None:
    """Draw an arrow; `style` of an arrow patch."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, **style})


def plot_lines(
    lines: Lines, xlabel: str, ylabel: str, title: str = "", xscale: str = "log", below: bool = False
) -> Described:
    """Plot lines with markers on a logarithmic y axis; `below` puts the legend under the axes."""
    figure, axes = figure_with_axes(title, width=6.5)
    legend = draw_lines(axes, lines)
    if below:
        legend.remove()
        figure.legend(loc="outside lower center", ncols=len(lines), frameon=False, fontsize=9)
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale)
    return Described(figure, f"{ylabel} over {xlabel}. {ends_in_words(lines)}")


def plot_roofline(
    roofs: Mapping[str, tuple[float, float]],
    dots: Mapping[str, tuple[float, float]],
    title: str = "",
    beside: bool = False,
) -> Described:
    """Plot a roofline diagram.

    roofs: label -> (bytes per second, FLOP per second); dots: label -> (FLOP per byte, FLOP per second).
    beside: labels of dots are drawn beside them, not in the legend; those of equal dots share a place.
    """
    figure, axes = figure_with_axes(title, width=7.0, height=4.2)
    x = np.geomspace(0.1, 1000, 300)
    for number, (label, (bandwidth, rate)) in enumerate(roofs.items()):
        style: dict[str, Any] = {"linestyle": ("-", "--", ":")[number % 3], "color": "0.35"}
        axes.plot(x, np.minimum(bandwidth * x, rate) / 1e12, label=f"roof: {label}", **style)
    said = [f"roof {label}" for label in roofs]
    shared: dict[tuple[float, int], list[str]] = {}
    for number, (label, (intensity, rate)) in enumerate(dots.items()):
        style = {"color": f"C{number % 10}", "label": None if beside else label, "markersize": 8}
        axes.plot(intensity, rate / 1e12, "os^Dv<>P*X"[number % 10], **style)
        shared.setdefault((intensity, round(20 * np.log10(rate))), []).append(label)
        said.append(f"{label}: {intensity:.3g} FLOP per byte, {rate / 1e12:.3g} TFLOP/s")
    for (intensity, decibels), labels in shared.items() if beside else ():
        place: dict[str, Any] = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
        axes.annotate(", ".join(labels), (intensity, 10 ** (decibels / 20) / 1e12), **place)
    axes.set(xlabel="arithmetic intensity, FLOP per byte", ylabel="rate, TFLOP/s", xscale="log", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain_numbers(axes.yaxis)
    place = {"loc": "lower right"} if beside else {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    axes.legend(frameon=False, fontsize=8, **place)
    return Described(figure, f"Roofline, rate over arithmetic intensity: {'; '.join(said)}.")


def line_style(number: int) -> dict[str, Any]:
    """Marker and dashes of a line, so that lines do not differ in colour alone."""
    return {"marker": "os^Dv"[number % 5], "linestyle": ("-", "--", "-.", ":")[number % 4]}


def draw_lines(axes: Axes, lines: Lines) -> Legend:
    """Draw lines with markers on logarithmic axes. Returns their legend."""
    for number, (label, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, label=label, markersize=5, **line_style(number))
    axes.set(xscale="log", yscale="log")
    return axes.legend(frameon=False, fontsize=9)


def ends_in_words(lines: Lines) -> str:
    """The first and the last point of each line in words, and the lowest if it lies between them."""
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


def few_ticks(axes: Axes) -> None:
    """Set ticks of a logarithmic y axis at 1, 2, 5, 10, …, or at 1, 10, … if it spans two decades or more."""
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
