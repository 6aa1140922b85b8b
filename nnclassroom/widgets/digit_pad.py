"""A pad to draw a digit on with the mouse, a finger or the keyboard, and what a network makes of it.

The browser sends its ink, and every number that it shows is computed here. still() is the same as a figure.
A callback may run on another thread while a notebook cell runs, so it computes under a lock, on the CPU.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anywidget
import numpy as np
import traitlets
from matplotlib.figure import Figure
from PIL import Image

from nnclassroom.figures.described import BOTH_INK, Described
from nnclassroom.widgets.widget import display_widget, text_of
from nncourse.errors import CourseError

SIDE = 112  # the ink is SIDE x SIDE numbers from 0 to 255
SOFT = 3.0  # width of the pen's soft edge, in pixels of the ink
FIRST = "Nothing is drawn yet."
DRAWN = {  # strokes: corners (x, y) in hundredths of the pad, y downwards
    "1": [[(38, 32), (52, 18), (52, 82)]],
    "3": [[(32, 26), (46, 18), (62, 24), (62, 38), (46, 48), (64, 58), (64, 72), (48, 82), (32, 74)]],
    "7": [[(30, 20), (70, 20), (46, 82)]],
    "a house": [[(26, 48), (50, 22), (74, 48), (74, 80), (26, 80), (26, 48)]],
}
DRAWN_WORDS = {"a house": "a house"}  # digits are the same in all languages


@dataclass(frozen=True)
class Form:
    """How the images of a data set were made."""

    box: int  # side of the box that a digit fills, in pixels
    centre: float  # its centre of mass; pixel 0 reaches from 0 to 1
    pen: float  # radius of a pen as thick as theirs, in pixels of the ink


FORMS = {28: Form(20, 14.5, 5.0), 8: Form(8, 4.0, 9.0)}  # by the side of an image: MNIST, digits
SAVED = "A pad to draw a digit on: run this cell to play."  # shown in a saved notebook
Says = Callable[[np.ndarray], np.ndarray]  # an image (side, side) -> the share of each class (classes,)


class Pad(anywidget.AnyWidget):
    """The widget. `ink` comes from the browser; `seen`, `shares` and `words` are the answer to it."""

    script = "digit_pad.js"
    _esm = text_of("widget.js", script)
    _css = text_of("digit_pad.css")
    side = traitlets.Int(SIDE).tag(sync=True)
    pen = traitlets.List([5.0, SOFT]).tag(sync=True)
    classes: "traitlets.List[Any]" = traitlets.List().tag(sync=True)
    ink = traitlets.CBytes().tag(sync=True)
    seen_side = traitlets.Int().tag(sync=True)
    seen = traitlets.Bytes().tag(sync=True)
    shares: "traitlets.List[Any]" = traitlets.List().tag(sync=True)
    words = traitlets.Unicode(FIRST).tag(sync=True)

    def __init__(self, says: Says, side: int, classes: Sequence[str]):
        self.says, self.lock = says, threading.Lock()
        super().__init__(seen_side=side, classes=list(classes), pen=[_form(side).pen, SOFT])

    def __repr__(self) -> str:
        return SAVED

    def _ipython_display_(self) -> None:
        """Display the pad, and the line for a saved notebook."""
        display_widget(self)

    @traitlets.observe("ink")
    def _answer(self, change: dict[str, Any]) -> None:
        with self.lock, self.hold_sync():
            ink = np.frombuffer(change["new"], np.uint8)
            if ink.size != SIDE * SIDE or not ink.any():
                self.seen, self.shares, self.words = b"", [], FIRST
                return
            image = as_image(ink.reshape(SIDE, SIDE), self.seen_side)
            shares = self.says(image)
            self.seen = np.uint8(255 * image).tobytes()
            self.shares = [float(share) for share in shares]
            self.words = in_words(shares, self.classes)


def pad(says: Says, side: int = 28, classes: Sequence[str] = tuple("0123456789")) -> Pad:
    """A pad; `says` is given the drawing as an image (side, side), prepared like MNIST (28) or the digits data (8)."""
    return Pad(says, side, classes)


def as_image(ink: np.ndarray, side: int) -> np.ndarray:
    """Ink (height, width) as an image (side, side) float32, 0 to 1, prepared like the training images.

    The drawing is cut out and scaled, keeping its proportions, to a box: 20 x 20 pixels for MNIST, the whole image for
    the 8 x 8 digits. Then its centre of mass is moved to the centre of the image.
    """
    form = _form(side)
    image = np.zeros((side, side), np.float32)
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    if len(rows) == 0:
        return image
    cut = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].astype(np.float32)
    height, width = (max(1, round(form.box * length / max(cut.shape))) for length in cut.shape)
    small = np.asarray(Image.fromarray(cut).resize((width, height), Image.Resampling.BILINEAR))
    top, left = (
        int(np.clip(round(form.centre - _centre(small.sum(axis=1 - axis))), 0, side - small.shape[axis]))
        for axis in (0, 1)
    )
    image[top : top + height, left : left + width] = small / small.max()
    return image


def _centre(weights: np.ndarray) -> float:
    """The centre of mass of a row of pixels, each of width 1."""
    return float((np.arange(len(weights)) + 0.5) @ weights / weights.sum())


def _form(side: int) -> Form:
    if side not in FORMS:
        raise CourseError(f"expected images with a side of {' or '.join(map(str, FORMS))} pixels; got {side}")
    return FORMS[side]


def ink_of(strokes: Sequence[Sequence[tuple[float, float]]], side: int = 28) -> np.ndarray:
    """The ink (SIDE, SIDE) uint8 of strokes between corners, in hundredths of the pad, with the pen for this side."""
    ink = np.zeros((SIDE, SIDE), np.float32)
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    for stroke in strokes:
        corners = np.asarray(stroke, float) * SIDE / 100
        for start, end in zip(corners, corners[1:], strict=False):
            along = end - start
            share = ((x - start[0]) * along[0] + (y - start[1]) * along[1]) / (along @ along)
            share = share.clip(0, 1)
            distance = np.hypot(x - start[0] - share * along[0], y - start[1] - share * along[1])
            ink = np.maximum(ink, ((_form(side).pen + SOFT / 2 - distance) / SOFT).clip(0, 1))
    return (255 * ink).astype(np.uint8)


def in_words(shares: np.ndarray, classes: Sequence[str]) -> str:
    """The likeliest class and the second, with their shares."""
    first, second = np.argsort(shares)[::-1][:2]
    return f"The network says {classes[first]} ({shares[first]:.0%}), then {classes[second]} ({shares[second]:.0%})."


def still(says: Says, side: int = 28, names: Sequence[str] = ("7", "3", "a house")) -> Described:
    """Some of DRAWN as a figure: the ink, what the network sees of it, and its answer."""
    digits = tuple("0123456789")
    figure = Figure(figsize=(8.0, 1.9 * len(names)), dpi=100, layout="constrained", facecolor="none")
    places, said = figure.subplots(len(names), 3, squeeze=False, width_ratios=(1, 1, 2)), []
    for row, name in zip(places, names, strict=True):
        ink = ink_of(DRAWN[name], side)
        image = as_image(ink, side)
        shares = says(image)
        for axes, picture, title in zip(row, (ink, image), ("drawn", "what the network sees"), strict=False):
            axes.imshow(picture, cmap="gray")
            axes.set(xticks=[], yticks=[])
            axes.set_title(title, fontsize=9, color=BOTH_INK)
        row[0].set_ylabel(DRAWN_WORDS.get(name, name), color=BOTH_INK)
        row[2].bar(digits, shares, color=["tab:orange" if share == max(shares) else "tab:blue" for share in shares])
        row[2].set(ylim=(0, 1), facecolor="none")
        row[2].set_xlabel("digit", color=BOTH_INK)
        row[2].set_ylabel("probability", color=BOTH_INK)
        for axes in row:
            axes.tick_params(color=BOTH_INK, labelcolor=BOTH_INK)
            axes.spines[:].set_color(BOTH_INK)
        said.append(f"Drawn: {DRAWN_WORDS.get(name, name)}. {in_words(shares, digits)}")
    return Described(figure, " ".join(said), photographs=True)
