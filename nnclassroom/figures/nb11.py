"""Figures and tables of notebook 11 on the digits CNN: backpropagation, misread digits, implementations.

epochs(network, X, Y, backend)     trains epoch after epoch, and yields the seconds of each
PROJECT                            results of the digits CNN project
recorded()                         our results, from benchmarks/results
"""

import statistics
import time
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nnclassroom.figures import overheads
from nnclassroom.figures.common import draw_cell, figure_with_axes, plot_confusion, with_title
from nnclassroom.figures.described import Described, WordedFigure
from nnclassroom.figures.images import plot_images
from nnclassroom.formats import duration
from nncourse import device as devices
from nncourse.backend import Backend, choose
from nncourse.model import plans
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network
from nncourse.model.optimizers import Adam
from nncourse.model.task import Task
from nncourse.model.training import epoch_order

__all__ = [
    "PROJECT",
    "STEPS",
    "Row",
    "epochs",
    "plot_confusion",
    "plot_images",
    "plot_misread",
    "plot_pixel",
    "plot_pool",
    "plot_weight",
    "recorded",
    "table",
]

SAMPLES, BATCH = 50_000, 32  # samples of an epoch and of a step
STEPS = -(-SAMPLES // BATCH)
BLUE, ORANGE, RED = "#4c78a8", "#f58518", "#d62728"
NARROWEST = 4  # cells, to leave room for a title
Place = tuple[int, int]  # row, column
NAMES = ("digits CNN", "image1x28x28")  # of the network in benchmarks


class Row(NamedTuple):
    """One implementation: the seconds of an epoch, and the test accuracy after one epoch if known."""

    name: str
    where: str
    seconds: float
    accuracy: float | None = None


PROJECT = (
    Row("project, NumPy", "CPU, 2018", 2 * 3600 + 2 * 60 + 21, 0.9101),
    Row("project, Numba", "CPU, 2018", 77 * 60),
    Row("project, Keras", "CPU, 2018", 38, 0.9485),
    Row("project, Keras", "Tesla K80, 2018", 16, 0.9491),
)


def epochs(
    network: Network, X: np.ndarray, Y: np.ndarray, backend: Backend, rate: float = 0.001, seed: int = 1
) -> Iterator[float]:
    """Train with Adam by the plan that train() would take, in batches of BATCH; yields the seconds of each epoch.

    `network` is changed after each epoch. Unlike `train`, it computes no cost, which would take longer than an epoch.
    """
    there, X, Y = network.on(backend), backend.to_device(X), backend.to_device(Y)
    plan = plans.chosen(Task(there, Adam(), backend, X, Y, BATCH, rate, seed=seed))
    for number in count(1):
        order = backend.to_device(epoch_order(len(X), seed, number))
        devices.synchronise(backend.device)
        start = time.perf_counter()
        plan.epoch(order, rate, StepPosition(seed, number))
        devices.synchronise(backend.device)
        seconds = time.perf_counter() - start
        network.flat_parameters[...] = devices.to_device(there.flat_parameters, "cpu")
        yield seconds


def recorded() -> list[Row]:
    """The results that benchmarks recorded on CPU and GPU; [] if there are none."""
    rows = []
    cpu = overheads.recorded("cpu")
    for title, contenders in cpu.get("seconds", {}).items():
        if any(name in title for name in NAMES):
            where = f"{cpu['machine'].split(',')[0]}, one thread, {cpu['date']}"
            rows += [Row(name, where, STEPS * statistics.median(times)) for name, times in contenders.items()]
    gpu = overheads.recorded("gpu")
    for record in overheads.table("epochs"):
        if any(name in record["network"] for name in NAMES):
            where = f"{gpu['machine'].split(',')[0]}, {gpu['date']}"
            seconds = STEPS * record["seconds_a_step"]
            rows.append(Row(record["contender"], where, seconds, record.get("accuracy")))
    return rows


def table(rows: list[Row]) -> str:
    """The rows as text, slowest first, each with its speedup over the project's NumPy version."""
    lines = [f"{'':24} {'an epoch':>10} {'a step':>8} {'speed':>9} {'right':>7}  where"]
    for row in sorted(rows, key=lambda row: -row.seconds):
        right = f"{row.accuracy:.2%}" if row.accuracy else ""
        times = PROJECT[0].seconds / row.seconds
        speed = f"{times:,.0f}×" if times >= 10 else f"{times:.2g}×"
        step = _long(row.seconds / STEPS)
        lines.append(f"{row.name:24} {_long(row.seconds):>10} {step:>8} {speed:>9} {right:>7}  {row.where}")
    return "\n".join(lines)


def _long(seconds: float) -> str:
    """A time, from a minute on in hours and minutes."""
    if seconds < 60:
        return duration(seconds)
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


# ---- backpropagation through pooling and convolution


def plot_pool(A: np.ndarray, size: int) -> Described:
    """Draw an image (height, width) in windows side by side, each with its largest pixel, and the pooled image."""
    Z, places = (
        array[0, 0] for array in choose("numpy").maxpool_forward(np.asarray(A, np.float32)[None, None], size, size, 0)
    )
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
    """Draw the pixels of an image that weight (i, j) of a k × k filter meets, and the deltas (h, w)."""
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
    """Draw the windows of k × k pixels, with stride 1, that hold the pixel, with the filter's weights on them."""
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
        f"{told}. Each window's pixels are labelled with the weights that are on them."
    )
    return Described(figure, words)


def _row(widths: list[int], height: int) -> tuple[Figure, list[Axes]]:
    """A figure with grids side by side; `widths` and `height` in cells."""
    widths = [max(NARROWEST, width) for width in widths]
    size = 0.42 * sum(widths) + 0.5 * len(widths), 0.42 * height + 0.4
    figure = Figure(figsize=size, dpi=100, layout="constrained")
    return figure, list(figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0])


def _cells(axes: Axes, values: np.ndarray, title: str, colours: dict[str, Collection[Place]]) -> None:
    """Draw a grid with a number or a text in each cell; `colours` -> the cells that have this colour."""
    for (row, column), value in np.ndenumerate(values):
        face = next(((colour, 0.4) for colour, cells in colours.items() if (row, column) in cells), "none")
        text = value if isinstance(value, str) else f"{value:g}".replace("-", "−")
        draw_cell(axes, column, row, text, facecolor=face, edgecolor="0.6", linewidth=0.7)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set(xlim=(-0.1, max(NARROWEST, values.shape[1]) + 0.1), ylim=(values.shape[0] + 0.1, -0.1), aspect="equal")
    axes.set_axis_off()


def _frame(axes: Axes, corner: Place, high: int, colour: str, wide: int = 0) -> None:
    """Draw a frame around `high` rows and `wide` columns; a square unless `wide` is given."""
    row, column = corner
    axes.add_patch(Rectangle((column, row), wide or high, high, fill=False, edgecolor=colour, linewidth=2.2))


def plot_misread(shares: Sequence[float], epochs: Sequence[int], title: str = "") -> WordedFigure:
    """Plot the share of test digits that are read wrongly after these epochs, in percent."""
    figure, axes = figure_with_axes(title)
    axes.plot(epochs, 100 * np.asarray(shares), "o-")
    axes.set(xlabel="epoch", ylabel="test digits read wrongly, %", xticks=epochs)
    axes.set_ylim(bottom=0, top=110 * max(*shares, 1e-3))
    told = ", ".join(f"{share:.1%}" for share in shares)
    figure.words = with_title(title, f"Test digits read wrongly after epochs {', '.join(map(str, epochs))}: {told}.")
    return figure
