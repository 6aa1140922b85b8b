"""Figures of notebooks 15 and 15b: a lookup, the products of attention, two normalisations, curves, attention weights.

Those of 15b are in nb15_fused.py, but for the exchange in a warp.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnclassroom.figures.common import draw_arrow, draw_grid, drawing, figure_with_axes, line_style, row_of_axes
from nnclassroom.figures.described import WordedFigure
from nnclassroom.figures.nb04 import plot_exchange
from nnclassroom.figures.nb15_fused import lengths, plot_carried, plot_lengths, plot_passing, plot_times, texts
from nnclassroom.figures.recorded import table
from nnclassroom.recorded_words import in_words

__all__ = [
    "learnt",
    "lengths",
    "plot_carried",
    "plot_exchange",
    "plot_histograms",
    "plot_learnt",
    "plot_lengths",
    "plot_lookup",
    "plot_means",
    "plot_passing",
    "plot_products",
    "plot_times",
    "plot_weights",
    "texts",
]

BLUE, ORANGE = "#1f77b4", "#e07b00"
CENTRED: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
BINS = 30, 80  # the fewest and the most; a bin is no wider than the narrowest array's deviation
T, D = 5, 3  # positions, and numbers of each, in a drawing


def plot_lookup(q: np.ndarray, K: np.ndarray, V: np.ndarray) -> WordedFigure:
    """Draw a query and keys of two numbers as arrows, wider if the weight is larger, and the weights as bars."""
    weights = np.exp(K @ q - (K @ q).max())
    weights /= weights.sum()
    result = f"result: {weights @ V[:, 0]:.1f}"
    figure, (plane, bars) = row_of_axes(result, 2, 8.4, 3.4)
    for number, (key, weight) in enumerate(zip(K, weights, strict=True)):
        draw_arrow(plane, (0, 0), tuple(key), BLUE, linewidth=1 + 6 * weight)
        plane.text(*(1.3 * key), f"key {number}", ha="center", va="center", color=BLUE)
        bars.annotate(f"{weight:.2f}", (weight, number), (5, 0), textcoords="offset points", va="center")
    draw_arrow(plane, (0, 0), tuple(q), ORANGE, linestyle="--", linewidth=1.5)
    plane.text(*(1.1 * q), "query", ha="center", va="center", color=ORANGE)
    (left, low), (right, high) = np.min([*K, 0 * q], axis=0) - 0.8, np.max([*K, q], axis=0) + 0.8
    plane.set(xlim=(left, right), ylim=(low, high), aspect="equal", xlabel="first number", ylabel="second number")
    labels = [f"key {number}, value {v:g}" for number, v in enumerate(V[:, 0])]
    bars.barh(labels, weights, color=BLUE, height=0.5)
    bars.set(xlabel="weight", xlim=(0, 1.15))
    bars.invert_yaxis()
    bars.grid(False)
    said = "; ".join(f"{label}: weight {weight:.2f}" for label, weight in zip(labels, weights, strict=True))
    figure.words = f"A query and keys as arrows, and weights as bars. {said}; {result}."
    return figure


def plot_histograms(panels: Mapping[str, Mapping[str, np.ndarray]]) -> WordedFigure:
    """Plot histograms: a panel for each entry, and in it a line for each array."""
    figure, places = row_of_axes(None, len(panels), 3.6 * len(panels), 3.4)
    said = []
    for axes, (xlabel, arrays) in zip(places, panels.items(), strict=True):
        low, high = min(map(np.min, arrays.values())), max(map(np.max, arrays.values()))
        bins = np.linspace(low, high, int(np.clip((high - low) / min(map(np.std, arrays.values())), *BINS)))
        for number, (label, numbers) in enumerate(arrays.items()):
            style = {"linestyle": line_style(number)["linestyle"], "linewidth": 1.6, "label": label}
            axes.hist(numbers, bins, weights=np.full(numbers.size, 100 / numbers.size), histtype="step", **style)
            low, high = np.quantile(numbers, (0.05, 0.95))
            said.append(f"{xlabel}, {label}: nine tenths are between {low:.2f} and {high:.2f}")
        axes.set(xlabel=xlabel, ylabel="share of the draws, %")
    places[0].legend(frameon=False, fontsize=9)
    figure.words = f"Histograms. {'; '.join(said)}."
    return figure


def plot_products(i: int = 3) -> WordedFigure:
    """Draw Q, Kᵀ, P, V and O as grids, with all numbers that take part in row i of O."""
    figure, (axes,) = drawing(1, 10.0, 2.9)
    row, seen = np.arange(T)[:, None] == i, np.arange(T)[:, None] <= i
    of_row, up_to, weights = row.repeat(D, 1), seen.repeat(D, 1), (row & seen.T) + 2 * np.triu(np.ones((T, T)), 1)
    grids = (0, "Q", of_row), (4.5, "Kᵀ", up_to.T), (11, "P", weights), (17.5, "V", up_to), (22, "O", of_row)
    for x, name, marks in grids:
        draw_grid(axes, (x, 0), marks, name)
    for x, text in ((3.75, "·"), (10.25, "→"), (16.75, "·"), (21.25, "=")):
        axes.text(x, -T / 2, text, ha="center", va="center", fontsize=18)
    axes.set(xlim=(-0.2, 25.2), ylim=(-T - 0.2, 1.1), aspect="equal")
    scores = f"Row {i} of Q and columns 0 to {i} of K transposed give scores; their softmax is row {i} of P"
    figure.words = f"{scores}, hatched where it is masked. With rows 0 to {i} of V it gives row {i} of O."
    return figure


def plot_means() -> WordedFigure:
    """Draw a batch of sequences twice: which numbers one mean of batch and of layer normalisation is over."""
    figure, places = drawing(2, 7.6, 3.9)
    column, row = np.zeros((2, 3, 3, 8))  # samples, positions, numbers
    column[..., 2], row[1, 1] = 1, 1
    for axes, title, marks in zip(places, ("Batch normalisation", "Layer normalisation"), (column, row), strict=True):
        for sample in range(3):
            draw_grid(axes, (0, -3.4 * sample), marks[sample])
            axes.text(-0.3, -3.4 * sample - 1.5, f"sample {sample}", ha="right", va="center")
        axes.set(xlim=(-3, 8.2), ylim=(-10.2, 0.2), aspect="equal", title=title)
    figure.words = (
        "Three samples of three positions with eight numbers each. A mean of batch normalisation is over one of the "
        "eight numbers, at all positions of all samples; one of layer normalisation over the eight of one position."
    )
    return figure


def plot_learnt(records: Sequence[Mapping[str, Any]]) -> WordedFigure:
    """Plot the share of sums that are right after each epoch: a colour for each network, a line for each record."""
    figure, axes = figure_with_axes("", 7.0, 3.6)
    names = list(dict.fromkeys(each["network"] for each in records))
    for each in records:
        number = names.index(each["network"])
        style = line_style(number) | {"color": f"C{number}", "markersize": 4}
        label = in_words(each["network"]) if each["seed"] == records[0]["seed"] else None
        axes.plot(range(1, len(each["right"]) + 1), 100 * np.array(each["right"]), label=label, **style)
    axes.set(xlabel="epoch", ylabel="unseen sums entirely right, %", ylim=(-3, 103))
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    ends = "; ".join(" ".join(line.split()) for line in learnt(records).splitlines())
    figure.words = f"Share of unseen sums that are entirely right, over the epochs. At the end: {ends}."
    return figure


def learnt(records: Sequence[Mapping[str, Any]]) -> str:
    """For each network its parameters, its epochs, and the shares of sums that are right at the end, by seed."""
    rows: dict[str, list[str]] = {}
    for each in records:
        about = [in_words(each["network"]), f"{each['parameters']:,}", str(len(each["right"]))]
        rows.setdefault(each["network"], about).append(f"{each['right'][-1]:.2%}")
    seeds = [f"seed {number + 1}" for number in range(len(rows[records[0]["network"]]) - 3)]
    return table(["", "parameters", "epochs", *seeds], list(rows.values()))


def plot_weights(weights: Mapping[str, np.ndarray], text: str, first: int) -> WordedFigure:
    """Draw attention weights (t, t), a panel each: a row for each position from `first` on that predicts the next."""
    figure, places = row_of_axes(None, len(weights), 2.9 * len(weights), 2.2)
    rows, said = range(first, len(text) - 1), []
    for axes, (title, P) in zip(places, weights.items(), strict=True):
        axes.imshow(P[first:-1, :-1], cmap="Blues", vmin=0, vmax=1)
        for (row, column), weight in np.ndenumerate(P[first:-1, :-1]):
            colour = "w" if weight > 0.6 else "k"
            axes.text(column, row, f"{weight:.1f}" if weight >= 0.05 else "", color=colour, **CENTRED)
        axes.set_xticks(range(len(text) - 1), text[:-1])
        axes.set_yticks(range(len(rows)), [f"{text[i]} → {text[i + 1]}" for i in rows])
        axes.set(title=title, xlabel="looked at", ylabel="at → next")
        axes.grid(False)
        for i in rows:
            most = " and ".join(f"{P[i, j]:.2f} on {text[j]} at {j}" for j in np.argsort(-P[i])[:2])
            said.append(f"{title}, {text[i]} at {i}: {most}")
    figure.words = f"Attention weights in {text}, the largest two of each row. {'; '.join(said)}."
    return figure
