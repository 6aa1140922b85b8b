"""The Spanish edition at work: all that it says is Spanish, and it is one course with the English one."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests import command_lines
from tools.notebooks import client

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ("00_start_here", "01_neurons")  # short ones, in which much is to be seen
COMMANDS = ["train", "test", "check", "time", "progress", "report", "experiment", "submit", "update", "handout"]
HELP = ("--help", *(f"{command} --help" for command in ("info", *COMMANDS, "profile", "grade")))
RIGHT = (
    f"{command_lines.TRAIN} --verbose",
    f"{command_lines.TRAIN} --validation 0.2 --optimizer adam",
    f"{command_lines.TRAIN} --use sigmoid=loops --mine",
    "train --resume new.npz --dataset good.csv --model new.npz --epochs 1",
    "test --dataset good.csv --model new.npz --verbose",
    "check sigmoid --kernel numpy",
    "time sigmoid --kernel numpy --size n=1000",
    "profile sigmoid --kernel naive",
    "progress",
    "info",
)
WRONG = (
    "train --dataset",
    "train --seed few",
    "time sigmoid --optimizer adam",
    "time --network 3,2 --size n=5",
    "profile sigmoid --mine",
    "profile sigmoid --kernel numpy",
    "train --verbose=3",
    "report --epochs few",
    "report --out no/where.html",
    "experiment",
    "experiment no_such --out results",
    "experiment small --out results --devices gpu9",
    "experiment small --out results --size 3",
    "submit",
    "submit --out my.zip",
    "update",
    "update no_such.zip",
    "handout",
    "handout --out x.zip --language xx",
    "handout --out no/where.zip",
    "grade",
    "grade nowhere --out marks.csv",
    "grade . --out marks.csv --jobs two",
    "grade . --out marks.csv --seed -1",
    "grade . --out no/where/marks.csv",
    "grade . --out marks.csv --exercises none.toml",
)

# Words of English sentences that are none of Spanish; and where they may stand: in code, and in what NumPy says.
ENGLISH = re.compile(r"(?<![\w./=-])(?:the|of|and|with|is|are|was|expected|got|for|not|from|which|this)(?![\w./=-])")
CODE = re.compile(r"<style>.*?</style>|Unable to allocate [^\n]*|```.*?```|`[^`\n]*`|'[^'\n]*'|\"[^\"\n]*\"", re.DOTALL)
UNSEEN = re.compile(r"^_|layout|style")  # of a widget's state

RUNS = """
import contextlib, io, json
from nnclassroom.commands import main

for line in json.load(open("lines.json")):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main(line.split(" ") if line else [])
    print(json.dumps([line, said.getvalue()]))
"""
SAYS = """
import numpy as np
from nnclassroom import exercise, hint, widgets
from nnclassroom.figures import nb05
from nnclassroom.judge import check
from nncourse.kernels import dense
from cuda_on_cpu import source

hint("neuron", "loops")

@exercise("step", kernel="numpy")
def step(z):
    return np.where(z > 0, 1, 0)

drawn = widgets.neuron(np.zeros((2, 2), np.float32), np.array([0, 1]))
print("label", drawn.controls[0]["label"])
by_hand = nb05.softmax_by_hand([1.0, 1.8], [0.2, 0.8])
print(by_hand.check(short=-by_hand["short"]))
print(nb05.diagnoses(), nb05.Ward(seed=7).check(**dict.fromkeys(("Ada", "Ben", "Cleo", "Dora"), "sano")), sep="\\n")
print(check.__file__, dense.__file__, source.__file__)
"""


def run(folder: Path, *arguments: str, language: str, root: Path = ROOT) -> subprocess.CompletedProcess:
    """Python with the course of a root, which keeps kernels in the folder."""
    environment = os.environ | {"PYTHONPATH": str(root), "NNCOURSE_LANG": language, "COLUMNS": "120"}
    environment["NNCOURSE_MY_KERNELS"] = str(folder / "kernels")
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)


@pytest.mark.full
def test_verdict_hint_error_and_label_come_in_the_language(spanish, tmp_path):
    (tmp_path / "says.py").write_text(SAYS, "utf-8")
    told = run(tmp_path, "says.py", language=spanish)
    assert told.returncode == 0, told.stderr
    assert "Haz a mano la suma con dos entradas" in told.stdout and "label peso w1" in told.stdout
    assert told.stdout.count("✗ signo") == 3  # two marks, and what they mean
    assert "'sano' " in told.stdout and told.stdout.count("✗ mira otra vez") == 3  # typed as it is listed
    assert re.search(r"✗ step \(numpy\): .*int64.*float32", told.stdout) and "expected" not in told.stdout
    assert told.stdout.count(str(ROOT / "nncourse" / "languages" / spanish)) == 3
    wrong = run(tmp_path, "-m", "nnclassroom", "check", "nosuch", language=spanish)
    assert wrong.returncode == 2 and "se esperaba" in wrong.stderr


KEEPS = """
from nnclassroom import exercise

@exercise("relu", kernel="{kernel}")
def relu(z):
    return {xp}.maximum(z, 0)
"""
TELLS = """
from nnclassroom import choose, overheads
from nnclassroom.version import course_version, package_files
from nnclassroom.exercises import kept_kernels
print(course_version(), len(package_files()), kept_kernels.folder(), overheads.RESULTS)
print(sorted(choose("numpy", mine=True).yours), *kept_kernels.progress().values())
"""


@pytest.mark.parametrize(("keeps", "uses"), [("en", "es"), ("es", "en")])
@pytest.mark.full
def test_both_languages_are_one_course_and_share_kept_kernels(keeps, uses, spanish, tmp_path):
    (tmp_path / "keeps.py").write_text(KEEPS.format(kernel="numpy", xp="np"), "utf-8")
    (tmp_path / "tells.py").write_text(TELLS, "utf-8")
    kept = run(tmp_path, "keeps.py", language=keeps)
    assert "✓" in kept.stdout, kept.stdout + kept.stderr
    told = [run(tmp_path, "tells.py", language=language).stdout for language in (keeps, uses)]
    assert told[0] == told[1] and "['relu']" in told[0]


@pytest.mark.full
def test_a_hand_out_in_another_language_speaks_it(spanish, tmp_path):
    path = tmp_path / "course.zip"
    made = run(tmp_path, "-m", "nnclassroom", "handout", "--out", str(path), language=spanish)
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    manifest = json.loads((tmp_path / "course/MANIFEST.json").read_text("utf-8"))
    assert manifest["language"] == spanish
    first, *_ = manifest["notebooks"]
    assert "Predice" in (tmp_path / "course" / first).read_text("utf-8")
    course = tmp_path / "course"
    wrong = run(course, "-m", "nnclassroom", "check", "nosuch", language=spanish, root=course)
    assert wrong.returncode == 2 and "se esperaba" in wrong.stderr
    english = run(course, "-m", "nnclassroom", "check", "nosuch", language="", root=course)
    assert english.returncode == 2 and "expected an operation, one of" in english.stderr


def english_in(text: str) -> list[str]:
    """The lines with words of an English sentence."""
    return [line.strip()[:160] for line in CODE.sub(" ", text).splitlines() if ENGLISH.search(line)]


def texts(value: Any) -> Iterator[str]:
    """The strings of a notebook's outputs, and of the states of its widgets."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if not UNSEEN.search(name) and name != "image/png":
                yield from texts(each)


@pytest.mark.parametrize("solve", ("", "all"))
@pytest.mark.parametrize("notebook", NOTEBOOKS)
@pytest.mark.full
def test_a_notebook_runs_and_shows_no_english(notebook, solve, spanish, tmp_path):
    read = nbformat.read(ROOT / "notebooks" / spanish / f"{notebook}.ipynb", as_version=4)
    environment = os.environ | {"NNCOURSE_LANG": spanish, "NNCOURSE_SOLVE": solve, "PYTHONPATH": str(ROOT)}
    environment["NNCOURSE_MY_KERNELS"] = str(tmp_path)
    ran = client(read, ROOT / "notebooks" / spanish, timeout=600).execute(env=environment)
    shown = [cell.outputs for cell in ran.cells if cell.cell_type == "code"]
    assert sum(map(len, shown)) > 10
    assert not [line for text in texts([shown, ran.metadata.get("widgets", {})]) for line in english_in(text)]


@pytest.mark.parametrize("lines", (HELP, (*RIGHT, *WRONG), command_lines.WRONG), ids=("help", "commands", "mistakes"))
@pytest.mark.full
def test_commands_speak_spanish(lines, spanish, tmp_path):
    command_lines.fill(tmp_path)
    (tmp_path / "lines.json").write_text(json.dumps(lines), "utf-8")
    told = run(tmp_path, "-c", RUNS, language=spanish)
    assert told.returncode == 0, told.stderr
    said = dict(map(json.loads, told.stdout.splitlines()))
    assert len(said) == len(set(lines)) and all(said.values())
    assert not {line: found for line, text in said.items() if (found := english_in(text))}


def test_english_is_found():
    text = "✗ relu: expected float32\nse esperaba float32; se ha recibido `got`\nthe end"
    assert english_in(text) == ["✗ relu: expected float32", "the end"]
    state = {"caption": "one of two", "_esm": "this", "data": ["it is", {"text/html": "uno"}]}
    assert [line for each in texts(state) for line in english_in(each)] == ["one of two", "it is"]
