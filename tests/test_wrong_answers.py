"""Wrong answers of students: for each exercise several, and what the verdict must say of them."""

import tomllib
from pathlib import Path

import pytest

from nncourse import device
from nncourse.classroom import cuda_cell, exercise
from nncourse.classroom.course import exercises
from nncourse.cuda import emulate
from nncourse.kernels.backend import find

FILES = sorted((Path(__file__).parent / "wrong_answers").glob("*.toml"))
WRONG = [wrong for file in FILES for wrong in tomllib.loads(file.read_text("utf-8"))["wrong"]]


def test_each_exercise_has_several():
    for blank in exercises():
        found = [w for w in WRONG if (w["operation"], w["kernel"]) == (blank.operation, blank.kernel)]
        assert len(found) >= 3, blank
    assert {(w["operation"], w["kernel"]) for w in WRONG} <= {(e.operation, e.kernel) for e in exercises()}


@pytest.mark.parametrize(
    "wrong", WRONG, ids=lambda w: f"{w['operation']}-{w['kernel']}-{w['mistake']}".replace(" ", "-")
)
def test_the_verdict(wrong):
    """Judged as in a notebook, in the worker. A GPU may say it in other words: `says_gpu`."""
    operation, launch = find(wrong["operation"]), None
    if "line" in wrong:
        if not device.gpu_available() and emulate.why_not():
            pytest.skip(emulate.why_not())
        launch = cuda_cell.launch_options(operation, cuda_cell.parsed(wrong["line"]))
    _, verdict = exercise.judged(operation, wrong["kernel"], wrong["text"], launch)
    assert verdict is not None and not verdict
    if not (launch and device.gpu_available()):
        assert wrong["says"] in verdict.line
    elif "says_gpu" in wrong:
        assert wrong["says_gpu"] in verdict.line
