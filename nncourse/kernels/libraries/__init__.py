"""Kernels of NVIDIA's libraries."""

from typing import Any

ALIGNED = 16  # bytes: these libraries assume that every address is a multiple


def aligned(array: Any) -> Any:
    """The array, or a contiguous copy that begins at a multiple of ALIGNED bytes, which not all views do."""
    import cupy

    array = cupy.ascontiguousarray(array)
    return array.copy() if array.data.ptr % ALIGNED else array
