"""What a wrong result shows: which mistake gives just that, which elements no thread came to, the numbers themselves.

A mistake is told only if its numbers came out: an operation's trial says what each usual mistake would return.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnclassroom.judge.answer_process.results import UNWRITTEN_BITS
from nnclassroom.judge.tolerance import by_result, float64
from nncourse.kernels.contract import Argument
from nncourse.kernels.operation import Operation

NEAR = 1e-5  # of a number: where a mistake makes it larger than the right one, its roundings are larger too
NEARER = 4  # times nearer to what the mistake gives than to what is right
UNSET_SHARED_BITS, OF_A_GPU_BITS = 0xFFFFFFFF, 0x7FFFFFFF  # NaN of the emulator's shared memory; the only one of a GPU
MOST_SHOWN = 12  # numbers of all arguments, and of all results


def mistake_in(
    operation: Operation,
    named: Argument,
    got: np.ndarray,
    reference: np.ndarray,
    wrong: np.ndarray,
    allowed: np.ndarray | float,
    arguments: Sequence[Any],
) -> str:
    """The mistake that gives just this result, in words; "" if none is known. Of several the nearest, then the first.

    arguments: as they were before the call. wrong: which elements are. allowed: the error that a right one may have.
    """
    if operation.trial.mistakes is None:
        return ""
    first, found = np.unravel_index(int(np.argmax(wrong)), wrong.shape), list[tuple[float, str]]()
    with np.errstate(all="ignore"):
        for words, results in operation.trial.mistakes(first, *map(float64, arguments)):
            value = np.asarray(results) if isinstance(results, float) else by_result(operation, results)[named.name]
            where = first if value.ndim < got.ndim else ...
            errors = np.broadcast_to(allowed, got.shape)[where]
            distance = np.where((got[where] == value) | (np.isnan(got[where]) & np.isnan(value)), 0, got[where] - value)
            if _is_that(np.abs(distance), value, np.abs(got[where] - reference[where]), wrong[where], errors):
                beyond_rounding = np.maximum(np.abs(distance) - errors / NEARER, 0)
                found.append((float(np.linalg.norm(beyond_rounding)), str(words)))
    return min(found, key=lambda each: each[0])[1] if found else ""


def _is_that(distance: Any, value: Any, from_right: Any, wrong: Any, allowed: Any) -> bool:
    near = (distance == 0) | (distance <= allowed + NEAR * np.abs(value))
    nearer = (distance == 0) | ~(distance * NEARER > from_right)
    return bool(np.all(near & (nearer | ~wrong)))


def kind_of_nan(value: Any) -> str:
    """Where a NaN comes from, which its bits tell, since arithmetic keeps those of an operand; "" for other numbers."""
    if not np.isnan(value):
        return ""
    kinds = {UNWRITTEN_BITS: "unwritten", UNSET_SHARED_BITS: "shared", OF_A_GPU_BITS: "never set"}
    return kinds.get(int(np.float32(value).view(np.uint32)), "computed")


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


def numbers_of(given: dict[str, Any], got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> dict[str, str]:
    """The arrays of a tiny case in words: those given, what a kernel made of them, and what is right."""
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    counts = [sum(np.size(value) for value in each.values()) for each in (arrays, got, expected)]
    if not arrays or not got or max(counts) > MOST_SHOWN:
        return {}
    return {"given": _listed(arrays), "yours": _listed(got), "wanted": _listed(expected)}


def _listed(arrays: dict[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {_numbers(np.asarray(value))}" for name, value in arrays.items())


def _numbers(values: np.ndarray) -> str:
    if values.ndim:
        return f"[{', '.join(map(_numbers, values))}]"
    return f"{values:.6g}" if values.dtype.kind == "f" else f"{values}"
