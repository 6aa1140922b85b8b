"""Notebooks for a hosted Jupyter: the hand-out, its set-up cell, and what that does on such a host, piece by piece."""

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from packaging.requirements import Requirement
from refusals import command_refused

from cuda_on_cpu import emulate
from nnclassroom.commands import main
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.handing_out import notebook_files, on_host
from nncourse import device
from nncourse.errors import CourseError
from nncourse.language import ROOT
from nnmarking import hosted

ADDRESS = "https://course.example/wheels/nncourse-1.0.0-py3-none-any.whl"
DONE, FAILED = (subprocess.CompletedProcess([], status, "", "no route\nto host") for status in (0, 1))
RELU = "def relu(z):\n    return np.maximum(z, 0)\n"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """What a set-up changes in this process comes back."""
    for name in ("NNCOURSE_LANG", "NNCOURSE_MY_KERNELS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


# ---- the hand-out


def notebooks_in(path: Path) -> dict[str, nbformat.NotebookNode]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".ipynb")]
        return {Path(name).name: nbformat.reads(archive.read(name).decode(), as_version=4) for name in names}


def test_each_notebook_begins_with_the_set_up_and_is_else_the_courses(tmp_path):
    out = tmp_path / "hosted.zip"
    assert main(["handout", "--hosted", "--wheel", ADDRESS, "--out", str(out)]) == 0
    found = notebooks_in(out)
    assert sorted(found) == [path.name for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    for name, notebook in found.items():
        nbformat.validate(notebook)
        set_up = notebook.cells.pop(1)
        assert set_up.id == "hosted-setup" and f'wheel = "{ADDRESS}"' in set_up.source
        assert len(set_up.source.splitlines()) <= 26 and compile(set_up.source, name, "exec")
        asks = any(cell.source.startswith("%%cuda") for cell in notebook.cells)
        assert notebook.metadata.pop("accelerator", "") == "GPU" * asks, name
        there = ROOT / "notebooks" / name
        assert notebook_files.to_bytes(notebook) == notebook_files.clean(there.read_bytes(), name)


def test_a_wheel_that_is_a_file_goes_along(tmp_path, capsys):
    wheel = tmp_path / "nncourse-1.0.0-py3-none-any.whl"
    wheel.write_bytes(b"the course")
    out = tmp_path / "hosted.zip"
    assert main(["handout", "--hosted", "--wheel", str(wheel), "--out", str(out)]) == 0
    assert "students upload with a notebook" in capsys.readouterr().out
    with zipfile.ZipFile(out) as archive:
        assert archive.read(f"course/notebooks/{wheel.name}") == b"the course"
        assert f"Upload `{wheel.name}`" in archive.read("course/README.md").decode()
    assert f'wheel = "{wheel.name}"' in notebooks_in(out)["00_start_here.ipynb"].cells[1].source


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosted"], "--wheel"),
        (["--wheel", ADDRESS], "--hosted"),
        (["--hosted", "--wheel", "https://course.example/course.zip"], "nncourse-….whl"),
        (["--hosted", "--wheel", "nncourse-1.0.0-py3-none-any.whl"], "No such file"),
    ],
)
def test_what_is_no_wheel_is_said_in_one_line(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert said in command_refused(capsys, ["handout", "--out", "hosted.zip", *arguments])
    assert not list(tmp_path.iterdir())


# ---- the set-up cell


def run_cell(monkeypatch, wheel: str, installed: bool, pip: subprocess.CompletedProcess = DONE) -> list[list[str]]:
    """Run the cell where the course is installed, or not. Returns the commands that it started; `pip` is their end."""
    commands = []

    def started(command, **options):
        commands.append(command)
        return pip

    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(subprocess, "run", started)
    monkeypatch.setattr(on_host, "set_up", lambda: commands.append(["set up", os.environ["NNCOURSE_LANG"]]))
    exec(hosted.SETUP.format(language="en", wheel=wheel), {})
    return commands


def test_the_cell_installs_the_course_where_it_is_missing(monkeypatch, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    assert run_cell(monkeypatch, ADDRESS, True) == [["set up", "en"]]
    assert run_cell(monkeypatch, ADDRESS, False) == [[*pip, ADDRESS], ["set up", "en"]]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nncourse-1.whl").touch()
    assert run_cell(monkeypatch, "nncourse-1.whl", False) == [[*pip, "nncourse-1.whl"], ["set up", "en"]]


def test_the_cell_says_what_is_wrong(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"nncourse-1.whl is not beside this notebook"):
        run_cell(monkeypatch, "nncourse-1.whl", False)
    with pytest.raises(SystemExit, match="no route\nto host"):
        run_cell(monkeypatch, ADDRESS, False, FAILED)


# ---- packages


@pytest.mark.parametrize(
    ("installed", "served", "cuda"),
    [
        ({}, 0, 13),
        ({}, 12, 12),
        ({}, 14, 13),
        ({"cupy-cuda12x": "13.6.0"}, 13, 12),
        ({"cupy-cuda13x": "14.2.0", "cuda-bindings": "13.5.0"}, 13, 13),
        ({"cuda-bindings": "12.9.4"}, 0, 12),
    ],
)
def test_the_cuda_of_the_host_stays(installed, served, cuda):
    assert on_host.cuda_of_host(installed, served) == cuda


def test_a_gpu_wants_cupy_and_without_one_the_compiler_will_do(monkeypatch):
    monkeypatch.setattr(on_host, "has_library", lambda name: name == "libcublas.so.12")
    names = {
        (cuda, gpu): {each.name for each in on_host.wanted(cuda, gpu)} for cuda in (12, 13) for gpu in (True, False)
    }
    for found in names.values():
        assert {"numpy", "anywidget", "cuda-bindings"} <= found and not {"jupyterlab", "pytest", "torch"} & found
    assert {"cupy-cuda12x", "nvidia-cuda-nvrtc-cu12"} <= names[12, True] and "nvidia-cublas-cu12" not in names[12, True]
    assert {"cupy-cuda13x", "nvidia-cublas"} <= names[13, True]
    for cuda in (12, 13):
        assert not any(name.startswith(("cupy", "nvidia-cuda-runtime", "nvidia-cub")) for name in names[cuda, False])


def test_only_what_is_missing_or_too_old_is_installed(monkeypatch):
    there = {"numpy": "2.0.2", "numba": "0.59.1"}

    def version(name):
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(on_host.metadata, "version", version)
    needed = [Requirement(text) for text in ("numpy>=2.0", "numba>=0.60", "anywidget>=0.9,<1")]
    assert [each.name for each in on_host.missing(needed)] == ["numba", "anywidget"]


def test_it_says_what_it_installs_and_what_it_could_not(monkeypatch, capsys):
    commands, results = [], [DONE, FAILED]

    def started(command, **options):
        commands.append(command)
        return results.pop(0)

    monkeypatch.setattr(on_host.subprocess, "run", started)
    needed = [Requirement("anywidget>=0.9"), Requirement("cuda-core>=1.0; sys_platform != 'darwin'")]
    assert "installed now" in on_host.install(needed)
    assert commands[0][-2:] == ["anywidget>=0.9", "cuda-core>=1.0"]
    assert "anywidget, cuda-core" in capsys.readouterr().out
    said = on_host.install(needed)
    assert "could not be installed: anywidget, cuda-core (to host)" in said
    assert on_host.install([]) == "Everything that the course needs is installed." and len(commands) == 2


def test_a_restart_is_asked_for_only_if_an_old_version_is_loaded(monkeypatch):
    assert on_host.outdated(["numpy", "threadpoolctl", "lazy-loader", "no-such-package"]) == []
    monkeypatch.setitem(sys.modules, "threadpoolctl", SimpleNamespace(__version__="0.1"))
    assert on_host.outdated(["numpy", "threadpoolctl"]) == ["threadpoolctl"]
    monkeypatch.setattr(on_host, "install", lambda needed: "")
    with pytest.raises(CourseError, match="old version of threadpoolctl: restart it"):
        on_host.set_up()


# ---- what there is


def test_a_gpu_is_named_or_its_absence_explained(monkeypatch):
    monkeypatch.setattr(device, "gpu_available", lambda: False)
    monkeypatch.setattr(device, "why_no_gpu", lambda: "CuPy is not installed here")
    assert "No GPU here" in on_host.about_gpu(0)
    assert "CuPy is not installed here" in on_host.about_gpu(1)
    monkeypatch.setattr(device, "gpu_available", lambda: True)
    monkeypatch.setattr(device, "describe", lambda name: f"Tesla T4, a {name}")
    assert on_host.about_gpu(1) == "GPU: Tesla T4, a gpu"


def test_the_driver_is_asked_without_cupy():
    cuda, gpus = on_host.driver()
    assert (cuda == 0) == (gpus == 0) or cuda >= 11


def test_a_set_up_says_all_of_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", "")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(on_host, "install", lambda needed: "installed")
    monkeypatch.setattr(emulate, "why_not", lambda: "there is no g++")
    monkeypatch.setattr(on_host, "driver", lambda: (0, 0))
    on_host.set_up(tmp_path / "no drive")
    said = capsys.readouterr().out
    assert "installed\n" in said and "No GPU here" in said and "there is no g++" in said and "lost" in said


# ---- kept kernels


def test_without_a_drive_it_says_when_kernels_are_lost(monkeypatch, tmp_path):
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(tmp_path / "mine"))
    said = on_host.keep_on(tmp_path / "no drive")
    assert str(tmp_path / "mine") in said and "lost" in said and "mount your drive" in said
    assert os.environ["NNCOURSE_MY_KERNELS"] == str(tmp_path / "mine")


def test_a_drive_keeps_kernels_and_what_was_kept_before_goes_along(monkeypatch, tmp_path):
    before, drive = tmp_path / "session", tmp_path / "MyDrive"
    drive.mkdir()
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(before))
    kept_kernels.keep(find("relu"), "numpy", RELU, seconds=1e-6, sizes="z (9,)")
    kept_kernels.keep(find("tanh"), "numpy", "new", date="2026-02-02")
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(drive / "nncourse" / "my_kernels"))
    kept_kernels.keep(find("tanh"), "numpy", "newer", date="2026-03-03")
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(before))
    said = on_host.keep_on(drive)
    folder = drive / "nncourse" / "my_kernels"
    assert kept_kernels.folder() == folder and str(folder) in said and "from this session: 1" in said
    assert (folder / "relu.numpy.py").read_text() == RELU and (folder / "tanh.numpy.py").read_text() == "newer"
    assert kept_kernels.progress()["relu.numpy"]["seconds"] == 1e-6
    assert "from this session" not in on_host.keep_on(drive)
