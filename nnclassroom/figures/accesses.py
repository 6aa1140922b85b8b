"""Count a kernel's memory accesses, and measure how well they coalesce: the table of picture.py.

Accesses are counted as written in the .cu text; a GPU's compiler may eliminate some of them.
"""

import re
import textwrap
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from math import prod
from typing import Any

import numpy as np

from cuda_on_cpu.requests import requests_of, sectors_of, spread, turns_of
from cuda_on_cpu.trace import ATOMIC, READ, WRITE, Memory, Trace
from nnclassroom import pages
from nnclassroom.judge.check import compare
from nnclassroom.judge.run import out_of
from nnclassroom.judge.tolerance import references_of, rounded_as
from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels.kernel import CudaKernel
from nncourse.kernels.operation import Operation

NAMES = {READ: "read", WRITE: "write", ATOMIC: "atomic"}
WHOSE_WORDS = {"yours": "yours", "yours, wrong": "yours, wrong"}
GLOBAL_HEAD = ("global", "reads", "writes", "atomics", "outside", "sectors", "fewest", "efficiency")
SHARED_HEAD = ("shared", "reads", "writes", "atomics", "outside", "bank conflicts")
Texts = tuple[str, ...]
WIDTHS: dict[Texts, tuple[int, ...]] = {
    GLOBAL_HEAD: (13, 9, 9, 9, 9, 9, 8, 12),
    SHARED_HEAD: (13, 9, 9, 9, 9, 16),
}  # of columns, minimum


@dataclass(frozen=True)
class Count:
    """The accesses to one memory. A request consists of a warp's accesses by one instruction.

    `reads`, `writes` and `atomics` count accesses of single threads, except those `outside` the memory. For global
    memory, `sectors` counts the 32-byte sectors touched by all requests, and `fewest` the sectors that could hold the
    same elements. For shared memory, `conflicts` is the largest number of different words in one bank that a single
    request accesses: 1 means no bank conflict.
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
    worst: str = ""  # describes the worst request; empty if every request is optimal

    @property
    def efficiency(self) -> float:
        """fewest / sectors, from 0 to 1; 1 if nothing was touched."""
        return self.fewest / self.sectors if self.sectors else 1.0


@dataclass(frozen=True)
class Accesses:
    """All accesses of one launch of a kernel. print() and notebooks show them as a table."""

    title: str
    trace: Trace
    fault: str | None = None  # the fault of the kernel's result; None if it is right
    arrays: tuple[str, ...] = ()  # the contract's names; a kernel may call its parameters otherwise

    @cached_property
    def counts(self) -> tuple[Count, ...]:
        """One Count for each array, then one for each variable in shared memory."""
        return tuple(_count(self.trace, number, self.requests) for number in range(len(self.trace.memories)))

    @cached_property
    def requests(self) -> np.ndarray:
        """For each access, the number of its request."""
        return requests_of(self.trace.accesses)

    def __getitem__(self, name: str) -> Count:
        """The count of the array or shared variable of that name, in the kernel or in the contract."""
        names = [count.memory.name for count in self.counts]
        if name in self.arrays and name not in names:
            return self.counts[self.arrays.index(name)]
        refuse_unknown("an array or a shared variable", name, names)
        return self.counts[names.index(name)]  # the first, if several functions have shared variables of this name

    def reads_of(self, name: str) -> np.ndarray:
        """How often each element of the array or shared variable of that name was read, in its shape."""
        memory = self[name].memory
        number = next(number for number, other in enumerate(self.trace.memories) if other is memory)
        rows = self.trace.accesses
        rows = rows[(rows["memory"] == number) & (rows["kind"] == READ)]
        (cells,) = spread(rows["cell"], rows["cells"])
        inside = cells[(cells >= 0) & (cells < memory.size)]
        return np.bincount(inside, minlength=memory.size).reshape(memory.shape)

    @property
    def idle(self) -> int:
        """The number of threads that access no memory."""
        touching = self.trace.accesses["block"].astype(np.int64) * 1024 + self.trace.accesses["thread"]
        return prod(self.trace.grid) * prod(self.trace.block) - len(np.unique(touching))

    def __str__(self) -> str:
        return table(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said, tables, remarks = _lines(self)
        body = "<br>".join(map(escape, said))
        for head, rows in tables:
            body += f"<table>{pages.cells(head, tag='th')}{''.join(map(pages.cells, rows))}</table>"
        return pages.page(body + "<br>".join(map(escape, remarks)))


def accesses(kernel: CudaKernel, *arguments: Any) -> Accesses:
    """Run a CUDA kernel on NumPy arrays under the emulator, and record all accesses. The arrays are not changed."""
    if not isinstance(kernel, CudaKernel):
        raise CourseError(f"expected a CUDA kernel, got {kernel}")
    operation = kernel.operation
    assert isinstance(operation, Operation)
    sizes = operation.sizes(*arguments)
    references = references_of(operation, arguments)
    copies = (value.copy() if isinstance(value, np.ndarray) else value for value in arguments)
    found: list[Trace] = []
    options: dict[str, Any] = {"record": found}
    if not operation.in_place:
        options["out"] = out_of(operation, references)
    result = kernel(*copies, **options)
    if not found:
        raise CourseError(f"{operation.name} ({kernel.name}): these sizes need no threads at all; use larger ones")
    which = ", ".join(filter(None, (kernel.name, WHOSE_WORDS.get(kernel.whose, kernel.whose))))
    title = f"{operation.name} ({which}): {', '.join(f'{name} {size}' for name, size in sizes.items())}"
    fault = compare(rounded_as(operation, kernel), result, references, arguments)
    return Accesses(title, found[0], fault, operation.cuda_arrays)


# ---- counting


def _count(trace: Trace, number: int, requests: np.ndarray) -> Count:
    memory, outside = trace.memories[number], trace.accesses["outside"]
    mine = trace.accesses["memory"] == number
    rows, requests = trace.accesses[mine & ~outside], requests[mine & ~outside]
    reads, writes, atomics = np.bincount(rows["kind"], minlength=3).tolist()
    count = Count(memory, reads, writes, atomics, int((mine & outside).sum()))
    if not len(rows):
        return count
    if memory.shared:
        turns = turns_of(memory, rows, requests)[1]
        return replace(count, requests=len(turns), conflicts=int(turns.max()))
    request, sectors, fewest, place = sectors_of(memory, rows, requests)
    worst = ""
    if sectors[place] > fewest[place]:
        row = rows[request == place][0]
        in_line = f" in line {row['line']}" if row["line"] else ""
        worst = (
            f"a warp's {NAMES[row['kind']]}{in_line} touches {sectors[place]} sectors where {fewest[place]}"
            f" would do: {100 * fewest[place] / sectors[place]:.0f} %"
        )
    return replace(count, requests=len(sectors), sectors=int(sectors.sum()), fewest=int(fewest.sum()), worst=worst)


def worst_request(memory: Memory, rows: np.ndarray, requests: np.ndarray) -> tuple[set[int], str]:
    """The elements of the least efficient request to a global array, and a description; empty for shared memory."""
    inside = ~rows["outside"]
    if memory.shared or not inside.any():
        return set(), ""
    request, sectors, fewest, place = sectors_of(memory, rows[inside], requests[inside])
    wasteful = rows[inside][request == place]
    (cells,) = spread(wasteful["cell"], wasteful["cells"])
    best = "the fewest" if sectors[place] == fewest[place] else f"{fewest[place]} would do"
    return set(cells.tolist()), f"a warp: {sectors[place]} sector{'s' if sectors[place] > 1 else ''}, {best}"


# ---- the table


def table(accesses: Accesses, plain: bool = False) -> str:
    """The counts as lines of text, at most 80 columns wide; `plain`: without them, but with what is wrong."""
    said, tables, remarks = _lines(accesses)
    if plain:
        tables, remarks = [], [each for each in remarks if each.startswith("✗")]
    lines = [line for words in said for line in wrapped(words, 80)]
    for head, rows in tables:
        first, *widths = (max(width, len(name) + 1) for width, name in zip(WIDTHS[head], head, strict=True))
        for name, *texts in (head, *rows):
            numbers = (f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
            lines.append(f"{name[: first - 1]:{first}}" + "".join(numbers))
    return "\n".join(lines + [line for words in remarks for line in wrapped(words, 80, "  ")])


def wrapped(words: str, width: int, later: str = "") -> list[str]:
    """The words in lines of at most `width` letters, with `later` before all but the first.

    A size stays on the line of its name, as in "batch 32".
    """
    tied = re.sub(r"(?<=\w) (?=\d)", "\N{NO-BREAK SPACE}", words)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in textwrap.wrap(tied, width, subsequent_indent=later)]


def launched(accesses: Accesses) -> str:
    """The blocks and threads in words, and how many of them touch no memory."""
    trace, idle = accesses.trace, accesses.idle
    threads = prod(trace.grid) * prod(trace.block)
    blocks = f"{_axes(trace.grid)} block{'s' * (prod(trace.grid) > 1)} of {_axes(trace.block)} threads"
    touching = f"{idle} of {threads} threads touch nothing" if idle else f"all {threads} threads touch cells"
    return f"{blocks}; {touching}"


def _lines(accesses: Accesses) -> tuple[list[str], list[tuple[Texts, list[Texts]]], list[str]]:
    """The lines above the tables, the tables (head and rows), and the lines below them."""
    said = [accesses.title, launched(accesses)]
    in_global, in_shared, remarks = [], [], []
    for count in accesses.counts:
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
        remarks.append("sectors of 32 bytes: mean for one access of a warp; fewest: how many would do")
    remarks = [f"✗ {text}" for text in _faults(accesses)] + remarks
    tables: list[tuple[Texts, list[Texts]]] = [
        (head, rows) for head, rows in ((GLOBAL_HEAD, in_global), (SHARED_HEAD, in_shared)) if rows
    ]
    return said, tables, remarks


def _faults(accesses: Accesses) -> list[str]:
    """Describe the first out-of-bounds access to each memory, and a wrong result."""
    found, outside = [], accesses.trace.accesses[accesses.trace.accesses["outside"]]
    for row in outside[np.unique(outside["memory"], return_index=True)[1]]:
        memory = accesses.trace.memories[row["memory"]]
        who = f"thread {row['thread']} of block {row['block']}, line {row['line']}"
        found.append(f"outside: {memory.name}[{row['cell']}] of {memory.size} cells, {who}: is there a guard?")
    return found + ([f"the result is wrong: {accesses.fault}"] if accesses.fault else [])


def _axes(sizes: tuple[int, int, int]) -> str:
    """(4, 2, 1) -> "4 × 2"."""
    return " × ".join(map(str, sizes)).removesuffix(" × 1").removesuffix(" × 1")
