"""How the tests and the notebooks are shared out to processes, and how a notebook's kernel is started.

nbval starts a Jupyter kernel for each notebook. Seldom one dies as it starts, say because another process took its port in
between; every cell of that notebook would fail. So it is started again, and that is said in the summary.
"""

import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import pytest

STARTS = 3
MOST_PROCESSES = 4
WAITING = ("test_slurm.py", "test_browser.py")  # they wait for others more than they compute


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, since some tests wait."""
    return min((os.cpu_count() or 1) + 1, MOST_PROCESSES)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest as a whole comes first, and what can be shared out test by test last, so that all end together.

    The cells of a notebook stay in one process, and so do the tests of a file, which share what was imported and made,
    unless they are marked with `spread`.
    """
    items.sort(key=_turn)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if not item.get_closest_marker("spread"):
                item.add_marker(pytest.mark.xdist_group(_file(item)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _turn(item: pytest.Item) -> int:
    """When an item has its turn; among those with the same number nothing changes."""
    if item.get_closest_marker("spread"):
        return 3
    if _file(item).endswith(WAITING):
        return 0
    return 1 if _file(item).endswith(".ipynb") else 2


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
