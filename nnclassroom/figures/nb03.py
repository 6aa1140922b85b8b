"""Figures of notebooks 03 and 03b: matrix products, rows in memory, tiles, banks, a GPU.

figures.plot_products([(1, 1), (1, 3), (5, 3)], n_in=4)     # one neuron, a layer, a batch, as boxes
figures.plot_row_major(3, 4)                                # a matrix, and the line of memory that holds it
figures.plot_gpu(132, 64)                                   # multiprocessors, warps, threads
figures.plot_tile_steps(steps=3, tile=2)                    # which tiles a block multiplies in each step
figures.plot_banks((16, 17))                                # the bank of each number of a tile
figures.plot_in_flight(None, 3.4e-7, 4.2e12, "title")       # how fast a copy is, over the threads that wait
figures.changed(kernel, "__syncthreads();", number=2)       # a kernel without its second barrier
figures.plot_ladder({"naive": 0.28}, 5.1e13, 2 * 4096**3, "title")
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nnclassroom.figures.common import INK, draw_cell, drawing, plot_lines, plot_roofline
from nnclassroom.figures.described import Described
from nnclassroom.figures.images import mosaic, plot_images
from nnclassroom.formats import duration, times_as_fast
from nncourse.errors import CourseError
from nncourse.kernels.kernel import CudaKernel

__all__ = [
    "Described",
    "changed",
    "mosaic",
    "plot_banks",
    "plot_gpu",
    "plot_images",
    "plot_in_flight",
    "plot_ladder",
    "plot_products",
    "plot_roofline",
    "plot_row_major",
    "plot_weights",
    "plot_tile_steps",
]

BLUE, ORANGE, GREEN, RED = "#4c78a8", "#f58518", "#54a24b", "#d62728"
COUNTS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
WARP = 32


def plot_products(shapes: Sequence[tuple[int, int]], n_in: int) -> Described:
    """Draw Z = A Wᵀ as boxes for each (batch, n_out); one sum and the numbers that it needs are dark."""
    figure, places = _boxes(len(shapes), height=4.0)
    said = []
    for axes, (batch, n_out) in zip(places, shapes, strict=True):
        i, j = batch // 2, n_out // 2
        _matrix(axes, 0, 0, (batch, n_in), BLUE, f"A ({batch}, {n_in})", [(i, k) for k in range(n_in)])
        column = [(k, j) for k in range(n_in)]
        _matrix(axes, n_in + 1, n_in + 1.5, (n_in, n_out), ORANGE, f"Wᵀ ({n_in}, {n_out})", column)
        _matrix(axes, n_in + 1, 0, (batch, n_out), GREEN, f"Z ({batch}, {n_out})", [(i, j)])
        axes.set(xlim=(-0.5, 9.5), ylim=(-5.5, 6.8))
        axes.set_title(_named(batch, n_out), fontsize=10)
        said.append(f"{_named(batch, n_out)}: A ({batch}, {n_in}), Wᵀ ({n_in}, {n_out}), Z ({batch}, {n_out})")
    words = (
        "Boxes are numbers. The inputs A are on the left, the weights Wᵀ above. Where a row of A meets a column "
        f"of Wᵀ there is a sum of Z. One sum and all that it needs are dark. {'; '.join(said)}."
    )
    return Described(figure, words)


def plot_weights(weights: np.ndarray, title: str) -> Described:
    """Draw the weights (10, 64) of ten neurons as images: of 0 white, positive ones blue, negative ones orange."""
    images = {f"neuron {digit}": row.reshape(8, 8) for digit, row in enumerate(weights)}
    means = (f"{name}: {w[2:6, 3:5].mean():.1f} and {w[2:6, [2, 5]].mean():.1f}" for name, w in images.items())
    words = f"In rows 3 to 6 the mean of columns 4 and 5, and of columns 3 and 6. {'; '.join(means)}."
    return plot_images(images, title, words.replace("-", "−"), across=5, signed=True)


def _named(batch: int, n_out: int) -> str:
    if batch > 1:
        return f"a batch of {COUNTS.get(batch, batch)} samples"
    return "one neuron" if n_out == 1 else f"a layer of {COUNTS.get(n_out, n_out)} neurons"


def plot_row_major(rows: int, columns: int) -> Described:
    """Draw a matrix with the place of each cell in memory, and below it the memory; each row has a colour."""
    figure, (axes,) = _boxes(1, width=7.0, height=3.0)
    left = (rows * columns - columns) / 2
    for place in range(rows * columns):
        j, k = divmod(place, columns)
        for x, y in ((left + k, rows + 2 - j), (place, 0.5)):
            _box(axes, x, y, f"C{j}", 0.4, str(place))
    axes.text(left - 0.2, rows + 1.5, "row j", ha="right", va="center", color=INK)
    axes.text(left + columns / 2, rows + 3.2, "column k", ha="center", color=INK)
    axes.text(rows * columns / 2, -0.3, f"cell number = j · {columns} + k", ha="center", va="center", color=INK)
    axes.set(xlim=(-0.2, rows * columns + 0.2), ylim=(-0.7, rows + 3.8))
    axes.set_title(f"W ({rows}, {columns}) as a matrix, and as it is stored in memory", fontsize=11)
    words = (
        f"Above, a matrix of {rows} rows and {columns} columns, each cell with its position in memory, row after row: "
        f"0 to {columns - 1} in the first. Below, the line of memory, {rows * columns} cells, coloured by row."
    )
    return Described(figure, words)


def plot_gpu(multiprocessors: int, warps: int) -> Described:
    """Draw a GPU as multiprocessors, a multiprocessor as warps, and a warp as 32 threads."""
    figure, (gpu, sm, warp) = _boxes(3, height=3.2)
    for axes, count, across, colour in (
        (gpu, multiprocessors, 12, BLUE),
        (sm, warps, 8, ORANGE),
        (warp, WARP, WARP // 4, GREEN),
    ):
        for place in range(count):
            row, column = divmod(place, across)
            _box(axes, column, -row, colour, 0.9 if place == 0 and axes is not warp else 0.35)
        axes.set(xlim=(-0.3, across + 0.3), ylim=(-(count - 1) // across - 0.3, 1.3))
    gpu.set_title(f"A GPU: {multiprocessors} multiprocessors (SM)", fontsize=9)
    sm.set_title(f"One SM: room for {warps} warps", fontsize=9)
    warp.set_title(f"One warp: {WARP} threads,\none instruction at a time", fontsize=9)
    words = (
        f"Three pictures; each enlarges one box of the one before: a GPU with {multiprocessors} multiprocessors; "
        f"one multiprocessor with room for {warps} warps; one warp with its {WARP} threads."
    )
    return Described(figure, words)


def plot_tile_steps(steps: int, tile: int) -> Described:
    """Draw the tiles of A and Wᵀ that a block holds in shared memory in each step, and the sums that they add to."""
    figure, places = _boxes(steps, height=4.2)
    n_in, side = steps * tile, 2 * tile
    own, beside = range(tile), range(tile, 2 * tile)
    for step, axes in enumerate(places):
        now = range(step * tile, (step + 1) * tile)
        _matrix(axes, 0, 0, (side, n_in), BLUE, f"A ({side}, {n_in})", [(i, k) for i in own for k in now])
        of_w = [(k, j) for k in now for j in beside]
        _matrix(axes, n_in + 1, n_in + 1.5, (n_in, side), ORANGE, f"Wᵀ ({n_in}, {side})", of_w)
        _matrix(axes, n_in + 1, 0, (side, side), GREEN, f"Z ({side}, {side})", [(i, j) for i in own for j in beside])
        axes.set(xlim=(-0.5, n_in + side + 1.5), ylim=(-side - 0.5, n_in + 2.8))
        axes.set_title(f"Step {step}: k = {now.start} to {now.stop - 1}", fontsize=10)
    words = (
        f"A block of {tile} × {tile} threads in {steps} steps. In Z its {tile} × {tile} sums stay dark. In each "
        "step a dark tile of A, further right each time, meets a dark tile of Wᵀ, further down each time."
    )
    return Described(figure, words)


def plot_banks(widths: Sequence[int]) -> Described:
    """Draw the bank of each number in tiles of 16 rows of these widths; column 0, which a warp reads, is framed."""
    figure, places = _boxes(len(widths), height=5.0)
    rows, said = 16, []
    for axes, width in zip(places, widths, strict=True):
        banks = np.arange(rows * width).reshape(rows, width) % WARP
        for (row, column), bank in np.ndenumerate(banks):
            same = column == 0 and bank == banks[0, 0]
            _box(axes, column, -row, RED if same else BLUE, 0.75 if same else 0.15, str(bank), 8)
        axes.add_patch(Rectangle((0, 1 - rows), 1, rows, fill=False, edgecolor=INK, linewidth=2))
        axes.set(xlim=(-1.9, max(widths) + 0.3), ylim=(-rows + 0.7, 1.3))
        for row in (0, 1, rows - 1):
            axes.text(-0.2, 0.5 - row, f"x = {row}", ha="right", va="center", fontsize=8, color=INK)
        axes.set_title(f"Rows of {width} numbers", fontsize=10)
        said.append(f"Rows of {width}: {', '.join(map(str, banks[:, 0]))}")
    words = f"Tiles of {rows} rows; each cell shows its bank: its number in the tile modulo {WARP}. A frame marks "
    words += "the column that a warp reads; red cells share the bank of its first number. The banks of that column: "
    return Described(figure, f"{words}{'. '.join(said)}.")


def plot_in_flight(measured: Sequence[Mapping[str, Any]] | None, wait: float, roof: float, title: str) -> Described:
    """Plot the rate of a copy over the number of threads: `measured` by waits.in_flight, and computed from one wait.

    wait: seconds from asking memory for a number until it is there. roof: bytes a second that memory can deliver.
    """
    threads = np.array([1, 32, *(1 << power for power in range(10, 19))])
    lines = {"computed from one wait": (threads, np.minimum(8 * threads / wait, roof) / 1e9)}
    if measured:
        points = [(each["threads"], each["bytes_a_second"] / 1e9) for each in measured]
        lines["measured"] = tuple(np.array(points).T)
    return plot_lines(lines, "threads", "GB/s, read and written", title)


def changed(kernel: CudaKernel, part: str, other: str = "", number: int = 1) -> CudaKernel:
    """The kernel with the number-th `part` of its function replaced by `other`, to see what that part is for.

    Raises CourseError if its function has the part less often.
    """
    text = kernel.source.text
    start = text.index(f"{kernel.entry}(")
    for _ in range(number):
        start = text.find(part, start + 1)
    if not 0 <= start < text.index("\n}", text.index(f"{kernel.entry}(")):
        raise CourseError(f"expected a part of {kernel.entry} that occurs {number} times; got {part}")
    source = replace(kernel.source, text=text[:start] + other + text[start + len(part) :])
    return replace(kernel, name=f"{kernel.name}, changed", source=source, plans={})


def plot_ladder(seconds: Mapping[str, float], limit: float, flops: float, title: str) -> Described:
    """Plot each kernel's share of the matrix rate as a bar, with its time and its speedup over the one above it.

    `limit` is the device's matrix rate in FLOP per second, `flops` is what each kernel computes.
    """
    figure = Figure(figsize=(7.0, 0.9 + 0.42 * len(seconds)), dpi=100, layout="constrained")
    axes = figure.subplots()
    names, times = list(seconds), list(seconds.values())
    shares = [100 * flops / time / limit for time in times]
    gains = ["", *(f", {times_as_fast(one / other)} as fast" for one, other in pairwise(times))]
    bars = axes.barh(names, shares, color=GREEN)
    labels = [f" {duration(time)}{gain}" for time, gain in zip(times, gains, strict=True)]
    axes.bar_label(bars, labels, color=INK)
    axes.invert_yaxis()
    axes.set(xlabel="share of the matrix rate, %", xlim=(0, 130), xticks=range(0, 101, 20))
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    rows = zip(names, labels, shares, strict=True)
    said = [f"{name}{label}, {share:.2g} % of the matrix rate" for name, label, share in rows]
    return Described(figure, f"{title}. Each kernel, and its speed relative to the one before: {'; '.join(said)}.")


# ---- boxes


def _boxes(count: int, height: float, width: float = 9.0) -> tuple[Figure, np.ndarray]:
    """A figure with `count` drawings side by side, whose units are equally long on both axes."""
    figure, places = drawing(count, width, height)
    for axes in places:
        axes.set_aspect("equal")
    return figure, places


def _matrix(
    axes: Axes, x: float, y: float, shape: tuple[int, int], colour: str, name: str, dark: Sequence[tuple[int, int]]
) -> None:
    """Draw a matrix whose upper left corner is (x, y); the cells (row, column) in `dark` are filled."""
    for i, j in np.ndindex(*shape):
        _box(axes, x + j, y - i - 1, colour, 1.0 if (i, j) in dark else 0.25)
    axes.text(x + shape[1] / 2, y + 0.2, name, ha="center", fontsize=8, color=INK)


def _box(axes: Axes, x: float, y: float, colour: str, shade: float, text: str = "", size: float = 10) -> None:
    draw_cell(axes, x, y, text, size, facecolor=(colour, shade), edgecolor="0.4", linewidth=0.8)
