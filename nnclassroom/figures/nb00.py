"""Figures of notebook 00: a network, times, and the exercises that are done."""

from itertools import pairwise, product

import numpy as np
from matplotlib.patches import Rectangle

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.hints import by_notebook
from nnclassroom.figures.common import INK, draw_dots, figure_with_axes, plot_confusion, plot_history, with_title
from nnclassroom.figures.described import WordedFigure
from nnclassroom.formats import duration
from nnclassroom.timing import Row

__all__ = ["plot_confusion", "plot_history", "plot_network", "plot_progress", "plot_timing"]


def plot_network(sizes: tuple[int, ...], title: str = "") -> WordedFigure:
    """Draw the layers of a network from left to right; large layers are abridged."""
    figure, axes = figure_with_axes(title, height=3.0)
    axes.set_axis_off()
    places = [_rows(size) for size in sizes]
    for x, two in enumerate(pairwise(places)):
        axes.plot([x, x + 1], np.array(list(product(*two))).T, color="0.6", linewidth=0.4, zorder=1)
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
    figure.words = with_title(
        title, f"A network from left to right: {layers}. A line joins each one to every one of the next layer."
    )
    return figure


def _rows(size: int) -> list[float]:
    """Vertical positions of a layer's neurons; if there are more than seven, of the first and last three."""
    if size > 7:
        return [3.2, 2.2, 1.2, -1.2, -2.2, -3.2]
    return [(size - 1) / 2 - place for place in range(size)]


def plot_timing(rows: list[Row], title: str = "") -> WordedFigure:
    """Plot the time of each kernel that was timed, as dots on a logarithmic axis."""
    timed = [(row, row.seconds) for row in rows if row.seconds]
    figure, axes = figure_with_axes(title, height=1.2 + 0.4 * len(timed))
    colours = ["tab:blue" if row.device == "cpu" else "tab:green" for row, _ in timed]
    labels = [f"{row.kernel} ({row.device})" for row, _ in timed]
    draw_dots(axes, labels, [seconds for _, seconds in timed], size=70, color=colours, fontsize=10)
    axes.set_xlabel("time of one call, seconds (further left is faster)")
    axes.margins(x=0.25, y=0.2)
    said = [f"{label} {duration(seconds)}" for label, (_, seconds) in zip(labels, timed, strict=True)]
    figure.words = with_title(title, f"Time of one call, as dots on a logarithmic axis: {'; '.join(said) or 'none'}.")
    return figure


def plot_progress() -> WordedFigure:
    """Draw one box per exercise, one row per notebook; a box is filled if its kernel is kept."""
    record, rows = kept_kernels.progress(), by_notebook()
    figure, axes = figure_with_axes("Exercises: filled ones are done", width=10.0, height=0.7 + 0.65 * len(rows))
    for y, entries in enumerate(rows.values()):
        for x, exercise in enumerate(entries):
            kept = exercise.key in record
            face, ink = ("tab:green", "white") if kept else ("white", INK)
            axes.add_patch(Rectangle((x + 0.03, y + 0.08), 0.94, 0.84, facecolor=face, edgecolor="0.6"))
            words = f"{exercise.operation.replace('_', chr(10))}\n{'✓' if kept else '○'} {exercise.kernel}"
            axes.text(x + 0.5, y + 0.5, words, ha="center", va="center", fontsize=8, linespacing=1.05, color=ink)
    axes.set(xlim=(0, max(map(len, rows.values()))), ylim=(len(rows), 0), xticks=[])
    axes.set_yticks([y + 0.5 for y in range(len(rows))], list(rows))
    axes.tick_params(length=0, labelsize=8)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    done = {name: sum(entry.key in record for entry in entries) for name, entries in rows.items()}
    said = "; ".join(f"{name}: {done[name]} of {len(entries)}" for name, entries in rows.items())
    figure.words = f"A box for each exercise, by notebook. In all, {sum(done.values())} are done. {said}."
    return figure
