"""Which mistake gives just these numbers: an operation's trial says what each usual mistake would return."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnclassroom.judge.compare import Call, Wrong
from nnclassroom.judge.tolerance import by_result, float64
from nncourse.kernels.operation import Operation

NEAR = 1e-5  # of the larger of what a mistake gives and what is right: a sum of such numbers is rounded as they are
NEARER = 4  # times nearer to what the mistake gives than to what is right


def mistake(call: Call, wrong: Wrong) -> dict[str, Any]:
    """The mistake, or whether all is right to three digits, or else the operation's advice."""
    if said := mistake_in(call.operation, wrong, call.given):
        return {"advice": said, "mistaken": True}
    # what is changed in place may have changed by little
    if wrong.named.kind == "float" and wrong.named.name not in call.before and _right_to_three_digits(wrong):
        return {"half": True, "mistaken": True}
    advice = call.operation.trial.advice
    return {"advice": advice(wrong.first, *call.given) if advice else ""}


def mistake_in(operation: Operation, wrong: Wrong, arguments: Sequence[Any]) -> str:
    """The mistake that gives just this result, in words; "" if none is known. Of several the nearest, then the first.

    Nearest beyond rounding. Next to large numbers two small ones are equal up to rounding, whatever they are: then the
    one of the same size is nearer.

    arguments: as they were before the call.
    """
    if operation.trial.mistakes is None:
        return ""
    first, got, found = wrong.first, wrong.got, list[tuple[float, int, str]]()
    with np.errstate(all="ignore"):
        for words, results in operation.trial.mistakes(first, *map(float64, arguments)):
            whole = not isinstance(results, float)
            value = by_result(operation, results)[wrong.named.name] if whole else np.asarray(results)
            where = first if value.ndim < got.ndim else ...
            if whole and value.shape != got.shape:
                continue
            errors = np.broadcast_to(wrong.allowed, got.shape)[where]
            distance = np.where((got[where] == value) | (np.isnan(got[where]) & np.isnan(value)), 0, got[where] - value)
            right = wrong.reference[where]
            size = np.fmax(np.abs(value), np.where(np.isfinite(right), np.abs(right), 0))
            if _is_that(np.abs(distance), size, np.abs(got[where] - right), wrong.elements[where], errors):
                beyond_rounding = np.maximum(np.abs(distance) - errors / NEARER, 0)
                other = np.abs(distance) > np.fmax(np.abs(value), np.abs(got[where])) / 10
                found.append((float(np.linalg.norm(beyond_rounding)), int(np.count_nonzero(other)), str(words)))
    return min(found, key=lambda each: each[:2])[2] if found else ""


def mistake_of_shape(call: Call, name: str, got: np.ndarray) -> str:
    """The mistake that gives a result of just this wrong shape, and these numbers, in words."""
    if call.operation.trial.mistakes is None:
        return ""
    first = (0,) * call.references[name].ndim
    with np.errstate(all="ignore"):
        for words, results in call.operation.trial.mistakes(first, *map(float64, call.given)):
            value = got if isinstance(results, float) else by_result(call.operation, results)[name]
            if value is not got and value.shape == got.shape and np.allclose(got, value, rtol=NEAR, atol=NEAR):
                return str(words)
    return ""


def _is_that(distance: Any, size: Any, from_right: Any, wrong: Any, allowed: Any) -> bool:
    near = (distance == 0) | (distance <= allowed + NEAR * size)
    nearer = (distance == 0) | ~(distance * NEARER > from_right)
    return bool(np.all(near & (nearer | ~wrong)))


def _right_to_three_digits(wrong: Wrong) -> bool:
    """Whether all elements are right to about the 11 bits that float16 has, but not to many more."""
    with np.errstate(all="ignore"):
        errors = np.abs(wrong.got - wrong.reference) / np.abs(wrong.reference)
    return wrong.got.size >= 8 and bool((errors < 4e-3).all() and np.median(errors) > 3e-5)
