"""A tiny case in numbers: the arrays given, what a kernel made of them, and what is right."""

from collections.abc import Mapping
from typing import Any

import numpy as np

MOST_SHOWN = 12  # numbers of all arguments, and of all results


def numbers_of(
    given: Mapping[str, Any], got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> dict[str, str]:
    """The arrays of a tiny case in words; nothing for a larger one."""
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    counts = [sum(np.size(value) for value in each.values()) for each in (arrays, got, expected)]
    if not arrays or not got or max(counts) > MOST_SHOWN:
        return {}
    return {"given": _listed(arrays), "yours": _listed(got), "wanted": _listed(expected)}


def _listed(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {_numbers(np.asarray(value))}" for name, value in arrays.items())


def _numbers(values: np.ndarray) -> str:
    if values.ndim:
        return f"[{', '.join(map(_numbers, values))}]"
    return f"{values:.6g}" if values.dtype.kind == "f" else f"{values}"
