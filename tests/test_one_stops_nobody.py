"""One hand-in, whatever is in it and whatever the course does with it, stops nobody else's marking."""

import json
import os
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from nnclassroom.commands import main
from nnclassroom.handing_in import pieces
from nnclassroom.handing_in.caught import FAILED, caught
from nnclassroom.judge import worker
from nncourse.errors import CourseError
from nnmarking import class_folder, pages, queue, similarity
from nnmarking.grade import grade
from tests.made_class import put, table
from tests.made_class import zipped as archive

SIGMOID = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"
ERRORS = [
    ValueError("a"), SyntaxError("a"), KeyError("a"), IndexError(3), TypeError("a"), AttributeError("a"),
    AssertionError(), RecursionError("deep"), MemoryError(), OverflowError("a"), ZeroDivisionError("a"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no half"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a"),
    OSError(36, "File name too long"), PermissionError(13, "no"), TimeoutError("late"), EOFError("end"),
    zipfile.BadZipFile("bad"), tarfile.ReadError("bad"), zlib.error("bad"), json.JSONDecodeError("a", "b", 0),
    RuntimeError("one\nof two lines \x1b[31m"), NotImplementedError("a"), StopIteration(), CourseError("known"),
]  # fmt: skip


@pytest.fixture
def group(tmp_path) -> Path:
    hers, his = f"{SIGMOID}# hers\n", SIGMOID
    return put(tmp_path / "group", {"Ana Roca/sigmoid.numpy.py": hers, "Luis Mora/sigmoid.numpy.py": his})


def states(tmp_path: Path, group: Path, say=lambda line: None) -> dict[str, str]:
    """The state of sigmoid (numpy) of each student; with a row and a page for each."""
    grade([group], tmp_path / "m.csv", sandboxed=False, seed=1, say=say, only="sigmoid.numpy")
    found = {row["student"]: row["state"] for row in table(tmp_path / "m.csv")}
    assert len(list((tmp_path / "m_feedback").glob("*.html"))) == len(found)
    assert (tmp_path / "m_overview.html").is_file()
    return found


def failing(monkeypatch, place, name: str, error: Exception, about) -> None:
    """Let a function fail where its arguments are about Luis Mora."""
    original = getattr(place, name)

    def function(*arguments, **options):
        if about(*arguments):
            raise error
        return original(*arguments, **options)

    monkeypatch.setattr(place, name, function)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_in_reading_becomes_the_reason_of_that_hand_in(error, group, tmp_path, monkeypatch):
    failing(monkeypatch, pieces, "opened", error, lambda path: path.name == "Luis Mora")
    assert states(tmp_path, group) == {"Ana Roca": "right", "Luis Mora": "missing"}
    (given,) = (each for each in class_folder.find([group]) if each.student == "Luis Mora")
    assert given.reason and "\n" not in given.reason and "\x1b" not in given.reason


@pytest.mark.parametrize(
    ("place", "name", "about", "his"),
    [
        (queue, "judge", lambda task, *_: "hers" not in task.text, "wrong"),
        (similarity, "tokens", lambda *_: True, "right"),  # it costs the comparison alone
        (pages, "feedback", lambda standing, *_: standing.student == "Luis Mora", "right"),  # and is said on his page
    ],
    ids=["judging", "comparing", "a page"],
)
@pytest.mark.parametrize("error", ERRORS[::4], ids=lambda error: type(error).__name__)
def test_an_error_later_on_costs_nobody_else_anything(error, place, name, about, his, group, tmp_path, monkeypatch):
    failing(monkeypatch, place, name, error, about)
    assert states(tmp_path, group) == {"Ana Roca": "right", "Luis Mora": his}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_is_caught_becomes_one_line(error):
    def work():
        raise error

    said = caught(work, str)
    assert "\n" not in said and said.isprintable()
    assert (FAILED in said) == (type(error) is not CourseError)


def test_an_interrupt_is_not_caught():
    def work():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        caught(work, str)


def notebook(source: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": source}], "nbformat": 4}).encode()


HEAD = '@exercise("sigmoid", kernel="numpy")\n'
# What stopped a marking, or could: hand-ins by name, and the state of their answer.
GIVEN = {
    "a form feed before a comment": (
        "a.ipynb",
        notebook(HEAD + SIGMOID.replace(":\n", ":\n\x0c    # page 2\n")),
        "right",
    ),
    "a form feed in a kept text": ("a.py", SIGMOID.replace(":\n", ":\n\x0c    # page 2\n").encode(), "right"),
    "U+2028 in a comment": ("a.ipynb", notebook(HEAD + SIGMOID.replace(":\n", ":  # from\u2028a page\n")), "right"),
    "U+2028 in a kept text": ("a.py", SIGMOID.replace(":\n", ":  # from\u2028a page\n").encode(), "right"),
    "a half character raised": ("a.py", b'def sigmoid(z):\n    raise ValueError("\\ud800")\n', "wrong"),
    "a half character printed": (
        "a.py",
        b'def sigmoid(z):\n    print("\\ud800")\n    return 1 / (1 + np.exp(-z))\n',
        "right",
    ),
    "a half character in a cell": ("a.ipynb", notebook(HEAD + SIGMOID + "# \ud800\n"), "right"),
    "a name of half characters": ("a.py", b"def f(z):\n    return z\nf.__name__ = '\\ud800'\nsigmoid = f\n", "wrong"),
    "a zero byte": ("a.py", SIGMOID.encode() + b"\0", "wrong"),
    "brackets in brackets": ("a.py", b"def sigmoid(z):\n    return " + b"(" * 5000 + b"z" + b")" * 5000, "wrong"),
    "minus signs": ("a.py", b"def sigmoid(z):\n    return " + b"-" * 100_000 + b"z\n", "wrong"),
    "a docstring with an escape": ("a.py", SIGMOID.replace(":\n", ':\n    "\\sigma"\n').encode(), "right"),
}


@pytest.mark.parametrize("form", GIVEN)
def test_a_hand_in_that_stopped_a_class(form, group, tmp_path):
    name, content, state = GIVEN[form]
    put(group / "Eva", {name.replace("a.py", "sigmoid.numpy.py"): content})
    assert states(tmp_path, group) == {"Ana Roca": "right", "Luis Mora": "right", "Eva": state}
    assert states(tmp_path, group)["Eva"] == state, "again, from the journal"


def test_names_that_are_not_utf_8_are_shown_as_far_as_they_can_be(group, tmp_path, capsys):
    for name in (b"Nu\xf1ez Luis_21_assignsubmission_file_", b"\xff\xfe", b"A\x1b[31m\nda"):
        folder = os.path.join(os.fsencode(group), name)
        os.mkdir(folder)
        with open(os.path.join(folder, b"sigmoid.numpy.py"), "wb") as file:
            file.write(SIGMOID.encode())
        with open(os.path.join(folder, b"notes \xff.txt"), "wb"):
            pass
    command = ["grade", str(group), "--out", str(tmp_path / "m.csv"), "--seed", "1", "--only", "02", "--no-sandbox"]
    assert main(command) == 0
    found = {row["student"]: row["state"] for row in table(tmp_path / "m.csv") if row["exercise"] == "sigmoid.numpy"}
    assert len(found) == 5 and set(found.values()) == {"right"} and "Nu\ufffdez Luis" in found
    assert "\x1b" not in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "m_feedback.zip") as archive:
        assert len(archive.namelist()) == 5


def test_what_an_answer_prints_does_not_reach_who_marks(group, tmp_path, capfd):
    put(group / "Eva", {"sigmoid.numpy.py": 'print("\\x1b]0;100 %\\x07 Eva: all right")\n' + SIGMOID})
    states(tmp_path, group)
    read = capfd.readouterr()
    assert "all right" not in read.out + read.err and "\x1b" not in read.out + read.err


def test_an_escape_sequence_in_an_exception_is_shown_as_text(group, tmp_path):
    put(group / "Eva", {"sigmoid.numpy.py": 'def sigmoid(z):\n    raise ValueError("\\x1b[2J no")\n'})
    assert states(tmp_path, group)["Eva"] == "wrong"
    assert "\x1b" not in (tmp_path / "m.csv").read_text("utf-8")


def test_a_worker_prints_unless_it_is_to_be_quiet(capsys):
    for quiet, said in ((False, "here\n"), (True, "")):
        worker.call(print, "here", seconds=60, quiet=quiet)
        assert capsys.readouterr().out == said


def test_a_verdict_with_a_strange_line_end_stays_in_the_journal(tmp_path):
    journal = queue.Journal(tmp_path / "j.jsonl")
    journal.add("key", queue.Judged("wrong", "one\u2028two\x85three"), 1)
    assert queue.Journal(journal.path).verdicts == journal.verdicts


# ---- several files of one student


MSE = "def mse(A, Y):\n    return np.sum((Y - A) ** 2) / (2 * len(A))\n"
MOODLE = "Luis Mora_21_assignsubmission_file_"
MSE_CELL = notebook(f'@exercise("mse", kernel="numpy")\n{MSE}')
KEPT = archive({"my_kernels/sigmoid.numpy.py": SIGMOID})
SEVERAL = {
    "two notebooks": {f"{MOODLE}04_cost.ipynb": MSE_CELL, f"{MOODLE}02_activations.ipynb": notebook(HEAD + SIGMOID)},
    "two kernels": {f"{MOODLE}sigmoid.numpy.py": SIGMOID.encode(), f"{MOODLE}mse.numpy.py": MSE.encode()},
    "an archive and a notebook": {f"{MOODLE}/04_cost.ipynb": MSE_CELL, f"{MOODLE}/ada.zip": KEPT},
    "an archive and a kernel": {f"{MOODLE}/mse.numpy.py": MSE.encode(), f"{MOODLE}/ada.zip": KEPT},
    "two archives": {f"{MOODLE}/a.zip": archive({"mse.numpy.py": MSE}), f"{MOODLE}/b.zip": KEPT},
    "flat archives": {f"{MOODLE}a.zip": archive({"mse.numpy.py": MSE}), f"{MOODLE}b.zip": KEPT},
    "two folders": {f"{MOODLE}/a/mse.numpy.py": MSE.encode(), f"{MOODLE}/b/sigmoid.numpy.py": SIGMOID.encode()},
    "Canvas's files": {"luis_21_7_04.ipynb": MSE_CELL, "luis_21_8_sigmoid.numpy.py": SIGMOID.encode()},
    "an archive of all": {
        f"{MOODLE}/all.zip": archive({"x/04.ipynb": MSE_CELL.decode(), "x/sigmoid.numpy.py": SIGMOID})
    },
    "a report too": {
        f"{MOODLE}report.pdf": b"%PDF",
        f"{MOODLE}04.ipynb": MSE_CELL,
        f"{MOODLE}sigmoid.numpy.py": SIGMOID.encode(),
    },
}


@pytest.mark.parametrize("form", SEVERAL)
def test_several_files_of_a_student_are_one_hand_in(form, tmp_path):
    group = put(tmp_path / "group", SEVERAL[form])
    (found,) = class_folder.find([group], frozenset(("sigmoid.numpy.py", "mse.numpy.py")))
    assert set(found.texts) == {"sigmoid.numpy.py", "mse.numpy.py"}


@pytest.mark.parametrize("form", ["{}a.ipynb", "{}/a.ipynb", "{}/a/my_kernels/sigmoid.numpy.py"])
def test_of_one_exercise_twice_the_newer_counts_and_that_is_said(form, tmp_path):
    group = tmp_path / "group"
    for date, place in ((1_700_000_000, "new"), (1_600_000_000, "old")):
        name = form.format(MOODLE).replace("a.ipynb", f"{place}.ipynb").replace("/a/", f"/{place}/")
        text = SIGMOID.replace("):\n", f"):  # {place}\n", 1)
        put(group, {name: notebook(HEAD + text) if "ipynb" in form else text})
        os.utime(group / name, (date, date))
    (found,) = class_folder.find([group], frozenset(("sigmoid.numpy.py",)))
    assert "# new" in found.texts["sigmoid.numpy.py"]
    assert any("old" in note or "new" in note for note in found.notes)


@pytest.mark.parametrize("form", SEVERAL)
def test_a_platforms_archive_of_a_whole_class_is_read_as_its_folder_is(form, tmp_path):
    files = SEVERAL[form] | {"Ana Roca_22_assignsubmission_file_sigmoid.numpy.py": SIGMOID.encode(), "__MACOSX/x": b""}
    (tmp_path / "download.zip").write_bytes(archive(files))
    found = class_folder.find([tmp_path / "download.zip"], frozenset(("sigmoid.numpy.py", "mse.numpy.py")))
    ana, other = found
    assert ana.student == "Ana Roca" and set(ana.texts) == {"sigmoid.numpy.py"} and not ana.notes
    assert set(other.texts) == {"sigmoid.numpy.py", "mse.numpy.py"}
