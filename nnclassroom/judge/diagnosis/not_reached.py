"""Which elements no thread of a launch came to."""

from typing import Any

import numpy as np

from nnclassroom.judge.answer_process.results import SENTINEL
from nnclassroom.judge.compare import Call, Wrong
from nnclassroom.judge.run import HUGE


def no_thread(call: Call, wrong: Wrong) -> dict[str, Any]:
    """What the launch covers, if just the elements beyond it are wrong: nothing else is said of them then."""
    got, before, covers = wrong.got, call.before.get(wrong.named.name), call.returned.covers
    untouched = np.isnan(got) | (got == HUGE) | (got == SENTINEL) if before is None else got == before
    if not covers or not not_reached(wrong.elements, untouched, covers):
        return {}
    return {"nan": "", "advice": "", "covers": covers, "shape": got.shape}


def not_reached(wrong: np.ndarray, untouched: np.ndarray, covers: tuple[int, ...]) -> bool:
    """Whether the wrong elements are just those beyond the threads of one axis of a launch, and as they were before.

    covers: how many elements the launch covers in x, y, z. Threads in a row count all elements in order.
    """
    if not (untouched | ~wrong).all():
        return False
    if len(covers) == 1:
        return bool((wrong.ravel() == (np.arange(wrong.size) >= covers[0])).all())
    places = np.indices(wrong.shape)
    if len(covers) == wrong.ndim:
        return any((wrong == (at >= covered)).all() for at in places for covered in covers)
    # The threads along z, or those along all axes, count several indices: x and y are columns and rows.
    return any((wrong == (at >= covered)).all() for at, covered in zip(places[::-1], covers[:2], strict=False))
