"""Pictures of notebook 08: what stays when a part moves, a call there and back, room for warps, sums of a thread."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnclassroom.figures.common import Described


def plot_moved_share(share: float) -> Described:
    """A step as bars: as it is, with a share of its time ten times as fast, and with that share in no time."""
    figure = Figure(figsize=(8.4, 2.3), layout="constrained")
    axes = figure.subplots()
    cases = {"as it is": 1, "products 10 × as fast": 10, "products in no time": np.inf}
    axes.barh(list(cases), 1 - share, color="0.75", label="all else")
    products = [share / faster for faster in cases.values()]
    axes.barh(list(cases), products, left=1 - share, color="tab:blue", hatch="//", edgecolor="white", label="products")
    said = []
    for place, (label, part) in enumerate(zip(cases, products, strict=True)):
        faster = f"{1 / (1 - share + part):.2f} × as fast"
        axes.text(1 - share + part, place, f"  {faster}", va="center")
        said.append(f"{label}: {faster}")
    axes.set(xlabel="time of a step, as a share of what it is now", xlim=(0, 1.6))
    axes.invert_yaxis()
    figure.legend(frameon=False, loc="outside right center")
    words = f"Three bars. The grey part, {1 - share:.0%} of the step, is the same in all of them. "
    return Described(figure, words + "; ".join(said) + ".")


def plot_there_and_back() -> Described:
    """One call of dense_forward whose arrays lie in the memory of the CPU."""
    figure = Figure(figsize=(7.5, 2.5), layout="constrained")
    axes = figure.subplots()
    box = {"boxstyle": "round,pad=1", "facecolor": "0.93", "edgecolor": "0.5"}
    for x, name in ((0, "memory of the CPU"), (7, "memory of the GPU")):
        axes.text(x + 1.5, 1.5, f"{name}\n\nA  W  b\nZ", ha="center", va="center", fontsize=11, bbox=box)
    for y, words, ends in ((2.4, "A, W, b: three transfers", (3.3, 6.7)), (0.7, "Z: one transfer", (6.7, 3.3))):
        axes.annotate("", (ends[1], y), (ends[0], y), arrowprops={"arrowstyle": "-|>", "lw": 2, "color": "tab:red"})
        axes.text(5, y + 0.12, words, ha="center", va="bottom")
    axes.text(5, 1.5, "launch: Z = A Wᵀ + b", ha="center", va="center", color="tab:green")
    axes.set(xlim=(-0.5, 10.5), ylim=(0, 3.2))
    axes.set_axis_off()
    return Described(figure, "One call of dense_forward: three arrays to the GPU, a launch, one array back.")


def plot_room(blocks: Mapping[str, tuple[int, int]], places: int) -> Described:
    """The places for warps on a multiprocessor; kernel -> (warps of a block, blocks that fit)."""
    figure, said = Figure(figsize=(8, 2), layout="constrained"), []
    for axes, (name, (warps, fitting)) in zip(figure.subplots(1, len(blocks)), blocks.items(), strict=True):
        for place in range(places):
            colour = f"C{place // warps % 10}" if place // warps < fitting else "white"
            axes.barh(-(place // 16), 0.9, left=place % 16, height=0.8, color=colour, edgecolor="0.5")
        those = f"{fitting} block{'s' * (fitting > 1)} of {warps} warps"
        axes.set_title(f"{name}: {those}", fontsize=10)
        axes.set(xlabel="places for warps", xticks=[], yticks=[], xlim=(-0.4, 16.3))
        said.append(f"{name}: {warps * fitting} of {places} places taken, by {those}")
    return Described(figure, f"Places for warps on one SM. {'; '.join(said)}.")


def plot_sums_of_a_thread() -> Described:
    """What a thread of tiled and one of tiles_1d read and add to at one k."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    for axes, sums, title in zip(figure.subplots(1, 2), (1, 8), ("tiled", "tiles_1d"), strict=True):
        _thread(axes, sums, f"{title}: {sums + 1} readings, {sums} product{'s' * (sums > 1)}")
    words = "A thread of tiled reads 2 numbers for 1 product, one of tiles_1d 9 numbers for 8 products."
    return Described(figure, words)


def _thread(axes: Axes, sums: int, title: str) -> None:
    for x, columns, colour, name in ((0, 1, "tab:blue", "A_tile"), (2.5, 8, "tab:green", "sums")):
        for i, j in np.ndindex(8, columns):
            taken = i < sums and (name == "A_tile" or j == 2)
            axes.barh(-i, 0.9, left=x + j, height=0.9, color=colour, alpha=1 if taken else 0.2)
        axes.text(x + columns / 2, 0.9, name, ha="center", fontsize=9)
    for j in range(8):
        axes.barh(3, 0.9, left=2.5 + j, height=0.9, color="tab:orange", alpha=1 if j == 2 else 0.2)
    axes.text(6.5, 3.9, "W_tile", ha="center", fontsize=9)
    axes.set_title(title, fontsize=10, pad=14)
    axes.set_axis_off()
