"""No notebook stops for a wrong answer: all of its exercises are filled in wrongly, and its cells run to the end.

Python itself refuses a cell with a syntax error, before an exercise sees it; so what cannot be run is a cell of CUDA C
without a semicolon, and one of Python with a name that nobody has set.
"""

import re
from collections.abc import Callable
from itertools import cycle

import nbformat
import pytest

from tests.exercise_answers import RIGHT, TABLES
from tests.test_notebooks import PATHS, exercise_cells
from tools.notebooks import client

STEMS = [path.stem for path in PATHS if path.stem in TABLES]


def _cannot_run(right: dict, wrong: list[dict]) -> dict:
    if "line" in right:
        before, after = right["text"].rsplit(";", 1)
        return right | {"text": f"{before}{after}"}
    return right | {"text": re.sub(r":\n", ":\n    name_that_nobody_has_set\n", right["text"], count=1)}


def _wrong_result(right: dict, wrong: list[dict]) -> dict:
    return next((each for each in wrong if "wrong" in each["says"]), wrong[0])


def _without_the_idea(right: dict, wrong: list[dict]) -> dict:
    """Right numbers from a kernel that is not what its name says, where the check counts; otherwise a wrong one."""
    return next(filter(_counted, wrong), wrong[-1])


def _counted(wrong: dict) -> bool:
    return bool(re.search(r"times .*: expected|reads \w+ [\d,]+ times|sectors .*: expected", wrong["says"]))


KINDS: tuple[Callable[[dict, list[dict]], dict], ...] = (_cannot_run, _wrong_result, _without_the_idea)
QUICK = "02_activations"


def answers(stem: str) -> dict[tuple[str, str], dict]:
    """An answer to each exercise of a notebook, of each kind in turn."""
    of_pair = {(right["operation"], right["kernel"]): right for right in RIGHT if right in TABLES[stem]["right"]}
    return {
        pair: kind(right, [w for w in TABLES[stem]["wrong"] if (w["operation"], w["kernel"]) == pair])
        for (pair, right), kind in zip(of_pair.items(), cycle(KINDS), strict=False)
    }


def filled_in(stem: str) -> nbformat.NotebookNode:
    notebook = nbformat.read(next(path for path in PATHS if path.stem == stem), as_version=4)
    given = answers(stem)
    for operation, kernel, cell in exercise_cells(notebook):
        answer = given[operation, kernel]
        head = f"%%cuda {answer['line']}" if "line" in answer else f'@exercise("{operation}", kernel="{kernel}")'
        cell.source = f"{head}\n{answer['text'].strip()}"
    return notebook


def errors(notebook: nbformat.NotebookNode) -> list[str]:
    return [
        f"{cell.id}: {output.ename}: {output.evalue}"
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "error"
    ]


@pytest.mark.parametrize(
    "stem", [pytest.param(stem, marks=[] if stem == QUICK else pytest.mark.full) for stem in STEMS]
)
def test_a_notebook_with_wrong_answers_runs_to_its_end(stem, my_kernels, tmp_path, monkeypatch, cuda_somewhere):
    for name in ("NNCOURSE_SOLVE", "NNCOURSE_STRICT"):
        monkeypatch.delenv(name, raising=False)
    notebook = filled_in(stem)
    client(notebook, tmp_path, allow_errors=True).execute()
    assert not errors(notebook)
    for operation, kernel, cell in exercise_cells(notebook):
        assert cell.outputs[0]["data"]["text/plain"].startswith(f"✗ {operation} ({kernel})"), cell.id
