"""tools/editions.py: two notebooks in Spanish do what they do in English, and what does not is named."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tools.translation import editions

ROOT = Path(__file__).resolve().parents[1]
SHORT = ("00_start_here", "07_metrics")
SETUP = "import numpy as np\nfrom matplotlib.figure import Figure\nfrom nncourse.classroom.exercise import exercise"
EXERCISE = """
@exercise("descent_step", kernel="numpy")
def descent_step(W, A, Y, X, rate):
    raise NotImplementedError  # {comment}"""
FIGURE = """
import time
from nncourse.classroom.plots import Described
figure = Figure()
axes = figure.subplots(1, 2)
axes[0].plot([1, 2, {y}], label="{label}")
axes[1].bar([1, 2], [3, 4])
axes[1].set_title("{label}")
Described(figure, "{label}")"""
TIMED = "print('{label}', time.perf_counter())"


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("solved", [False, True], ids=["handed out", "solved"])
def test_spanish_keeps_the_same_kernels_and_shows_the_same_figures_and_numbers(name, solved, spanish):
    comparison = editions.compared(ROOT, name, spanish, solved)
    assert not comparison.failed and not comparison.faults, str(comparison)
    blanks = [cell for cell in notebook(name).cells if editions.EXERCISE.search(cell.source)]
    assert comparison.counts["kernels"] == (len(blanks) if solved else 0)
    assert comparison.counts["cells"] == sum(cell.cell_type == "code" for cell in notebook(name).cells)
    assert comparison.counts["figures"] >= 4 and comparison.counts["printed numbers"] > 50


def notebook(name: str):
    return nbformat.read(editions.path_of(ROOT, "en", name), as_version=4)


def facts_of(path: Path, *sources: str, solved: bool = False) -> editions.Facts:
    """The facts of one run of a notebook with these cells."""
    cells = [new_code_cell(source.strip(), id=f"cell-{number}") for number, source in enumerate(sources)]
    nbformat.write(new_notebook(cells=cells), path)
    return editions.run(ROOT, path, "en", solved)


def small(label: str, y: float = 3, printed: str = "3 of 4") -> list[str]:
    """A notebook with an exercise, a figure, a number and a measured time."""
    sources = [SETUP, EXERCISE.format(comment=label), FIGURE.format(label=label, y=y), f"print('{label} {printed}')"]
    return [*sources, TIMED.format(label=label)]


@pytest.fixture(scope="module")
def english(tmp_path_factory) -> list[editions.Facts]:
    path = tmp_path_factory.mktemp("notebooks") / "90_small.ipynb"
    return [facts_of(path, *small("what is positive"), solved=True) for _ in range(2)]


def test_other_words_and_measured_times_are_no_difference(english, tmp_path):
    other = facts_of(tmp_path / "90_small.ipynb", *small("lo que es mayor que cero, y nada más"), solved=True)
    assert [editions.compare([run], [other]).faults[0].partition(":")[0] for run in english] == ["cell-4 numbers"] * 2
    comparison = editions.compare(english, [other])
    assert not comparison.faults and not comparison.failed and comparison.varying == ("cell-4 numbers",)
    counted = {"cells": 5, "kernels": 1, "exercises": 1, "figures": 1, "widgets": 0, "printed numbers": 2}
    assert comparison.counts.items() >= counted.items()


def test_another_figure_another_number_and_a_cell_that_fails_are_named(english, tmp_path):
    sources = [*small("what is positive", y=5, printed="3 of 5")[:-1], "1 / 0"]
    comparison = editions.compare(english, [facts_of(tmp_path / "90_small.ipynb", *sources, solved=True)])
    assert comparison.failed == ("cell-4 failed: ZeroDivisionError: division by zero",)
    named = [fault.partition(":")[0] for fault in comparison.faults]
    assert named == ["cell-2 figure 1, data", "cell-3 numbers"]
    assert comparison.faults[1] == "cell-3 numbers: English has 4; the other language has 5"


def test_an_exercise_that_stays_open_and_keeps_nothing_is_named(english, tmp_path):
    other = facts_of(tmp_path / "90_small.ipynb", *small("what is positive"))
    named = [fault.partition(":")[0] for fault in editions.compare(english, [other]).faults]
    assert named == ["kernel descent_step.numpy.py", "kept", "attempts", "cell-1 exercises"]


@pytest.mark.parametrize(
    ("name", "text", "same", "another"),
    [
        ("relu.numpy.py", 'def relu(z):\n    "Cut."\n    return z * (z > 0)  # cut', '"Cut."', "z > 0"),
        ("relu.naive.cu", "// Cut.\n__global__ void relu() { a[i] = z[i]; }  // cut", "// Cut.", "z[i]"),
    ],
)
def test_kernels_are_compared_without_comments_and_docstrings(name, text, same, another):
    assert editions.code(name, text) == editions.code(name, text.replace(same, same.replace("Cut", "Recorta")))
    assert editions.code(name, text) != editions.code(name, text.replace(another, another.replace("z", "y")))
