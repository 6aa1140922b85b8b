"""nbval starts a Jupyter kernel for each notebook. Seldom one dies as it starts, say because another process took its
port in between; every cell of that notebook would fail. So it is started again, and that is said in the summary.
"""

import warnings
from collections.abc import Callable
from importlib.util import find_spec

STARTS = 3


def started_again(start: Callable) -> Callable:
    """`start`, called up to three times until it raises no RuntimeError."""

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
