"""A week's homework: which exercises are marked, when they are due, and what a late hand-in loses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time

from nnclassroom import arguments
from nnclassroom.exercises.hints import Exercise
from nncourse.errors import CourseError

DAY = 24 * 3600.0


@dataclass(frozen=True)
class Deadline:
    """When an assignment is due, and the per cent of the points that each day begun after it costs."""

    due: datetime | None = None
    late: float = 0.0

    def days_late(self, time: datetime | None) -> int:
        """The days begun between the deadline and a hand-in; 0 in time, and where either time is unknown."""
        if self.due is None or time is None:
            return 0
        return max(0, math.ceil((time - self.due).total_seconds() / DAY))

    def share(self, days: int) -> float:
        """The share of the points that is left after so many days."""
        return max(0.0, 1 - days * self.late / 100)


def deadline(due: str, late: float) -> Deadline:
    """The deadline that the command line names, as 2026-12-01T23:59 in this machine's time zone or with one of its own.

    A date alone, 2026-12-01, is the end of that day.
    Raises CourseError for another form, and for a late rule without a deadline.
    """
    if not 0 <= late <= 100:
        raise CourseError(f"expected --late as per cent of the points, from 0 to 100; got {late:g}")
    if not due:
        if late:
            raise CourseError("expected --due beside --late, as 2026-12-01T23:59; got none")
        return Deadline()
    try:
        return Deadline(_moment(due).astimezone(), late)
    except (ValueError, OverflowError):
        raise CourseError(f"expected --due as 2026-12-01T23:59; got {due!r}") from None


def _moment(due: str) -> datetime:
    """The time that a text names, of a date alone its last moment. ValueError for another form."""
    try:
        return datetime.combine(date.fromisoformat(due), time.max)
    except ValueError:
        return datetime.fromisoformat(due)


def chosen(exercises: Sequence[Exercise], only: str) -> tuple[Exercise, ...]:
    """The exercises that `only` names, or all: `02,03` or `2,3` are notebooks by number, `sigmoid.numpy` is one
    exercise.

    Raises CourseError for a name of neither.
    """
    names = {each: (each.notebook.partition("_")[0], each.notebook, each.key) for each in exercises}
    return arguments.chosen("a notebook's number or an exercise", only, names)
