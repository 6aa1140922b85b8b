"""Numba, only for those who call it: it takes a second to import and another to compile a kernel."""

import functools
from collections.abc import Callable
from types import FunctionType


def jit(function: Callable) -> Callable:
    """`function` compiled by Numba, as every `numba` kernel of the package is."""
    import numba

    # Sums may be reordered (else there is no SIMD), but NaN and infinity must keep their meaning.
    return numba.njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})(function)


def compiled_together(*functions: Callable) -> Callable:
    """The last function, compiled with the ones that it calls: Numba wants these compiled under the same names."""
    names = dict(functions[-1].__globals__)
    for function in functions:
        names[function.__name__] = jit(FunctionType(function.__code__, names))
    return names[functions[-1].__name__]


def at_first_call(build: Callable[[], Callable]) -> Callable:
    """A function that calls build() when it is called first, and from then on what build() gave."""
    built = functools.cache(build)

    def call(*arguments):
        return built()(*arguments)

    return call
