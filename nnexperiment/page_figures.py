"""Functions that the figures of the experiment's page share."""

from collections.abc import Mapping, Sequence
from typing import Any

from nnexperiment.numbers import Curve, Row


def figure_with_axes(columns: int = 1, height: float = 3.6) -> tuple[Any, Any]:
    """A figure as wide as the page, with axes side by side: one, or a list of several."""
    from matplotlib.figure import Figure

    figure = Figure((8.0, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for each in axes:
        each.grid(alpha=0.3)
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes if columns > 1 else axes[0]


def style(number: int) -> dict[str, str]:
    return {"marker": "os^Dv"[number % 5], "linestyle": ("-", "--", "-.", ":")[number % 4]}


def plot_curves(axes: Any, curves: Mapping[str, Curve]) -> None:
    """Plot the mean accuracy by epoch, and the range from the least to the greatest of the runs."""
    for number, (label, curve) in enumerate(curves.items()):
        (line,) = axes.plot(curve.epochs, curve.mean, label=label, linestyle=style(number)["linestyle"])
        axes.fill_between(curve.epochs, curve.least, curve.most, alpha=0.2, color=line.get_color(), linewidth=0)
    axes.set(xlabel="epoch", ylabel="accuracy, validation", ylim=(0, 1))
    axes.legend(frameon=False, fontsize=8)


def curves_and_times(curves: Mapping[str, Curve], rows: Sequence[Row]) -> Any:
    """A figure with the accuracy by epoch on the left, and each row's training time on the right."""
    figure, (left, right) = figure_with_axes(2)
    plot_curves(left, curves)
    plot_bars(right, [row.label for row in rows], {"training": [row.loop for row in rows]}, "training, s")
    return figure


def curves_in_words(curves: Mapping[str, Curve]) -> str:
    """The final mean accuracies, for a figure's text alternative."""
    return "; ".join(f"{label}: {curve.mean[-1]:.1%} at the end" for label, curve in curves.items())


def plot_bars(axes: Any, labels: Sequence[str], parts: Mapping[str, Sequence[float]], xlabel: str) -> None:
    """Plot a horizontal bar for each label, the first at the top, with its parts side by side."""
    left = [0.0] * len(labels)
    for number, (name, values) in enumerate(parts.items()):
        axes.barh(
            labels, values, left=left, label=name, height=0.6, hatch=("", "//", "..")[number % 3], edgecolor="white"
        )
        left = [before + value for before, value in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.set(xlabel=xlabel)
    if len(parts) > 1:
        axes.figure.legend(loc="outside upper right", ncols=len(parts), frameon=False, fontsize=8)
