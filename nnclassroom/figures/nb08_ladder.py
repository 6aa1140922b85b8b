"""Figures and tables of notebook 08b: what holds a kernel of dense_forward back, and what fits on a multiprocessor."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cuda_on_cpu.nvrtc import Resources, why_no_nvrtc
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.nb08_to_10 import Multiprocessor
from nnclassroom.figures import overheads
from nnclassroom.figures.common import drawing
from nnclassroom.figures.described import Described
from nnclassroom.figures.recorded import table
from nnclassroom.formats import duration, times_as_fast
from nncourse.cuda.compile import resources
from nncourse.kernels.kernel import CudaKernel

# ---- roofs


def roofs_table(roofs: Mapping[str, float], speeds: Mapping[str, float]) -> str:
    """The roof of each kernel and its speed, both in FLOP per second, and the share that it reaches."""
    rows = []
    for name, roof in roofs.items():
        speed = speeds.get(name)
        reached = [f"{speed / 1e12:.1f}", f"{speed / roof:.0%}"] if speed else ["–", "–"]
        rows.append([name, f"{roof / 1e12:.1f}", *reached])
    return table(["TFLOP/s", "roof", "reached", "share"], rows)


def plot_sums_of_a_thread() -> Described:
    """Draw what a thread of tiled and one of tiles_1d read and add to at one k."""
    figure, places = drawing(2, 7, 3.6)
    for axes, sums, title in zip(places, (1, 8), ("tiled", "tiles_1d"), strict=True):
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


# What the next rung takes away; before it, the reads from shared memory for 64 products, in machine code for sm_90.
HELD_BACK = {
    "naive": (0, "the order of its reads: a warp reads 32 rows of W at once"),
    "coalesced": (0, "no number is used twice: each product fetches its factors"),
    "tiled": (80, "shared memory: more reads than products"),
    "tiles_1d": (24, "shared memory: 24 reads for 64 products"),
    "tiles_2d": (16, "reads of one number each: 16 instructions for 64 products"),
    "vectorised": (4, "the shape of a warp's part, 16 × 128, but hardly"),
    "warp_tiles": (4, "the wait for the next tile, at every eighth k"),
    "double_buffered": (3, "arithmetic: little is left to take away"),
}


RUNGS = tuple(HELD_BACK)


def held_back_table(seconds: Mapping[str, float]) -> str:
    """For each rung its time, its reads from shared memory, how much the next rung gains, and what holds it back."""
    rows = []
    for (name, (reads, words)), upper in zip(HELD_BACK.items(), [*list(HELD_BACK)[1:], "cupy"], strict=True):
        if name in seconds and upper in seconds:
            gain = times_as_fast(seconds[name] / seconds[upper])
            rows.append([name, duration(seconds[name]), str(reads), gain, f"  {words}"])
    width = max((len(row[-1]) for row in rows), default=0)
    heads = ["rung", "time", "reads", "next", "  held back by".ljust(width)]
    return table(heads, [[*row[:-1], row[-1].ljust(width)] for row in rows])


# The cells (row, k) of each tile that a thread t loads, and the elements (sample, neuron) that it sums.
Cells = Callable[[int], list[tuple[int, int]]]
LOADS: dict[str, tuple[Cells, Cells]] = {
    "tiles_2d": (
        lambda t: [(t // 8 + 32 * part, t % 8) for part in range(4)],
        lambda t: [(t // 16 + 16 * m, t % 16 + 16 * n) for m, n in np.ndindex(8, 8)],
    ),
    "vectorised": (
        lambda t: [(t // 2, t % 2 * 4 + k) for k in range(4)],
        lambda t: [(t // 16 * 4 + m // 4 * 64 + m % 4, t % 16 * 4 + n // 4 * 64 + n % 4) for m, n in np.ndindex(8, 8)],
    ),
}
THREAD = 37


def plot_loads_and_sums(name: str) -> Described:
    """Draw which cells of a tile a thread and its warp load, and which elements of a block's 128 × 128 they sum."""
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 4))
    said = []
    titles = "Loaded of each tile", "Sums of the block"
    for axes, cells, columns, title in zip((left, right), LOADS[name], (8, 128), titles, strict=True):
        image = np.ones((128, columns, 3))
        for threads_, colour in ((range(32), (0.62, 0.79, 0.88)), ((THREAD % 32,), (0.85, 0.33, 0.05))):
            for lane in threads_:
                for row, column in cells(THREAD // 32 * 32 + lane):
                    image[row, column] = colour
        axes.imshow(
            image, interpolation="nearest", aspect="auto" if columns == 8 else "equal", extent=(0, columns, 128, 0)
        )
        axes.set_title(title, fontsize=10)
        axes.set(xlabel="k" if columns == 8 else "neuron", xticks=range(0, columns + 1, max(4, columns // 8)))
        axes.set_yticks(range(0, 129, 16))
        rows, places = ([*dict.fromkeys(each)] for each in zip(*cells(THREAD), strict=True))
        said.append(f"{title}: rows {_listed(rows)}, columns {_listed(places)}")
    left.set_ylabel("sample, or neuron, of the block")
    figure.suptitle(f"Orange: thread {THREAD}; blue: the other threads of its warp", fontsize=10)
    return Described(figure, f"{name}, thread {THREAD} of 256. {'; '.join(said)}.")


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# ---- room on a multiprocessor


def needs_of(kernels: Sequence[CudaKernel]) -> dict[str, Resources]:
    """The registers and the shared memory of each kernel, from NVIDIA's compiler; {} where it is not installed."""
    return {} if why_no_nvrtc() else {kernel.name: resources(kernel.source, kernel.entry) for kernel in kernels}


def threads(kernel: CudaKernel) -> int:
    """The threads of a block."""
    return int(np.prod(kernel.block))


def columns(kernels: Sequence[CudaKernel], needs: Mapping[str, Resources]) -> np.ndarray:
    """Registers a thread, bytes of shared memory a block and threads a block: a row of whole numbers each."""
    found = [(needs[each.name].registers, needs[each.name].shared_bytes, threads(each)) for each in kernels]
    return np.array(found, np.int32).T


def needs_table(kernels: Sequence[CudaKernel], needs: Mapping[str, Resources]) -> str:
    """What a block of each kernel takes with it, as the compiler says; why it does not, where it is not installed."""
    if not needs:
        return str(why_no_nvrtc())
    rows = [[each.name, *map(str, numbers)] for each, numbers in zip(kernels, columns(kernels, needs).T, strict=True)]
    return table(["kernel", "registers a thread", "bytes a block", "threads a block"], rows)


def plot_room(kernels: Sequence[CudaKernel], needs: Mapping[str, Resources], sm: Multiprocessor) -> Described:
    """Draw the places for warps on a multiprocessor under two kernels or more, and the blocks that fit there."""
    figure, said, places = Figure(figsize=(8, 2), layout="constrained"), [], sm.warps
    shares = find("occupancy")["numpy"](*columns(kernels, needs), sm)
    for axes, kernel, share in zip(figure.subplots(1, len(kernels)), kernels, shares, strict=True):
        name, warps = kernel.name, threads(kernel) // 32
        fitting = round(float(share) * places) // warps
        for place in range(places):
            colour = f"C{place // warps % 10}" if place // warps < fitting else "white"
            axes.barh(-(place // 16), 0.9, left=place % 16, height=0.8, color=colour, edgecolor="0.5")
        those = f"{fitting} block{'s' * (fitting > 1)} of {warps} warps"
        axes.set_title(f"{name}: {those}", fontsize=10)
        axes.set(xlabel="places for warps", xticks=[], yticks=[], xlim=(-0.4, 16.3))
        said.append(f"{name}: {warps * fitting} of {places} places taken, by {those}")
    return Described(figure, f"Places for warps on one SM. {'; '.join(said)}.")


def occupancy_table(
    kernels: Sequence[CudaKernel], shares: Mapping[str, Sequence[float]], speeds: Mapping[str, float]
) -> str:
    """The occupancy of each kernel on each GPU, and its speed, given in FLOP per second."""
    rows = []
    for kernel, *of_it in zip(kernels, *shares.values(), strict=True):
        speed = f"{speeds[kernel.name] / 1e12:.1f}" if kernel.name in speeds else "–"
        rows.append([kernel.name, *(f"{share:.1%}" for share in of_it), speed])
    heads = ["kernel", *shares, "TFLOP/s"]
    return f"{table(heads, rows)}\nTFLOP/s: {overheads.where('gpu')}"
