"""make test-gpu, without a GPU: what it counts as passed and as failed, what it runs again, and its halves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools import test_gpu as run

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest

def test_right():
    pass

def test_wrong():
    assert 1 + 1 == 3, "it is two"

def test_two_gpus():
    pytest.skip("expected a second GPU")

def test_cudnn():
    pytest.skip("cuDNN is missing (pip install -e '.[cudnn13]')")

def test_elsewhere():
    pytest.skip("no PyTorch here")

@pytest.fixture
def broken():
    raise RuntimeError("no such device")

def test_never_begins(broken):
    pass

@pytest.mark.xfail(reason="known", strict=False)
def test_known_gap():
    assert False

def test_timed(record_property):
    record_property("timed", True)
"""
GROUP = run.Group("tests on a GPU", ("tests",))
NOTEBOOKS = run.Group("notebooks, open", ("notebooks",), by_file=True)


def ran(folder: Path, *arguments: str, done: tuple[str, ...] = (), part: str = "1/1") -> tuple[int, list[dict]]:
    """The status of pytest with the plugin in this folder, and what is recorded there."""
    (folder / "done.txt").write_text("".join(f"{name}\n" for name in done))
    places = {"RECORD": folder / "record.jsonl", "DONE": folder / "done.txt", "PART": part}
    environment = os.environ | {f"NNCOURSE_GPU_{name}": str(value) for name, value in places.items()}
    environment |= {"PYTHONPATH": str(ROOT)}
    plain = ["-q", "-p", "tools.gpu_record", "-p", "no:cacheprovider", "--rootdir", str(folder), "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *plain, *arguments]
    status = subprocess.run(command, cwd=folder, env=environment, capture_output=True).returncode
    return status, run.outcomes(folder / "record.jsonl")


@pytest.mark.full
@pytest.mark.parametrize("workers", ("0", "2"))
def test_only_skips_for_a_second_gpu_or_cudnn_are_no_failures(tmp_path, workers):
    (tmp_path / "test_some.py").write_text(TESTS)
    status, lines = ran(tmp_path, "-n", workers)
    row = run.counted(GROUP, lines, [], status, 1.0)
    assert (row.passed, row.earlier, row.timed) == (3, 0, 1)
    assert dict(row.skipped) == {"expected a second GPU": 1, "cuDNN is missing (pip install -e '.[cudnn13]')": 1}
    failed = {name.partition("::")[2]: reason for name, reason in row.failed.items()}
    assert set(failed) == {"test_wrong", "test_elsewhere", "test_never_begins"}
    assert "it is two" in failed["test_wrong"] and failed["test_elsewhere"] == "no PyTorch here"
    assert "no such device" in failed["test_never_begins"]
    said = run.table([row], 1.0)
    assert "test_elsewhere: no PyTorch here" in said and "skipped 1: expected a second GPU" in said


@pytest.mark.full
@pytest.mark.parametrize("text", ("import nothing_of_this_name", "def test_one(:", "raise SystemExit(3)"))
def test_a_file_that_cannot_be_collected_is_a_failure(tmp_path, text):
    (tmp_path / "test_good.py").write_text("def test_one(): pass\n")
    (tmp_path / "test_bad.py").write_text(text)
    status, lines = ran(tmp_path)
    assert run.counted(GROUP, lines, [], status, 1.0).failed


@pytest.mark.full
def test_what_has_passed_is_not_run_again(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    _, before = ran(tmp_path)
    done = [name for name, outcome in run.finished(before, GROUP).items() if outcome == "passed"]
    assert len(done) == 3
    (tmp_path / "test_some.py").write_text(TESTS.replace("== 3", "== 2"))
    status, lines = ran(tmp_path, done=tuple(done))
    assert len(lines) == len(before) + len({line["test"] for line in before}) - len(done)
    row = run.counted(GROUP, lines, before, status, 1.0)
    assert (row.passed, row.earlier) == (4, 3) and not any("test_wrong" in name for name in row.failed)


@pytest.mark.full
def test_halves_are_apart_and_together_the_whole(tmp_path):
    (tmp_path / "test_some.py").write_text("".join(f"def test_{number}(): pass\n" for number in range(40)))
    found = []
    for part in ("1/2", "2/2"):
        (tmp_path / "record.jsonl").unlink(missing_ok=True)
        found.append({line["test"] for line in ran(tmp_path, part=part)[1]})
    assert all(found) and not found[0] & found[1] and len(found[0] | found[1]) == 40


def write_notebook(path: Path, *cells: str) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


UPDATED = """from IPython.display import display
handle = display({"text/plain": "checking"}, raw=True, display_id=True)
handle.update({"text/plain": "right in 39 cases"}, raw=True)"""


@pytest.mark.full
def test_a_notebook_has_passed_if_all_of_its_cells_have_and_its_output_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    write_notebook(tmp_path / "good.ipynb", "print('seven')", UPDATED)
    write_notebook(tmp_path / "bad.ipynb", "x = 1", "y", "z")
    status, lines = ran(tmp_path, "--nbval-lax", "good.ipynb", "bad.ipynb")
    assert run.finished(lines, NOTEBOOKS) == {"good.ipynb": "passed", "bad.ipynb": "failed"}
    row = run.counted(NOTEBOOKS, lines, [], status, 1.0)
    assert row.passed == 1 and row.failed == {"bad.ipynb": "NameError: name 'y' is not defined"}  # the first alone
    printed = (tmp_path / "record" / "good.txt").read_text("utf-8")
    assert "> print('seven')\nseven\n" in printed
    assert "right in 39 cases" in printed and "\nchecking" not in printed
    cut_off = [line for line in lines if line["test"] != "good.ipynb::Cell 1"]
    assert run.finished(cut_off, NOTEBOOKS)["good.ipynb"] == "failed"


def test_a_record_that_was_cut_off_in_a_line_is_read(tmp_path):
    line = json.dumps({"test": "a::b", "outcome": "passed", "reason": "", "seconds": 0.1})
    (tmp_path / "record.jsonl").write_text(f"{line}\n{line[:20]}")
    assert [each["test"] for each in run.outcomes(tmp_path / "record.jsonl")] == ["a::b"]
    assert run.outcomes(tmp_path / "nothing.jsonl") == []


@pytest.mark.parametrize("status", (2, 3, 4, -9, 137))
def test_a_status_that_no_test_explains_is_a_failure(status):
    assert run.counted(GROUP, [], [], status, 1.0).failed
    assert not run.counted(GROUP, [], [], 5, 1.0).failed  # nothing was left to run


@pytest.mark.parametrize("options", (["--part", "3/2"], ["--part", "half"], ["--part", "0/2"]))
def test_an_impossible_part_is_refused_in_a_line(options, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["test_gpu.py", *options])
    assert run.main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_a_gpu_it_says_so_and_runs_nothing(monkeypatch, capsys):
    from nncourse import device

    monkeypatch.setattr(sys, "argv", ["test_gpu.py"])
    monkeypatch.setattr(device, "why_no_gpu", lambda: "no NVIDIA GPU answers")
    assert run.main() == 2
    assert "no NVIDIA GPU answers" in capsys.readouterr().err


def test_what_notebooks_write_does_not_make_the_files_others(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "one.ipynb").write_text("{}")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    before = run.files_now()
    (tmp_path / "notebooks" / "my_training.py").write_text("print(1)")
    assert run.files_now() == before
    (tmp_path / "notebooks" / "one.ipynb").write_text("{ }")
    assert run.files_now() != before
