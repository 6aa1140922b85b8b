"""The memory accesses of an emulated launch: which thread accessed which element of which array or shared variable."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cuda_on_cpu.host_compiler import said_by
from cuda_on_cpu.program import DYNAMIC_SHARED, lines_before, program_for
from cuda_on_cpu.source import Parameter
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.tokens import blanked

# The struct Record of cuda_on_cpu_races.h.
RECORD = np.dtype(
    [("offset", "i8"), ("code", "u8"), ("block", "u4"), ("bytes", "u4"), ("thread", "u2"), ("memory", "i1")]
    + [("kind", "u1"), ("visit", "u4")]
)
COLUMNS = np.dtype(
    [("memory", "i2"), ("cell", "i8"), ("cells", "i4"), ("offset", "i8"), ("block", "u4"), ("thread", "u2")]
    + [("kind", "u1"), ("outside", "?"), ("line", "i4"), ("code", "u8"), ("visit", "u4")]
)
READ, WRITE, ATOMIC = range(3)
STATIC_SHARED, DYNAMIC_SHARED_MEMORY, DEVICE = -1, -2, -3

SHARED = re.compile(r"__shared__([^;(){}]{0,1000});")
CONSTANT = re.compile(r"(?:#define|const(?:expr)?\s+int)\s+(\w+)\s*=?\s*(\d+)\b")
SECTION_LIMIT = r"^([0-9a-f]+) \S __(start|stop)_{}$"
SYMBOL = re.compile(r"^([0-9a-f]+) ([0-9a-f]+) [a-zA-Z] (?:.*::)?(\w+)$", re.MULTILINE)  # of nm -S


@dataclass(frozen=True)
class Memory:
    """An array passed to a launch, or a variable in shared memory (of which each block has its own).

    "__device__" is for all `__device__` variables of the text together, if a kernel writes any; reads are left out.
    """

    name: str
    shape: tuple[int, ...]
    itemsize: int
    shared: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Trace:
    """All memory accesses of a launch. `accesses` is a structured array with one row per access, in execution order.

    Its columns:
    memory: index in `memories`
    cell, cells: index of the first accessed element, and the number of elements
    offset: in bytes from the start of the memory
    block, thread: number of the block in the grid and of the thread in its block, x first
    kind: READ, WRITE or ATOMIC
    line: in the .cu text; 0 if unknown
    code: identifies the instruction
    outside: whether the access is out of bounds
    visit: the number of a warp's visit to a block of code, in which its threads run together
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    memories: tuple[Memory, ...]
    accesses: np.ndarray


def trace_of(
    records: np.ndarray,
    source: CudaSource,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    passed: list[tuple[Parameter, Any]],
    shared_bytes: int,
) -> Trace:
    """A Trace of the program's records. `passed` has each parameter with its argument."""
    program, accesses = program_for(source, races=True), np.zeros(len(records), COLUMNS)
    for column in ("offset", "code", "block", "thread", "kind", "visit"):
        accesses[column] = records[column]
    touched = [
        (Memory(parameter.name, array.shape or (1,), array.itemsize, False), records["memory"] == number)
        for number, (parameter, array) in enumerate(passed)
        if parameter.pointer
    ]
    static, dynamic, device = (records["memory"] == number for number in (STATIC_SHARED, DYNAMIC_SHARED_MEMORY, DEVICE))
    known = variables(program, "cuda_shared") if static.any() else []
    if static.any() and not known:  # there is no nm to tell them apart
        known = [("shared", 0, int((records["offset"] + records["bytes"])[static].max()))]
    owner = np.searchsorted([start for _, start, _ in known], records["offset"], side="right") - 1
    shared = [(*variable, static & (owner == number)) for number, variable in enumerate(known)]
    for name, start, size, mine in (*shared, (_dynamic_name(source), 0, shared_bytes, dynamic)):
        if mine.any():
            accesses["offset"][mine] -= start
            itemsize = int(records["bytes"][mine].min())  # the type is unknown: take the smallest access
            touched.append((Memory(name, _shared_shape(source, name, size // itemsize), itemsize, True), mine))
    if device.any():
        size = int((records["offset"] + records["bytes"])[device].max())
        touched.append((Memory("__device__", (-(-size // 4),), 4, False), device))
    for number, (memory, mine) in enumerate(touched):
        cell = accesses["offset"][mine] // memory.itemsize
        cells = -(-records["bytes"][mine].astype(int) // memory.itemsize)
        accesses["memory"][mine], accesses["cell"][mine], accesses["cells"][mine] = number, cell, cells
        accesses["outside"][mine] = (cell < 0) | (cell + cells > memory.size)
    codes, place = np.unique(records["code"], return_inverse=True)
    accesses["line"] = np.array(lines_before(codes.tolist(), program, source), int)[place]
    return Trace(grid, block, tuple(memory for memory, _ in touched), accesses)


def variables(program: Path, section: str) -> list[tuple[str, int, int]]:
    """The variables in a section of cuda_on_cpu.ld: name, offset in the section, and size, both in bytes."""
    listed = said_by("nm", "-C", "-S", "-n", program)
    limits = {match[2]: int(match[1], 16) for match in re.finditer(SECTION_LIMIT.format(section), listed, re.M)}
    start, end = limits.get("start", 0), limits.get("stop", 0)
    found = [(match[3], int(match[1], 16) - start, int(match[2], 16)) for match in SYMBOL.finditer(listed)]
    return [item for item in found if 0 <= item[1] < end - start]


def _shared_shape(source: CudaSource, name: str, size: int) -> tuple[int, ...]:
    """The shape of a shared array: (rows, columns) if the last of its two brackets can be evaluated, else (size,)."""
    text = blanked(source.compilable())
    constants = dict(CONSTANT.findall(text))
    for declaration in SHARED.findall(text):
        for last in re.findall(rf"\b{re.escape(name)}\s*(?:\[[^]]*\]\s*)+\[([^]]*)\]", declaration):
            last = re.sub(r"\b[A-Za-z_]\w*", lambda word: constants.get(word[0], "?"), last)
            if not (sum_or_product := re.fullmatch(r"\s*(\d+)\s*(?:([+*])\s*(\d+)\s*)?", last)):
                continue
            a, b = int(sum_or_product[1]), int(sum_or_product[3] or 0)
            columns = a * b if sum_or_product[2] == "*" else a + b
            if columns and size % columns == 0:
                return size // columns, columns
    return (size,)


def _dynamic_name(source: CudaSource) -> str:
    """The name of the dynamic shared memory in the .cu text, if there is only one; else "dynamic shared"."""
    names = {match["name"] for match in DYNAMIC_SHARED.finditer(blanked(source.text))}
    return names.pop() if len(names) == 1 else "dynamic shared"
