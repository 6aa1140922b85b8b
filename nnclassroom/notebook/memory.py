"""Questions with one right answer: about earlier notebooks, since what you recall again lasts; and within the text."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnclassroom.exercises.questions import IN_TEXT, QUESTIONS, Question
from nnclassroom.pages import page
from nncourse.errors import CourseError

LETTERS = "abcdef"
Given = float | str | None


@dataclass(frozen=True)
class Asked:
    """A notebook's questions and a student's answers; shown as a list, each explanation folded below its answer."""

    questions: Sequence[Question]
    answers: Sequence[Given]

    def __repr__(self) -> str:
        return "\n".join(map(_line, self.questions, self.answers))

    def _repr_html_(self) -> str:
        return "".join(map(_page, self.questions, self.answers))


def remember(notebook: str, *answers: Given) -> Asked:
    """Ask what earlier notebooks taught, and judge these answers. Nothing is counted or kept.

    notebook: the number of the notebook that asks, such as "09".
    answers: one for each question: a number, or a letter such as "b" for a choice; None leaves it open.
    Raises CourseError for a notebook without questions, and for a wrong number of answers.

    >>> remember("09", None, None, None)
    ○ ...
    """
    return _asked(QUESTIONS, notebook, answers)


def decide(about: str, *answers: Given) -> Asked:
    """Ask what can be read off a notebook's own records, and judge these answers, as remember() does.

    about: "race" or "counters", both in 08c.

    >>> decide("race", None)
    ○ ...
    """
    return _asked(IN_TEXT, about, answers)


def _asked(all_questions: Mapping[str, Sequence[Question]], about: str, answers: Sequence[Given]) -> Asked:
    if about not in all_questions:
        raise CourseError(f"expected a notebook with questions, {', '.join(all_questions)}; got {about!r}")
    questions = all_questions[about]
    if len(answers) != len(questions):
        raise CourseError(f"expected {len(questions)} answers, None for an open one; got {len(answers)}")
    for question, given in zip(questions, answers, strict=True):
        _check(question, given)
    return Asked(questions, answers)


def mark(question: Question, given: Given) -> str:
    """○, ✓ or ✗."""
    return "○" if given is None else "✓" if right(question, given) else "✗"


def right(question: Question, given: Given) -> bool:
    if isinstance(question.answer, str):
        return isinstance(given, str) and given.strip().lower() == question.answer
    return isinstance(given, int | float) and abs(given - question.answer) <= question.within


def _check(question: Question, given: Given) -> None:
    """CourseError for an answer that is not of the question's kind."""
    if given is None:
        return
    if question.choices:
        letters = LETTERS[: len(question.choices)]
        if not (isinstance(given, str) and given.strip().lower() in [*letters]):
            raise CourseError(f'expected a letter from "a" to "{letters[-1]}", or None; got {given!r}')
    elif isinstance(given, bool) or not isinstance(given, int | float):
        raise CourseError(f"expected a number, or None; got {given!r}")


def _line(question: Question, given: Given) -> str:
    choices = "".join(f"\n  {letter}) {choice}" for letter, choice in zip(LETTERS, question.choices, strict=False))
    why = "" if given is None else f"\n  {question.why}"
    return f"{mark(question, given)} {question.asks} ({question.notebook}){choices}{why}"


def _page(question: Question, given: Given) -> str:
    kind = "" if given is None else "right" if right(question, given) else "wrong"
    choices = "".join(f"<li>{html.escape(choice)}</li>" for choice in question.choices)
    style = "margin:.2em 0;list-style-type:lower-alpha"  # JupyterLab's own style would number them
    listed = f'<ol type="a" style="{style}">{choices}</ol>' if choices else ""
    said = f"{mark(question, given)} {html.escape(question.asks)} <small>({question.notebook})</small>"
    folded = f"<details><summary>Why</summary>{html.escape(question.why)}</details>" if kind else ""
    return page(f"{said}{listed}{folded}", kind)
