"""Questions about earlier notebooks: each has one right answer, and it is judged."""

import pytest

from nnclassroom import remember
from nnclassroom.exercises.questions import QUESTIONS, Question
from nnclassroom.notebook.memory import LETTERS, mark
from nncourse.errors import CourseError
from nncourse.language import ROOT

NUMBERS = [path.stem.partition("_")[0] for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
CHOICE = Question("01", "Which?", "b", "Because.", ("this", "that"))
NUMBER = Question("01", "How many?", 2.5, "Counted.", within=0.1)


def test_each_notebook_from_02_on_asks_three_questions_about_earlier_ones():
    assert list(QUESTIONS) == NUMBERS[2:]
    for number, questions in QUESTIONS.items():
        assert len(questions) == 3, number
        for question in questions:
            assert question.notebook in NUMBERS[: NUMBERS.index(number)]
            if question.choices:
                assert question.answer in [*LETTERS[: len(question.choices)]] and len(question.choices) > 2
            else:
                assert not isinstance(question.answer, str)


@pytest.mark.parametrize(
    ("question", "given", "shown"),
    [
        (CHOICE, None, "○"),
        (CHOICE, "b", "✓"),
        (CHOICE, " B", "✓"),
        (CHOICE, "a", "✗"),
        (NUMBER, None, "○"),
        (NUMBER, 2.45, "✓"),
        (NUMBER, 2, "✗"),
    ],
)
def test_an_answer_is_judged(question, given, shown):
    assert mark(question, given) == shown


def test_explanations_come_with_the_answers_alone():
    first = QUESTIONS["09"][0]
    open_ones = remember("09", None, None, None)
    assert first.why not in repr(open_ones) and first.why not in open_ones._repr_html_()
    answered = remember("09", first.answer, None, None)
    assert repr(answered).startswith("✓") and first.why in repr(answered) and "<details>" in answered._repr_html_()


@pytest.mark.parametrize("answers", [("z", None, None), (None, None), (True, None, None)])
def test_what_is_no_answer_is_refused(answers):
    with pytest.raises(CourseError, match="expected"):
        remember("09", *answers)


def test_a_notebook_without_questions_is_refused():
    with pytest.raises(CourseError, match="expected a notebook with questions"):
        remember("00", None)
