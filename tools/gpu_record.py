"""A pytest plugin for tools/test_gpu.py, which leaves out tests that have passed, and records outcomes and output.

NNCOURSE_GPU_RECORD names the file for the record, which has one line per test. NNCOURSE_GPU_DONE names a list of tests
that need not run again. NNCOURSE_GPU_PART is 1/2 for the first half of the tests.
"""

import json
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(os.environ["NNCOURSE_GPU_RECORD"])
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")  # colours
PRINTED = ("text/plain", "text/latex", "text/markdown")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = set(Path(os.environ["NNCOURSE_GPU_DONE"]).read_text("utf-8").splitlines())
    part, parts = map(int, os.environ["NNCOURSE_GPU_PART"].split("/"))
    gone = [item for item in items if {item.nodeid, file_of(item)} & done or _share(item) % parts != part - 1]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in set(gone)]


def _share(item: pytest.Item) -> int:
    """A number that all cells of a notebook have, and that differs between tests."""
    file = file_of(item)
    return zlib.crc32((file if file.endswith(".ipynb") else item.nodeid).encode())


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_configure(config: pytest.Config) -> None:
    """The process that gets the reports of all others records them; a worker of pytest-xdist does not."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


class Recorder:
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a line for each test, and for each error before or after one."""
        if report.when != "call" and report.outcome == "passed":
            return
        outcome = "passed" if hasattr(report, "wasxfail") else report.outcome
        line = {"test": report.nodeid, "outcome": outcome, "reason": _reason(report)}
        timed = dict(report.user_properties).get("timed")
        _write(line | {"seconds": round(report.duration, 3)} | ({} if timed is None else {"timed": timed}))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected is a failure too."""
        if report.failed:
            said = (str(report.longrepr).strip().splitlines() or [""])[-1]
            _write({"test": report.nodeid, "outcome": "failed", "reason": said, "seconds": 0.0})


def _reason(report: pytest.TestReport) -> str:
    """Why a test was skipped, or the error that ended it; "" for a passed one."""
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):  # file, line and reason of one that was skipped
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)  # a notebook's cell has only a text, which ends with the error
    lines = ESCAPES.sub("", crash.message if crash else report.longreprtext).strip().splitlines() or [""]
    return lines[0 if crash else -1]


def _write(line: dict) -> None:
    with RECORD.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Listen to what a notebook's cell prints and shows."""
    if hasattr(item, "cell"):
        item.parent.get_kernel_message = _listening(type(item.parent).get_kernel_message.__get__(item.parent), item)


def _listening(get_message: Callable[..., dict], item: pytest.Item) -> Callable[..., dict]:
    """As get_message; it keeps outputs in item.heard. nbval leaves out their updates: "checking" becomes a verdict."""
    item.heard = []
    by_id: dict[str, dict] = {}

    def get(*arguments: Any, **options: Any) -> dict:
        message = get_message(*arguments, **options)
        content, kind = dict(message["content"]), message["msg_type"]
        display = content.get("transient", {}).get("display_id", "")
        if kind == "update_display_data" and display in by_id:
            by_id[display]["data"] = content["data"]
        elif kind in ("stream", "error", "display_data", "execute_result"):
            item.heard.append(content)
            by_id[display] = content
        return message

    return get


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Keep the output of a notebook's cell, with its source above it."""
    report = yield
    if call.when == "call" and hasattr(item, "heard"):
        folder = RECORD.with_suffix("")
        folder.mkdir(exist_ok=True)
        source = "".join(f"> {line}\n" for line in item.cell.source.splitlines())
        printed = "".join(map(_text, item.heard))
        with (folder / f"{Path(file_of(item)).stem}.txt").open("a" if item.cell_num else "w", encoding="utf-8") as file:
            file.write(f"---- {item.cell_num}, {call.duration:.1f} s\n{source}{printed.rstrip()}\n")
    return report


def _text(content: dict) -> str:
    """What is printed of an output; of a picture, that there is one."""
    if "text" in content:
        return content["text"] if content["name"] == "stdout" else f"[stderr] {content['text']}\n"
    if "ename" in content:
        return f"[error] {content['ename']}: {content['evalue']}\n"
    kinds = ", ".join(sorted(content["data"]))
    shown = next((content["data"][kind] for kind in PRINTED if kind in content["data"]), "")
    return f"[{kinds}]\n{shown}\n"
