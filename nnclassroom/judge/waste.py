"""Is a right CUDA kernel wasteful? Its accesses to memory tell, beside those of the package's kernel of that name.

What a kernel is named for is in its Budget: a kernel without it is refused. Any other waste is kept, and the verdict
names it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuda_on_cpu.nvrtc import double_lines
from cuda_on_cpu.requests import requests_of, sectors_of, turns_of
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.trace import READ, WRITE, Memory, Trace
from nnclassroom.judge.verdict import Fault
from nncourse.kernels.operation import Operation

KINDS = {READ: "read", WRITE: "write"}
MUCH = 2  # times what would do, and what the package's kernel does, are not called waste yet
ALONE = 8  # times what a thread reads on average: then a thread works while others wait
SHARED = "shared memory"  # the name of all of a block's variables together, since each text names its own


@dataclass(frozen=True)
class Use:
    """The accesses of one kind to one array, or to shared memory, by all threads of a launch.

    again: how often a thread accesses the same element, on average. alone: the most accesses of a thread, over the
    mean of all threads, and `most`, their number. `touched`, `least` and `line` describe the worst request of a warp:
    the sectors of global memory that it touches or the turns that the banks of shared memory take, how many would do,
    and where. `ratio` is that of all requests together; for shared memory, of the worst.
    """

    again: float
    alone: float
    most: int
    touched: int
    least: int
    ratio: float
    line: int
    name: str


def wasted(
    operation: Operation, trace: Trace, of_package: Callable[[], Trace | Fault | None], source: CudaSource
) -> tuple[Mapping[str, Any], ...]:
    """The facts of each kind of waste, which words.py makes words of.

    trace: of a launch. of_package: the same launch by the package's kernel of this name, None if there is none; it is
        called only if something looks like waste.
    """
    suspects = list(_suspects(uses(operation, trace)))
    if suspects and isinstance(theirs := of_package(), Trace):
        known = uses(operation, theirs)
        suspects = [
            each
            for each in suspects
            if each[:2] not in known or each[3] > MUCH * getattr(known[each[:2]], MEASURES[each[2]])
        ]
    found = [_facts(*each[:3], each[4]) for each in suspects]
    lines = double_lines(source)
    return (*found, *([{"waste": "double", "line": lines[0]}] if lines else []))


# What is compared with the package's kernel, for each kind of waste.
MEASURES = {"sectors": "ratio", "turns": "ratio", "again": "again", "alone": "alone"}

Suspect = tuple[str, int, str, float, Use]  # an array, the kind of access and of waste, how much of it, and the use


def _suspects(found: Mapping[tuple[str, int], Use]) -> Iterator[Suspect]:
    for (name, kind), use in found.items():
        if use.ratio > MUCH:
            yield name, kind, "turns" if name == SHARED else "sectors", use.ratio, use
        if name != SHARED and kind == READ and use.again >= MUCH:
            yield name, kind, "again", use.again, use
        if name != SHARED and kind == READ and use.alone >= ALONE:
            yield name, kind, "alone", use.alone, use


def _facts(name: str, kind: int, waste: str, use: Use) -> dict[str, Any]:
    facts: dict[str, Any] = {"waste": waste, "of": name, "access": KINDS[kind], "line": use.line}
    if waste == "again":
        return {**facts, "got": round(use.again)}
    if waste == "alone":
        return {**facts, "got": use.most}
    return {**facts, "of": use.name, "got": use.touched, "least": use.least}


def uses(operation: Operation, trace: Trace) -> dict[tuple[str, int], Use]:
    """The use of each array under its name in the contract, and of shared memory, by the kind of access."""
    accesses = trace.accesses[~trace.accesses["outside"]]
    requests = requests_of(accesses)
    threads = int(np.prod(trace.grid)) * int(np.prod(trace.block))
    found: dict[tuple[str, int], Use] = {}
    for number, memory in enumerate(trace.memories):
        for kind in KINDS:
            mine = (accesses["memory"] == number) & (accesses["kind"] == kind)
            if not mine.any():
                continue
            name = SHARED if memory.shared else operation.cuda_arrays[number]
            use = _use(memory, accesses[mine], requests[mine], threads)
            if (name, kind) not in found or use.ratio > found[name, kind].ratio:
                found[name, kind] = use
    return found


def _use(memory: Memory, rows: np.ndarray, requests: np.ndarray, threads: int) -> Use:
    thread = rows["block"].astype(np.int64) * 1024 + rows["thread"]
    each = np.unique(np.stack([thread, rows["cell"]]), axis=1)[0]
    by_thread = np.unique(thread, return_counts=True)[1]
    if memory.shared:
        request, turns = turns_of(memory, rows, requests)
        place = int(turns.argmax())
        touched, least, ratio = int(turns[place]), 1, float(turns[place])
    else:
        request, sectors, fewest, place = sectors_of(memory, rows, requests)
        touched, least, ratio = int(sectors[place]), int(fewest[place]), float(sectors.sum() / fewest.sum())
    line = int(rows["line"][request == place][0])
    most = int(by_thread.max())
    return Use(len(rows) / len(each), most * threads / len(rows), most, touched, least, ratio, line, memory.name)
