"""nncourse nbval: notebooks run from top to bottom, from wherever the course lies."""

from pathlib import Path

import pytest
from nbformat import v4
from refusals import command_refused

from nnclassroom.commands import main
from nnclassroom.handing_out import notebook_files
from nnclassroom.handing_out.notebook_files import to_bytes
from nncourse import language


@pytest.fixture
def course(tmp_path, monkeypatch) -> Path:
    """A course of two notebooks, of which the second one's only cell raises an error."""
    for name, text in (
        ("01_one", "import os\nassert 'SEEN' not in os.environ"),
        ("02_two", "# a mistake\nraise KeyError(1)"),
    ):
        path = tmp_path / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(to_bytes(v4.new_notebook(cells=[v4.new_code_cell(text, id="a-mistake")])))
    monkeypatch.setattr(language, "COURSE", tmp_path)
    return tmp_path


def test_a_notebook_that_fails_fails_the_command(course, capfd):
    before = {path: path.read_bytes() for path in course.rglob("*") if path.is_file()}
    assert main(["nbval", "01,02"]) == 1
    said = capfd.readouterr().out
    assert "1 failed, 1 passed" in said and "\nfailed: 02_two.ipynb, cell a-mistake: # a mistake\n" in said
    assert {path: path.read_bytes() for path in course.rglob("*") if path.is_file()} == before


def test_a_notebook_that_is_not_there_is_said_in_one_line(course, capsys):
    assert "expected a notebook, one of 01, 02, 01_one, 02_two; got '03'" in command_refused(capsys, ["nbval", "03"])


@pytest.mark.parametrize("name", ["1", "01", "01_one", "01_one.ipynb", "notebooks/01_one.ipynb", "1,1_one"])
def test_a_notebook_is_named_by_number_name_or_path(name, course):
    assert [path.stem for path in notebook_files.chosen(course, "en", name)] == ["01_one"]


@pytest.mark.parametrize("solve", ["neuron.lops", "neurn", "all,neuron.lops"])
def test_exercises_to_solve_are_checked_before_anything_runs(solve, course, capsys):
    assert "--solve has neur" in command_refused(capsys, ["nbval", "1", "--solve", solve])


@pytest.mark.full
def test_a_notebook_of_the_course_runs_open_and_solved(capfd):
    assert main(["nbval", "01"]) == 0
    assert main(["nbval", "01_neurons", "--solve", "all"]) == 0
    assert "failed" not in capfd.readouterr().out
