"""Which tests run (--tier), how they and notebooks are distributed over processes, and how a Jupyter kernel is started.

Seldom a Jupyter kernel fails to start, for example because another process has taken the port, and every cell of the
notebook would fail. So it is started again, with a warning in pytest's summary.
"""

import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parent
STARTS = 3
MOST_PROCESSES = 4
# these wait for others more than they compute
WAITING = "test_slurm.py", "test_browser.py", "test_browser_figures.py", "test_live_book.py"
CHOICE = pytest.StashKey()
# Many short tests that share little.
APART = (
    "test_answers.py",
    "test_forgeries.py",
    "test_judge.py",
    "test_operations.py",
    "test_timed_answers.py",
    "test_wrong_kernels.py",
)


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
    return None if any(collection_path in (path, *path.parents) for path in _named(config)) else True


def _named(config: pytest.Config) -> list[Path]:
    """The files and folders on the command line."""
    return [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", default="", help="which tests run, quick, full or release: see tests/tiers.py")


def pytest_configure(config: pytest.Config) -> None:
    from tests import registered, tiers

    registered.here()

    if config.option.tier not in ("", *tiers.TIERS):
        raise pytest.UsageError(f"--tier: expected one of {', '.join(tiers.TIERS)}, got {config.option.tier!r}")
    files = [path.relative_to(ROOT).as_posix() for path in _named(config) if path.is_file() and ROOT in path.parents]
    config.stash[CHOICE] = tiers.choose(ROOT, config.option.tier, files)


def pytest_report_header(config: pytest.Config) -> str:
    return str(config.stash[CHOICE])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the tier does not want.

    What takes long as a whole comes first, and what goes where a process is free last: so all end together. Of the
    notebooks the later ones take longer.
    """
    from tests import tiers

    notebooks = [item for item in items if _file(item.nodeid).endswith(".ipynb")]
    later_first = {file: -number for number, file in enumerate(dict.fromkeys(_file(item.nodeid) for item in notebooks))}
    items.sort(key=lambda item: (_turn(_file(item.nodeid)), later_first.get(_file(item.nodeid), 0)))
    gone = tiers.left_out([tiers.of_item(item) for item in items], config.stash[CHOICE])
    if any(gone):
        config.hook.pytest_deselected(items=[item for item, out in zip(items, gone, strict=True) if out])
        items[:] = [item for item, out in zip(items, gone, strict=True) if not out]


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count them, with -k too, for pytest_testnodedown(): by itself xdist does not tell."""
    output = getattr(items[0].config, "workeroutput", None) if items else None
    if output is not None:
        output["deselected"] = output.get("deselected", 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:
    """The summary tells how many tests were left out. Each process has left out the same."""
    count = getattr(node, "workeroutput", {}).get("deselected", 0)
    if count:
        node.config.pluginmanager.get_plugin("terminalreporter").stats["deselected"] = [SimpleNamespace()] * count


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
