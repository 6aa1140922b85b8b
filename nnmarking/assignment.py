"""An assignment: which exercises are marked, when they are due, and how many points a late hand-in loses."""

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
    """When an assignment is due, and the per cent of the points that a student loses for each day begun after that."""

    due: datetime | None = None
    late: float = 0.0

    def days_late(self, time: datetime | None) -> int:
        """The days begun between the deadline and a hand-in; 0 if it is in time, or if either time is unknown."""
        if self.due is None or time is None:
            return 0
        return max(0, math.ceil((time - self.due).total_seconds() / DAY))

    def share(self, days: int) -> float:
        """The share of the points that is left after this number of days."""
        return max(0.0, 1 - days * self.late / 100)


def deadline(due: str, late: float) -> Deadline:
    """The deadline in a text such as 2026-12-01T23:59, which is in this machine's time zone unless it names one.

    A date alone, 2026-12-01, means the end of that day.
    Raises CourseError for any other form, and for a `late` without a deadline.
    """
    if not 0 <= late <= 100:
        raise CourseError(f"expected --late in per cent of the points, from 0 to 100; got {late:g}")
    if not due:
        if late:
            raise CourseError("--late needs a deadline: add --due, such as --due 2026-12-01T23:59")
        return Deadline()
    try:
        return Deadline(_moment(due).astimezone(), late)
    except (ValueError, OverflowError):
        raise CourseError(f"expected a time for --due, such as 2026-12-01T23:59; got {due!r}") from None


def _moment(due: str) -> datetime:
    """The time in a text; for a date alone its last moment. ValueError for any other form."""
    try:
        return datetime.combine(date.fromisoformat(due), time.max)
    except ValueError:
        return datetime.fromisoformat(due)


def chosen(exercises: Sequence[Exercise], only: str) -> tuple[Exercise, ...]:
    """The exercises that `only` names; all if it is empty.

    `02,03` or `2,3` names two notebooks, `sigmoid.numpy` one exercise. Raises CourseError for any other name.
    """
    names = {each: (each.notebook.partition("_")[0], each.notebook, each.key) for each in exercises}
    return arguments.chosen("a notebook's number or an exercise", only, names)
