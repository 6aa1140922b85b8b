"""Does a CUDA kernel that is named for an idea show it? Its accesses, counted by the emulator, tell.

A kernel named `tiled` may be right without any tile. So an operation's Trial has a Budget for such a name. Once all
cases are right, the kernel is run once more, on one small case, and its accesses are recorded and counted.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cuda_on_cpu.requests import requests_of, sectors_of
from cuda_on_cpu.trace import ATOMIC, READ, WRITE, Trace
from nnclassroom.judge.cases import middling, random_case
from nnclassroom.judge.verdict import Case, Fault
from nncourse.kernels.contract import Formula
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Limit

# What each kind of limit counts: the kind of access, whether to shared memory (None: to any), and whether the most by
# any one thread.
COUNTED: dict[str, tuple[int, bool | None, bool]] = {
    "reads": (READ, False, False),
    "sectors": (READ, False, False),
    "reads by a thread": (READ, False, True),
    "writes": (WRITE, False, False),
    "shared reads": (READ, True, False),
    "shared reads by a thread": (READ, True, True),
    "all shared reads": (READ, True, False),
    "shared writes": (WRITE, True, False),
    "atomics": (ATOMIC, False, False),
    "shared atomics": (ATOMIC, True, False),
    "additions": (ATOMIC, None, False),
}
AT_LEAST = ("shared reads", "additions")


def case_of(operation: Operation, name: str) -> Case:
    """The small case on which the accesses of a kernel of that name are recorded."""
    budget = operation.trial.budgets.get(name)
    return random_case(operation, dict(budget.sizes) if budget else middling(operation))


def launched(run: Callable[..., Any], case: Case, options: Mapping[str, Any]) -> Trace | Fault:
    """The accesses of one launch, or why there are none. options: of the emulator, such as its sandbox."""
    traces: list[Trace] = []
    failed = run(case, {**options, "record": traces})
    return failed if isinstance(failed, Fault) else traces[0]


def exceeded(operation: Operation, name: str, case: Case, trace: Trace) -> Fault | None:
    """The fault if a kernel of that name does not keep to its budget; None if it does, or has none."""
    budget = operation.trial.budgets.get(name)
    sizes = operation.sizes(*case.arguments)
    for limit in budget.limits if budget else ():
        got, expected = counted(operation, limit, trace), Formula(limit.formula)(sizes)
        if got < expected if limit.kind in AT_LEAST else got > expected:
            return Fault("budget", {"limited": limit.kind, "of": limit.of, "got": got, "limit": expected})
    return None


def _place(access: np.void) -> tuple[int, ...]:
    """The element of an access, and the thread that made it."""
    return tuple(int(access[name]) for name in ("memory", "cell", "block", "thread"))


def _sectors(trace: Trace, rows: np.ndarray, number: int) -> int:
    """How many sectors all requests of warps to an array touch: two requests to one sector count as two."""
    return int(sectors_of(trace.memories[number], rows, requests_of(rows))[1].sum()) if len(rows) else 0


def counted(operation: Operation, limit: Limit, trace: Trace) -> int:
    """How many accesses of a limit's kind a launch has made."""
    kind, shared, of_a_thread = COUNTED[limit.kind]
    accesses = trace.accesses
    rows = accesses[accesses["kind"] == kind]
    of_shared = np.array([memory.shared for memory in trace.memories])[rows["memory"]]
    if shared:
        rows = rows[of_shared]
        if kind == READ:  # what the reading thread has not put there itself
            own = {_place(row) for row in accesses if row["kind"] == WRITE}
            rows = rows[[_place(row) not in own for row in rows]]
    elif not limit.of:
        rows = rows if shared is None else rows[~of_shared]
    else:  # a student may give the parameters other names, but their order is the contract's
        number = operation.cuda_arrays.index(limit.of)
        mine = rows["memory"] == number
        if limit.kind == "sectors":
            return _sectors(trace, rows[mine], number)
        rows = rows[mine]
    if not of_a_thread:
        return len(rows)
    threads = rows["block"].astype(np.int64) * 1024 + rows["thread"]
    return int(np.unique(threads, return_counts=True)[1].max(initial=0))
