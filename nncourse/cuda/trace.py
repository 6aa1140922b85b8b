"""What the emulator recorded of a launch: which thread touched which cell, by the names of the .cu text."""

import math
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nncourse.cuda.emulator_program import DYNAMIC_SHARED, lines_before, program_for
from nncourse.cuda.source import COMMENT, CudaSource

# The struct Record of cuda_on_cpu_races.h.
RECORD = np.dtype(
    [("offset", "i8"), ("code", "u8"), ("block", "u4"), ("bytes", "u4"), ("thread", "u2"), ("memory", "i1")]
    + [("kind", "u1"), ("padding", "u4")]
)
COLUMNS = np.dtype(
    [("memory", "i2"), ("cell", "i8"), ("cells", "i4"), ("offset", "i8"), ("block", "u4"), ("thread", "u2")]
    + [("kind", "u1"), ("outside", "?"), ("line", "i4"), ("code", "u8")]
)
READ, WRITE, ATOMIC = range(3)
STATIC_SHARED, DYNAMIC_SHARED_MEMORY = -1, -2

SHARED = re.compile(r"__shared__([^;(){}]*);")
CONSTANT = re.compile(r"(?:#define|const(?:expr)?\s+int)\s+(\w+)\s*=?\s*(\d+)\b")
SECTION_LIMIT = re.compile(r"^([0-9a-f]+) \w __(start|stop)_cuda_shared$", re.MULTILINE)
SYMBOL = re.compile(r"^([0-9a-f]+) ([0-9a-f]+) [a-zA-Z] (?:.*::)?(\w+)$", re.MULTILINE)  # of nm -S


@dataclass(frozen=True)
class Memory:
    """What a launch touched: an array that was passed, or a variable in shared memory (one in each block)."""

    name: str
    shape: tuple[int, ...]
    itemsize: int
    shared: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Trace:
    """Every access of a launch to its memories, in the order they came; `accesses` has a row for each.

    Its columns: `memory` (place in `memories`); `cell`, the first one's number in the memory, and `cells`, how many;
    `offset` in bytes; `block` and `thread` in it, each counted x first; `kind` READ, WRITE or ATOMIC; `line` of the .cu
    text, 0 if unknown; `code`, which tells one instruction from another; `outside`, whether it misses the memory.
    """

    source: CudaSource
    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    memories: tuple[Memory, ...]
    accesses: np.ndarray


def trace_of(
    records: np.ndarray,
    source: CudaSource,
    function: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arrays: dict[int, tuple[str, np.ndarray]],
    shared_bytes: int,
) -> Trace:
    """Give names and cell numbers to what the program recorded. `arrays` are those that were passed, by place."""
    program = program_for(source, races=True)
    memories, accesses = [], np.zeros(len(records), COLUMNS)
    for column in ("offset", "code", "block", "thread", "kind"):
        accesses[column] = records[column]

    def add(name: str, mine: np.ndarray, itemsize: int, shape: tuple[int, ...], shared: bool) -> None:
        memory = Memory(name, shape, itemsize, shared)
        cell, cells = accesses["offset"][mine] // itemsize, -(-records["bytes"][mine].astype(int) // itemsize)
        accesses["cell"][mine], accesses["cells"][mine] = cell, cells
        accesses["outside"][mine] = (cell < 0) | (cell + cells > memory.size)
        accesses["memory"][mine] = len(memories)
        memories.append(memory)

    def add_shared(name: str, mine: np.ndarray, size: int) -> None:
        itemsize = int(records["bytes"][mine].min())  # the type is not known here, but what is read or written at once
        add(name, mine, itemsize, _shared_shape(source, name, size // itemsize), True)

    for number, (name, array) in arrays.items():
        add(name, records["memory"] == number, array.itemsize, array.shape or (1,), False)
    static = records["memory"] == STATIC_SHARED
    variables = shared_variables(program) if static.any() else []
    owner = np.searchsorted([start for _, start, _ in variables], records["offset"], side="right") - 1
    for number, (name, start, size) in enumerate(variables):
        mine = static & (owner == number)
        accesses["offset"][mine] -= start
        if mine.any():
            add_shared(name, mine, size)
    dynamic = records["memory"] == DYNAMIC_SHARED_MEMORY
    if dynamic.any():
        add_shared(_dynamic_name(source), dynamic, shared_bytes)
    codes, place = np.unique(records["code"], return_inverse=True)
    accesses["line"] = np.array(lines_before(codes.tolist(), program, source), int)[place]
    return Trace(source, function, grid, block, tuple(memories), accesses)


def shared_variables(program: Path) -> list[tuple[str, int, int]]:
    """The __shared__ variables of a program: name, first byte and number of bytes, as they lie in its section."""
    if not shutil.which("nm"):  # it comes with g++'s linker too
        return []
    listed = subprocess.run(["nm", "-C", "-S", program], capture_output=True, text=True, errors="replace").stdout
    limits = {match[2]: int(match[1], 16) for match in SECTION_LIMIT.finditer(listed)}
    start, end = limits.get("start", 0), limits.get("stop", 0)
    found = ((match[3], int(match[1], 16) - start, int(match[2], 16)) for match in SYMBOL.finditer(listed))
    inside = (item for item in found if 0 <= item[1] < end - start and item[0] != "room_after_shared")
    return sorted(inside, key=lambda item: item[1])


def _shared_shape(source: CudaSource, name: str, size: int) -> tuple[int, ...]:
    """The shape of a shared array: rows and columns if its declaration has two brackets that are understood."""
    text = COMMENT.sub(" ", source.compilable())
    constants = dict(CONSTANT.findall(text))
    for declaration in SHARED.findall(text):
        for brackets in re.findall(rf"\b{re.escape(name)}\s*((?:\[[^]]*\]\s*){{2,}})", declaration):
            last = re.findall(r"\[([^]]*)\]", brackets)[-1]
            last = re.sub(r"\b[A-Za-z_]\w*", lambda word: constants.get(word[0], "?"), last)
            if not (sum_or_product := re.fullmatch(r"\s*(\d+)\s*(?:([+*])\s*(\d+)\s*)?", last)):
                continue
            a, b = int(sum_or_product[1]), int(sum_or_product[3] or 0)
            columns = a * b if sum_or_product[2] == "*" else a + b
            if columns and size % columns == 0:
                return size // columns, columns
    return (size,)


def _dynamic_name(source: CudaSource) -> str:
    """What a .cu text calls its dynamic shared memory, if it gives it one name."""
    names = {name for _, name in DYNAMIC_SHARED.findall(source.text)}
    return names.pop() if len(names) == 1 else "dynamic shared"
