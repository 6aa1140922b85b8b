"""Where a NaN comes from, or a number that only memory that was never set can hold."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuda_on_cpu.faults import UNSET
from nnclassroom.judge.answer_process.results import SENTINEL, UNWRITTEN_BITS
from nnclassroom.judge.compare import Call, Wrong
from nnclassroom.judge.run import HUGE

UNSET_SHARED_BITS, OF_A_GPU_BITS = 0xFFFFFFFF, 0x7FFFFFFF  # NaN of the emulator's shared memory; the only one of a GPU
MOST_COUNTED = 10**7  # an integer nearer to SENTINEL was never set, or only added to
UNSET_AT_LEAST, USUAL = 1e30, 100  # what unset memory of the emulator gives; numbers that it is made of


def not_a_number(call: Call, wrong: Wrong) -> dict[str, Any]:
    """What the first wrong element was computed from, if its bits or its size tell."""
    got, floats, returned = wrong.got[wrong.first], call.floats, call.returned
    unset = wrong.named.kind == "float" and (
        abs(got) == np.float32(abs(UNSET)) or (returned.covers and _comes_from_unset(got, floats))
    )
    unwritten = got == np.float32(HUGE) or (got.dtype.kind in "iu" and abs(int(got) - SENTINEL) < MOST_COUNTED)
    nan = "unwritten" if unwritten else kind_of_nan(got)
    if nan == "computed" and returned.covers and all((abs(value) < USUAL).all() for value in floats):
        nan = "unset or computed"  # large numbers of unset memory, subtracted, are NaN too
    return {
        "nan": nan,
        "block": " × ".join(map(str, returned.block)),
        "unset": bool(unset),
        "nans": "nan" in call.operation.trial.edge_cases and any(np.isnan(value).any() for value in floats),
        "infinities": bool(nan and any(np.isinf(value).any() for value in floats)),
    }


def kind_of_nan(value: Any) -> str:
    """Where a NaN comes from, which its bits tell, since arithmetic keeps those of an operand; "" for other numbers."""
    if not np.isnan(value):
        return ""
    kinds = {UNWRITTEN_BITS: "unwritten", UNSET_SHARED_BITS: "shared", OF_A_GPU_BITS: "never set"}
    return kinds.get(int(np.float32(value).view(np.uint32)), "computed")


def _comes_from_unset(got: Any, floats: Sequence[np.ndarray]) -> bool:
    """Whether a number is so large, made of usual ones, that it must come from memory that was never set."""
    return UNSET_AT_LEAST <= abs(got) < np.inf and all((abs(value) < USUAL).all() for value in floats)
