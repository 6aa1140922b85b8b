"""Retry when a Jupyter kernel fails to start for nbval, with a warning in pytest's summary.

It happens rarely, for example because another process has taken the port, and would fail every cell of the notebook.
"""

import warnings
from collections.abc import Callable
from importlib.util import find_spec

STARTS = 3


def started_again(start: Callable) -> Callable:
    """A function that calls `start` up to three times, until it raises no RuntimeError."""

    def start_patiently(*arguments, **options):
        for _ in range(STARTS - 1):
            try:
                return start(*arguments, **options)
            except RuntimeError as error:
                warnings.warn(f"a Jupyter kernel is started again: {error}", stacklevel=2)
        return start(*arguments, **options)

    return start_patiently


if find_spec("nbval"):
    import nbval.kernel

    nbval.kernel.start_new_kernel = started_again(nbval.kernel.start_new_kernel)
