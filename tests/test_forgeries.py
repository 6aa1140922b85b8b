"""Forgeries: wrong answers and folders that try to be accepted. Their author did not write the judge.

The head of answers/forgeries.toml describes its entries. test_grade_forgeries.py runs `nncourse grade` on all of them,
including those that only its sandbox stops.
"""

import hashlib
import json
import os
import time
from operator import itemgetter
from pathlib import Path

import forged
import pytest

import nncourse
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import progress_lines
from nnclassroom.judge import answer, limits, sandbox
from nnclassroom.notebook import cuda_cell, report
from nncourse import device
from nncourse.errors import CourseError
from tests.tiers import many

HERE = [forgery for forgery in forged.FORGERIES if forgery.get("needs") != "sandbox"]
OF_EACH = (
    lambda forgery: forgery["name"].replace(" ", "-"),
    itemgetter("kind"),
    itemgetter("operation"),
    lambda _: forged.FILE.stem,
)
OF_EACH_KIND = many(HERE, *OF_EACH)
LIMIT = 3.0  # seconds of computing: none needs more


@pytest.fixture(autouse=True)
def short_limits(monkeypatch):
    monkeypatch.setattr(kept_kernels, "TIME_LIMIT", LIMIT)


# ---- without the words: neither the rules for texts nor the guard stand in the way, only the operating system

WORDLESS = answer.START[2].replace("process.main()", "process.guard = lambda *_: str; process.main()")
PYTHON = [each for each in forged.FORGERIES if "line" not in each and "text" in each and "plant" not in each]


@pytest.fixture(params=("confined", "in a sandbox"))
def only_the_system(request, monkeypatch):
    """Landlock and seccomp alone, or bubblewrap alone."""
    if request.param == "confined" and not limits.confined():
        pytest.skip("Landlock or seccomp is missing here")
    if request.param == "in a sandbox" and (reason := sandbox.why_none()):
        pytest.skip(reason)
    confined, prefix = limits.confined, limits.prefix
    end_nursery()
    unlimited(monkeypatch)
    monkeypatch.setattr(limits, "prefix", prefix)
    prefix.cache_clear()
    if request.param == "confined":
        monkeypatch.setattr(limits, "confined", confined)
    yield
    end_nursery()
    prefix.cache_clear()


def end_nursery():
    if answer._nursery.cache_info().currsize:
        answer._nursery(os.getpid()).child.end()
        answer._nursery.cache_clear()


def verdict_here(name: str, kernel: str, text: str):
    """The verdict without a worker, in whose process nothing is patched."""
    return kept_kernels.check(name, kernel, text, None, None, (), LIMIT)


def unlimited(monkeypatch):
    """No system stands in the way, nor any words."""
    monkeypatch.setattr(limits, "confined", lambda: False)
    monkeypatch.setattr(limits, "prefix", lambda: ())
    monkeypatch.setattr(answer, "forbidden", lambda *_: None)
    monkeypatch.setattr(answer, "START", (*answer.START[:2], WORDLESS, *answer.START[3:]))


ATTACKS = ("kept kernels are deleted", "a way to the network", "limits of other processes", "memory of the judge")
ATTACKS += ("the course's kernel by its file", "signals to all around")


@pytest.mark.skipif(not answer.CAN_FORK, reason="these attacks are on Linux")
@pytest.mark.parametrize("name", ATTACKS)
def test_without_the_system_an_attack_succeeds(name, monkeypatch, tmp_path):
    """So the tests above would show what does."""
    (forgery,) = (each for each in forged.FORGERIES if each["name"] == name)
    end_nursery()
    unlimited(monkeypatch)
    try:
        assert verdict_here(forgery["operation"], forgery["kernel"], text_of(forgery, tmp_path))
    finally:
        end_nursery()


def test_what_is_honest_is_judged_as_ever(only_the_system):
    assert verdict_here("sigmoid", "numpy", "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n")
    assert not verdict_here("sigmoid", "numpy", "def sigmoid(z):\n    return 1 / (2 + np.exp(-z))\n")


@pytest.mark.parametrize("forgery", many(PYTHON, *OF_EACH))
def test_the_system_alone_stops_a_forgery(forgery, only_the_system, tmp_path, my_kernels):
    folder = tmp_path / "left"
    folder.mkdir()
    verdict = verdict_here(forgery["operation"], forgery["kernel"], text_of(forgery, folder))
    assert not verdict, str(verdict)
    if then := forgery.get("then"):
        second = verdict_here(then["operation"], then["kernel"], filled(then["text"], folder))
        assert not second, f"after it: {second}"
    refuse_leftovers(forgery, folder)


def filled(value: str, folder: Path, text: str = "") -> str:
    """A text of an entry with its places filled in."""
    package = Path(nncourse.__file__).parent
    places = {"{tmp}": folder, "{package}": package, "{my_kernels}": kept_kernels.folder()}
    places["{port}"] = forged.server().getsockname()[1]
    for name, place in places.items():
        value = value.replace(name, str(place))
    return value.replace("{hash}", hashlib.sha256(text.encode()).hexdigest())


def text_of(forgery: dict, folder: Path) -> str:
    text = filled(forgery["text"], folder)
    return f"// %%cuda {forgery['line']}\n{text}" if "line" in forgery else text


def launch_of(forgery: dict) -> dict | None:
    if "line" not in forgery:
        return None
    return cuda_cell.launch_options(find(forgery["operation"]), cuda_cell.parsed(forgery["line"]))


def plant(forgery: dict, folder: Path, text: str, launch: dict | None) -> None:
    """Write a folder of kept kernels: the forged text, its record, and the entry's other files."""
    operation, name, kept = find(forgery["operation"]), forgery["kernel"], kept_kernels.folder()
    kept.mkdir(parents=True, exist_ok=True)
    (kept / kept_kernels.file_name(operation, name, launch)).write_text(text, "utf-8", errors="surrogatepass")
    entry = {"hash": "{hash}", "date": "2026-01-01", "machine": "mine", "seconds": 1e-9}
    entry |= {"launch": launch} if launch else {}
    record = forgery.get("record") or json.dumps({f"{operation.name}.{name}": entry})
    (kept / "progress.json").write_text(filled(record, folder, text), "utf-8")
    for thing in forgery.get("plant", ()):
        path = Path(filled(thing["path"], folder))
        forged.plant(kept / path, thing, lambda value: filled(value, folder))  # path may be absolute


def refuse_leftovers(forgery: dict, folder: Path) -> None:
    """The files or processes that the entry tries to leave behind must not exist."""
    if "leaves" not in forgery:
        return
    time.sleep(0.5)
    if forgery["leaves"] == "process":
        alive = folder / "alive"
        before = alive.stat().st_size if alive.exists() else 0
        time.sleep(0.7)
        assert (alive.stat().st_size if alive.exists() else 0) == before
    else:
        assert not (folder / forgery["leaves"]).exists()


@pytest.mark.parametrize("forgery", OF_EACH_KIND)
def test_a_forgery_is_not_believed(forgery, tmp_path, my_kernels, capsys, request):
    """Judged as in a notebook; then kept under a forged record and read by progress, train --mine and report."""
    if forgery.get("needs") == "gpu" and not device.gpu_available():
        pytest.skip("only a GPU shows that it is wrong")
    folder = tmp_path / "left"
    folder.mkdir()
    operation, name = find(forgery["operation"]), forgery["kernel"]
    if "line" in forgery:
        request.getfixturevalue("cuda_somewhere")
    text, launch = text_of(forgery, folder), launch_of(forgery)
    said = []
    verdict = kept_kernels.judged(operation, name, text, launch)
    assert not verdict, str(verdict)
    said.append(str(verdict))
    if then := forgery.get("then"):
        given = then["kernel"], filled(then["text"], folder), launch_of(then)
        second = kept_kernels.judged(find(then["operation"]), *given)
        assert not second, f"after it: {second}"
    plant(forgery, folder, text, launch)
    try:
        said += progress_lines()
        _, notes = kept_kernels.fastest({operation.name: operation}, "gpu" if launch else "cpu")
        said += notes.values()
        record = kept_kernels.progress()
    except CourseError as error:  # the record is refused as a whole
        said.append(str(error))
    else:
        assert not any(line.startswith("  ✓") and f"{operation.name} ({name})" in line for line in said)
        assert not kept_kernels.fastest({operation.name: operation}, "gpu" if launch else "cpu")[0]
        if entry := record.get(f"{operation.name}.{name}"):
            outcome = report.examine(operation, name, entry).outcome
            assert outcome.state != "right"
            said.append(str(outcome))
    words = "\n".join([*said, *capsys.readouterr()])
    assert not forgery.get("hides") or forgery["hides"] not in words
    refuse_leftovers(forgery, folder)
