"""Figures of images: plot_images() side by side with the ranges of their numbers, mosaic() of many small ones."""

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from nnclassroom.figures.described import BOTH_INK, Described

NEGATIVE_TO_POSITIVE = LinearSegmentedColormap.from_list(
    "below and above 0", ["#b35806", "#fdb863", "white", "#8fb3d9", "#1f4e79"]
)
WIDEST = 9.0  # inches of a row
SMALL = 9  # most pixels of an image whose numbers are all said: a filter of 3 × 3


def plot_images(
    images: Mapping[str, np.ndarray],
    title: str = "",
    words: str = "",
    across: int = 6,
    signed: bool = False,
    largest: float | None = None,
    numbers: bool = True,
) -> Described:
    """Draw images (height, width) in rows of `across`, each with its name and its range of numbers.

    signed: draw 0 white, negative numbers orange, positive ones blue. Otherwise only images with negative numbers are
    drawn so, and others grey, with 0 black.
    largest: the number with the strongest colour; if None, the largest of each image.
    numbers: write the range below each image.
    words: begin the text alternative; then names and ranges follow, or all numbers of images as small as a filter.
    """
    across = min(across, len(images))
    down = -(-len(images) // across)
    side = min(2.2, WIDEST / across)
    tall = side * min(max(np.shape(image)[0] / np.shape(image)[1] for image in images.values()), 1) + 0.35
    figure = Figure(figsize=(side * across, tall * down + 0.35 * bool(title)), dpi=100, layout="constrained")
    figure.set_facecolor("none")
    if title:
        figure.suptitle(title, fontsize=11, color=BOTH_INK)
    places = figure.subplots(down, across, squeeze=False).reshape(-1)
    ranges = []
    for axes, (name, image) in zip(places, images.items(), strict=False):
        low, high = float(np.min(image)), float(np.max(image))
        span = f"{low:.3g} to {high:.3g}".replace("-", "−")
        most = largest or max(abs(low), abs(high)) or 1.0
        colours = {"cmap": NEGATIVE_TO_POSITIVE, "vmin": -most} if signed or low < 0 else {"cmap": "gray", "vmin": 0}
        axes.imshow(image, vmax=most, **colours)
        ranges.append(f"{name}: {span}".replace("-", "−"))
        axes.set_title(name, fontsize=9, color=BOTH_INK)
        if numbers:
            axes.set_xlabel(span, fontsize=8, color=BOTH_INK)
        axes.set(xticks=(), yticks=())
        axes.spines[:].set_color(BOTH_INK)
    for axes in places[len(images) :]:
        axes.set_axis_off()
    said = f"{title + '. ' if title else ''}{words + ' ' if words else ''}"
    if all(np.size(image) <= SMALL for image in images.values()):
        told = f"Row by row: {'. '.join(f'{name}: {_rows(image)}' for name, image in images.items())}."
    else:
        told = f"Images with the range of their numbers: {'; '.join(ranges)}."
    return Described(figure, said + told, photographs=True)


def _rows(numbers: np.ndarray) -> str:
    """The numbers in words, row by row."""
    return "; ".join(" ".join(f"{number:.2g}".replace("-", "−") for number in row) for row in numbers)


def mosaic(images: np.ndarray, columns: int, title: str = "", words: str = "") -> Described:
    """Draw images (n, height, width) close together in rows of `columns`: small numbers white, like ink on paper.

    `words` describe them in the text alternative.
    """
    rows = -(-len(images) // columns)
    framed = np.pad(images, ((0, rows * columns - len(images)), (1, 1), (1, 1)), constant_values=images.min())
    _, height, width = framed.shape
    grid = framed.reshape(rows, columns, height, width).transpose(0, 2, 1, 3).reshape(rows * height, columns * width)
    size = min(0.55, WIDEST / columns)
    figure = Figure(figsize=(size * columns, size * rows + 0.4 * bool(title)), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.imshow(grid, cmap="gray_r")
    axes.set_title(title, fontsize=11)
    axes.set_axis_off()
    return Described(figure, f"{title}. {words}".rstrip() if title else words)
