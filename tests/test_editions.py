"""tools/editions.py: two notebooks give the same results in Spanish and in English; differences are named."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tools.translation import editions

ROOT = Path(__file__).resolve().parents[1]
GPU = "05b_backpropagation_on_the_gpu"
SHORT = (("01_neurons", False), (GPU, False), (GPU, True))
SETUP = "import numpy as np\nfrom matplotlib.figure import Figure\nfrom nnclassroom import exercise"
EXERCISE = """
@exercise("descent_step", kernel="numpy")
def descent_step(W, A, Y, X, rate):
    raise NotImplementedError  # {comment}"""
FIGURE = """
import time
from nnclassroom.figures.described import Described
figure = Figure()
axes = figure.subplots(1, 2)
axes[0].plot([1, 2, {y}], label="{label}")
axes[1].bar([1, 2], [3, 4])
axes[1].set_title("{label}")
Described(figure, "{label}")"""
TIMED = "print('{label}', time.perf_counter())"


@pytest.mark.parametrize(("name", "solved"), SHORT, ids=str)
@pytest.mark.full
def test_spanish_keeps_the_same_kernels_and_shows_the_same_figures_and_numbers(name, solved, spanish):
    comparison = editions.compared(ROOT, name, spanish, solved)
    assert not comparison.failed and not comparison.faults, str(comparison)
    cells = [cell for cell in notebook(name).cells if cell.cell_type == "code"]
    blanks = [cell for cell in cells if editions.EXERCISE.search(cell.source)]
    assert comparison.counts["cells"] == len(cells)
    assert comparison.counts["kernels"] == (len(blanks) if solved else 0)
    assert comparison.counts["figures"] >= 3 and comparison.counts["printed numbers"] > 50


def notebook(name: str):
    return nbformat.read(editions.path_of(ROOT, "en", name), as_version=4)


def facts_of(path: Path, *sources: str, solved: bool = False) -> editions.Facts:
    cells = [new_code_cell(source.strip(), id=f"cell-{number}") for number, source in enumerate(sources)]
    nbformat.write(new_notebook(cells=cells), path)
    return editions.run(ROOT, path, "en", solved)


def small(label: str, y: float = 3, printed: str = "3 of 4") -> list[str]:
    """A notebook with an exercise, a figure, a number and a measured time."""
    sources = [SETUP, EXERCISE.format(comment=label), FIGURE.format(label=label, y=y), f"print('{label} {printed}')"]
    return [*sources, TIMED.format(label=label)]


@pytest.fixture(scope="module")
def english(tmp_path_factory) -> editions.Facts:
    return facts_of(tmp_path_factory.mktemp("notebooks") / "90_small.ipynb", *small("what is positive"), solved=True)


def names(comparison: editions.Comparison) -> list[str]:
    return [fault.partition(":")[0] for fault in comparison.faults]


@pytest.mark.full
def test_other_words_and_measured_times_are_no_difference(english, tmp_path):
    other = facts_of(tmp_path / "90_small.ipynb", *small("lo que es mayor que cero, y nada más"), solved=True)
    assert names(editions.compare([english], [other])) == ["cell-4 numbers"]
    again = english | {"cell-4 numbers": ["0.5"]}
    comparison = editions.compare([english, again], [other])
    assert not comparison.faults and not comparison.failed and comparison.varying == ("cell-4 numbers",)
    counted = {"cells": 5, "kernels": 1, "exercises": 1, "figures": 1, "widgets": 0}
    assert comparison.counts.items() >= counted.items() and english["cell-3 numbers"] == ["3", "4"]


@pytest.mark.full
def test_what_differs_is_named(english, tmp_path):
    """The exercise is open, a figure and a number differ, and a cell fails."""
    sources = [*small("what is positive", y=5, printed="3 of 5")[:-1], "1 / 0"]
    comparison = editions.compare([english], [facts_of(tmp_path / "90_small.ipynb", *sources)])
    assert comparison.failed == ("cell-4: ZeroDivisionError: division by zero",)
    exercise = ["kernel descent_step.numpy.py", "kept", "attempts", "cell-1 exercises"]
    assert set(names(comparison)) >= {*exercise, "cell-2 figure 1, data", "cell-3 numbers"}
    assert "cell-2 figure 1, parts" not in names(comparison)
    assert "cell-3 numbers: English has 4; the other language has 5" in comparison.faults


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
