"""What limits the process of an answer on a machine: which means there are, what it may read, what it is told."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from nnclassroom.exercises import kept_kernels
from nnclassroom.judge import answer, forbidden_python, limits, sandbox
from nnclassroom.judge.worker import Worker
from nncourse.language import PACKAGES, ROOT

RELU = "def relu(z):\n    return np.maximum(z, 0)\n"
judged = partial(kept_kernels.check, "relu", "numpy")


@pytest.fixture
def neither(monkeypatch):
    """A system that can neither confine a process nor make a sandbox, nor fork: as Windows."""
    monkeypatch.setattr(limits, "_why_not_confined", lambda: "only Linux can")
    monkeypatch.setattr(sandbox, "why_none", lambda: sandbox.HELP["linux"])
    monkeypatch.setattr(answer, "CAN_FORK", False)
    limits.prefix.cache_clear()
    yield
    limits.prefix.cache_clear()


def test_where_the_system_has_neither_one_line_says_so_once(neither, capsys):
    assert judged(RELU) and not judged("def relu(z):\n    return z\n") and judged(RELU)
    (line,) = capsys.readouterr().out.splitlines()
    assert "only Linux can" in line and sandbox.HELP["linux"] in line


def test_where_the_system_has_one_nothing_is_said(capsys):
    if not limits.confined() and sandbox.why_none():
        pytest.skip("it has neither")
    assert judged(RELU) and not capsys.readouterr().out


def test_what_is_hidden_is_left_out_of_the_folder_around_it(tmp_path):
    for name in ("site-packages/numpy", "site-packages/nncourse"):
        (tmp_path / name).mkdir(parents=True)
    found = list(limits._without(tmp_path, [tmp_path / "site-packages" / "nncourse"]))
    assert found == [tmp_path / "site-packages" / "numpy"]


@pytest.mark.parametrize("beside", (None, "SYSTEM", "NAMED"))
def test_the_course_is_hidden_also_in_a_folder_of_the_system(beside, tmp_path, monkeypatch):
    """As where Python, with all packages, lies in /usr/local or /opt."""
    course = tmp_path / "usr" / "lib" / "site-packages" / "nncourse"
    (course / "kernels").mkdir(parents=True)
    (course.parent / "numpy").mkdir()
    (tmp_path / "lib").symlink_to(tmp_path / "usr" / "lib")
    if beside == "SYSTEM":
        monkeypatch.setattr(limits, "SYSTEM", (str(tmp_path / "usr"), str(tmp_path / "lib")))
    if beside == "NAMED":
        monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path / 'lib'}{os.pathsep}")
    readable = [Path(path) for path in limits.visible([course])]
    assert not any(path in (course, *course.parents) for path in readable)
    assert (course.parent / "numpy" in readable) == (beside is not None)


IMPORT_AND_READ = """
import json, sys
from nnclassroom.judge.answer_process.guard import guard
told, name, file = json.load(sys.stdin)
guard(told["course"], told["hidden"], told["readable"], False)
for attempt in (lambda: __import__(f"{name}.any"), lambda: open(file)):
    try:
        attempt()
        print("not refused")
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_an_answer_can_neither_import_nor_read_a_package_of_the_course(package, tmp_path, monkeypatch):
    """Whether the package is there or not, and though the folder around it may be read."""
    for name in (package, "another"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(limits, "HIDDEN", [tmp_path / hidden.relative_to(ROOT) for hidden in limits.HIDDEN])
    told = limits.of_process(on_gpu=False, judged=True)
    assert str(tmp_path / "another") in told["readable"] and str(tmp_path / package) not in told["readable"]
    given = json.dumps([told, package, str(tmp_path / package / "__init__.py")])
    command = [sys.executable, "-c", IMPORT_AND_READ]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    imported, read = done.stdout.splitlines()
    assert imported.startswith(package) and imported.endswith(": refused for a kernel")
    assert read == "reads the course's files: refused for a kernel"
    assert package in forbidden_python.forbidden(f"import {package}.any", without_numpy=False).facts["said"]


def test_secrets_of_the_environment_are_not_told(monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    told = limits.environment()
    assert "secret" not in told.values() and told["OMP_NUM_THREADS"] == "2"


def test_a_module_in_the_folder_where_the_judge_is_started_is_not_taken(tmp_path, monkeypatch):
    """As where a class is marked in a folder that holds what students have handed in."""
    for name in ("numpy", "random", "psutil"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'taken')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    worker = Worker()
    try:
        assert worker.call(kept_kernels.check, "relu", "numpy", RELU, seconds=120)
    finally:
        worker.end()
    assert not (tmp_path / "taken").exists()
