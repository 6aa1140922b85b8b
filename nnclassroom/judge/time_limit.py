"""Slow or endless? What a kernel takes for smaller arrays tells how long it may take for large ones.

On the emulator a kernel that is right may need minutes in a large case: for instance one that looks through all windows
for each pixel. So a limit alone refuses nobody there. The case is made smaller by halves until the kernel ends quickly,
then larger again. Twice the size may take GROWTH times as long; who takes more than that will never end.
"""

import time
from collections.abc import Callable

from nnclassroom.judge.cases import halved
from nnclassroom.judge.verdict import Case, Fault
from nncourse.kernels.operation import Operation

GROWTH = 16.0  # four loops one inside the other, each of that size
MOST_HALVINGS = 4  # who is slow even then, is slow throughout: the limit is what 16 times as much would take
MOST_SECONDS = 40.0  # beyond, who is slow is not watched any longer


def never_ends(
    operation: Operation, case: Case, fault: Fault, run: Callable[[Case, float], Fault | None], seconds: float
) -> tuple[Case, Fault] | None:
    """The case in which a kernel never ends, and the fault; None for one that is only slow.

    `fault` says that it did not end within `seconds` of computing in `case`. run(case, seconds) is the fault of one
    that does not end within a limit, None of one that does.
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
        start = time.perf_counter()  # at least what it computed
        if late := run(larger, limit):
            return larger, late
        limit = max(seconds, GROWTH * (time.perf_counter() - start))
        if limit > MOST_SECONDS:
            return None
    return None
