"""Compile with Numba on demand: importing it takes a second, and compiling a kernel another."""

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any


def options() -> dict[str, Any]:
    """The options of all `numba` kernels: sums may be reordered, which SIMD needs; NaN and infinity count."""
    return {"error_model": "numpy", "fastmath": ["reassoc", "contract", "nsz", "arcp"]}


def jit(function: Callable) -> Callable:
    """`function` compiled by Numba, with options()."""
    import numba

    chosen = options()
    return numba.njit(**{**chosen, "fastmath": set(chosen["fastmath"])})(function)


def compiled_together(*functions: Callable) -> Callable:
    """The last function, compiled. Those before it are what it calls, each behind those that it calls itself."""
    return all_compiled_together(*functions)[functions[-1].__name__]


def all_compiled_together(*functions: Callable) -> dict[str, Callable]:
    """The functions by their names, compiled, each behind those that it calls.

    Each keeps the names of its own file, and finds the compiled functions under their names.
    """
    compiled: dict[str, Callable] = {}
    for function in functions:
        compiled[function.__name__] = jit(FunctionType(function.__code__, function.__globals__ | compiled))
    return compiled


def at_first_call(build: Callable[[], Callable]) -> Callable:
    """A function that calls build() once, at its first call, and passes every call to the result of build()."""
    built = functools.cache(build)

    def call(*arguments):
        return built()(*arguments)

    return call
