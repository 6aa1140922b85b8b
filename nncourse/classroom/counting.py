"""How many accesses a kernel makes, and how well a warp's fit together: the table of picture.py.

Accesses are those that the .cu text asks for; a GPU's compiler may save some of them.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from math import prod

import numpy as np

from nncourse.classroom import html
from nncourse.cuda.trace import ATOMIC, READ, WRITE, Memory, Trace
from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels import check
from nncourse.kernels.kernel import CudaKernel

WARP, SECTOR, BANKS = 32, 32, 32  # threads; bytes that global memory hands out at once; words of 4 bytes side by side
NAMES = {READ: "read", WRITE: "write", ATOMIC: "atomic"}
COLUMNS = {"reads": 9, "writes": 9, "atomics": 9, "outside": 9}  # of the tables, and how wide they are
GLOBAL_HEAD = {"global": 13} | COLUMNS | {"sectors": 9, "fewest": 8, "efficiency": 12}
SHARED_HEAD = {"shared": 13} | COLUMNS | {"bank conflicts": 16}


@dataclass(frozen=True)
class Count:
    """The accesses to one memory. A warp's accesses by one instruction are one request.

    `reads`, `writes` and `atomics` are those of single threads, without those `outside`. For global memory `sectors`
    are the sectors of 32 bytes that all requests touched, `fewest` those that could hold the same cells. For shared
    memory `conflicts` is the worst number of different words that one request wanted of one bank: 1 is none.
    """

    memory: Memory
    reads: int
    writes: int
    atomics: int
    outside: int
    requests: int = 0
    sectors: int = 0
    fewest: int = 0
    conflicts: int = 1
    worst: str = ""  # words on the worst request; empty where every one is as good as it can be

    @property
    def efficiency(self) -> float:
        """The share of the sectors that was needed, 0 to 1; 1 where nothing was touched."""
        return self.fewest / self.sectors if self.sectors else 1.0


@dataclass(frozen=True)
class Accesses:
    """Every access of one launch of a kernel. print() gives the table; a notebook shows it as one."""

    title: str
    trace: Trace
    fault: str | None = None  # what is wrong with the kernel's result

    @cached_property
    def counts(self) -> tuple[Count, ...]:
        """What was counted, for each array, then for each variable in shared memory."""
        return tuple(_count(self.trace, number, self.requests) for number in range(len(self.trace.memories)))

    @cached_property
    def requests(self) -> np.ndarray:
        """For each access the number of the request that it belongs to."""
        return _requests(self.trace.accesses)

    def __getitem__(self, name: str) -> Count:
        """The count of the array or shared variable of that name."""
        names = [count.memory.name for count in self.counts]
        refuse_unknown("an array or a shared variable", name, names)
        return self.counts[names.index(name)]  # the first, where functions have shared variables of the same name

    @property
    def idle(self) -> int:
        """How many threads touch nothing."""
        touching = self.trace.accesses["block"].astype(np.int64) * 1024 + self.trace.accesses["thread"]
        return prod(self.trace.grid) * prod(self.trace.block) - len(np.unique(touching))

    def __str__(self) -> str:
        return table(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said, tables, remarks = _lines(self)
        body = "<br>".join(map(escape, said))
        for head, rows in tables:
            body += f"<table>{html.cells([*head], tag='th')}{''.join(map(html.cells, rows))}</table>"
        return html.page(body + "<br>".join(map(escape, remarks)))


def accesses(kernel: CudaKernel, *arguments) -> Accesses:
    """Run a CUDA kernel on NumPy arrays, under the emulator, and record every access."""
    if not isinstance(kernel, CudaKernel):
        raise CourseError(f"wanted a CUDA kernel, got {kernel}")
    operation = kernel.operation
    sizes = operation.sizes(*arguments)
    truths = check.truths_of(operation, arguments)
    copies = (value.copy() if isinstance(value, np.ndarray) else value for value in arguments)
    options: dict = {"record": (found := [])}
    if not operation.in_place:
        options["out"] = check.out_of(operation, truths)
    result = kernel(*copies, **options)
    if not found:
        raise CourseError(f"{operation.name} ({kernel.name}): these sizes need no threads at all; use larger ones")
    title = f"{operation.name} ({kernel.name}): {', '.join(f'{name} {size}' for name, size in sizes.items())}"
    return Accesses(title, found[0], check.compare(operation, result, truths, arguments))


# ---- counting


def _numbered(*columns: np.ndarray) -> np.ndarray:
    """A number for each row, the same for rows that are alike."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        number = np.unique(number * len(values) + place, return_inverse=True)[1]
    return number


def _requests(rows: np.ndarray) -> np.ndarray:
    """The number of the request that each access belongs to.

    That is: of the threads of a warp, the k-th access of each by the same instruction to the same memory.
    """
    one_thread = _numbered(rows["block"], rows["thread"], rows["code"], rows["memory"])
    order = np.argsort(one_thread, kind="stable")
    starts = np.flatnonzero(np.diff(one_thread[order], prepend=-1))
    occurrence = np.empty(len(rows), np.int64)
    occurrence[order] = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))
    return _numbered(rows["block"], rows["thread"] // WARP, rows["code"], rows["memory"], occurrence)


def spread(first: np.ndarray, count: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """first, first + 1, … for each row, count of them, with the other columns repeated."""
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(first, count) + within, *(np.repeat(other, count) for other in others)


def _different(requests: np.ndarray, things: np.ndarray) -> np.ndarray:
    """How many different things each request touched, by the request's number."""
    pairs = np.unique(np.stack([requests, things]), axis=1)
    return np.bincount(pairs[0])


def _sectors(memory: Memory, rows: np.ndarray, requests: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """The rows' requests, numbered from 0; the sectors that each touched; the fewest that could hold the same cells.

    The last number is that of the request that wastes most.
    """
    request = np.unique(requests, return_inverse=True)[1]
    cell, of = spread(rows["cell"], rows["cells"], request)
    sectors = _different(of, cell * memory.itemsize // SECTOR)
    fewest = -(-_different(of, cell) * memory.itemsize // SECTOR)
    return request, sectors, fewest, int(np.argmax(sectors / fewest))


def _count(trace: Trace, number: int, requests: np.ndarray) -> Count:
    memory, outside = trace.memories[number], trace.accesses["outside"]
    mine = trace.accesses["memory"] == number
    rows, requests = trace.accesses[mine & ~outside], requests[mine & ~outside]
    kinds = np.bincount(rows["kind"], minlength=3).tolist()
    count = Count(memory, *kinds, int((mine & outside).sum()))
    if not len(rows):
        return count
    if memory.shared:
        return replace(count, requests=len(np.unique(requests)), conflicts=_bank_conflicts(memory, rows, requests))
    request, sectors, fewest, place = _sectors(memory, rows, requests)
    worst = ""
    if sectors[place] > fewest[place]:
        row = rows[request == place][0]
        in_line = f" in line {row['line']}" if row["line"] else ""
        worst = f"a warp's {NAMES[row['kind']]}{in_line} touches {sectors[place]} sectors where {fewest[place]}"
        worst += f" would do: {100 * fewest[place] / sectors[place]:.0f} %"
    return replace(count, requests=len(sectors), sectors=int(sectors.sum()), fewest=int(fewest.sum()), worst=worst)


def worst_request(memory: Memory, rows: np.ndarray, requests: np.ndarray) -> tuple[set[int], str]:
    """The cells of the request to a global array that wastes most, and words on it; nothing for shared memory."""
    inside = ~rows["outside"]
    if memory.shared or not inside.any():
        return set(), ""
    request, sectors, fewest, place = _sectors(memory, rows[inside], requests[inside])
    wasteful = rows[inside][request == place]
    (cells,) = spread(wasteful["cell"], wasteful["cells"])
    best = "the fewest" if sectors[place] == fewest[place] else f"{fewest[place]} would do"
    return set(cells.tolist()), f"a warp: {sectors[place]} sector{'s' if sectors[place] > 1 else ''}, {best}"


def _bank_conflicts(memory: Memory, rows: np.ndarray, request: np.ndarray) -> int:
    """The most different words that a request wants of one bank; accesses of 8 or 16 bytes go in 2 or 4 turns."""
    words = np.maximum(rows["cells"] * memory.itemsize // 4, 1)
    turn = rows["thread"] % WARP * words // WARP
    word, of, turn = spread(rows["offset"] // 4, words, request, turn)
    wanted = np.unique(np.stack([of, turn, word % BANKS, word]), axis=1)
    return int(np.unique(wanted[:3], axis=1, return_counts=True)[1].max())


# ---- the table


def table(accesses: Accesses) -> str:
    """The counts as lines of text, at most 80 columns wide."""
    said, tables, remarks = _lines(accesses)
    lines = [_short(line) for line in said]
    for head, rows in tables:
        first, *widths = head.values()
        for name, *texts in (head, *rows):
            numbers = (f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
            lines.append(f"{name[: first - 1]:{first}}" + "".join(numbers))
    return "\n".join(lines + [_short(line) for line in remarks])


def _lines(accesses: Accesses) -> tuple[list[str], list[tuple[dict, list[tuple]]], list[str]]:
    """What stands above the tables, the tables (heads and rows), what stands below them."""
    trace, counts = accesses.trace, accesses.counts
    threads, idle = prod(trace.grid) * prod(trace.block), accesses.idle
    blocks = f"{_axes(trace.grid)} block{'s' * (prod(trace.grid) > 1)} of {_axes(trace.block)} threads"
    touching = f"{idle} of {threads} threads touch nothing" if idle else f"all {threads} threads touch cells"
    said = [accesses.title, f"{blocks}; {touching}"]
    in_global, in_shared, remarks = [], [], []
    for count in counts:
        name = count.memory.name
        texts = (name, *(f"{number:,}" for number in (count.reads, count.writes, count.atomics, count.outside)))
        if count.memory.shared:
            in_shared.append((*texts, "none" if count.conflicts == 1 else f"{count.conflicts}-way"))
        else:
            mean = (f"{number / max(count.requests, 1):.3g}" for number in (count.sectors, count.fewest))
            in_global.append((*texts, *mean, f"{100 * count.efficiency:.0f} %"))
        if count.worst:
            remarks.append(f"{name}: {count.worst}")
    if in_global:
        remarks.append("sectors: of 32 bytes, touched by one access of a warp; fewest: that would do")
    remarks = [f"✗ {text}" for text in _faults(accesses)] + remarks
    tables = [(head, rows) for head, rows in ((GLOBAL_HEAD, in_global), (SHARED_HEAD, in_shared)) if rows]
    return said, tables, remarks


def _faults(accesses: Accesses) -> list[str]:
    """Words on the first access outside of each memory, and on a wrong result."""
    found, outside = [], accesses.trace.accesses[accesses.trace.accesses["outside"]]
    for row in outside[np.unique(outside["memory"], return_index=True)[1]]:
        memory = accesses.trace.memories[row["memory"]]
        who = f"thread {row['thread']} of block {row['block']}, line {row['line']}"
        found.append(f"outside: {memory.name}[{row['cell']}] of {memory.size} cells, {who}: is there a guard?")
    return found + ([f"the result is wrong: {accesses.fault}"] if accesses.fault else [])


def _axes(sizes: tuple[int, int, int]) -> str:
    """(4, 2, 1) -> "4 × 2"."""
    return " × ".join(map(str, sizes)).removesuffix(" × 1").removesuffix(" × 1")


def _short(line: str) -> str:
    return line if len(line) <= 80 else line[:79] + "…"
