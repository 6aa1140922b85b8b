"""The course without the packages that may be missing: a student's commands work, the others say what is missing."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnclassroom.commands import COMMANDS, ELSEWHERE, GROUP
from nncourse import __version__
from nncourse.language import ROOT
from nnmarking import handout
from tests import command_lines

MISSING = sorted({*ELSEWHERE.values()})
# Reads lines, runs each as a command in one process, and writes the list of exit statuses last.
RUN = f"""
import json, sys
sys.modules.update(dict.fromkeys({MISSING}))  # as if these were not installed
from nnclassroom.commands import main

def status(line):
    try:
        return main(line.split())
    except SystemExit as done:  # of --help
        return done.code

print(json.dumps([status(line) for line in sys.stdin]))
"""
STUDENTS = {
    "lab": "--help",
    "notebooks": "mine",
    "train": "--dataset good.csv --layers 2,3,1 --epochs 2 --model new.npz",
    "test": "--dataset good.csv --model new.npz",
    "check": "sigmoid --kernel numpy",
    "time": "sigmoid --kernel numpy --size n=1000",
    "profile": "--help",
    "progress": "",
    "report": "--dataset good.csv --epochs 1",
    "submit": "--out ada.zip",
    "take": "ada.zip",
    "update": "new.zip --folder copy",
    "nbval": "--help",
    "info": "",
}
OTHERS = {
    "concepts": "--paper A",
    "experiment": "small --devices cpu --out results",
    "grade": "group --out marks.csv",
    "handout": "--out course.zip",
    "time --network": "2,3,1",
}
SIGMOID = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"


def run(folder: Path, lines: list[str], **environment: str) -> tuple[list[int], str]:
    """The exit statuses of these commands in a process of their own, and what it wrote to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), **environment},
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_each_command_is_a_students_or_in_a_package_that_may_be_missing():
    assert STUDENTS.keys() | ELSEWHERE.keys() == COMMANDS.keys() | {"time --network"}
    assert OTHERS.keys() == ELSEWHERE.keys()


@pytest.mark.full
def test_a_students_commands_work(tmp_path):
    command_lines.fill(tmp_path)
    handout.write(tmp_path / "new.zip", notebooks_only=True)
    subprocess.run([sys.executable, "-m", "zipfile", "-e", "new.zip", "copy"], cwd=tmp_path, check=True)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "sigmoid.numpy.py").write_text(SIGMOID)
    lines = [f"{command} {options}".replace("copy", "copy/course") for command, options in STUDENTS.items()]
    statuses, said = run(tmp_path, lines, NNCOURSE_MY_KERNELS=str(tmp_path / "kept"))
    assert dict(zip(STUDENTS, statuses, strict=True)) == dict.fromkeys(STUDENTS, 0), said


def test_the_others_say_in_one_line_what_is_missing(tmp_path):
    statuses, said = run(tmp_path, [f"{command} {options}" for command, options in OTHERS.items()])
    assert statuses == [2] * len(OTHERS)
    for command, line in zip(OTHERS, said.splitlines(), strict=True):
        assert line.startswith(f"nncourse: {command} needs the package {ELSEWHERE[command]}, which is missing here")


@pytest.mark.parametrize("command", OTHERS)
def test_an_environment_from_before_a_pull_is_told_to_be_set_up_again(command, tmp_path):
    """The packages are there, and their commands are not registered."""
    older = tmp_path / f"nncourse-{__version__}.dist-info"
    older.mkdir()
    (older / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nncourse\nVersion: {__version__}\n")
    (older / "entry_points.txt").write_text("[console_scripts]\nnncourse = nnclassroom.commands:main\n")
    words = [sys.executable, "-m", "nnclassroom", *command.split(), *OTHERS[command].split()]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])  # the metadata that are found first count
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 2
    assert done.stderr == (
        f"nncourse: {command} is not registered in this environment, which is older: run make setup\n"
    )


def test_the_commands_are_registered_here():
    found = {each.name: each.module for each in importlib.metadata.entry_points(group=GROUP)}
    wanted = {command.replace(" --", "-"): package for command, package in ELSEWHERE.items()}
    assert {name: module.partition(".")[0] for name, module in found.items()} == wanted
