"""Numba, only for those who call it: it takes a second to import and another to compile a kernel."""

import functools
from collections.abc import Callable


def jit(function: Callable) -> Callable:
    """`function` compiled by Numba, as every `numba` kernel of the package is."""
    import numba

    # Sums may be reordered (else there is no SIMD), but NaN and infinity must keep their meaning.
    return numba.njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})(function)


def at_first_call(build: Callable[[], Callable]) -> Callable:
    """A function that calls build() when it is called first, and from then on what build() gave."""
    built = functools.cache(build)

    def call(*arguments):
        return built()(*arguments)

    return call
