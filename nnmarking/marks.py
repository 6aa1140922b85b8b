"""The files of marking a class: it reads weights and overrides, and writes the tables of marks."""

import csv
import io
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnclassroom.exercises.hints import Exercise
from nnclassroom.handing_in.hand_in import Submission
from nncourse.errors import CourseError, decoded, reason_of, refuse_unknown, write_atomically
from nncourse.spreadsheets import number
from nnmarking import tables
from nnmarking.tables import Say

TABLE_WORDS = {"notebook": "a notebook", "exercise": "an exercise"}  # tables in the file of weights
SUGGESTED = Path(__file__).parent / "weights.toml"
NOT_ASKED = "not asked"
COLUMNS = (
    "student", "notebook", "exercise", "state", "kind", "points", "weight", "alike", "verdict", "attempts",
    "course", "seed", "override", "reason",
)  # fmt: skip
TOTALS = (
    "student", "points", "of", "per cent", "right", "wrong", "open", "missing", "id", "days late", "problems",
    "course", "seed",
)  # fmt: skip


@dataclass(frozen=True)
class Mark:
    """A row of marks.csv: one exercise of one student."""

    student: str
    exercise: Exercise
    state: str  # right, wrong, open or missing; NOT_ASKED if it is not in the student's variant of an examination
    kind: str = ""  # of the verdict
    line: str = ""  # its words; an excerpt may follow on further lines
    weight: float = 1.0
    attempts: Mapping[str, int] | None = None  # number of recorded verdicts of each kind; None: no record
    alike: str = ""  # students with similar answers, with per cent
    override: float | None = None
    reason: str = ""

    @property
    def points(self) -> float:
        """The override if there is one; otherwise the weight for a right answer, and 0 for any other."""
        return self.override if self.override is not None else self.weight * (self.state == "right")


@dataclass(frozen=True)
class Standing:
    """A student of the class: the hand-in, its marks, and the share of the points that lateness leaves."""

    submission: Submission
    marks: tuple[Mark, ...]
    days_late: int = 0
    share: float = 1.0

    @property
    def student(self) -> str:
        return self.submission.student

    @property
    def points(self) -> float:
        return round(self.share * sum(mark.points for mark in self.marks), 6)

    @property
    def of(self) -> float:
        """The greatest possible points."""
        return round(sum(mark.weight for mark in self.marks), 6)

    @property
    def late(self) -> str:
        """How late the hand-in is, in words; "" if it is in time."""
        return "" if not self.days_late else "1 day late" if self.days_late == 1 else f"{self.days_late} days late"

    @property
    def from_cells(self) -> str:
        """How many answers were read from notebooks, in words; "" if there are none."""
        number = self.submission.in_cells
        answers = "1 answer" if number == 1 else f"{number} answers"
        return f"{answers} read from the cells of notebooks" if number else ""

    @property
    def noted(self) -> tuple[str, ...]:
        """What the instructor should know about the hand-in, besides from_cells."""
        late = self.late and f"{self.late}, which leaves {100 * self.share:g} % of the points"
        given = self.submission
        problems = () if given.reason in given.problems else given.problems
        return tuple(filter(None, (*given.notes, given.reason, *problems, late)))

    @property
    def said(self) -> tuple[str, ...]:
        """Everything that student and instructor should know about the hand-in."""
        return tuple(filter(None, (self.from_cells, *self.noted)))


def read_weights(path: Path | None, exercises: Sequence[Exercise], usual: Mapping[str, float]) -> dict[str, float]:
    """The weight of each exercise by key: from the file, otherwise from `usual`, otherwise 1. In the file an exercise
    has priority over its notebook, and a notebook's name over its number.
    """
    weights = {exercise.key: 1.0 for exercise in exercises} | dict(usual)
    if path is None:
        return weights
    try:
        given = tomllib.loads(decoded(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise CourseError(f"{path}: expected weights as TOML in UTF-8; it cannot be read: {reason_of(error)}") from None
    numbers = {e.notebook: e.notebook.partition("_")[0] for e in exercises}
    notebooks = {*numbers, *numbers.values(), *(number.lstrip("0") for number in numbers.values())}
    known = {"notebook": notebooks, "exercise": {e.key for e in exercises}}
    for kind, table in given.items():
        refuse_unknown(f"in {path} a table", kind, known)
        if not isinstance(table, dict):
            raise CourseError(f"{path}: expected a table [{kind}]; got {kind} = {table!r}")
        for name, weight in table.items():
            refuse_unknown(f"in {path} the name of {TABLE_WORDS[kind]}", name, known[kind])
            if type(weight) not in (int, float) or not 0 <= weight < math.inf:
                raise CourseError(f"{path}: expected a weight of at least 0 for {name}; got {weight!r}")
    for exercise in exercises:
        number = numbers[exercise.notebook]
        names = [("notebook", each) for each in (number.lstrip("0"), number, exercise.notebook)]
        for kind, name in (*names, ("exercise", exercise.key)):
            if name in given.get(kind, {}):
                weights[exercise.key] = float(given[kind][name])
    return weights


def read_overrides(path: Path, keys: Iterable[str], say: Say = print) -> dict[tuple[str, str], tuple[float, str]]:
    """Points and reason for each (student, exercise) of the file. A row without a reason is refused."""
    table = tables.read(path, "the list of overrides", say)
    wanted = ("student", "exercise", "points", "reason")
    if sorted(name.strip().casefold() for name in table.columns) != sorted(wanted):
        got = table.separator.join(table.columns)[:80]
        raise CourseError(f"{path}: expected the columns {', '.join(wanted)}; got {got!r}")
    known_keys, found = sorted(keys), {}
    for row in table.rows:
        values = {name.strip().casefold(): value.strip() for name, value in row.values.items()}
        where, key = f"{path}, line {row.line}", (values["student"], values["exercise"])
        try:
            refuse_unknown("an exercise", key[1], known_keys)
        except CourseError as error:
            raise CourseError(f"{where}: {error}") from None
        points = number(values["points"], comma="," in values["points"])
        if not 0 <= points < math.inf:
            raise CourseError(f"{where}: expected points of at least 0; got {values['points']!r}")
        if not values["reason"]:
            raise CourseError(f"{where}: expected a reason for the changed points; got none")
        if key in found:
            raise CourseError(f"{where}: {key[0]}, {key[1]} is overridden twice")
        found[key] = points, values["reason"]
    return found


def write_marks(path: Path, standings: Sequence[Standing], course: str, seed: int) -> None:
    """Write a row for each student and exercise."""
    rows = [
        (
            mark.student, mark.exercise.notebook, mark.exercise.key, mark.state, mark.kind, f"{mark.points:g}",
            f"{mark.weight:g}", mark.alike, mark.line, "" if mark.attempts is None else sum(mark.attempts.values()),
            course, seed, "" if mark.override is None else f"{mark.override:g}", mark.reason,
        )
        for each in standings
        for mark in each.marks
    ]  # fmt: skip
    _write_csv(path, COLUMNS, rows)


def write_totals(path: Path, standings: Sequence[Standing], course: str, seed: int) -> None:
    """Write a row for each student: points, the number of exercises in each state, and notes on the hand-in."""
    rows = []
    for each in standings:
        states = [sum(mark.state == state for mark in each.marks) for state in ("right", "wrong", "open", "missing")]
        share = f"{100 * each.points / each.of:.1f}" if each.of else ""
        about = (each.submission.number, each.days_late or "", "; ".join(each.said))
        rows.append((each.student, f"{each.points:g}", f"{each.of:g}", share, *states, *about, course, seed))
    _write_csv(path, TOTALS, rows)


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_plain(value) for value in row] for row in rows)
    content = text.getvalue().encode("utf-8", "replace")
    write_atomically(path.absolute(), lambda new: new.write_bytes(content))


def _plain(value: object) -> object:
    """The value, with a ' in front if it is a text that a spreadsheet would evaluate as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
