"""Figures of notebooks 02 and 02b: a neuron over the plane, activations, their slopes; threads and their elements."""

from collections.abc import Mapping, Sequence

import numpy as np

from nnclassroom.figures.common import (
    INK,
    MARKS,
    SHADES,
    draw_arrow,
    figure_with_axes,
    line_style,
    row_of_axes,
    with_title,
)
from nnclassroom.figures.described import Described, WordedFigure
from nncourse.backend import choose

__all__ = ["Described", "plot_activation", "plot_neuron", "plot_threads", "plot_vanishing"]

BLOCKS = ("#9ecae1", "#fdae6b", "#a1d99b")  # repeated


def neuron_says(w: Sequence[float] | np.ndarray, b: float, X: np.ndarray) -> np.ndarray:
    """The class, 0 or 1, that a neuron with the step activation predicts for each point of X (n, 2)."""
    backend = choose("numpy")
    Z = backend.dense_forward(X, np.array([w], X.dtype), np.array([b], X.dtype))
    return backend.step(Z)[:, 0].astype(int)


def middle_of_line(w: np.ndarray, b: float, low: np.ndarray, high: np.ndarray) -> np.ndarray | None:
    """The middle of the part of the line w · x + b = 0 in the rectangle from low to high; None if it has none."""
    middle, along = (low + high) / 2, np.array([-w[1], w[0]])
    nearest = middle - (w @ middle + b) * w / (w @ w)
    with np.errstate(divide="ignore", invalid="ignore"):  # a line along an axis meets two of the borders nowhere
        first, last = np.sort([(low - nearest) / along, (high - nearest) / along], axis=0)
    return nearest + (first.max() + last.min()) / 2 * along if first.max() < last.min() else None


def plot_neuron(
    w: Sequence[float] | np.ndarray,
    b: float,
    X: np.ndarray,
    y: np.ndarray,
    title: str = "",
    activation: str = "step",
) -> WordedFigure:
    """Plot a neuron with two inputs: its output over the plane, the line z = 0, and points X (n, 2) of classes y (n,).

    Points on the wrong side of the line are circled.
    """
    figure, axes = figure_with_axes(title, width=6.0, height=4.4)
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
        if (start := middle_of_line(w, b, low, high)) is not None:
            tip = float(start[0] + 0.3 * w[0]), float(start[1] + 0.3 * w[1])
            draw_arrow(axes, (start[0], start[1]), tip, INK)
            axes.annotate("w", tip, (4, 4), textcoords="offset points", color=INK, fontweight="bold")
    axes.set(xlabel="input x1", ylabel="input x2", xlim=extent[:2], ylim=extent[2:])
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    lie = f"z = {w[0]:g}·x1 {w[1]:+g}·x2 {b:+g}. The output is {_range(a)} over the plane, {activation} of z."
    side = (
        f"on the wrong side of the line z = 0{', and circled' * bool(wrong.any())}" if w.any() else "wrong, and circled"
    )
    figure.words = with_title(title, lie.replace("-", "−"), f"{wrong.sum()} of {len(y)} points are {side}.")
    return figure


def _range(values: np.ndarray) -> str:
    low, high = np.min(values), np.max(values)
    return f"{low:.3g} everywhere" if low == high else f"from {low:.3g} to {high:.3g}"


def plot_activation(names: str | Sequence[str], title: str = "", at: float | None = None) -> WordedFigure:
    """Plot activations and beside them their derivatives; `at` is a weighted sum z at which the tangent is drawn."""
    figure, (left, right) = row_of_axes(title, 2, width=8.0)
    backend, z, said = choose("numpy"), np.linspace(-5, 5, 1001), []
    for number, name in enumerate([names] if isinstance(names, str) else names):
        value, slope = getattr(backend, name), getattr(backend, f"{name}_derivative")
        style = line_style(number) | {"label": name, "markevery": 100}
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
    figure.words = with_title(title, "Left the activations, right their slopes, over z from −5 to 5.", *said)
    return figure


def plot_vanishing(slopes: Mapping[str, float], layers: int = 10) -> Described:
    """Plot what is left of a change after each layer: the product of as many slopes, on a logarithmic axis."""
    figure, axes = figure_with_axes("The product of the slopes", width=8.0, height=3.8)
    for number, (label, slope) in enumerate(slopes.items()):
        axes.plot(range(layers + 1), slope ** np.arange(layers + 1), label=label, **line_style(number))
    axes.set(yscale="log", xlabel="layers", ylabel="what is left of a change")
    axes.legend(frameon=False, loc="lower left")
    ends = "; ".join(f"{label}: {slope**layers:.2g}" for label, slope in slopes.items())
    words = "What is left of a change after each layer, on a logarithmic axis: straight lines."
    return Described(figure, f"{words} After {layers} layers {ends}.")


def plot_threads(n: int, block: int) -> Described:
    """Draw the threads of a launch for n elements: the block of each, its number there, i, and its element if any."""
    figure, axes = figure_with_axes("", width=9.0, height=2.7)
    threads = -(-n // block) * block
    for i in range(threads):
        colour = BLOCKS[i // block % len(BLOCKS)] if i < n else "white"
        for row, text in enumerate((i // block, i % block, i, *((f"z[{i}]",) if i < n else ()))):
            axes.scatter(i, -row, s=700, marker="s", c=colour, ec="0.4")
            axes.text(i, -row, str(text), ha="center", va="center")
    axes.set_yticks(range(0, -4, -1), ("blockIdx.x", "threadIdx.x", "i", "its element"))
    title = f"{threads} threads in {threads // block} blocks for {n} elements"
    axes.set(title=title, ylim=(-3.6, 0.6), xlim=(-0.7, threads - 0.3), xticks=())
    axes.spines[:].set_visible(False)
    axes.grid(False)
    words = f"A column for each of {threads} threads: its block, its number in the block, i, and its element; "
    return Described(figure, f"{words}the last {threads - n} have none.")
