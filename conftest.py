"""How tests and notebooks are distributed over processes, and how a notebook's Jupyter kernel is started.

Seldom a Jupyter kernel fails to start, for example because another process has taken the port, and every cell of the
notebook would fail. So it is started again, with a warning in pytest's summary.
"""

import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
STARTS = 3
MOST_PROCESSES = 4
WAITING = ("test_slurm.py", "test_browser.py", "test_browser_figures.py")  # they wait for others more than they compute
# Many short tests that share little.
APART = ("test_answers.py", "test_forgeries.py", "test_judge.py", "test_operations.py", "test_wrong_kernels.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores, since some tests wait."""
    return min((os.cpu_count() or 1) + 1, MOST_PROCESSES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """--dist loadscope: a notebook's cells stay in one process, and so do the tests of a file unless it is in APART."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if _file(nodeid).endswith(APART) else _file(nodeid)

    return ByFile(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Notebooks in other languages, notebooks/es, run only where they are named: else each would run twice."""
    folder = ROOT / "notebooks"
    if collection_path.parent != folder or not collection_path.is_dir():
        return None
    named = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(collection_path in (path, *path.parents) for path in named) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long as a whole comes first, and what goes where a process is free last: so all end together."""
    items.sort(key=lambda item: _turn(_file(item.nodeid)))


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _turn(file: str) -> int:
    """When a file has its turn; among those with the same number nothing changes."""
    if file.endswith(WAITING):
        return 0
    if file.endswith(".ipynb"):
        return 1
    return 3 if file.endswith(APART) else 2


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
