"""Mangled hand-ins: each has its row with a reason, and what Jupyter still reads keeps its mark."""

import time
from pathlib import Path

import pytest

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.hints import exercises
from nnclassroom.handing_in import submission, taking
from nnclassroom.handing_in.caught import FAILED
from nnclassroom.handing_in.kernel_files import file_of
from nncourse.errors import CourseError
from nnmarking.grade import grade
from tests import mangled
from tests.made_class import table

ONLY = "sigmoid.numpy,mse.numpy,sigmoid.naive"
KNOWN = frozenset(map(file_of, exercises()))
LONGEST = 60.0  # seconds for one hand-in
FEW = 60  # in quick; more in full


def marked(folder: Path, seeds: range, record_property) -> None:
    group = folder / "group"
    group.mkdir()
    names = {seed: mangled.hand_in(group, seed) for seed in seeds}
    slowest = 0.0
    for name in names.values():
        began = time.monotonic()
        submission.read(group / name, name, KNOWN)
        slowest = max(slowest, time.monotonic() - began)
    said: list[str] = []
    marks = grade([group], folder / "m.csv", sandboxed=False, seed=1, say=said.append, only=ONLY)
    rows = table(folder / "m_by_student.csv")
    assert len(rows) == len(names), "a student without a row"
    assert all(row["problems"] or int(row["missing"]) < 3 for row in rows), "nothing was read, and no reason is given"
    right = {(mark.student, file_of(mark.exercise)) for mark in marks if mark.state == "right"}
    for seed, name in names.items():
        if name.endswith(".ipynb"):
            found = {file for who, file in right if who.endswith(f" {seed}")}
            assert mangled.answers_that_jupyter_reads((group / name).read_bytes()) <= found, name
    ours = [each for each in (*said, *(row["problems"] for row in rows), *(m.line for m in marks)) if FAILED in each]
    record_property("of ours", ours)
    assert len(ours) <= len(names) / 100, ours
    assert slowest < LONGEST


def taken(folder: Path, seeds: range, monkeypatch) -> None:
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(place / "mine"))
        path = place / mangled.hand_in(place, seed)
        given = submission.read(path, "", KNOWN)
        try:
            lines = taking.take(path)
        except CourseError as error:
            assert not given.texts and "\n" not in str(error).replace(str(path), "")
            continue
        assert FAILED not in "\n".join(lines)
        assert f"{len(kept_kernels.progress())} of {len(given.texts)} taken" in lines[-1]


def in_full(few: int, firsts: range) -> pytest.MarkDecorator:
    """The seeds of a test: few in quick, and in full as many again from each first one to the next."""
    more = [range(first, first + firsts.step) for first in firsts]
    return pytest.mark.parametrize(
        "seeds", [range(few), *(pytest.param(each, marks=pytest.mark.full) for each in more)]
    )


@pytest.mark.timeout(900)
@in_full(FEW, range(1000, 2000, 200))
def test_mangled_hand_ins_are_marked(seeds, tmp_path, record_property):
    marked(tmp_path, seeds, record_property)


@pytest.mark.timeout(900)
@in_full(10, range(3000, 3300, 100))
def test_mangled_work_is_taken(seeds, tmp_path, monkeypatch):
    taken(tmp_path, seeds, monkeypatch)
