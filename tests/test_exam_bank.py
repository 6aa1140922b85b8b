"""The bank of exercises for examinations, exams/: their own answers are right, and a mistake in one is found."""

import re
from collections import Counter
from pathlib import Path

import pytest

from nnclassroom.exercises import exam_operations, kept_kernels
from nnclassroom.judge.check import check
from nnclassroom.judge.verdict import Verdict
from nnclassroom.notebook import cuda_cell, exams
from tests.tiers import many

EXAMS = {f"exams/{path.stem}": exams.read(path) for path in (Path(__file__).parents[1] / "exams").glob("*.toml")}
QUESTIONS = [(file, question) for file in sorted(EXAMS) for question in EXAMS[file].questions]
PYTHON = [each for each in QUESTIONS if not exams.is_cuda(each[1].kernel)]
CUDA = [each for each in QUESTIONS if exams.is_cuda(each[1].kernel)]
MISTAKES = {  # of each operation: what is replaced in both variants' answers in CUDA C, and the kind of the verdict
    "activation": (r"i \+= gridDim.x \* blockDim.x", "i += n", "wrong value"),
    "chain rule": ("i < n", "i <= n", "bounds"),
    "soft limit": (r" m = f(max|min)f.*;", " m = 0.0f;", "wrong value"),
    "scaled rows": (r"__syncthreads\(\);  // sums\[0\]", "//", "race"),
    "first of a row": (r" \|\| \(.*\)\) \{", ") {", "wrong value"),
    "one-sided slope": (r"__syncthreads\(\);", "", "race"),
    "neighbours": (r"j < w - 1", "j < w", "wrong value|bounds"),
    "rotation": (r"__syncthreads\(\);", "", "race"),
    "distances": (r"__syncthreads\(\);  // all", "//", "race"),
    "gradient of a scale": (r"[23]\.0f \* here", "here", "wrong value"),
    "counts": (r"atomicAdd\(&own\[(.*)\], 1\)", r"own[\1]++", "race"),
    "mixed pieces": (r"__syncthreads\(\);", "", "race"),
}


def topic(each) -> str:
    return each[1].choice.partition(" (")[0]


def questions(chosen, kind):
    chosen = many(chosen, lambda each: each[1].key, kind, file=lambda each: each[0])
    return pytest.mark.parametrize("each", chosen)


def judged(each, text: str) -> Verdict:
    file, question = each
    operation, launch = exam_operations.find(question.operation, EXAMS[file].text), None
    if exams.is_cuda(question.kernel):
        launch = cuda_cell.launch_options(operation, cuda_cell.parsed(exams.launch_line(question)))
    kernel = kept_kernels.build(operation, question.kernel, f"{text}\n", launch)
    return check(operation, kernel, "emulator" if launch else None)


def test_twelve_operations_in_two_variants_that_take_as_long():
    assert Counter(map(topic, CUDA)) == Counter(map(topic, PYTHON)) == dict.fromkeys(MISTAKES, 2)
    assert len({each.key for _, each in QUESTIONS}) == 48 and all(each.sample for _, each in QUESTIONS)
    for exam in EXAMS.values():
        points = {sum(each.points for each in exam.variant(number).questions) for number in (1, 2)}
        assert len(points) == 1 and abs(exam.minutes - 3 * points.pop()) <= 3


@questions(QUESTIONS, lambda each: each[1].kernel)
def test_the_answer_is_right(each, emulator):
    verdict = judged(each, each[1].answer)
    assert verdict, verdict.line


@questions(CUDA, topic)
def test_a_mistake_is_found(each, emulator):
    old, new, kind = MISTAKES[topic(each)]
    text, count = re.subn(old, new, each[1].answer)
    verdict = judged(each, text)
    assert count and re.fullmatch(kind, verdict.kind), verdict.line


@questions(PYTHON, topic)
def test_the_answer_to_the_other_variant_is_wrong(each):
    file, question = each
    (other,) = [own for own in EXAMS[file].questions if own.choice == question.choice and own != question]
    assert not judged(each, other.answer.replace(other.operation, question.operation))
