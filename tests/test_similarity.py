"""Copies are found whatever was changed in them, and honest answers are not."""

import re
import time
from collections import defaultdict
from pathlib import Path

import pytest
from exercise_answers import FILES, answers_of

from nnclassroom.exercises.hints import exercises
from nnclassroom.exercises.solutions import solution_text
from nnclassroom.notebook.exams import is_cuda
from nnmarking import pages
from nnmarking.similarity import compared

TESTS = Path(__file__).resolve().parent
PYTHON = """def confusion_matrix(P, Y):
    classes = Y.shape[1]
    found = np.zeros((classes, classes), np.int32)
    guesses = P.argmax(axis=1)
    truths = Y.argmax(axis=1)
    for sample in range(len(P)):
        found[truths[sample], guesses[sample]] += 1
    return found
"""
CUDA = """extern "C" __global__ void bias_gradient(const float* D, float* gb, int batch, int n_out) {
    int mine = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = gridDim.x * blockDim.x;
    float first = 0.0f, second = 0.0f;
    for (int column = mine; column < n_out; column += stride) {
        first = second = 0.0f;
        for (int row = 0; row < batch; row += 2) {
            first += D[row * n_out + column];
            if (row + 1 < batch) second += D[(row + 1) * n_out + column];
        }
        gb[column] = (first + second) / batch;
    }
}
"""
CHANGES = {
    "nothing": (CUDA, []),
    "names": (CUDA, [(r"\bcolumn\b", "j"), (r"\brow\b", "i"), (r"\bfirst\b", "even"), (r"\bsecond\b", "odd")]),
    "spaces and comments": (CUDA, [(r"\n +", "\n  "), (r"\bfloat first\b", "/* sums */ float first")]),
    "a dead statement": (CUDA, [(r"(int stride)", r"int unused_ = 0; \1")]),
    "dead statements everywhere": (CUDA, [(r";\n( +)(?=\S)", r";\n\1int unused_ = 0;\n\1")]),
    "the order": (CUDA, [(r"( +int mine.*\n)( +int stride.*\n)", r"\2\1")]),
    "names in Python": (PYTHON, [(r"\bsample\b", "i"), (r"\bfound\b", "m"), (r"\bguesses\b", "p"), ("truths", "t")]),
    "a dead statement in Python": (PYTHON, [(r"(    for )", r"    unused = 0\n\1")]),
    "the order in Python": (PYTHON, [(r"( +guesses =.*\n)( +truths =.*\n)", r"\2\1")]),
    "hints, a docstring and brackets": (PYTHON, [(r"\(P, Y\):", '(P: list, Y) -> list:\n    """Counts."""')]),
}


def changed(text: str, changes: list[tuple[str, str]]) -> str:
    for old, new in changes:
        text, count = re.subn(old, new, text)
        assert count
    return text


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_is_found_whatever_was_changed(change):
    text, changes = CHANGES[change]
    found = compared({"ada": text, "bob": changed(text, changes)}, text is CUDA)
    assert [(pair.one, pair.other) for pair in found.pairs] == [("ada", "bob")]
    assert found.said_of("ada").startswith("bob ") and found.groups() == [("ada", "bob")]


def test_a_copy_of_the_courses_own_kernel_is_called_that_and_no_copy_of_others():
    solution = solution_text("dense_forward", "tiled")
    texts = {name: changed(solution, [(r"\bz\b", name)]) for name in ("ada", "bob")}
    found = compared(texts, True, solution)
    assert not found.pairs and found.said_of("ada") == "the course 100 %"


def test_a_short_kernel_of_the_course_has_no_other_way_and_names_nobody():
    solution = solution_text("sigmoid", "naive")
    texts = {name: changed(solution, [(r"\bi\b", name)]) for name in ("ada", "bob")}
    found = compared(texts, True, solution)
    assert not found.of_the_course and not found.pairs


def test_one_liners_are_not_compared():
    text = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"
    found = compared({"ada": text, "bob": text}, False)
    assert not found.pairs and found.said_of("ada") == ""


def test_honest_answers_are_not_alike():
    """All right answers of the tests, as if each were a student's. A few of them were made from others."""
    right = defaultdict(list)
    for path in FILES:
        for kind, each in answers_of(path):
            if kind != "wrong":
                right[each["operation"], each["kernel"]].append(each["text"])
    pairs = possible = 0
    for each in exercises():
        texts = {str(place): text for place, text in enumerate(right[each.operation, each.kernel]) if text}
        solution = solution_text(each.operation, each.kernel) or ""
        pairs += len(compared(texts, is_cuda(each.kernel), solution).pairs)
        possible += len(texts) * (len(texts) - 1) // 2
    assert possible > 900 and pairs < possible / 80


@pytest.mark.parametrize(
    "text", ["-" * 60000 + "1", "1" + "+1" * 30000, "(" * 30000, "a" + ".b" * 30000, "\0", "\ud800", ""]
)
def test_a_text_made_to_break_the_comparison_does_not(text):
    compared({"ada": text, "bob": text + " "}, False, text)


def test_equal_shares_are_one_number():
    found = compared({"ada": CUDA, "bob": CUDA}, True)
    assert "e.naive: ada, bob, 100 %" in pages._alike({"e.naive": found})


def test_a_class_of_200_is_compared_in_seconds_and_the_page_stays_short():
    texts = {f"student {n:03}": CUDA.replace("+= 2", f"+= {n % 9 + 2}") for n in range(200)}
    start = time.process_time()
    found = compared(texts, True)
    assert time.process_time() - start < 20
    assert len(found.said_of("student 000")) < 120
    assert len(pages._alike({f"e{n}.naive": found for n in range(84)})) < 40_000
