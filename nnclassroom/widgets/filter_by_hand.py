"""A filter that is moved by hand over an image of a few pixels: a widget, and its still picture.

    filter_by_hand.widget()                    # sliders for row and column; the output fills place by place
    filter_by_hand.still(Walk(), 1, 2)         # the same picture as a figure

Both draw the same list of boxes: the browser in the colours of the page, the figure by matplotlib.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nnclassroom.figures.described import Described
from nnclassroom.widgets import widget as drawn
from nncourse.errors import CourseError

IMAGE = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 0], [0, 1, 1, 0, 0]])
FILTERS = {
    "cross": np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]]),
    "all ones": np.ones((3, 3), int),
    "upright": np.array([[1, 0, -1], [1, 0, -1], [1, 0, -1]]),
    "corner": np.array([[1, 0, 0], [0, 0, 0], [0, 0, 0]]),
}
FILTER_WORDS = {"cross": "cross", "all ones": "all ones", "upright": "upright", "corner": "corner"}
BLUE, ORANGE, RED = "#4c78a8", "#f58518", "#d62728"  # positive and negative numbers, the window
STRONGEST = 0.5  # opacity of the largest number's colour: black text stays readable on it
CELL, PRODUCT, GAP, HEAD = 40, 64, 44, 26  # widths of cells, distance of the grids, height of their titles; pixels


@dataclass(frozen=True)
class Walk:
    """An image (height, width) and a filter (k, k) that walks over it, with zeros `before` and `after` the image."""

    image: np.ndarray = field(default_factory=lambda: IMAGE)
    filter: np.ndarray = field(default_factory=lambda: FILTERS["cross"])
    stride: int = 1
    before: int = 0
    after: int = 0

    @property
    def padded(self) -> np.ndarray:
        """The image between its zeros."""
        return np.pad(self.image, (self.before, self.after))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the output. Raises CourseError if the filter is larger than the image."""
        high, wide = ((side - len(self.filter)) // self.stride + 1 for side in self.padded.shape)
        if min(high, wide) < 1:
            size = " × ".join(map(str, self.padded.shape))
            raise CourseError(f"a filter of {len(self.filter)} × {len(self.filter)} does not fit on an image of {size}")
        return high, wide

    def window(self, row: int, column: int) -> np.ndarray:
        """The pixels below the filter for the element (row, column) of the output."""
        k, top, left = len(self.filter), row * self.stride, column * self.stride
        return self.padded[top : top + k, left : left + k]

    def sum(self, row: int, column: int) -> float:
        """The element (row, column) of the output."""
        return (self.window(row, column) * self.filter).sum()


# ---- the drawing


class Box(NamedTuple):
    """One cell of a grid, in pixels. The strength of its colour shows `value` relative to `largest`."""

    x: float
    y: float
    wide: float
    text: str = ""
    value: float = 0
    largest: float = 1
    small: str = ""  # in the lower right corner: the filter's weight
    dashed: bool = False  # a zero of the padding
    framed: bool = False


class Drawing(NamedTuple):
    """Boxes, titles (x, y, text), the frame of the window (x, y, side), and the total size, in pixels."""

    boxes: list[Box]
    titles: list[tuple[float, float, str]]
    window: tuple[float, float, float]
    size: tuple[float, float]


def drawing(walk: Walk, row: int, column: int, visited: Collection[tuple[int, int]]) -> Drawing:
    """The image with the filter at one place, the products there, and the visited part of the output."""
    padded, k, window = walk.padded, len(walk.filter), walk.window(row, column)
    top, left = row * walk.stride, column * walk.stride
    inside = [range(walk.before, walk.before + side) for side in walk.image.shape]
    boxes: list[Box] = []
    titles: list[tuple[float, float, str]] = [(0, HEAD - 8, "image, and the filter on it")]
    for (i, j), pixel in np.ndenumerate(padded):
        below = top <= i < top + k and left <= j < left + k
        small = f"×{number(walk.filter[i - top, j - left])}" if below else ""
        dashed = i not in inside[0] or j not in inside[1]
        place = j * CELL, HEAD + i * CELL, CELL
        boxes.append(Box(*place, number(pixel), pixel, abs(padded).max(), small, dashed))
    x = padded.shape[1] * CELL + GAP
    titles.append((x, HEAD - 8, f"products: their sum is {number(walk.sum(row, column))}"))
    products = window * walk.filter
    for (i, j), product in np.ndenumerate(products):
        text = f"{number(window.item(i, j))} · {number(walk.filter.item(i, j))}"
        boxes.append(Box(x + j * PRODUCT, HEAD + i * CELL, PRODUCT, text, product, max(1, abs(products).max())))
    x += k * PRODUCT + GAP
    titles.append((x, HEAD - 8, "output"))
    high, wide = walk.shape
    sums = np.array([[walk.sum(i, j) for j in range(wide)] for i in range(high)])
    for (i, j), total in np.ndenumerate(sums):
        known = (i, j) in visited
        box = Box(x + j * CELL, HEAD + i * CELL, CELL, largest=max(1, abs(sums).max()), framed=(i, j) == (row, column))
        boxes.append(box._replace(text=number(total), value=total) if known else box)
    tallest = max(padded.shape[0], k, high) * CELL
    return Drawing(boxes, titles, (left * CELL, HEAD + top * CELL, k * CELL), (x + wide * CELL, HEAD + tallest))


def number(value: float) -> str:
    """A number in few characters, with a true minus sign."""
    return f"{value:.3g}".replace("-", "−")


def in_words(walk: Walk, row: int, column: int) -> str:
    """The sum at one place: "Output row 0, column 1: 1·1 + 1·0 + … = 3."."""
    pairs = zip(walk.window(row, column).flat, walk.filter.flat, strict=True)
    terms = " + ".join(f"{number(a)}·{f'({number(w)})' if w < 0 else number(w)}" for a, w in pairs)
    return f"Output row {row}, column {column}: {terms} = {number(walk.sum(row, column))}."


def still(walk: Walk, row: int, column: int, title: str = "") -> Described:
    """The figure: the filter at one place, and the output up to it, row by row."""
    wide = walk.shape[1]
    visited = [divmod(place, wide) for place in range(row * wide + column + 1)]
    parts = drawing(walk, row, column, visited)
    width, height = (side / 100 for side in parts.size)
    figure = Figure(figsize=(width + 0.1, height + 0.1 + 0.3 * bool(title)), dpi=100, facecolor="white")
    axes = figure.add_axes((0, 0, 1, (height + 0.1) / figure.get_figheight()))
    for box in parts.boxes:
        face = ORANGE if box.value < 0 else BLUE, STRONGEST * abs(box.value) / box.largest
        edge, line = (RED, 2.5) if box.framed else ("0.45", 0.8)
        style: dict[str, Any] = {
            "facecolor": face,
            "edgecolor": edge,
            "linewidth": line,
            "linestyle": ":" if box.dashed else "-",
        }
        axes.add_patch(Rectangle((box.x + 1, box.y + 1), box.wide - 2, CELL - 2, **style))
        middle = box.x + box.wide / 2 - 5 * bool(box.small), box.y + CELL / 2
        axes.text(*middle, box.text, fontsize=11, ha="center", va="center")
        axes.text(box.x + box.wide - 3, box.y + CELL - 4, box.small, fontsize=7, ha="right")
    x, y, side = parts.window
    axes.add_patch(Rectangle((x, y), side, side, fill=False, edgecolor=RED, linewidth=2.5))
    for x, y, text in parts.titles:
        axes.text(x, y, text, fontsize=9)
    axes.set(xlim=(-5, parts.size[0] + 5), ylim=(parts.size[1] + 5, -5))
    axes.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=11)
    return Described(figure, f"{title + '. ' if title else ''}{in_words(walk, row, column)}")


# ---- the widget


class ByHand(drawn.BrowserWidget):
    """The widget; it shows `walk`, and `visited` are the places that were seen."""

    def __init__(self, walk: Walk, filters: dict[str, np.ndarray]):
        self.walk, self.filters = walk, filters
        self.visited: set[tuple[int, int]] = set()
        high, wide = walk.shape
        controls = {
            "row": drawn.slider("row", "Which row of the output: the filter moves with it", 0, 0, high - 1, 1),
            "column": drawn.slider("column", "Which column of the output: the filter moves with it", 0, 0, wide - 1, 1),
            "next": drawn.button("Next place", "Moves on by one place, row by row, as a program does"),
            "again": drawn.button("Start again", "Empties the output"),
        }
        if filters:
            controls["filter"] = drawn.menu("filter", "The nine weights", next(iter(filters)), FILTER_WORDS)
        size = drawing(walk, 0, 0, ()).size
        super().__init__(
            "filter_by_hand.js",
            controls,
            self._answer,
            "The image with the filter on it, the products there, and the output so far.",
            given={"size": size, "cell": CELL},
            still=lambda: still(walk, 0, 0),
            pressed=self._pressed,
        )

    def _answer(self, row: int, column: int, filter: str = "") -> tuple[dict[str, Any], str]:
        if filter and self.walk.filter is not self.filters[filter]:
            self.walk = replace(self.walk, filter=self.filters[filter])
            self.visited.clear()
        self.visited.add((row, column))
        high, wide = self.walk.shape
        boxes, titles, window, _ = drawing(self.walk, row, column, self.visited)
        words = f"{in_words(self.walk, row, column)} Done: {len(self.visited)} of {high * wide} places."
        shades = [box._asdict() | {"share": STRONGEST * box.value / box.largest} for box in boxes]
        return {"boxes": shades, "titles": titles, "window": window}, words

    def _pressed(self, name: str) -> None:
        high, wide = self.walk.shape
        if name == "again":
            self.visited.clear()
            row, column = 0, 0
        else:
            place = self.values["row"] * wide + self.values["column"] + 1
            row, column = divmod(place % (high * wide), wide)
        self.set(row=row, column=column)
        self.redraw()  # even if the filter stays in its place


def widget(walk: Walk | None = None) -> ByHand:
    """A filter to move over an image by sliders or buttons: document 004's image and a menu of filters.

    Another walk has its own filter and no menu.
    """
    return ByHand(walk or Walk(), {} if walk else FILTERS)
