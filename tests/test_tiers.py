"""The choice of tests: full runs all, the ten tenths judge all answers, and changed topics are judged completely."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import test_answers, test_forgeries, test_grade_forgeries, test_judge, test_wrong_kernels, tiers
from tests.tiers import Choice, Test

ROOT = Path(__file__).resolve().parents[1]
QUICK = Choice("quick")


def cases_of(function) -> list[Test]:
    """The tests that pytest makes of a function with many values."""
    (values,) = [mark.args[1] for mark in function.pytestmark if mark.name == "parametrize"]
    name = f"{function.__module__.replace('.', '/')}.py::{function.__name__}"
    return [Test(f"{name}[{value.id}]", False, False, True, *value.marks[0].args) for value in values]


ANSWERS = {
    function.__name__: cases_of(function)
    for function in (
        test_judge.test_a_right_answer_is_accepted,
        test_judge.test_a_wrong_answer_is_refused,
        test_answers.test_a_wrong_answer,
        test_forgeries.test_a_forgery_is_not_believed,
        test_grade_forgeries.test_a_forgery_is_not_right,
        test_wrong_kernels.test_mutant_is_rejected_under_the_emulator,
    )
}
all_answers = pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)


def run_by(tests: list[Test], choice: Choice) -> set[str]:
    return {test.name for test, out in zip(tests, tiers.left_out(tests, choice), strict=True) if not out}


@all_answers
def test_full_leaves_no_answer_out_and_ten_tenths_of_quick_do_not_either(answers):
    assert run_by(answers, Choice("full")) == run_by(answers, Choice()) == {test.name for test in answers}
    tenths = [run_by(answers, replace(QUICK, tenth=tenth)) for tenth in range(10)]
    assert set.union(*tenths) == {test.name for test in answers}
    assert len(set.intersection(*tenths)) < max(map(len, tenths)) < len(answers)


@all_answers
def test_each_kind_has_one_answer_in_every_tenth(answers):
    kinds = {test.kind for test in answers}
    for tenth in range(10):
        chosen = run_by(answers, replace(QUICK, tenth=tenth))
        assert {test.kind for test in answers if test.name in chosen} == kinds


def test_an_exercise_has_a_wrong_answer_and_each_kind_of_verdict_has_one_in_each_language():
    for name, given, kind_of in (
        ("test_a_wrong_answer", test_answers.WRONG, test_answers.exercise_of),
        ("test_a_wrong_answer_is_refused", test_judge.WRONG, lambda each: ("line" in each, each["kinds"][0])),
    ):
        chosen = run_by(ANSWERS[name], QUICK)
        kinds = [kind_of(each) for each in given]
        found = {kind for test, kind in zip(ANSWERS[name], kinds, strict=True) if test.name in chosen}
        assert found == set(kinds), name


def test_a_notebook_runs_in_one_of_two_ways_with_a_commit_and_in_both_if_it_changed():
    names = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    cells = [Test(f"notebooks/{name}::Cell {number}") for name in names for number in range(2)]
    every = {test.name for test in cells}
    for tenth in range(10):
        given, solved = (run_by(cells, replace(QUICK, tenth=tenth, solved=way)) for way in (False, True))
        assert given | solved == every and not given & solved and min(len(given), len(solved)) >= 8
        assert f"{tiers.FIRST}::Cell 0" in given
        for how in ("changed", "named"):
            asked = replace(QUICK, tenth=tenth, **{how: frozenset({f"notebooks/{names[5]}"})})
            both = [run_by(cells, replace(asked, solved=way)) for way in (False, True)]
            assert set.intersection(*both) == {cells[10].name, cells[11].name}
    ways = [{run_by(cells, replace(QUICK, tenth=t)) >= {cells[10].name} for t in range(10)}]
    assert ways == [{False, True}]


@pytest.mark.parametrize("file", ["kernels/pooling.py", "kernels/pooling.cu"])
def test_where_a_topic_has_changed_all_of_its_answers_are_judged(file):
    wrong = ANSWERS["test_a_wrong_answer_is_refused"]
    answers = zip(wrong, test_judge.WRONG, strict=True)
    of_topic = {test.name for test, answer in answers if "pool" in answer["operation"]}
    before = run_by(wrong, QUICK)
    after = run_by(wrong, replace(QUICK, changed=frozenset({f"nncourse/{file}"})))
    assert after == before | of_topic and not of_topic <= before


@pytest.mark.parametrize("file", ["tests/answers/14_resnet_and_frameworks.toml", "tests/test_judge.py"])
def test_where_answers_have_changed_all_of_the_file_are_judged(file):
    wrong = ANSWERS["test_a_wrong_answer_is_refused"]
    answers = zip(wrong, test_judge.WRONG, strict=True)
    of_file = {test.name for test, answer in answers if file.endswith("py") or answer["file"] in file}
    assert of_file and of_file <= run_by(wrong, replace(QUICK, changed=frozenset({file})))


@all_answers
@pytest.mark.parametrize("file", ["cuda_on_cpu/emulate.py", "nncourse/cuda/emulate.py", "nnclassroom/judge/check.py"])
def test_where_the_judge_or_the_emulator_has_changed_all_answers_are_judged(file, answers):
    assert run_by(answers, replace(QUICK, changed=frozenset({file}))) == {test.name for test in answers}


@pytest.mark.parametrize("beginning", tiers.JUDGES)
def test_the_judge_is_where_it_is_said_to_be(beginning):
    """After a move `JUDGES` must follow, or changes of the judge would go unnoticed."""
    assert not replace(QUICK, changed=frozenset({f"{beginning}README.md"})).judge_changed
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / beginning.partition("/")[0]).rglob("*.py")]
    assert any(file.startswith(beginning) for file in files)


def test_long_tests_are_in_full_and_those_of_a_release_where_they_are_asked_for():
    short, long = Test("tests/a.py::short"), Test("tests/a.py::long", full=True)
    last = Test("tests/b.py::c", release=True)
    tests = [short, long, last]
    assert run_by(tests, QUICK) == {short.name}
    assert run_by(tests, Choice("full")) == run_by(tests, Choice()) == {short.name, long.name}
    assert run_by(tests, Choice("release")) == {last.name}
    assert run_by(tests, Choice(named=("tests/b.py",))) == {test.name for test in tests}


def commit(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for command in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "change")):
        subprocess.run(["git", *command], cwd=folder, check=True)


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_what_has_changed_is_the_last_commit_and_what_is_not_committed(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert tiers.choose(tmp_path, "quick", ()).changed == frozenset()  # no repository
    commit(tmp_path, kept="1", committed="1", edited="1")
    first = tiers.choose(tmp_path, "quick", ())
    assert first.changed == frozenset()  # no commit before
    commit(tmp_path, committed="2")
    (tmp_path / "edited.py").write_text("2")
    (tmp_path / "new.py").write_text("2")
    second = tiers.choose(tmp_path, "quick", ())
    assert second.changed == {"committed.py", "edited.py", "new.py"}
    assert 0 <= second.tenth < 10
    assert tiers.choose(tmp_path, "full", ()).changed == frozenset()


@pytest.mark.full
def test_what_is_left_out_is_counted(tmp_path):
    """In a worker of xdist, which by itself does not report it."""
    shutil.copy(ROOT / "conftest.py", tmp_path)
    text = "import pytest\ndef test_short(): pass\n@pytest.mark.full\ndef test_long(): pass\n"
    (tmp_path / "test_one.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tier", "quick", "--numprocesses", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "1 passed, 1 deselected" in done.stdout, done.stdout + done.stderr
    assert "tier: quick" in done.stdout
