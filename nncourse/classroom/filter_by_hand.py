"""A filter that is moved by hand over an image of a few pixels: a widget, and its still picture.

    filter_by_hand.widget()                    # sliders for row and column; the output fills place by place
    filter_by_hand.still(Walk(), 1, 2)         # the same picture as a figure

What is drawn is a list of boxes, once for both: as SVG in the widget, which takes its colours from the page, light or
dark, and by matplotlib in the figure.
"""

import html
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import ipywidgets
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nncourse.classroom.plots import Described
from nncourse.classroom.widgets import close_all, control, in_line, menu, say
from nncourse.errors import CourseError

IMAGE = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 0], [0, 1, 1, 0, 0]])
FILTERS = {
    "cross": np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]]),
    "all ones": np.ones((3, 3), int),
    "upright": np.array([[1, 0, -1], [1, 0, -1], [1, 0, -1]]),
    "corner": np.array([[1, 0, 0], [0, 0, 0], [0, 0, 0]]),
}
BLUE, ORANGE, RED = "#4c78a8", "#f58518", "#d62728"  # of positive and of negative numbers; of the window
STRONGEST = 0.5  # opacity of the largest number's colour: text in the page's own colour stays readable on it
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
        """The number of places, in rows and columns: the output's shape. Raises CourseError where none is left."""
        high, wide = ((side - len(self.filter)) // self.stride + 1 for side in self.padded.shape)
        if min(high, wide) < 1:
            size = " × ".join(map(str, self.padded.shape))
            raise CourseError(f"a filter of {len(self.filter)} × {len(self.filter)} has no place on an image of {size}")
        return high, wide

    def window(self, row: int, column: int) -> np.ndarray:
        """The pixels below the filter, for the output's element (row, column)."""
        k, top, left = len(self.filter), row * self.stride, column * self.stride
        return self.padded[top : top + k, left : left + k]

    def sum(self, row: int, column: int) -> float:
        """The output's element (row, column)."""
        return (self.window(row, column) * self.filter).sum()


# ---- the drawing


class Box(NamedTuple):
    """One cell of a grid, in pixels; its colour tells `value` by its strength, relative to `largest`."""

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
    """Boxes, titles (x, y, text), the frame of the window (x, y, side), and the size of all, in pixels."""

    boxes: list[Box]
    titles: list[tuple[float, float, str]]
    window: tuple[float, float, float]
    size: tuple[float, float]


def drawing(walk: Walk, row: int, column: int, visited: Collection[tuple[int, int]]) -> Drawing:
    """The image with the filter at one place, the products there, and the output as far as it was visited."""
    padded, k, window = walk.padded, len(walk.filter), walk.window(row, column)
    top, left = row * walk.stride, column * walk.stride
    inside = [range(walk.before, walk.before + side) for side in walk.image.shape]
    boxes, titles = [], [(0, HEAD - 8, "image, and the filter on it")]
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
        text = f"{number(window[i, j])} · {number(walk.filter[i, j])}"
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


def svg(drawn: Drawing, label: str) -> str:
    """The drawing as SVG, for a page in any colours; `label` is its text alternative."""
    ink = "fill:var(--jp-content-font-color1, currentColor)"
    line = "stroke:var(--jp-content-font-color2, currentColor);stroke-opacity:0.6"
    parts = []
    for box in drawn.boxes:
        rect = f'x="{box.x + 1}" y="{box.y + 1}" width="{box.wide - 2}" height="{CELL - 2}" rx="3"'
        dashes = ' stroke-dasharray="3 3"' if box.dashed else ""
        look = f'style="{line}"' if not box.framed else f'style="stroke:{RED};stroke-width:3"'
        parts.append(f'<rect {rect} fill="{_colour(box)}" fill-opacity="{_opacity(box):.2f}"{dashes} {look}/>')
        middle = f'x="{box.x + box.wide / 2 - 5 * bool(box.small)}" y="{box.y + 25}" text-anchor="middle"'
        parts.append(f'<text {middle} style="{ink}">{box.text}</text>')
        corner = f'x="{box.x + box.wide - 4}" y="{box.y + CELL - 5}" text-anchor="end" font-size="10"'
        parts.append(f'<text {corner} style="{ink}">{box.small}</text>' if box.small else "")
    x, y, side = drawn.window
    frame = f'style="fill:none;stroke:{RED};stroke-width:3"'
    parts.append(f'<rect x="{x}" y="{y}" width="{side}" height="{side}" rx="4" {frame}/>')
    parts += [f'<text x="{x}" y="{y}" font-size="13" style="{ink}">{text}</text>' for x, y, text in drawn.titles]
    wide, high = drawn.size
    view = f'viewBox="-3 0 {wide + 6} {high + 4}" width="{wide + 6}" style="max-width:100%" font-size="15"'
    return f'<svg role="img" aria-label="{html.escape(label)}" {view}>{"".join(parts)}</svg>'


def _colour(box: Box) -> str:
    return ORANGE if box.value < 0 else BLUE


def _opacity(box: Box) -> float:
    return STRONGEST * abs(box.value) / box.largest


def still(walk: Walk, row: int, column: int, title: str = "") -> Described:
    """The figure: the filter at one place, and the output up to it, row by row."""
    wide = walk.shape[1]
    visited = [divmod(place, wide) for place in range(row * wide + column + 1)]
    drawn = drawing(walk, row, column, visited)
    width, height = (side / 100 for side in drawn.size)
    figure = Figure(figsize=(width + 0.1, height + 0.1 + 0.3 * bool(title)), dpi=100, facecolor="white")
    axes = figure.add_axes((0, 0, 1, (height + 0.1) / figure.get_figheight()))
    for box in drawn.boxes:
        style = {"facecolor": (_colour(box), _opacity(box)), "edgecolor": "0.45", "linewidth": 0.8}
        if box.dashed:
            style["linestyle"] = ":"
        if box.framed:
            style |= {"edgecolor": RED, "linewidth": 2.5}
        axes.add_patch(Rectangle((box.x + 1, box.y + 1), box.wide - 2, CELL - 2, **style))
        middle = box.x + box.wide / 2 - 5 * bool(box.small), box.y + CELL / 2
        axes.text(*middle, box.text, fontsize=11, ha="center", va="center")
        axes.text(box.x + box.wide - 3, box.y + CELL - 4, box.small, fontsize=7, ha="right")
    x, y, side = drawn.window
    axes.add_patch(Rectangle((x, y), side, side, fill=False, edgecolor=RED, linewidth=2.5))
    for x, y, text in drawn.titles:
        axes.text(x, y, text, fontsize=9)
    axes.set(xlim=(-5, drawn.size[0] + 5), ylim=(drawn.size[1] + 5, -5))
    axes.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=11)
    return Described(figure, f"{title + '. ' if title else ''}{in_words(walk, row, column)}")


# ---- the widget


class ByHand(ipywidgets.VBox):
    """Sliders, a drawing, and the sum in words, which screen readers announce."""

    def __init__(self, walk: Walk, filters: dict[str, np.ndarray]):
        self.walk, self.visited = walk, set()
        high, wide = walk.shape
        axis = "Which {0} of the output: the filter moves with it. Arrow keys move the slider"
        slider = ipywidgets.IntSlider
        self.controls = {
            "row": control(slider, "row", axis.format("row"), min=0, max=high - 1, value=0),
            "column": control(slider, "column", axis.format("column"), min=0, max=wide - 1, value=0),
        }
        if filters:
            self.controls["filter"] = menu("filter", "The nine weights", next(iter(filters)), list(filters))
        button = ipywidgets.Button
        self.next = control(button, "Next place", "One place on, row by row, as a program goes", width="110px")
        self.again = control(button, "Start again", "Empties the output", width="110px")
        self.drawing, self.words = ipywidgets.HTML(), ipywidgets.HTML()
        super().__init__([in_line(*self.controls.values(), self.next, self.again), self.drawing, self.words])
        for name in ("row", "column"):
            self.controls[name].observe(self._draw, "value")
        if filters:
            self.controls["filter"].observe(lambda change: self._take(filters[change["new"]]), "value")
        self.next.on_click(self._go_on)
        self.again.on_click(lambda _: self._begin())
        self._draw()

    def __repr__(self) -> str:
        return "A widget to play with: run this cell. The figure below is one moment of it."

    def _draw(self, change=None) -> None:
        row, column = self.controls["row"].value, self.controls["column"].value
        self.visited.add((row, column))
        high, wide = self.walk.shape
        words = f"{in_words(self.walk, row, column)} Done: {len(self.visited)} of {high * wide} places."
        label = "The image with the filter on it, the products there, and the output so far."
        self.drawing.value = svg(drawing(self.walk, row, column, self.visited), label)
        say(self.words, words)

    def _take(self, weights: np.ndarray) -> None:
        self.walk = Walk(self.walk.image, weights, self.walk.stride, self.walk.before, self.walk.after)
        self._begin(stay=True)

    def _begin(self, stay: bool = False) -> None:
        """Empty the output; the filter stays where it is, or goes to the first place."""
        self.visited.clear()
        if not stay:
            self._go(0, 0)
        self.visited.clear()  # what was passed on the way does not count
        self._draw()

    def _go_on(self, _) -> None:
        high, wide = self.walk.shape
        place = self.controls["row"].value * wide + self.controls["column"].value + 1
        self._go(*divmod(place % (high * wide), wide))

    def _go(self, row: int, column: int) -> None:
        """To another place. Where both sliders move, the place between the two moves is not one of those visited."""
        visited = set(self.visited)
        self.controls["row"].value, self.controls["column"].value = row, column
        self.visited = visited
        self._draw()

    def close(self) -> None:
        """Close the widget and those in it."""
        close_all(self.children)
        super().close()


def widget(walk: Walk | None = None) -> ByHand:
    """A filter to move over an image, by sliders or by buttons: document 004's image, and a menu of filters.

    Another walk has its own filter, and no menu.
    """
    return ByHand(walk or Walk(), {} if walk else FILTERS)
