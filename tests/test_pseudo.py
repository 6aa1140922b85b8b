"""The course in the pseudo language, in which each text is in brackets: everything that it shows is translated."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from nncourse.language import PACKAGES
from tests import command_lines
from tools.translation import allowed, commands, leftovers

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ("00_start_here", "01_neurons")  # short ones, in which much is to be seen
OTHERS = tuple(path.name for path in (ROOT / "notebooks").glob("*.ipynb") if path.stem not in NOTEBOOKS)
COMMANDS = (
    "train",
    "test",
    "check",
    "time",
    "progress",
    "report",
    "experiment",
    "submit",
    "update",
    "handout",
    "grade",
)
HELP = ("--help", "info --help", *(f"{command} --help" for command in COMMANDS))
RIGHT = (
    f"{command_lines.TRAIN} --verbose",
    f"{command_lines.TRAIN} --validation 0.2 --optimizer adam",
    f"{command_lines.TRAIN} --use sigmoid=loops --mine",
    "train --resume new.npz --dataset good.csv --model new.npz --epochs 1",
    "test --dataset good.csv --model new.npz --verbose",
    "check sigmoid --kernel numpy",
    "time sigmoid --kernel numpy --size n=1000",
    "progress",
    "info",
)
WRONG = (
    "train --dataset",
    "train --seed few",
    "time sigmoid --optimizer adam",
    "time --network 3,2 --size n=5",
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

SAYS = """
import numpy as np
from nnclassroom import exercise, hint, widgets
from nnclassroom.judge import check
from nncourse.kernels import dense
from cuda_on_cpu import source

hint("neuron", "loops")

@exercise("step", kernel="numpy")
def step(z):
    return np.where(z > 0, 1, 0)

drawn = widgets.neuron(np.zeros((2, 2), np.float32), np.array([0, 1]))
print("label", drawn.controls[0]["label"])
print(check.__file__, dense.__file__, source.__file__)
"""


@pytest.fixture(scope="module")
def in_pseudo(tmp_path_factory):
    """A copy of the course with two notebooks, in which every text is in brackets."""
    root = tmp_path_factory.mktemp("course")
    for name in (*PACKAGES, "locale", "notebooks", "datasets"):
        ignored = shutil.ignore_patterns("__pycache__", "languages", "es", "pseudo", *OTHERS)
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    assert commands.write(root, "pseudo") == 0
    return root


def run(root: Path, *arguments: str, language: str = "pseudo") -> subprocess.CompletedProcess:
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NNCOURSE_LANG": language}
    environment["NNCOURSE_MY_KERNELS"] = str(root / "kernels")
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, cwd=root)


@pytest.mark.full
def test_verdict_hint_error_and_label_come_in_the_language(in_pseudo):
    (in_pseudo / "says.py").write_text(SAYS, "utf-8")
    told = run(in_pseudo, "says.py")
    assert told.returncode == 0, told.stderr
    assert "⟦Let z start as the bias b." in told.stdout
    assert re.search(r"✗ step \(numpy\): .*int64.*⟦, wanted⟧ float32", told.stdout)
    assert "label ⟦weight w1⟧" in told.stdout
    assert told.stdout.count(str(in_pseudo / "nncourse" / "languages" / "pseudo")) == len(PACKAGES)
    wrong = run(in_pseudo, "-m", "nnclassroom", "check", "nosuch")
    assert wrong.returncode == 2 and "⟦wanted⟧ ⟦an operation⟧⟦, one of⟧" in wrong.stderr


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


@pytest.mark.parametrize(("keeps", "uses"), [("en", "pseudo"), ("pseudo", "en")])
@pytest.mark.full
def test_both_languages_are_one_course_and_share_kept_kernels(keeps, uses, in_pseudo):
    shutil.rmtree(in_pseudo / "kernels", ignore_errors=True)
    (in_pseudo / "keeps.py").write_text(KEEPS.format(kernel="numpy", xp="np"), "utf-8")
    (in_pseudo / "tells.py").write_text(TELLS, "utf-8")
    kept = run(in_pseudo, "keeps.py", language=keeps)
    assert "✓" in kept.stdout, kept.stdout + kept.stderr
    told = [run(in_pseudo, "tells.py", language=language).stdout for language in (keeps, uses)]
    assert told[0] == told[1] and "['relu']" in told[0]


@pytest.mark.full
def test_a_hand_out_in_another_language_speaks_it(in_pseudo, tmp_path):
    path = tmp_path / "course.zip"
    made = run(in_pseudo, "-m", "nnclassroom", "handout", "--out", str(path))
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    manifest = json.loads((tmp_path / "course/MANIFEST.json").read_text("utf-8"))
    assert manifest["language"] == "pseudo"
    first, *_ = manifest["notebooks"]
    assert "⟦" in (tmp_path / "course" / first).read_text("utf-8")
    wrong = run(tmp_path / "course", "-m", "nnclassroom", "check", "nosuch")
    assert wrong.returncode == 2 and "⟦wanted⟧ ⟦an operation⟧⟦, one of⟧" in wrong.stderr
    english = run(tmp_path / "course", "-m", "nnclassroom", "check", "nosuch", language="")
    assert english.returncode == 2 and "wanted an operation, one of" in english.stderr


@pytest.mark.full
def test_a_language_that_is_missing_or_old_is_refused_in_one_line(in_pseudo):
    missing = run(in_pseudo, "-m", "nnclassroom", "check", "relu", language="xx")
    assert missing.returncode == 2
    assert missing.stderr == "nncourse: NNCOURSE_LANG=xx: wanted one of en, pseudo; got 'xx'\n"
    (in_pseudo / "locale" / "pseudo").mkdir()
    (in_pseudo / "locale" / "pseudo" / "new.po").write_text("")
    old = run(in_pseudo, "-c", "import nncourse")
    assert "older than its sources: run python tools/translate.py write pseudo" in old.stderr
    assert old.stderr.count("\n") == 1
    (in_pseudo / "locale" / "pseudo" / "new.po").unlink()
    (in_pseudo / "locale" / "pseudo").rmdir()


@pytest.fixture(scope="module")
def names():
    """What is allowed outside of brackets."""
    return allowed.read(ROOT)


@pytest.mark.parametrize("solve", ("", "all"))
@pytest.mark.parametrize("notebook", NOTEBOOKS)
@pytest.mark.full
def test_a_notebook_shows_no_word_that_is_no_text(notebook, solve, in_pseudo, names):
    found = leftovers.of_notebook(in_pseudo / "notebooks" / "pseudo" / f"{notebook}.ipynb", solve, names)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("lines", (HELP, (*RIGHT, *WRONG), command_lines.WRONG), ids=("help", "commands", "mistakes"))
@pytest.mark.full
def test_commands_say_no_word_that_is_no_text(lines, in_pseudo, names, tmp_path):
    command_lines.fill(tmp_path)
    found = leftovers.of_commands(lines, in_pseudo, tmp_path, names)
    assert len(found) == len(set(lines))
    assert not any(found.values()), "\n".join(line for each in found.values() for line in each)


SHOWS = """
import matplotlib.pyplot as plt
from IPython.display import HTML, display

print("⟦a text⟧", "printed", "2.5 GFLOP/s")
display(HTML("<table><tr><td>⟦a text⟧</td><td>tabled</td></tr></table><img alt='seen by none'>"))
plt.title("drawn")
plt.show()
"""


def test_a_word_outside_of_brackets_is_found_wherever_it_is_shown(tmp_path, names):
    (tmp_path / "notebooks" / "pseudo").mkdir(parents=True)
    path = tmp_path / "notebooks" / "pseudo" / "shows.ipynb"
    cells = [nbformat.v4.new_code_cell(SHOWS, id="first"), nbformat.v4.new_code_cell("1 / 0", id="second")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    found = "\n".join(leftovers.of_notebook(path, "", names))
    for words in ("printed", "tabled", "seen, none", "drawn"):
        assert f"shows: first: {words}: in" in found
    assert "shows: second: the, cell, failed" in found


@pytest.mark.parametrize(
    ("place", "text", "words"),
    [
        ("02_activations: widget", "step", ""),
        ("01_neurons: start", "step", "step"),
        ("01_neurons: start", "✓ step (numpy)", ""),
        ("01_neurons: start", "one step (of many)", "one, step, many"),
        ("01_neurons: start", "  loops  cpu  12.5 µs  3.1 GFLOP/s", ""),
        ("01_neurons: start", "loops are slow", "loops, are, slow"),
        ("03_dense_layers: contract", "A (batch, n_in), W (n_out, n_in) -> Z (batch, n_out)", ""),
        ("03_dense_layers: contract", "the batch", "the, batch"),
        ("03_dense_layers: plot", r"$\mathdefault{10^{-4}}$", ""),
        ("nncourse train --help", "  --dataset DATASET  a CSV file", "file"),
        ("nncourse train --help", "nncourse train [-h] --dataset DATASET", ""),
        ("08_training_on_the_gpu: list", "kernels/dense.cu:12 ⟦line", ""),
    ],
)
def test_a_word_is_allowed_only_where_it_is_a_name(place, text, words, names):
    found = allowed.lines(place, text, names)
    assert found == ([f"{place}: {words}: in {' '.join(text.split())!r}"] if words else [])
