"""Figures of notebook 14 on deep networks: numbers by layer, a block, the plan of a network.

figures.plot_by_layer({"plain": norms}, "norm")      # lines over the layers, on a logarithmic axis
figures.plot_block()                                 # the two paths through a block, forward and back
print(figures.plan(resnet(34)))
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from nnclassroom.figures.common import INK, draw_arrow, draw_box, figure_with_axes, line_style
from nnclassroom.figures.described import Described
from nnclassroom.figures.images import plot_images
from nnclassroom.figures.recorded import table
from nnclassroom.figures.sixteen_bits import plot_gradient, rounded, running_sum
from nncourse.errors import CourseError
from nncourse.model.layers import Layer, LayerSequence, Shape
from nncourse.model.network import Network
from nncourse.model.residual import Residual

__all__ = ["plan", "plot_block", "plot_by_layer", "plot_gradient", "plot_images", "rounded", "running_sum"]

BLUE, ORANGE = "#1f77b4", "#e07b00"
BOXES = ("convolution", "batch norm, ReLU", "convolution", "batch norm")  # of the body, upwards
BOX = {"facecolor": "0.94", "edgecolor": "0.5"}
ARROW: dict[str, Any] = {"linewidth": 2, "shrinkA": 0}


# ---- figures


def plot_by_layer(lines: Mapping[str, Sequence[float]], ylabel: str, title: str = "") -> Described:
    """Plot positive numbers, one for each layer from the lowest, on a logarithmic axis."""
    if not lines or any(not np.all(np.isfinite(line)) or min(line) <= 0 for line in lines.values()):
        raise CourseError("expected a finite number above 0 for each layer")
    figure, axes = figure_with_axes("", 7.0, 3.8)
    for number, (label, line) in enumerate(lines.items()):
        axes.plot(range(len(line)), line, label=label, markersize=3.5, **line_style(number))
    axes.set(xlabel="layer, from the input upwards", ylabel=ylabel, yscale="log")
    axes.set_title(title)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    ends = "; ".join(
        f"{label}: {line[0]:.2g} at the bottom, {line[-1]:.2g} at the top" for label, line in lines.items()
    )
    what = f"{title}: {ylabel}" if title else ylabel
    return Described(figure, f"{what}, over the layers. {ends}.".replace("e-", "e−"))


def plot_block() -> Described:
    """Draw a block of a ResNet twice: with the paths of the activations upwards, and of the gradient downwards."""
    figure = Figure(figsize=(7.6, 4.6), dpi=100)
    for place, (upwards, title) in enumerate(((True, "Forward"), (False, "Backward"))):
        axes = figure.add_axes((0.5 * place, 0, 0.5, 0.94))
        axes.set_title(title, fontsize=11)
        _block(axes, upwards)
        axes.set(xlim=(0, 5), ylim=(-0.4, 7.2))
        axes.set_axis_off()
    words = (
        "A block: two convolutions with batch normalisation after each, and beside them a shortcut. Forward, A goes "
        "up through both, and what comes out of both is added; then ReLU. Backward, the gradient goes through "
        "ReLU, then, as it is, down both ways; where they meet below, the two gradients are added."
    )
    return Described(figure, words)


def _block(axes: Axes, upwards: bool) -> None:
    colour = BLUE if upwards else ORANGE
    for number, text in enumerate(BOXES):
        draw_box(axes, (0.9, 1 + number), (2.1, 0.62), text, 9, **BOX)
    axes.text(1.95, 5.32, "+", ha="center", va="center", fontsize=15, color=INK)
    axes.add_patch(FancyBboxPatch((1.72, 5.1), 0.46, 0.44, boxstyle="circle,pad=0.02", fill=False, edgecolor=INK))
    draw_box(axes, (1.35, 6.0), (1.2, 0.5), "ReLU", 9, **BOX)
    levels = [-0.1, 1, 1.62, 2, 2.62, 3, 3.62, 4, 4.62, 5.04, 5.6, 6.0, 6.5, 7.1]
    for low, high in zip(levels[::2], levels[1::2], strict=True):
        start, end = (low, high) if upwards else (high, low)
        draw_arrow(axes, (1.95, start), (1.95, end), colour, **ARROW)
    right = 3.9
    axes.plot([1.95, right, right], [0.45, 0.45, 5.32], color=colour, linewidth=2)
    axes.plot([2.24, right], [5.32, 5.32], color=colour, linewidth=2)
    ends = ((right - 0.6, 5.32), (2.24, 5.32)) if upwards else ((right - 0.6, 0.45), (1.99, 0.45))
    draw_arrow(axes, *ends, colour, **ARROW)
    axes.text(right + 0.12, 2.9, "shortcut", rotation=90, va="center", color=INK, fontsize=10)
    below, above = ("A", "max(0, F(A) + A)") if upwards else ("D through F, plus D", "G;  after ReLU: D")
    axes.text(1.8, 0.0, below, ha="right", va="center", fontsize=10, color=INK)
    axes.text(2.15, 6.9, above, ha="left", va="center", fontsize=10, color=INK)


# ---- the plan of a network


class Part(NamedTuple):
    """Layers of a plan: name, a sample's shape after them, parameters, multiplications per sample, number of blocks."""

    name: str
    shape: Shape
    parameters: int
    products: int
    blocks: int = 0


def parts(network: Network) -> list[Part]:
    """The layers in order; blocks of a stage are one part."""
    found: list[Part] = []
    for layer, below, shape in zip(network.layers, network.shapes, network.shapes[1:], strict=False):
        parameters = sum(array.size for array in layer.parameters)
        products = _products(layer, below)
        name = getattr(layer, "brief", repr(layer))
        last = found[-1] if found else None
        blocks = int(isinstance(layer, Residual))
        if last and blocks and last.blocks and (last.name, last.shape) == (name, shape):
            found[-1] = Part(name, shape, last.parameters + parameters, last.products + products, last.blocks + 1)
        else:
            found.append(Part(name, shape, parameters, products, blocks))
    return found


def _products(layer: Layer, below: Shape) -> int:
    """Multiplications with weights for one sample, also inside blocks."""
    if isinstance(layer, Residual):
        return sum(_products(part, below) for part in (layer.body, layer.shortcut) if part)
    if isinstance(layer, LayerSequence):
        shapes = accumulate(layer.layers, lambda shape, each: each.shape_after(shape), initial=below)
        return sum(map(_products, layer.layers, shapes))
    weights = sum(array.size for array in layer.parameters if array.ndim > 1)
    return weights * prod(layer.shape_after(below)[1:])


def plan(network: Network) -> str:
    """The parts as a table: shape after each, parameters, and millions of multiplications per sample."""
    rows = parts(network)
    heads = ["", "gives", "parameters", "million products"]
    lines = []
    for row in rows:
        name = f"{row.blocks} × {row.name}" if row.blocks > 1 else row.name
        lines.append([name, "×".join(map(str, row.shape)), f"{row.parameters:,}", f"{row.products / 1e6:,.1f}"])
    together = sum(row.parameters for row in rows), sum(row.products for row in rows) / 1e6
    lines.append(["together", "", f"{together[0]:,}", f"{together[1]:,.1f}"])
    return table(heads, lines)
