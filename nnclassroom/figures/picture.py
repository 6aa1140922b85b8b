"""A picture of a kernel's memory accesses: which thread reads and writes which element, and how well accesses coalesce.

    from nnclassroom import picture
    picture.show("sigmoid", "naive", n=10, block=4)                    # in a notebook: a figure and a table, each time
    seen = picture.show("dense_forward", "tiled", batch=8, n_in=8, n_out=8, block=(4, 4), TILE=4)
    print(seen)                                                        # the table alone
    seen.plot(block=1)                                                 # the figure of one block

The kernel runs under the CPU emulator, so no GPU is needed; the sizes must be small.
"""

import dis
import re
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, product
from math import prod
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.typing import ColorType

from cuda_on_cpu.trace import ATOMIC, READ, WRITE, Memory, Trace
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.figures.accesses import Accesses, accesses, launched, spread, table, worst_request, wrapped
from nnclassroom.figures.described import WordedFigure
from nnclassroom.judge import check
from nnclassroom.pages import running_ipython
from nncourse.errors import CourseError
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

SMALL = {"n": 10, "batch": 4, "n_in": 6, "n_out": 5, "classes": 3}
OF_IMAGES = {"batch": 1, "c": 1, "c_in": 1, "c_out": 1, "h_in": 8, "w_in": 8, "h_out": 8, "w_out": 8}
OF_IMAGES |= {"k": 3, "size": 2, "stride": 1, "before": 1, "after": 1, "padding": 0}
BLOCKS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d", "#72b7b2", "#eeca3b", "#5d69b1")  # repeated
MANY, OTHERS, RED, EDGE = "#b8bcc4", "#ececec", "#d62728", "#8a8f98"
ROW, MOST, BEYOND = 32, 64, 3  # cells per row of a long array; most rows or columns drawn; rows drawn out of bounds
EDGES = {  # style of a cell: colour, width in points, distance from the cell's border, dashes
    "plain": (EDGE, 0.6, 0.0, "-"),
    "idle": (EDGE, 0.9, 0.0, ":"),
    "beyond": ("white", 0.6, 0.0, "-"),
    "framed": ("black", 1.1, 0.05, "-"),
    "request": ("#8e00c9", 2.2, 0.0, "-"),  # the worst request of a warp
}
PALE = 0.0, 0.55  # how pale cells are: written, and read
KINDS = {READ: "read", WRITE: "written", ATOMIC: "atomic updates"}
CELL_INCHES = (0.32, 0.28, 0.24, 0.2, 0.17, 0.14, 0.11, 0.08, 0.05)
LEFT, RIGHT, TOP, BOTTOM, WIDTH, TALLEST = 0.5, 0.15, 0.28, 0.53, 7.0, 7.5  # inches, around a panel and of all
LETTERS = 78  # in a line of the title
OF_A_TEXT = "text"  # the name of a kernel that is built from its text


@dataclass(frozen=True)
class Picture:
    """The result of show(): the accesses and their figure. A notebook displays both; print() gives the table.

    plain: without sectors, and without the counts of accesses.
    """

    accesses: Accesses
    plain: bool = False

    @cached_property
    def figure(self) -> WordedFigure:
        return self.plot()

    def plot(self, block: int | None = None) -> WordedFigure:
        """The figure; with `block`, only that block's accesses, coloured by thread."""
        return plot_accesses(self.accesses, block, self.plain)

    def __str__(self) -> str:
        return table(self.accesses, self.plain)

    __repr__ = __str__

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.figure)
        if self.plain:
            print(self)
        else:
            display(self.accesses)


def show(
    operation: str | Operation,
    kernel: str | CudaKernel,
    block: int | tuple[int, ...] | None = None,
    grid: int | tuple[int | str, ...] | None = None,
    seed: int = 0,
    plain: bool = False,
    **sizes: int,
) -> Picture:
    """The picture of a CUDA kernel on random data. `kernel` is a kernel of the operation, its name, or a CUDA text.

    `block` (threads per block) and `grid` are the kernel's own unless given; `seed` chooses the data; `plain` leaves
    out what is about speed. `sizes` sets sizes of the contract by letter, and constants that the text `#define`s, such
    as TILE=4. Raises CourseError for anything unknown. Where your wrong attempt does not run to its end, one line says
    so, and the course's is shown.

    A notebook shows the value of a cell's last line only. A call that is a line of its own is shown wherever it stands.
    """
    operation = find(operation) if isinstance(operation, str) else operation
    wanted = {name: value for name, value in (("block", block), ("grid", grid)) if value is not None}
    launch: dict[str, Any] = {
        name: (value,) if isinstance(value, int) else tuple(value) for name, value in wanted.items()
    }
    constants = {name: sizes.pop(name) for name in list(sizes) if name not in operation.shapes.free_names}
    chosen = _kernel(operation, kernel)
    for name, size in sizes.items():
        least = int(name in operation.shapes.dims)
        if not isinstance(size, int) or size < least:
            raise CourseError(f"{operation.name}: expected sizes from {least} up, got {name}={size!r}")
    small = SMALL | OF_IMAGES if {"h_in", "h_out"} & set(operation.size_names) else SMALL
    sizes = {name: small.get(name, 4) for name in operation.shapes.free_names} | sizes
    arguments = zip(operation.arguments, check.random_case(operation, sizes, seed).arguments, strict=True)
    flat = [value.reshape(-1) if named.any_shape else value for named, value in arguments]

    def seen(kernel: CudaKernel) -> Accesses:
        return accesses(replace(_with_constants(kernel, constants), plans={}, **launch), *flat)

    try:
        shown = Picture(seen(chosen), plain)
    except CourseError as error:
        if chosen.whose != "yours, wrong":
            raise
        said = str(error).splitlines()[0]
        print(f"Your {operation.name} ({chosen.name}) cannot be shown, so here is the course's: {said}")
        shown = Picture(seen(_kernel(operation, chosen.name if chosen.name in operation.kernels else "naive")), plain)
    if running_ipython() and _is_dropped(sys._getframe(1)):
        shown._ipython_display_()
    return shown


def _is_dropped(caller: FrameType) -> bool:
    """Whether the caller drops the value of the current call, because the call is a statement of its own."""
    following = (step.opname for step in dis.get_instructions(caller.f_code) if step.offset > caller.f_lasti)
    return next(following, "") == "POP_TOP"


def _kernel(operation: Operation, kernel: str | Kernel) -> CudaKernel:
    """Find the kernel by name, or build it from a CUDA text, which is launched as the operation's first CUDA kernel."""
    cuda = [there for there in operation.kernels.values() if isinstance(there, CudaKernel)]
    if isinstance(kernel, str) and "__global__" in kernel:
        if not cuda:
            raise CourseError(f"{operation.name}: expected an operation with CUDA kernels; it has none")
        launch = {option: getattr(cuda[0], option) for option in ("block", "grid", "over", "shared")}
        kernel = kept_kernels.build(operation, OF_A_TEXT, kernel, launch)
    elif isinstance(kernel, str):
        kernel = operation[kernel]
    if not isinstance(kernel, CudaKernel):
        names = ", ".join(there.name for there in cuda)
        raise CourseError(f"{operation.name}: expected a CUDA kernel, one of {names}, or a CUDA text; got {kernel}")
    return kernel


def _with_constants(kernel: CudaKernel, constants: dict[str, int]) -> CudaKernel:
    """The same kernel with other values for constants that its text #defines."""
    text = kernel.source.text
    for name, value in constants.items():
        text, changed = re.subn(rf"^([ \t]*#define[ \t]+{name}[ \t]+)\S+", rf"\g<1>{value}", text, flags=re.MULTILINE)
        if not changed:
            names = ", ".join(kernel.operation.shapes.free_names)
            raise CourseError(
                f"{kernel.operation.name}: expected a size ({names}) or a constant that the text defines; got {name}"
            )
    return replace(kernel, source=replace(kernel.source, text=text))


# ---- the figure


class Cell(NamedTuple):
    """One cell of a panel. `style` is one of EDGES; `request` tells whether it belongs to the worst request."""

    row: int
    column: int
    faces: list[ColorType]  # colours, side by side
    text: str
    style: str
    request: bool = False


@dataclass(frozen=True)
class Panel:
    """One grid of cells: an array as read or as written, or the threads."""

    title: str
    xlabel: str
    ylabel: str
    columns: range
    rows: range
    cells: list[Cell]
    words: str = ""  # about the worst request
    array: str = ""  # its name; "" for the threads
    faint: bool = False  # it has elements that are read


def plot_accesses(accesses: Accesses, block: int | None = None, plain: bool = False) -> WordedFigure:
    """Draw which thread reads and writes which element. Colours are blocks or, with `block`, the threads of that block.

    There is a panel for the threads, for each array as read and as written, and for the shared memory of one block. A
    number in a cell is the only thread that accesses it; 8× means 8 accesses by several threads. Out-of-bounds accesses
    are red. With `plain`, what a warp asks for at once is not marked. Raises CourseError for a block not in the grid.
    """
    trace = accesses.trace
    if block is not None and not 0 <= block < prod(trace.grid):
        raise CourseError(f"expected a block from 0 to {prod(trace.grid) - 1}, got {block}")
    panels = _panels(accesses, block)
    if plain:
        unmarked = ([cell._replace(request=False) for cell in panel.cells] for panel in panels)
        panels = [replace(panel, words="", cells=cells) for panel, cells in zip(panels, unmarked, strict=True)]
    for inches in CELL_INCHES:
        places, height = _layout(panels, inches)
        if height <= TALLEST and places:
            break
    handles = _legend(trace, panels, block)
    across = 4 if block is None else 3  # labels are longer
    foot = 0.45 + 0.2 * -(-len(handles) // across)
    which = "" if block is None else f"; colours: the threads of block {block}"
    title = wrapped(accesses.title + which, LETTERS)
    head = 0.2 + 0.2 * len(title)
    height += head + foot
    figure = WordedFigure(figsize=(WIDTH, height), dpi=100, facecolor="white", words=_in_words(accesses, block))
    figure.text(0.1 / WIDTH, 1 - 0.1 / height, "\n".join(title), va="top", fontsize=10.5, color="black")
    for panel, (left, top) in zip(panels, places, strict=True):
        wide, high = len(panel.columns) * inches, len(panel.rows) * inches
        frame = (left + LEFT) / WIDTH, (height - head - top - TOP - high) / height, wide / WIDTH, high / height
        _draw(figure.add_axes(frame), panel, inches)
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 0.22 / height)}
    figure.legend(handles=handles, **place, ncols=across, frameon=False, fontsize=8)
    numbers = [cell.text for panel in panels if _points(panel, inches) for cell in panel.cells]
    words = "In a cell: the thread that touches it, by its number in the block" if any(numbers) else ""
    if any("×" in text for text in numbers):
        words += "; 8×: 8 accesses by several threads"
    figure.text(0.1 / WIDTH, 0.1 / height, words and f"{words}.", fontsize=8.5, color="0.25")
    return figure


def _in_words(accesses: Accesses, block: int | None) -> str:
    """The picture in words: blocks and threads, accesses to each memory, and those out of bounds."""
    told = []
    for count in accesses.counts:
        kinds = {"reads": count.reads, "writes": count.writes, "atomic updates": count.atomics}
        done = [f"{number:,} {kind}" for kind, number in kinds.items() if number] or ["not touched"]
        if count.outside:
            done.append(f"{count.outside:,} accesses outside its {count.memory.size} cells")
        if count.memory.shared:
            done.append(f"{count.conflicts}-way bank conflicts" if count.conflicts > 1 else "no bank conflicts")
        name = f"shared {count.memory.name}" if count.memory.shared else count.memory.name
        told.append(f"{name}: {', '.join(done)}")
    whose = "Which block" if block is None else f"Which thread of block {block}"
    return f"{accesses.title}. {whose} touches which cell: {launched(accesses)}. {'; '.join(told)}."


def _layout(panels: list[Panel], inches: float) -> tuple[list[tuple[float, float]], float]:
    """The left and upper edge of each panel and the total height, in inches; no edges if a panel is too wide.

    Panels of one array stand side by side, if they are not too wide together.
    """
    places, left, top, high = [], 0.0, 0.0, 0.0
    for _, alike in groupby(panels, lambda panel: panel.array):
        group = list(alike)
        widths = [_width(panel, inches) for panel in group]
        if max(widths) > WIDTH:
            return [], np.inf
        if sum(widths) <= WIDTH < left + sum(widths):
            left, top, high = 0.0, top + high, 0.0
        for panel, wide in zip(group, widths, strict=True):
            if left + wide > WIDTH:
                left, top, high = 0.0, top + high, 0.0
            places.append((left, top))
            left, high = left + wide, max(high, TOP + len(panel.rows) * inches + BOTTOM - 0.12 * (not panel.words))
    return places, top + high


def _width(panel: Panel, inches: float) -> float:
    """Inches of a panel with its title, margins included."""
    outside = any(cell.style == "beyond" for cell in panel.cells)
    words = max(0.062 * len(panel.title), 0.057 * len(panel.words))
    return LEFT + max(len(panel.columns) * inches + 0.6 * outside, words) + RIGHT


def _panels(accesses: Accesses, block: int | None) -> list[Panel]:
    trace = accesses.trace
    panels = [_thread_panel(trace, block)]
    for number in _in_order(trace):
        memory = trace.memories[number]
        here = trace.accesses["memory"] == number
        name = f"{memory.name} ({', '.join(map(str, memory.shape))})"
        if memory.shared:
            shown = int(trace.accesses["block"][here].min()) if block is None else block
            here &= trace.accesses["block"] == shown
            name += f", shared in block {shown}"
        kinds = np.unique(trace.accesses["kind"][here]).tolist() or [READ]
        for kind in sorted(kinds, key=lambda kind: (memory.shared and kind == READ, kind)):
            chosen = here & (trace.accesses["kind"] == kind)
            title = f"{name}: {KINDS[kind] if chosen.any() else 'not touched'}"
            panels.append(_panel(trace, memory, title, kind, trace.accesses[chosen], accesses.requests[chosen], block))
    return panels


def _in_order(trace: Trace) -> list[int]:
    """The memories as data pass through them: arrays that are only read, shared memory, arrays that are changed."""
    changed = set(trace.accesses["memory"][trace.accesses["kind"] != READ].tolist())
    numbers = range(len(trace.memories))
    return sorted(numbers, key=lambda number: 1 if trace.memories[number].shared else 2 * (number in changed))


def _thread_panel(trace: Trace, block: int | None) -> Panel:
    """All threads of the launch at their places in the grid; threads without accesses are white."""
    (wide, *_), size = trace.block, prod(trace.block)
    across, down = trace.grid[0] * wide, prod(trace.grid[1:]) * (size // wide)
    busy = set(zip(trace.accesses["block"].tolist(), trace.accesses["thread"].tolist(), strict=True))
    columns, rows, width = _cut(across if down > 1 else None, 0, across * down - 1)
    cells = []
    for row, column in product(rows, columns):
        y, x = divmod(row * width + column, across)
        b, t = y // (size // wide) * trace.grid[0] + x // wide, y % (size // wide) * wide + x % wide
        if (b, t) in busy:
            cells.append(Cell(row, column, _faces({b}, {t}, size, WRITE, block), str(t), "plain"))
        elif y < down:
            cells.append(Cell(row, column, ["white"], str(t), "idle"))
    xlabel, ylabel = ("thread, x", "thread, y") if down > 1 else ("thread of the grid", "")
    return Panel(_title("threads", rows, columns, across * down), xlabel, ylabel, columns, rows, cells)


def _panel(
    trace: Trace, memory: Memory, title: str, kind: int, rows: np.ndarray, requests: np.ndarray, block: int | None
) -> Panel:
    """The elements of a memory, coloured by the blocks or threads that access them; `rows`: the accesses of `kind`."""
    touched: dict[int, list[tuple[int, int]]] = {}  # cell -> (block, thread) of each access
    accessed = spread(rows["cell"], rows["cells"], rows["block"], rows["thread"])
    for number, b, t in zip(*(column.tolist() for column in accessed), strict=True):
        touched.setdefault(number, []).append((b, t))
    own = np.full(len(rows), True) if block is None else rows["block"] == block
    request, words = worst_request(memory, rows[own], requests[own])
    long = len(memory.shape) == 1
    low, high = min([*touched, 0]), max([*touched, 0])
    last = high if memory.shared and long else memory.size - 1  # much shared memory may be unused
    columns, lines, width = _cut(None if long else memory.shape[-1], low, max(high, last))
    lines = range(max(lines.start, -BEYOND), lines.stop)
    cells = []
    for row, column in product(lines, columns):
        number = row * width + column
        touching = touched.get(number, [])
        shown = [one for one in touching if block in (None, one[0])]
        if not 0 <= number < memory.size:
            if touching and number < memory.size + BEYOND * width:
                cells.append(Cell(row, column, [RED], _text(touching, memory, kind), "beyond"))
        elif number <= last:
            faces = _faces({b for b, _ in touching}, {t for _, t in shown}, prod(trace.block), kind, block)
            style = "framed" if shown and kind != READ else "plain"
            cells.append(Cell(row, column, faces, _text(shown, memory, kind), style, number in request))
    lines = range(lines.start, min(lines.stop, max((cell.row for cell in cells), default=0) + 1))
    xlabel, ylabel = ("cell", "row of 32" if len(lines) > 1 else "") if long else ("column", "row")
    title = _title(title, lines, columns, memory.size)
    faint = kind == READ and len(rows) > 0
    return Panel(title, xlabel, ylabel, columns, lines, cells, words, memory.name, faint)


def _cut(width: int | None, low: int, high: int) -> tuple[range, range, int]:
    """The columns and rows to draw for cells `low` to `high` in rows of `width`, and the width of a row.

    Without a width, up to 32 cells are drawn in one row, more in rows of 32.
    """
    if width is None and high - low < ROW:
        return range(low, high + 1), range(1), ROW
    width = width or ROW
    rows = range(low // width, high // width + 1)
    return range(width)[:MOST], rows[:MOST], width


def _title(title: str, rows: range, columns: range, size: int) -> str:
    """The title; ", in part" is added if not everything is shown."""
    return title if len(rows) * len(columns) >= size else f"{title}, in part"


def _text(who: list[tuple[int, int]], memory: Memory, kind: int) -> str:
    """The number of the only thread, or the number of accesses; the latter also for repeated reads of shared memory."""
    if not who:
        return ""
    alone = len(who) == 1 or (len(set(who)) == 1 and not (memory.shared and kind == READ))
    return str(who[0][1]) if alone else f"{len(who)}×"


def _faces(blocks: set[int], threads: set[int], size: int, kind: int, block: int | None) -> list[ColorType]:
    """The colours of a cell, drawn side by side: of up to four blocks, or of a thread of `block`. Reads are faint."""
    chosen: list[ColorType]
    if block is None:
        chosen = [BLOCKS[b % len(BLOCKS)] for b in sorted(blocks)] if len(blocks) <= 4 else [MANY]
    elif block not in blocks:
        chosen = [OTHERS] if blocks else []
    else:
        chosen = [colormaps["viridis"](0.15 + 0.8 * next(iter(threads)) / size)] if len(threads) == 1 else [MANY]
    pale = PALE[kind == READ]
    return [_paled(face, pale) for face in chosen] or ["white"]


def _paled(face: ColorType, pale: float) -> ColorType:
    red, green, blue = (value + (1 - value) * pale for value in to_rgb(face))
    return red, green, blue


def _draw(axes: Axes, panel: Panel, inches: float) -> None:
    corners, colours = [], []
    for cell in panel.cells:
        wide = 1 / len(cell.faces)
        corners += [_corners(cell.column + part * wide, cell.row, wide, 1) for part in range(len(cell.faces))]
        colours += cell.faces
    axes.add_collection(PolyCollection(corners, facecolors=colours, linewidths=0, antialiaseds=False))
    for name, (colour, width, inset, dashes) in EDGES.items():
        chosen = [cell for cell in panel.cells if (cell.request if name == "request" else cell.style == name)]
        framed = [_corners(cell.column + inset, cell.row + inset, 1 - 2 * inset, 1 - 2 * inset) for cell in chosen]
        line: dict[str, Any] = {"edgecolors": colour, "linewidths": width * min(1.0, 5 * inches), "linestyles": dashes}
        axes.add_collection(PolyCollection(framed, facecolors="none", clip_on=False, **line))
    points = _points(panel, inches)
    for cell in panel.cells if points else ():
        light = np.dot(to_rgb(cell.faces[0]), (0.3, 0.59, 0.11)) > 0.5
        several = len(cell.faces) > 1  # colours behind one number, which gets a rim to be read on all of them
        colour = "0.5" if cell.style == "idle" else "black" if light or several else "white"
        rim = [withStroke(linewidth=2.2, foreground="white")] if several else []
        place = cell.column + 0.5, cell.row + 0.5
        axes.text(*place, cell.text, fontsize=points, color=colour, ha="center", va="center", path_effects=rim)
    outside = [cell.row for cell in panel.cells if cell.style == "beyond"]
    if outside:
        place = panel.columns.stop + 0.15, float(np.mean(outside)) + 0.5
        axes.text(*place, "outside", color=RED, fontsize=8, va="center", weight="bold")
    axes.set(xlim=(panel.columns.start, panel.columns.stop), ylim=(panel.rows.stop, panel.rows.start))
    axes.set_title(panel.title, fontsize=9, loc="left", pad=4, color="black")
    axes.set_xlabel(panel.xlabel, fontsize=8.5, labelpad=1)
    axes.set_ylabel(panel.ylabel, fontsize=8.5, labelpad=3)
    low: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 8.5, "va": "top"}
    axes.annotate(panel.words, (0, 0), (0, -24), color=EDGES["request"][0], **low)
    for ticks, numbers in ((axes.set_xticks, panel.columns), (axes.set_yticks, panel.rows)):
        step = next(step for step in (1, 2, 4, 8, 16) if step * inches > 0.19)
        ticks([number + 0.5 for number in numbers[::step]], list(map(str, numbers[::step])))
    if not panel.ylabel:
        axes.set_yticks([])
    axes.tick_params(labelsize=8, length=0, pad=1)
    axes.spines[:].set_visible(False)


def _points(panel: Panel, inches: float) -> float:
    """The size of the numbers in a panel's cells; 0 if they would be too small to be read."""
    widest = max((_ems(cell.text) for cell in panel.cells if cell.text), default=1.0)
    points = min(8.0, 72 * inches * min(0.82 / widest, 0.65))
    return points if points >= 5.2 else 0.0


def _ems(text: str) -> float:
    """The width of a number in a cell, such as "16×", in units of the font's size."""
    return sum(0.84 if letter == "×" else 0.64 for letter in text)


def _corners(x: float, y: float, wide: float, high: float) -> list[tuple[float, float]]:
    return [(x, y), (x + wide, y), (x + wide, y + high), (x, y + high)]


def _legend(trace: Trace, panels: list[Panel], block: int | None) -> list[Patch]:
    handles: list[Patch] = []

    def add(label: str, face: ColorType, edge: str = EDGE, **style: Any) -> None:
        handles.append(Patch(facecolor=face, edgecolor=edge, label=label, **style))

    cells = [cell for panel in panels for cell in panel.cells]
    styles, faces = {cell.style for cell in cells}, {face for cell in cells for face in cell.faces}
    count = prod(trace.grid)
    several, others = ({_paled(face, pale) for pale in PALE} & faces for face in (MANY, OTHERS))
    if any(panel.faint for panel in panels):
        add("faint: read", _faces({0}, set(), 1, READ, None)[0])
    if "framed" in styles:
        add("framed: written", BLOCKS[0], "black", linewidth=1.1)
    if block is None:
        for number, colour in enumerate(BLOCKS[:count]):
            add(f"block {number}", colour)
        if count > len(BLOCKS):
            handles[-1].set_label(f"block {len(BLOCKS) - 1}; then the colours repeat")
        if several:
            add("more than 4 blocks", MANY)
    else:
        if several:
            add("several threads", MANY)
        if others:
            add("other blocks only", OTHERS)
    if any(panel.words for panel in panels):
        colour, width, *_ = EDGES["request"]
        add("what one warp asks for at once", "white", colour, linewidth=width)
    if "idle" in styles:
        add("thread that touches nothing", "white", linestyle=":")
    if "beyond" in styles:
        add("outside the array", RED, RED)
    return handles
