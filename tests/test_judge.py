"""Answers by other authors than the judge's: right ones are accepted, wrong ones refused for the right reason."""

import re
from collections.abc import Hashable
from operator import itemgetter

import pytest

from cuda_on_cpu import emulate
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import exercises
from nnclassroom.notebook import cuda_cell, exercise
from nncourse import device
from tests.exercise_answers import JUDGED as WRONG
from tests.exercise_answers import UNUSUAL as RIGHT
from tests.exercise_answers import in_cuda
from tests.tiers import many

# Kinds that the examiners did not distinguish.
FAMILY = {"warp": "barrier", "trap": "crash", "assert": "crash", "memory": "crash"}
EXERCISES = {(each.operation, each.kernel) for each in exercises()}


def name_of(answer: dict) -> str:
    words = answer.get("idea") or answer["mistake"]
    return f"{answer['operation']}-{answer['kernel']}-{words}".replace(" ", "-")


def of_quick(answers: list[dict]):
    """Every commit judges one right answer of each notebook, whose solved cells have one to each exercise, and of other
    kernels one of each name; and for each kind of verdict a wrong one in CUDA C, and one for each name in Python.
    test_answers.py has a wrong one to each exercise.
    """

    def kind(answer: dict) -> Hashable:
        own = answer["operation"], answer["kernel"]
        if "kinds" in answer:
            return "CUDA C" if "line" in answer else own[1], answer["kinds"][0]
        return answer["file"] if own in EXERCISES else own[1:]

    operation, file = itemgetter("operation"), itemgetter("file")
    answers = many(answers, name_of, kind, operation, file, in_cuda)
    return pytest.mark.parametrize("answer", answers)


def judged(answer: dict):
    """As in a notebook, in the worker."""
    operation, launch = find(answer["operation"]), None
    text = answer["text"]
    if "line" in answer:
        if not device.gpu_available() and emulate.why_not():
            pytest.skip(emulate.why_not())
        launch = cuda_cell.launch_options(operation, cuda_cell.parsed(answer["line"]))
        text = f"// %%cuda {answer['line']}\n{text}"
    return exercise.judged(operation, answer["kernel"], text, launch)[1]


def test_there_are_enough():
    assert len(RIGHT) >= 150 and len(WRONG) >= 300
    assert len({name_of(answer) for answer in RIGHT}) == len(RIGHT)
    assert len({name_of(answer) for answer in WRONG}) == len(WRONG)


@of_quick(RIGHT)
def test_a_right_answer_is_accepted(answer):
    verdict = judged(answer)
    assert verdict, str(verdict)


@of_quick(WRONG)
def test_a_wrong_answer_is_refused(answer, monkeypatch, request):
    if "accepted" in answer:  # a known gap of the judge; the test still runs, and shows when the gap is closed
        request.applymarker(pytest.mark.xfail(reason=f"the judge accepts it: {answer['accepted']}", strict=False))
    if "time limit" in answer["kinds"]:
        monkeypatch.setattr(kept_kernels, "TIME_LIMIT", 2.0)
    # On a GPU some answers hang. One that is stopped there is judged again on the emulator, without this limit.
    if device.gpu_available():
        monkeypatch.setattr(kept_kernels, "TIME_LIMIT_CUDA", 15.0)
    verdict = judged(answer)
    assert verdict is not None, "open"
    assert not verdict.unknown or not re.search(verdict.unknown, verdict.line), "a term that its notebook has not"
    if not answer.get("counts", True):  # wrong with NaN and infinities alone
        assert verdict and verdict.facts["not finite"], str(verdict)
        return
    assert not verdict, str(verdict)
    kinds = answer["kinds"] + answer.get("gpu_kinds", []) * device.gpu_available()
    assert FAMILY.get(verdict.kind, verdict.kind) in kinds, f"{verdict.kind}: {verdict}"
    assert verdict.line.splitlines()[0].isprintable()
