"""Slow or endless? The time that a kernel takes for smaller arrays says how long it may take for large ones.

On the emulator a right kernel may need minutes in a large case, for instance if it looks through all windows for each
pixel. So reaching the limit there does not make it wrong. The case is halved until the kernel ends quickly, then
enlarged again. Twice the size may take GROWTH times as long; a kernel that takes longer never ends.
"""

import time
from collections.abc import Callable

from nnclassroom.judge.cases import halved
from nnclassroom.judge.verdict import Case, Fault
from nncourse.kernels.operation import Operation

GROWTH = 16.0  # four loops one inside the other, each of that size
MOST_HALVINGS = 4  # a kernel that is slow even then is only slow
MOST_SECONDS = 40.0  # a kernel that may take longer is called slow without a further run


def never_ends(
    operation: Operation, case: Case, fault: Fault, run: Callable[[Case, float], Fault | None], seconds: float
) -> tuple[Case, Fault] | None:
    """The case in which a kernel never ends, and the fault; None if the kernel is only slow.

    `fault` says that it did not end within `seconds` of computing in `case`. run(case, seconds) returns such a fault,
    or None if the kernel ends in time.
    """
    too_long = [case]
    while len(too_long) <= MOST_HALVINGS and (smaller := halved(operation, too_long[-1])):
        if not run(smaller, seconds / GROWTH):
            break
        too_long.append(smaller)
    else:
        return None
    limit = seconds
    for larger in reversed(too_long):
        if larger is case and limit <= seconds:
            return case, fault
        start = time.perf_counter()  # wall time is at least the CPU time
        if late := run(larger, limit):
            return larger, late
        limit = max(seconds, GROWTH * (time.perf_counter() - start))
        if limit > MOST_SECONDS:
            return None
    return None
