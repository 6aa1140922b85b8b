"""Notebooks as they are committed: run in order, their outputs kept, with cells that nbval really compares."""

import re
from pathlib import Path

import nbformat
import pytest

PATHS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=PATHS, ids=[path.stem for path in PATHS])
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_cells_were_run_in_order_and_left_no_error(notebook):
    assert [cell.execution_count for cell in code_cells(notebook)] == list(range(1, len(code_cells(notebook)) + 1))
    for cell in code_cells(notebook):
        assert all(output.output_type != "error" and output.get("name") != "stderr" for output in cell.outputs), cell.id


def test_some_cell_is_compared_and_has_something_to_compare(notebook):
    compared = [cell for cell in code_cells(notebook) if "nbval-check-output" in cell.metadata.get("tags", [])]
    assert compared
    assert all(cell.outputs for cell in compared)


def test_ids_are_words_that_stay(notebook):
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-z0-9-]*", name) for name in ids)


def test_no_shell_lines_and_no_traces_of_the_machine(notebook):
    for cell in code_cells(notebook):
        assert not re.search(r"^\s*!", cell.source, re.MULTILINE), cell.id
        for output in cell.outputs:
            assert not re.search(r"/home/|/root/|/tmp/", str(output.get("text", ""))), cell.id
    assert "signature" not in notebook.metadata
