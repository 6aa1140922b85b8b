"""What a cell shows while it computes: a line that appears late, changes, and gives its place to the result."""

import nbformat

from nnclassroom.notebook import waiting as module
from nnclassroom.notebook.waiting import waiting, with_progress
from tools.notebooks import client

QUICK = "from nnclassroom.notebook import waiting as module\nmodule.EVERY = 0.05\n"


def shown_by(code: str) -> list[list[str]]:
    """The texts of a cell's outputs, after each message: what a student sees, one state after the other."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(QUICK + code)])
    runner, states = client(notebook, module.__file__.rpartition("/")[0], timeout=60), []
    known = runner.process_message

    def process_message(message, cell, cell_index):
        found = known(message, cell, cell_index)
        states.append([output["data"]["text/plain"] for output in cell.outputs if "data" in output])
        return found

    runner.process_message = process_message
    runner.execute()
    return states


def test_a_long_call_has_one_line_that_counts_and_then_says_how_long_it_took():
    states = shown_by(
        "import time\nwith module.waiting('compiling') as line:\n    time.sleep(0.4)\n    line.words = 'x'\n"
    )
    lines = [state for state in states if state]
    assert len(lines) > 4 and all(len(state) == 1 for state in lines)
    assert lines[0] == ["compiling: 0 s"] and lines[-1] == ["x: 0 s"]


def test_a_short_call_shows_nothing():
    assert not any(shown_by("module.EVERY = 30\nwith module.waiting('compiling'):\n    pass\n"))


def test_the_line_stops_where_the_call_fails():
    failing = "import time\ntry:\n    with module.waiting('a'):\n        time.sleep(0.2)\n        1 / 0\n"
    states = shown_by(failing + "except ZeroDivisionError:\n    time.sleep(0.3)\n    print('over')\n")
    assert [state for state in states if state] and states[-1] == states[-2] == ["a: 0 s"]


def test_a_loop_says_how_many_are_done_and_how_much_longer_it_takes():
    code = "import time\nfor item in module.with_progress(range(5), 'rates'):\n    time.sleep(0.1)\n"
    lines = [state[0] for state in shown_by(code) if state]
    assert lines[0] == "rates, 1 of 5, about 0 s more: 0 s" and lines[-1] == "rates, 5 of 5: 1 s" or "0 s" in lines[-1]
    assert any(line.startswith("rates, 3 of 5") for line in lines)


def test_outside_a_notebook_nothing_is_shown(capsys):
    with waiting("a") as line:
        line.end("the result")
    assert list(with_progress("ab", "letters")) == ["a", "b"]
    assert capsys.readouterr().out == "the result\n"
