"""Answers of students: for each exercise a right one, and several wrong ones with what the verdict must say of them."""

import re
from collections import Counter

import pytest

from cuda_on_cpu import emulate
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import exercises
from nnclassroom.judge.check import Verdict
from nnclassroom.notebook import cuda_cell, exercise
from nncourse import device
from tests import test_judge
from tests.exercise_answers import RIGHT, WRONG, in_cuda
from tests.tiers import many


def name_of(answer: dict) -> str:
    words = (answer["operation"], answer["kernel"], answer.get("mistake"))
    return "-".join(filter(None, words)).replace(" ", "-")


def exercise_of(answer: dict) -> tuple[str, str]:
    return answer["operation"], answer["kernel"]


def operation_of(answer: dict) -> str:
    return answer["operation"]


IN_JUDGE = {exercise_of(answer) for answer in test_judge.RIGHT + test_judge.WRONG}


def right_kind(right: dict):
    """Exercises that have right answers in test_judge.py too need no other one in quick."""
    return None if exercise_of(right) in IN_JUDGE else exercise_of(right)


def wrong_kind(wrong: dict):
    """One of each exercise; and one for each verdict where test_judge.py has none of it."""
    return exercise_of(wrong) if exercise_of(wrong) in IN_JUDGE else (*exercise_of(wrong), wrong["says"])


def judged(answer: dict) -> Verdict | None:
    """As in a notebook, in the worker."""
    operation, launch = find(answer["operation"]), None
    if "line" in answer:
        if not device.gpu_available() and emulate.why_not():
            pytest.skip(emulate.why_not())
        launch = cuda_cell.launch_options(operation, cuda_cell.parsed(answer["line"]))
    return exercise.judged(operation, answer["kernel"], answer["text"], launch)[1]


def test_each_exercise_has_a_right_one_and_several_wrong_ones():
    blanks = [(blank.operation, blank.kernel) for blank in exercises()]
    assert sorted(map(exercise_of, RIGHT)) == sorted(blanks)
    count = Counter(map(exercise_of, WRONG))
    assert set(count) == set(blanks) and min(count.values()) >= 3


@pytest.mark.parametrize("right", many(RIGHT, name_of, right_kind, operation_of, on_gpu=in_cuda))
def test_a_right_answer(right):
    verdict = judged(right)
    assert verdict and not verdict.facts.get("waste"), verdict.line


@pytest.mark.parametrize("wrong", many(WRONG, name_of, wrong_kind, operation_of, lambda wrong: wrong["file"], in_cuda))
def test_a_wrong_answer(wrong):
    """Where there is a GPU, it may say it first, in other words: `says_gpu`."""
    verdict = judged(wrong)
    counts = wrong.get("counts", True)  # false: wrong with NaN and infinities alone
    assert verdict is not None and bool(verdict) != counts
    assert not verdict.unknown or not re.search(verdict.unknown, verdict.line), "a term that its notebook has not"
    if not ("line" in wrong and device.gpu_available()):
        assert wrong["says"] in verdict.line
    elif "says_gpu" in wrong:
        assert wrong["says_gpu"] in verdict.line or wrong["says"] in verdict.line
