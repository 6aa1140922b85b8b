"""Figures of notebook 10: filtered images, what a filter meets, what a block loads, how often a pixel is read."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nnclassroom.figures.common import INK, draw_arrow, draw_cell, drawing
from nnclassroom.figures.described import Described
from nnclassroom.figures.images import WIDEST, plot_images

__all__ = [
    "LEFT_EDGES",
    "plot_channels",
    "plot_counts",
    "plot_halo",
    "plot_images",
    "plot_numbers",
    "plot_slices",
]

LEFT_EDGES = np.array([[-1, 0, 1]] * 3)  # a filter for edges from dark on the left to bright on the right
BLUE, ORANGE, GREEN, RED = "#4c78a8", "#f58518", "#54a24b", "#d62728"


def plot_counts(counts: Mapping[str, np.ndarray], what: str, title: str = "") -> Described:
    """Draw arrays (height, width) of whole numbers side by side, each number in its cell, each with its own scale."""
    figure = Figure(figsize=(min(WIDEST, 3.6 * len(counts)), 4.2), dpi=100, layout="constrained")
    figure.suptitle(title, fontsize=11)
    places = figure.subplots(1, len(counts), squeeze=False)[0]
    said = []
    for axes, (name, array) in zip(places, counts.items(), strict=True):
        axes.imshow(array, cmap="Blues", vmin=0, vmax=2 * int(np.max(array)))  # text stays legible, on a dark page too
        for (row, column), count in np.ndenumerate(array):
            axes.text(column, row, f"{count}", ha="center", va="center", fontsize=72 * 2.4 / array.shape[1] * 0.42)
        axes.set_title(name, fontsize=9)
        axes.set(xlabel="column", ylabel="row")
        said.append(f"{name}: {what} from {np.min(array)} to {np.max(array)} per pixel, {np.sum(array):,} in all")
    return Described(figure, f"{title}. {'; '.join(said)}.")


def plot_halo(image: tuple[int, int], tile: int, k: int, block: tuple[int, int] = (0, 0)) -> Described:
    """Draw a block's tile of the output and the pixels of the image that it needs: those of the tile, and its halo.

    The filter is k × k with odd k and stride 1, and zeros around the image keep its size.
    """
    figure, (left, right) = drawing(2, 8.0, 4.0)
    height, width = image
    halo, top, first = k // 2, block[0] * tile, block[1] * tile
    for row in range(-halo, height + halo):
        for column in range(-halo, width + halo):
            outside = not (0 <= row < height and 0 <= column < width)
            own = top <= row < top + tile and first <= column < first + tile
            around = top - halo <= row < top + tile + halo and first - halo <= column < first + tile + halo
            face = BLUE if own else ORANGE if around else "white"
            _cell(left, row, column, face, ":" if outside else "-", "0" if outside and around else "")
    for row in range(height):
        for column in range(width):
            own = top <= row < top + tile and first <= column < first + tile
            _cell(right, row, column, GREEN if own else "white", "-")
    frame: dict[str, Any] = {"fill": False, "edgecolor": RED, "linewidth": 2.5}
    left.add_patch(Rectangle((first - halo, top - halo), k, k, **frame))
    right.add_patch(Rectangle((first, top), 1, 1, **frame))
    side = tile + 2 * halo
    left.set_title(
        f"Loaded: {side} × {side} = {side**2} cells,\n{side**2 - tile**2} of them (orange) the halo", fontsize=9
    )
    right.set_title(f"Computed by the block: {tile} × {tile} = {tile**2}\npixels of the output", fontsize=9)
    for axes in (left, right):
        axes.set(xlim=(-halo - 0.2, width + halo + 0.2), ylim=(height + halo + 0.2, -halo - 0.2), aspect="equal")
    words = (
        f"Left the image, of which a block loads {side} × {side} cells: {tile} × {tile} of its own, and around them a "
        f"halo of {halo}; where the halo leaves the image, it holds zeros. Right the {tile} × {tile} pixels of the "
        f"output that the block computes. A red frame shows one pixel, and the {k} × {k} cells that it needs."
    )
    return Described(figure, words)


def _cell(axes: Axes, row: int, column: int, face: str, line: str, text: str = "") -> None:
    shade = "none" if face == "white" else (face, 0.45)
    draw_cell(axes, column, row, text, 8, facecolor=shade, edgecolor="0.5", linewidth=0.7, linestyle=line)


def plot_slices(image: np.ndarray, k: int, before: int, after: int) -> Described:
    """Draw the padded image once for each weight of a k × k filter, the pixels that the weight meets in blue."""
    padded, (high, wide) = np.pad(image, (before, after)), (side + before + after - k + 1 for side in image.shape)
    figure, places = drawing(k * k, WIDEST, WIDEST / k**2 + 0.5)
    for axes, (i, j) in zip(places, np.ndindex(k, k), strict=True):
        for (row, column), pixel in np.ndenumerate(padded):
            met = i <= row < i + high and j <= column < j + wide
            outside = not (before <= row < before + len(image) and before <= column < before + image.shape[1])
            _cell(axes, row, column, BLUE if met else "white", ":" if outside else "-", f"{pixel:g}")
        axes.set_title(f"Weight ({i}, {j})\nP[{i}:{i + high}, {j}:{j + wide}]", fontsize=9)
        axes.set(xlim=(-0.1, padded.shape[1] + 0.1), ylim=(padded.shape[0] + 0.1, -0.1), aspect="equal")
    words = (
        f"The padded image {k * k} times. Weight (i, j) meets {high} rows from row i on, and {wide} columns from "
        "column j on."
    )
    return Described(figure, words)


def plot_numbers(
    arrays: Mapping[str, np.ndarray], marked: Mapping[str, Collection[tuple[int, int]]], words: str = ""
) -> Described:
    """Draw arrays (rows, columns) side by side, a number in each cell; `marked` cells of an array are blue."""
    wide = [max(2.5, array.shape[1]) for array in arrays.values()]  # cells, to leave room for a title
    high = max(len(array) for array in arrays.values())
    inches = min(0.42, (WIDEST - 0.4 * len(wide)) / sum(wide))
    size = inches * sum(wide) + 0.4 * len(wide), inches * high + 0.5
    figure, said = Figure(figsize=size, dpi=100, layout="constrained"), []
    places = figure.subplots(1, len(wide), squeeze=False, width_ratios=wide)[0]
    for axes, width, (name, array) in zip(places, wide, arrays.items(), strict=True):
        for (row, column), number in np.ndenumerate(array):
            blue = (row, column) in marked.get(name, ())
            _cell(axes, row, column, BLUE if blue else "white", "-", f"{number:g}".replace("-", "−"))
        axes.set_title(name, fontsize=9, loc="left")
        axes.set(xlim=(-0.1, width + 0.1), ylim=(high + 0.1, -0.1), aspect="equal")
        axes.set_axis_off()
        rows = "; ".join(" ".join(f"{number:g}".replace("-", "−") for number in row) for row in array)
        said.append(f"{name}: {rows}")
    return Described(figure, f"{words} {'. '.join(said)}.".strip())


def plot_channels(c_in: int, c_out: int, k: int) -> Described:
    """Draw the channels of an image, the filters with a sheet for each channel, and the channels of the output."""
    figure = Figure(figsize=(8.0, 1.1 + 0.85 * c_out), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    middle = (c_out - 1) * 1.6 / 2
    _sheets(axes, 0.3, middle, 1.8, c_in, BLUE)
    axes.text(1.4, middle + 2.35, f"image: {c_in} channels", ha="center", fontsize=9)
    for o in range(c_out):
        y = (c_out - 1 - o) * 1.6
        _sheets(axes, 4.6, y + 0.5, 0.8, c_in, f"C{o + 1}", k)
        draw_arrow(axes, (6.3, y + 0.9), (7.9, y + 0.9), INK)
        axes.text(7.1, y + 1.0, "Σ + b", ha="center", fontsize=8)
        _sheets(axes, 8.1, y + 0.2, 1.3, 1, f"C{o + 1}")
    axes.text(5.2, c_out * 1.6 + 0.25, f"{c_out} filters: each {c_in} × {k} × {k} weights", ha="center", fontsize=9)
    axes.text(8.8, c_out * 1.6 + 0.25, f"output: {c_out} channels", ha="center", fontsize=9)
    axes.set(xlim=(0, 10.2), ylim=(-0.5, c_out * 1.6 + 0.8), aspect="equal")
    axes.set_axis_off()
    words = (
        f"An image of {c_in} channels, as sheets one behind the other; {c_out} filters, each with {c_in} sheets of "
        f"{k} × {k} weights; and the output, one channel for each filter."
    )
    return Described(figure, words)


def _sheets(axes: Axes, x: float, y: float, side: float, count: int, colour: str, k: int = 0) -> None:
    """Squares one behind the other, the first in front; with k × k cells if k is given."""
    for number in reversed(range(count)):
        left, low = x + 0.16 * number, y + 0.16 * number
        style: dict[str, Any] = {"zorder": 2 + count - number, "linewidth": 0.8, "edgecolor": "0.35"}
        axes.add_patch(Rectangle((left, low), side, side, facecolor="white", **style))
        axes.add_patch(Rectangle((left, low), side, side, facecolor=(colour, 0.35), **style))
        for i, j in np.ndindex(k, k):
            cell = left + side / k * j, low + side / k * i
            axes.add_patch(Rectangle(cell, side / k, side / k, fill=False, **style))
