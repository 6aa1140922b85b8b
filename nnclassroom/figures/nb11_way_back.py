"""Figures of the way back through pooling and convolution: who meets whom. They hold no gradients.

way_back.plot_pool(A, size=2)                  # the windows, and the pixel of each that is let through
way_back.plot_weight(A, D, k=3, i=0, j=2)      # the pixels that one weight of the filter meets, and the deltas
way_back.plot_pixel(A, k=2, row=1, column=2)   # the windows that hold one pixel, and the filter on each
"""

from collections.abc import Collection

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nnclassroom.figures.common import Described
from nncourse.backend import choose

BLUE, ORANGE, RED = "#4c78a8", "#f58518", "#d62728"
NARROWEST = 4  # cells, so that there is room for a title
Place = tuple[int, int]  # row, column


def plot_pool(A: np.ndarray, size: int) -> Described:
    """Draw an image (height, width) in windows side by side, each with its largest pixel, and the pooled image."""
    Z, places = (array[0, 0] for array in choose("numpy").maxpool_forward(np.float32(A)[None, None], size, size, 0))
    winners = {divmod(int(place), A.shape[1]) for place in places.flat}
    figure, (left, right) = _row([A.shape[1], Z.shape[1]], A.shape[0])
    _cells(left, A, "image, and its windows", {ORANGE: winners})
    for row, column in np.ndindex(*Z.shape):
        _frame(left, (row * size, column * size), size, "0.2")
    _cells(right, Z, "after the max-pool", {ORANGE: set(np.ndindex(*Z.shape))})
    told = "; ".join(f"window {place}: {Z[place]:g} from pixel {divmod(int(places[place]), A.shape[1])}"
                     for place in np.ndindex(*Z.shape))  # fmt: skip
    return Described(figure, f"An image in windows of {size} × {size}. The largest pixel of each is orange: {told}.")


def plot_weight(A: np.ndarray, D: np.ndarray, k: int, i: int, j: int) -> Described:
    """Draw the pixels that weight (i, j) of a k × k filter meets on its way over an image, and the deltas (h, w)."""
    h, w = D.shape
    figure, (left, middle, right) = _row([k, A.shape[1], w], max(A.shape))
    _cells(left, np.full((k, k), ""), f"one weight: w[{i}, {j}]", {RED: {(i, j)}})
    met = {(y + i, x + j) for y, x in np.ndindex(h, w)}
    _cells(middle, A, "the pixels that it meets", {BLUE: met})
    _frame(middle, (i, j), h, RED, w)
    _cells(right, D, "the deltas", {ORANGE: set(np.ndindex(h, w))})
    words = (
        f"The weight ({i}, {j}) of a {k} × {k} filter meets the pixels of rows {i} to {i + h - 1} and columns {j} "
        f"to {j + w - 1} of the image, one for each of the {h} × {w} deltas."
    )
    return Described(figure, f"{words} These pixels: {_rows(A[i : i + h, j : j + w])}. The deltas: {_rows(D)}.")


def _rows(numbers: np.ndarray) -> str:
    """The numbers as words, row by row."""
    return "; ".join(" ".join(f"{number:g}".replace("-", "−") for number in row) for row in numbers)


def plot_pixel(A: np.ndarray, k: int, row: int, column: int) -> Described:
    """Draw the windows of k × k pixels, with stride 1, that hold the pixel; each with the filter's weights on it."""
    tops = range(max(0, row - k + 1), min(row, A.shape[0] - k) + 1)
    lefts = range(max(0, column - k + 1), min(column, A.shape[1] - k) + 1)
    windows = [(y, x) for y in tops for x in lefts]
    figure, places = _row([A.shape[1]] * len(windows), A.shape[0])
    for axes, (y, x) in zip(places, windows, strict=True):
        names = np.full(A.shape, "", dtype=object)
        for i, j in np.ndindex(k, k):
            names[y + i, x + j] = f"w$_{{{i}{j}}}$"
        inside = {(y + i, x + j) for i, j in np.ndindex(k, k)}
        _cells(axes, names, f"delta ({y}, {x})", {BLUE: inside - {(row, column)}, ORANGE: {(row, column)}})
        _frame(axes, (y, x), k, RED)
    told = ", ".join(f"({y}, {x}) with the weight w[{row - y}, {column - x}] on it" for y, x in windows)
    words = (
        f"{len(windows)} windows of {k} × {k} hold the pixel ({row}, {column}), which is orange: those of the deltas "
        f"{told}. Each window's pixels bear the names of the weights that lie on them."
    )
    return Described(figure, words)


def _row(widths: list[int], height: int) -> tuple[Figure, list[Axes]]:
    """A figure with a grid beside the other; `widths` and `height` in cells."""
    widths = [max(NARROWEST, width) for width in widths]
    figure = Figure(figsize=(0.42 * sum(widths) + 0.5 * len(widths), 0.42 * height + 0.4), dpi=100)
    figure.set_layout_engine("constrained")
    return figure, list(figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0])


def _cells(axes: Axes, values: np.ndarray, title: str, colours: dict[str, Collection[Place]]) -> None:
    """Draw a grid with a number or a text in each cell; `colours` of some cells."""
    for (row, column), value in np.ndenumerate(values):
        face = next(((colour, 0.4) for colour, cells in colours.items() if (row, column) in cells), "none")
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=face, edgecolor="0.6", linewidth=0.7))
        text = value if isinstance(value, str) else f"{value:g}".replace("-", "−")
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=10)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set(xlim=(-0.1, max(NARROWEST, values.shape[1]) + 0.1), ylim=(values.shape[0] + 0.1, -0.1), aspect="equal")
    axes.set_axis_off()


def _frame(axes: Axes, corner: Place, high: int, colour: str, wide: int = 0) -> None:
    """Draw a frame around `high` rows and `wide` columns, as many as rows unless given."""
    row, column = corner
    axes.add_patch(Rectangle((column, row), wide or high, high, fill=False, edgecolor=colour, linewidth=2.2))
