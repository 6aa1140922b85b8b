"""The length of a notebook: the formula, and what the notebooks say of themselves."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from nncourse.errors import CourseError
from tools import lengths

PATHS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LONGEST = 4.75  # hours


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_states_its_hours_and_none_is_too_long(path):
    found = lengths.length(path)
    assert found.stated == lengths.in_words(found.hours), f"expected `Time: about {lengths.in_words(found.hours)}.`"
    assert found.hours <= LONGEST, f"{found.minutes:.0f} minutes: {found}"


def test_the_weeks_of_a_term_have_the_hours_that_the_notebooks_state():
    """Of one notebook or of several in a week, or of one in two weeks."""
    quarters = {"": 0.0, "¼": 0.25, "½": 0.5, "¾": 0.75}
    pages = [(PATHS[0].parents[1] / "docs" / name).read_text("utf-8") for name in ("instructors.md", "syllabus.md")]
    weeks = re.findall(r"^\| (\d+) \| ([^|]*\d\d[^|]*) \| ([\d.]+) \|", pages[0], re.MULTILINE)
    listed = re.findall(r"^\| (\d+) \| DATE \| ([^|]+) \| (\d)([¼½¾]?) \|", pages[1], re.MULTILINE)
    assert [(week, what, int(hours) + quarters[rest]) for week, what, hours, rest in listed] == [
        (week, what, float(hours)) for week, what, hours in weeks
    ]
    hours = {path.stem.partition("_")[0]: lengths.length(path).hours for path in PATHS}
    stated: dict[frozenset[str], float] = {}
    for _, what, given in weeks:
        numbers = frozenset(re.findall(r"\d\d\w?", what))
        both = next((each for each in stated if each & numbers), frozenset())
        stated[both | numbers] = stated.pop(both, 0.0) + float(given)
    assert stated == {numbers: sum(hours[number] for number in numbers) for numbers in stated} and len(stated) == 11


def write(path: Path, *cells: tuple[str, str]) -> Path:
    made = [(v4.new_markdown_cell if kind == "words" else v4.new_code_cell)(text) for kind, text in cells]
    nbformat.write(v4.new_notebook(cells=made), path)
    return path


def test_words_and_the_lines_of_exercises_count(tmp_path):
    path = write(
        tmp_path / "one.ipynb",
        ("words", "# One\n\nTime: about ½ hour. | – " + "word " * 895),  # 900 words with these
        ("code", "x = 1"),
        ("code", "def f(x):\n    raise NotImplementedError  # your code here: 4 to 6 lines"),
        ("words", "## If you like: another\n\n"),
        ("code", "%%cuda f naive\n// your code here: about 30 lines"),
        ("words", "without a heading"),
        ("code", "// your code here: about 30 lines"),
        ("words", "## Go on"),
        ("code", "// your code here: 1 line"),
    )
    found = lengths.length(path)
    words = 900 + 4 + 3 + 2
    assert (found.words, found.cells, found.exercises) == (words, 5, (6, 1))
    assert found.minutes == pytest.approx(words / 37 + 2 * 7)
    assert found.hours == 0.75 and found.stated == "½ hour"
    (line,) = lengths.table([found])[1:]
    assert line.endswith("¾ hour; its head says ½ hour")


def test_an_exercise_that_does_not_say_its_lines_is_named(tmp_path, capsys):
    path = write(tmp_path / "one.ipynb", ("words", "# One"), ("code", "# your code here"))
    with pytest.raises(CourseError, match="expected `your code here: about 6 lines`"):
        lengths.length(path)
    assert lengths.main([str(path)]) == 2 and capsys.readouterr().err.count("\n") == 1


def test_hours_are_corrected_where_they_are_stated(tmp_path, capsys):
    wrong = write(tmp_path / "wrong.ipynb", ("words", "# One\n\nTime: about 3 hours. Go."), ("code", "x = 1"))
    silent = write(tmp_path / "silent.ipynb", ("words", "# Two"), ("words", "Time: about 3 hours."))
    before = silent.read_bytes()
    assert lengths.main(["--write", str(wrong), str(silent)]) == 0
    assert lengths.length(wrong).stated == "¼ hour" and silent.read_bytes() == before
    assert nbformat.read(wrong, as_version=4).cells[0].source == "# One\n\nTime: about ¼ hour. Go."
    assert "silent" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hours", "words"),
    [(0.5, "half an hour"), (0.75, "¾ hour"), (1, "1 hour"), (1.25, "1¼ hours"), (2.5, "2½ hours"), (3, "3 hours")],
)
def test_hours_in_words_are_found_in_a_head(hours, words):
    assert lengths.in_words(hours) == words
    assert lengths.STATED.search(f"You need nothing. Time: about {words}. And so on.")[1] == words
