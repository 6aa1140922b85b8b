"""What a class has learnt: the answers of the test before and after the course, read from tables, and the gains.

A table has a row for each student: `student`, `form` (A or B), and the letters in the columns 1 to 12. An empty cell is
no answer, which is not right. The notebooks of the test write a table of one row each: a folder of these is read, too.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nncourse.errors import CourseError
from nnmarking import tables
from nnmarking.concepts import FORMS, LETTERS, Question
from nnmarking.tables import Say

DRAWS, LEVEL = 10_000, 95  # classes drawn again from the students, with replacement; per cent between the bounds
COUNT = len(FORMS["A"])


class Answers(NamedTuple):
    """A student's form, and the letter of each question, "" where there is none."""

    form: str
    letters: tuple[str, ...]

    @property
    def questions(self) -> tuple[Question, ...]:
        return FORMS[self.form]

    @property
    def right(self) -> np.ndarray:
        """Of each question, whether it is right."""
        return np.array([letter == each.right for letter, each in zip(self.letters, self.questions, strict=True)])


def read(path: Path, say: Say = print) -> dict[str, Answers]:
    """The answers by student, of a table, or of all tables in a folder. CourseError where a student is there twice."""
    found: dict[str, Answers] = {}
    for file in sorted(path.rglob("*.csv")) if path.is_dir() else [path]:
        for student, answers in _read_table(file, say).items():
            if student in found:
                raise CourseError(f"{file}: {student!r} is in another table, too")
            found[student] = answers
    return found


def _read_table(path: Path, say: Say) -> dict[str, Answers]:
    """CourseError, with the line, for a row that is none."""
    table = tables.read(path, "a table of answers", say)
    columns = tables.by_name(table.columns)
    wanted = ["student", "form", *map(str, range(1, COUNT + 1))]
    if missing := [name for name in wanted if name not in columns]:
        raise CourseError(f"{path}: expected the columns {', '.join(wanted)}; {', '.join(missing)} is not there")
    found: dict[str, Answers] = {}
    for number, values in ((row.line, row.values) for row in table.rows):
        student, form, *chosen = (values[columns[name]].strip() for name in wanted)
        form, letters = form.upper(), tuple(map(str.lower, chosen))
        if not student or student in found or form not in FORMS or any(each not in ("", *LETTERS) for each in letters):
            said = f"expected a student who is there once, form A or B, and letters from a to {LETTERS[-1]}"
            raise CourseError(f"{path}: line {number}: {said}; got {student!r}, {form!r}, {' '.join(letters)}")
        found[student] = Answers(form, letters)
    return found


def gain(before: np.ndarray, after: np.ndarray) -> float:
    """Of what the class did not know before, the share that it knows after: (after - before) / (1 - before)."""
    return float((after.mean() - before.mean()) / (1 - before.mean())) if before.mean() < 1 else 0.0


def bounds(before: np.ndarray, after: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Between which the gain of another class of such students would lie, by classes drawn from this one."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(before), (DRAWS, len(before)))
    gains = [gain(before[students], after[students]) for students in drawn]
    low, high = np.percentile(gains, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)


def report(before: Mapping[str, Answers], after: Mapping[str, Answers]) -> list[str]:
    """Lines: the class, each topic, and the misconceptions that are left. CourseError without students in both."""
    both = [student for student in before if student in after]
    alike = [student for student in both if before[student].form == after[student].form]
    if not both:
        raise CourseError("expected students who are in both tables, by the same name; there are none")
    first, second = ([answers[student] for student in both] for answers in (before, after))
    was, now = (np.array([each.right for each in answers]) for answers in (first, second))
    shares = was.mean(axis=1), now.mean(axis=1)
    low, high = bounds(*shares)
    lines = [
        f"{len(both)} students took both tests; {len(before) + len(after) - 2 * len(both)} took one, and are left out",
        f"right before {shares[0].mean():.0%}, after {shares[1].mean():.0%}",
        f"gain {gain(*shares):.2f}, between {low:.2f} and {high:.2f} ({LEVEL} % of classes drawn from these students)",
    ]
    if alike:
        lines.append(f"{len(alike)} students had the same form twice: they may have remembered its questions")
    lines += ["", "topic               before  after   gain"]
    for n, question in enumerate(FORMS["A"]):
        topic = was[:, n].mean(), now[:, n].mean(), gain(was[:, n], now[:, n])
        lines.append(f"{question.topic:20}{topic[0]:6.0%} {topic[1]:6.0%} {topic[2]:6.2f}")
    left = sorted(((slips(second, n), n) for n in range(COUNT)), reverse=True)
    lines += ["", "misconceptions, chosen before and after"]
    for count, n in left[:5]:
        words = dict.fromkeys(form[n].misconception for form in FORMS.values())
        lines.append(f"{slips(first, n):3} {count:4}  {'; or: '.join(words)}")
    return lines


def slips(answers: Iterable[Answers], n: int) -> int:
    """How many chose the usual misconception in question n."""
    return sum(each.letters[n] == each.questions[n].slip for each in answers)
