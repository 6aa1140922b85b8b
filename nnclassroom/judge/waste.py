"""Is a right CUDA kernel wasteful? Its accesses to memory tell, beside those of the package's kernel of that name.

What a kernel is named for is in its Budget: a kernel without it is refused. Any other waste is kept, and the verdict
names it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuda_on_cpu.nvrtc import double_lines
from cuda_on_cpu.requests import numbered, requests_of, sectors_of, turns_of
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.trace import READ, WRITE, Memory, Trace
from nnclassroom.judge.verdict import Fault
from nncourse.kernels.operation import Operation

KINDS = {READ: "read", WRITE: "write"}
MUCH = 2  # times what would do, and what the package's kernel does, are not called waste yet
ALONE, FEW = 8, 16  # times what a thread reads on average, and so many numbers: then it works while others wait
SHARED = "shared memory"  # the name of all of a block's variables together, since each text names its own


@dataclass(frozen=True)
class Use:
    """The accesses of one kind to one array, or to shared memory, by all threads of a launch.

    again: in how many places of the text a thread accesses the same element, on average. alone: the most accesses of a
    thread, over the mean of all threads, and `most`, their number. `touched`, `least` and `line` describe the worst
    request of a warp: the sectors of global memory that it touches or the turns that the banks of shared memory take,
    how many would do, and where. `ratio` is that of all requests together; for shared memory, of the worst. A request
    that one sector could hold is left out: few of a warp's threads make it, as in a branch, and may be far apart.
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
        if name != SHARED and kind == READ and use.alone >= ALONE and use.most >= FEW:
            yield name, kind, "alone", use.alone, use


def _facts(name: str, kind: int, waste: str, use: Use) -> dict[str, Any]:
    facts: dict[str, Any] = {"waste": waste, "of": name, "access": KINDS[kind], "line": use.line}
    if waste == "again":
        return {**facts, "got": round(use.again)}
    if waste == "alone":
        return {**facts, "got": use.most}
    return {**facts, "of": use.name, "got": use.touched, "least": use.least}


def uses(operation: Operation, trace: Trace) -> dict[tuple[str, int], Use]:
    """The use of each array under its name in the contract, and of shared memory, by the kind of access.

    `__device__` variables of the text are left out: the package's kernel, which is the measure, has others.
    """
    accesses = trace.accesses[~trace.accesses["outside"]]
    requests = requests_of(accesses)
    threads = int(np.prod(trace.grid)) * int(np.prod(trace.block))
    found: dict[tuple[str, int], Use] = {}
    for number, memory in enumerate(trace.memories):
        for kind in KINDS:
            mine = (accesses["memory"] == number) & (accesses["kind"] == kind)
            if not mine.any() or memory.name == "__device__":
                continue
            name = SHARED if memory.shared else operation.cuda_arrays[number]
            use = _use(memory, accesses[mine], requests[mine], threads)
            if (name, kind) not in found or use.ratio > found[name, kind].ratio:
                found[name, kind] = use
    return found


def _use(memory: Memory, rows: np.ndarray, requests: np.ndarray, threads: int) -> Use:
    thread = rows["block"].astype(np.int64) * 1024 + rows["thread"]
    of_thread = rows["block"], rows["thread"], rows["cell"]
    again = len(np.unique(numbered(*of_thread, rows["code"]))) / len(np.unique(numbered(*of_thread)))
    most = int(np.unique(thread, return_counts=True)[1].max())
    if memory.shared:
        request, turns = turns_of(memory, rows, requests)
        place = int(turns.argmax())
        touched, least, ratio = int(turns[place]), 1, float(turns[place])
    else:
        request, sectors, fewest, _ = sectors_of(memory, rows, requests)
        many = fewest > 1
        place = int(np.argmax(np.where(many, sectors / fewest, 0)))
        touched, least = int(sectors[place]), int(fewest[place])
        ratio = float(sectors[many].sum() / max(fewest[many].sum(), 1))
    line = int(rows["line"][request == place][0])
    return Use(again, most * threads / len(rows), most, touched, least, ratio, line, memory.name)
