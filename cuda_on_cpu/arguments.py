"""Check a kernel's arguments and sizes before a launch, which itself passes only bytes and addresses."""

import functools
import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cuda_on_cpu.errors import UserError
from cuda_on_cpu.source import DTYPES, Parameter, numbers_of, parameters
from cuda_on_cpu.text import CudaSource

MOST_THREADS = 1024
BLOCK_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
MOST_SHARED = 227 * 1024


def in_three(sizes: Sequence[int]) -> tuple[int, int, int]:
    """One, two or three sizes as x, y and z."""
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def checked(
    source: CudaSource,
    function: str,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[Any],
    shared_bytes: int,
) -> list[Any]:
    """The arguments in the declared types. UserError if arguments or sizes do not fit the kernel or the hardware."""
    declared, where = parameters(source, function), f"{source.file}: {function}"
    refuse_unlaunchable(tuple(grid), tuple(block), shared_bytes, where)
    _refuse_by_attributes(source, function, tuple(grid), tuple(block))
    if len(arguments) != len(declared):
        names = ", ".join(map(str, declared))
        raise UserError(f"{where}: expected {len(declared)} arguments ({names}), got {len(arguments)}")
    return [
        _array(value, parameter, where) if parameter.pointer else _scalar(value, parameter, where)
        for value, parameter in zip(arguments, declared, strict=True)
    ]


@functools.lru_cache(maxsize=4096)  # a training loop repeats a few launches, and GPU steps take only microseconds
def refuse_unlaunchable(grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, where: str) -> None:
    """UserError if no GPU accepts this grid, block or amount of shared memory."""
    for name, sizes, limits in (("grid", grid, GRID_LIMITS), ("block", block, BLOCK_LIMITS)):
        if not 1 <= len(sizes) <= 3:
            raise UserError(f"{where}: expected a {name} of 1 to 3 numbers such as (4, 2), got {sizes}")
        for axis, size, limit in zip("xyz", sizes, limits, strict=False):
            if not isinstance(size, numbers.Integral) or not 1 <= size <= limit:
                raise UserError(f"{where}: expected {name} {axis} from 1 to {limit}, got {size!r} in {sizes}")
    if math.prod(block) > MOST_THREADS:
        raise UserError(
            f"{where}: expected at most {MOST_THREADS} threads in a block, got {block}, which are {math.prod(block)}"
        )
    if not 0 <= shared_bytes <= MOST_SHARED:
        raise UserError(f"{where}: expected 0 to {MOST_SHARED} bytes of dynamic shared memory, got {shared_bytes}")


@functools.lru_cache(maxsize=4096)
def _refuse_by_attributes(source: CudaSource, function: str, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    """UserError if the kernel's attributes rule out this launch: a GPU then refuses it."""
    where = f"{source.file}: {function}"
    most, threads = numbers_of(source, function, "__launch_bounds__")[:1], math.prod(block)
    if most and threads > most[0]:
        bound = f"expected at most {most[0]} threads in a block, as __launch_bounds__ says"
        raise UserError(f"{where}: {bound}, got {block}, which are {threads}: a GPU refuses the launch")
    cluster = numbers_of(source, function, "__cluster_dims__")
    for axis, blocks, together in zip("xyz", in_three(grid), cluster, strict=False):
        if together > 0 and blocks % together:
            raise UserError(
                f"{where}: expected grid {axis} as a multiple of {together}, as __cluster_dims__ says, got {blocks} in "
                f"{grid}: a GPU refuses the launch"
            )


def _array(value: Any, parameter: Parameter, where: str) -> Any:
    """Return `value` unchanged; raise UserError unless it is a C-contiguous array of the declared type."""
    wanted = parameter.dtype
    if not _is_array(type(value)):
        raise UserError(f"{where}: expected an array of {wanted} for {parameter.name}, got {_described(value)}")
    if value.dtype != wanted:
        fitting = next((ctype for ctype, name in DTYPES.items() if name == value.dtype.name), None)
        declared = replace(parameter, ctype=fitting) if fitting else "it so"
        ways = f"declare {declared}, or, if the array is yours, use .astype('{wanted}')"
        raise UserError(f"{where}: expected {wanted} for {parameter}, got {value.dtype}; {ways}")
    if not value.flags.c_contiguous:
        raise UserError(
            f"{where}: expected contiguous numbers for {parameter.name}, got a view of shape {value.shape} with "
            f"strides {value.strides}; make a copy: ascontiguousarray({parameter.name})"
        )
    return value


def _scalar(value: Any, parameter: Parameter, where: str) -> np.generic:
    """`value` in the declared type: integers exactly, floats rounded. Raises UserError if it is out of range."""
    if not isinstance(value, (int, numbers.Real, np.bool_)):
        raise UserError(f"{where}: expected a number for {parameter}, got {_described(value)}")
    low, high = _range(parameter.dtype)
    number: Any = value
    if parameter.dtype.kind == "f":
        kind, holds = "a number", not high < abs(number) < math.inf  # infinities and NaN are floats too
    else:
        kind, holds = "a whole number", low <= number <= high and number == int(number)
    if not holds:
        raise UserError(f"{where}: expected {kind} from {low} to {high} for {parameter}, got {value!r}")
    return parameter.dtype.type(value)


@functools.cache
def _range(dtype: np.dtype) -> tuple[Any, ...]:
    """The smallest and the largest value of a type."""
    if dtype.kind == "b":
        return 0, 1
    info, as_number = (np.finfo(dtype), float) if dtype.kind == "f" else (np.iinfo(dtype), int)
    return as_number(info.min), as_number(info.max)


def _holds_numbers(kind: type) -> bool:
    """Whether values of this type are arrays, of NumPy or of a GPU."""
    return issubclass(kind, np.ndarray) or hasattr(kind, "__cuda_array_interface__")


# Cached by type, because asking each CuPy array costs a microsecond.
_is_array: Callable[[type], bool] = functools.cache(_holds_numbers)


def _described(value: Any) -> str:
    return f"an array of shape {value.shape}" if _is_array(type(value)) else f"{type(value).__name__} {value!r}"
