"""The list of exercises, hints, solutions, and what is done of them."""

import functools
import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from nnclassroom import commands
from nnclassroom.exercises import hints, kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import exercises, hint, progress_lines
from nnclassroom.exercises.kept_kernels import judged
from nnclassroom.exercises.solutions import solution, text_of
from nnclassroom.notebook.cuda_cell import launch_options, parsed
from nncourse.catalogue import operations
from nncourse.errors import CourseError
from nncourse.kernels.kernel import CudaKernel
from tests.exercise_answers import RIGHT
from tests.tiers import many

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
EXERCISES = [(exercise.operation, exercise.kernel) for exercise in exercises()]


def test_each_exercise_has_a_kernel_of_the_package_a_notebook_and_a_hint():
    assert len(set(EXERCISES)) == len(EXERCISES)
    for exercise in exercises():
        assert exercise.kernel in find(exercise.operation).kernels
        assert len(exercise.hints) == 3 and all(len(hint.split()) > 4 for hint in exercise.hints)


def test_each_notebook_but_the_first_has_two_exercises_or_more():
    counts = Counter(exercise.notebook for exercise in exercises())
    assert list(counts) == sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))[1:]
    assert min(counts.values()) >= 2


def test_hints(capsys, monkeypatch):
    monkeypatch.setattr(hints, "_calls", functools.cache(lambda operation, kernel: itertools.count()))
    for operation, kernel in EXERCISES:
        hint(operation, kernel)
        assert capsys.readouterr().out.strip()
    with pytest.raises(CourseError, match="expected one of its kernels .*numpy"):
        hint("sigmoid", "numba")
    with pytest.raises(CourseError, match="no exercise"):
        hint("sigmiod", "numpy")
    with pytest.raises(CourseError, match="expected one of its kernels"):
        solution("sigmoid", "tiled")


@pytest.mark.parametrize(
    ("operation", "kernel"),
    [(op.name, name) for op in operations().values() for name, k in op.kernels.items() if name != "numba"],
)
def test_solutions_are_whole(operation, kernel, capsys):
    """What is shown of a CUDA kernel stands by itself; what is shown of a Python kernel is a function."""
    solution(operation, kernel)
    text = capsys.readouterr().out
    chosen = find(operation)[kernel]
    if isinstance(chosen, CudaKernel):
        assert f"void {chosen.entry}(" in text and text.count("{") == text.count("}") > 0
        for name in re.findall(r"__device__[^;{(]*?(\w+)\(", chosen.source.text):
            assert not re.search(rf"\b{name}[(<]", text) or re.search(rf"__device__[^;{{(]* {name}\(", text), name
        constant = r"^(?:#define|__constant__ \w+) "
        for name in re.findall(constant + r"(\w+)", chosen.source.text, re.MULTILINE):
            assert not re.search(rf"\b{name}\b", text) or re.search(rf"{constant}{name}\b", text, re.MULTILINE), name
    else:
        compile(text, "solution", "exec")
        assert text.startswith("def ")


ANSWERS = {(right["operation"], right["kernel"]): right for right in RIGHT}


@pytest.mark.parametrize("exercise", many(EXERCISES, "-".join, lambda each: each[1], lambda each: each[0]))
def test_a_solution_that_is_pasted_passes_its_own_check(exercise, request):
    """The solved notebooks check each of these kernels, too: here it is the text that stands alone."""
    (operation, kernel), launch = exercise, None
    asked = find(operation)
    if line := ANSWERS[operation, kernel].get("line"):
        request.getfixturevalue("cuda_somewhere")
        launch = launch_options(asked, parsed(line))
    verdict = judged(asked, kernel, text_of(asked[kernel]), launch)
    assert verdict, str(verdict)


def test_progress(my_kernels, capsys):
    none = progress_lines()
    assert none[-1].startswith(f"0 of {len(EXERCISES)} exercises") and not any("✓" in line for line in none)
    kept_kernels.keep(find("sigmoid"), "numpy", "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n", seconds=0.00125)
    assert commands.main(["progress"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (done,) = (line for line in lines if "✓" in line)
    assert "sigmoid (numpy)" in done and "1.25 ms" in done
    assert lines[-1].startswith("1 of ")
    assert all(len(line) <= 80 for line in lines[:-1])
