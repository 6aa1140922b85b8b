"""Kernels of NVIDIA's libraries."""

from typing import Any

ALIGNED = 16  # bytes: what these libraries take for granted of every address


def aligned(array: Any) -> Any:
    """The array, or a copy, with its numbers in a row from a multiple of ALIGNED bytes on: not so in all views."""
    import cupy

    array = cupy.ascontiguousarray(array)
    return array.copy() if array.data.ptr % ALIGNED else array
