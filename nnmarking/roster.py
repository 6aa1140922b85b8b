"""The class's list of students: whose a hand-in is, and the points put into the list for a learning platform.

The list is a CSV file: Moodle's grading worksheet, Canvas's gradebook, or your own file with the columns `name` and
`id`. It is written again with the points in a column, and the platform imports that file.
"""

import csv
import io
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnclassroom.handing_in.platform_names import Person, moodle_feedback, person
from nncourse.errors import CourseError, write_atomically
from nncourse.spreadsheets import number
from nnmarking import tables
from nnmarking.tables import Row, Say

NAMES = ("name", "full name", "student", "student name", "nombre completo", "nombre y apellidos")
PARTS = (("first name", "last name"), ("first name", "surname"), ("nombre", "apellido(s)"), ("nombre", "apellidos"))
IDS: tuple[str, ...] = ("id", "identifier", "identificador", "id number", "número de id", "sis user id", "sis login id")
IDS += ("username", "login", "user", "usuario", "email address", "email", "dirección de correo", "correo")
GRADES = ("grade", "calificación")  # Moodle's columns
MOST = ("maximum grade", "calificación máxima")
CANVAS_COLUMNS = ("student", "id", "sis user id", "sis login id", "section")
NUMBERED = re.compile(r"(?:participant|participante)\s*(\d+)", re.IGNORECASE)
NO_STUDENT = re.compile(r"\s*(points possible|student, test)", re.IGNORECASE)  # rows of Canvas
NO_IDS = {"", "-", "–", "—", "0", "n/a", "na", "nan", "none", "null"}  # written for a student without an id
MOST_TOKENS = 4  # words of a name that are tried in every order


@dataclass(frozen=True)
class Roster:
    """The class's list: its columns and rows, and for each row the student's name and ids."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    delimiter: str
    names: tuple[str, ...]  # "" for a row that is not a student's
    ids: tuple[tuple[str, ...], ...]

    def row_of(self, who: Person) -> int | None:
        """The row of a person, by number, id or name; None if there is no such row, or more than one."""
        wanted = _foldings(who.name)
        by_number = [row for row, ids in enumerate(self.ids) if who.number and who.number in ids]
        by_id = [row for row, ids in enumerate(self.ids) if wanted & {_folded(each) for each in ids}]
        by_name = [row for row, name in enumerate(self.names) if name and wanted & _foldings(name)]
        found = by_number or by_id or by_name
        return found[0] if len(found) == 1 else None

    def feedback(self, row: int) -> str:
        """The file name under which Moodle takes feedback for this row; "" if the list is not Moodle's."""
        found = next(filter(None, (NUMBERED.fullmatch(each) for each in self.rows[row].values())), None)
        return moodle_feedback(self.names[row], found[1]) if found else ""

    def most(self, column: str) -> float | None:
        """The maximum points in the list: Moodle has them in each row, Canvas in one row of the points' column."""
        named = next((name for name in self.columns if name.strip().casefold() in MOST), column)
        students = [row for row, name in zip(self.rows, self.names, strict=True) if bool(name) == (named != column)]
        text = (students[0].get(named) or "").strip() if students else ""
        most = number(text, comma="," in text)
        return None if math.isnan(most) else most


def read(path: Path, say: Say = print) -> Roster:
    """Read the list in a CSV file. Two equal rows count as one student, and `say` gets a line about them.

    Raises CourseError if the list cannot be read, has no column of names, or has a student in rows that differ.
    """
    table = tables.read(path, "the class's list", say)
    columns = tables.by_name(table.columns)
    whole = next((columns[name] for name in NAMES if name in columns), "")
    parts = next(([columns[part] for part in pair] for pair in PARTS if all(part in columns for part in pair)), [])
    if not (whole or parts):
        got = table.separator.join(table.columns)[:80]
        raise CourseError(f"{path}: expected a column with names, such as {', '.join(NAMES[:3])}; got {got!r}")
    known_by = [columns[name] for name in IDS if name in columns]
    rows, names, ids = [], [], []
    seen: dict[tuple[str, str], Row] = {}  # the first row of each id, by its column, and of each name
    for row in table.rows:
        name = " ".join(" ".join(row.values[column] for column in ([whole] if whole else parts)).split())
        is_student = name and not NO_STUDENT.match(name)
        if is_student and _is_repeated(path, row, name, known_by, seen, say):
            continue
        rows.append(row.values)
        names.append(name if is_student else "")
        ids.append(_ids(row.values, known_by) if is_student else ())
    unlike = [
        f"{name} ({own[0]})" if own and names.count(name) > 1 else name for name, own in zip(names, ids, strict=True)
    ]
    return Roster(path, table.columns, tuple(rows), table.separator, tuple(unlike), tuple(ids))


def _is_repeated(
    path: Path, row: Row, name: str, known_by: Sequence[str], seen: dict[tuple[str, str], Row], say: Say
) -> bool:
    """Whether an earlier row is exactly the same. Adds the row to `seen`.

    Raises CourseError if the student has an earlier row that differs, or rows without an id, which may mean two people
    of the same name: then it is unclear whose the points are.
    """
    own = [(column, value) for column in known_by if (value := row.values[column].strip()).casefold() not in NO_IDS]
    of_name, without_id = ("name", _folded(name)), ("name without id", _folded(name))
    before = next((seen[key] for key in (own or [of_name]) + [without_id] if key in seen), None)
    for key in (*own, of_name, *([] if own else [without_id])):
        seen.setdefault(key, row)
    if before is None:
        return False
    where = f"lines {before.line} and {row.line}"
    is_same = all(value.strip() == row.values[column].strip() for column, value in before.values.items())
    if not (own and is_same):
        advice = "delete one line, or give each student a different id"
        raise CourseError(f"{path}: {name} is on the list twice, in {where}: {advice}")
    say(f"{path}: {name} is on the list twice, in {where}, which are the same: counted once")
    return True


def _ids(row: Mapping[str, str], columns: Sequence[str]) -> tuple[str, ...]:
    """The ids of a row's student: numbers, logins, addresses, and the part of an address before its @."""
    values = [(row[column] or "").strip() for column in columns]
    numbers = [found[1] if (found := NUMBERED.fullmatch(value)) else value for value in values]
    return tuple(dict.fromkeys(filter(None, [*numbers, *(each.partition("@")[0] for each in numbers)])))


def students(entries: Iterable[str], roster: Roster | None) -> dict[str, tuple[str, int | None]]:
    """The student's name for each entry, as in the list if there is one, and the row there.

    Two people of the same name keep their numbers: `Smith John (12)`.
    """
    people = {entry: person(entry) for entry in entries}
    rows = {entry: roster.row_of(who) if roster else None for entry, who in people.items()}
    numbers: dict[str, set[str]] = {}
    for who in people.values():
        numbers.setdefault(who.name, set()).add(who.number)
    found: dict[str, tuple[str, int | None]] = {}
    for entry, who in people.items():
        row = rows[entry]
        own = f"{who.name} ({who.number})" if len(numbers[who.name]) > 1 and who.number else who.name
        found[entry] = (roster.names[row] if roster and row is not None else own), row
    return found


def write_points(path: Path, roster: Roster, points: Mapping[int, float], of: float, column: str) -> str:
    """Write the list with the points in a column: the one named, Moodle's, or a new one. Returns the column's name.

    Of Canvas's gradebook, only the columns that identify the student are kept besides.
    """
    columns = tables.by_name(roster.columns)
    if not column:
        column = next((columns[name] for name in GRADES if name in columns), "points")
    is_canvas = "sis login id" in columns or "sis user id" in columns
    kept = [name for name in roster.columns if not is_canvas or name.strip().casefold() in CANVAS_COLUMNS]
    kept = kept if column in kept else [*kept, column]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, kept, extrasaction="ignore", delimiter=roster.delimiter, lineterminator="\n")
    writer.writeheader()
    for at, row in enumerate(roster.rows):
        is_total = is_canvas and (row.get(columns.get("student", "")) or "").strip().startswith("Points Possible")
        value = of if is_total else points.get(at)
        writer.writerow({**row, column: "" if value is None else f"{value:g}"})
    write_atomically(path.absolute(), lambda new: new.write_bytes(text.getvalue().encode("utf-8", "replace")))
    return column


def _tokens(name: str) -> list[str]:
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c)).casefold()
    return re.findall(r"[^\W_]+", plain)


def _folded(name: str) -> str:
    return "".join(_tokens(name))


def _foldings(name: str) -> set[str]:
    """A name without spaces, accents and capitals, in every order of its words: `Lovelace, Ada` is `Ada Lovelace`."""
    words = _tokens(name)
    orders = itertools.permutations(words) if len(words) <= MOST_TOKENS else [words]
    return {"".join(order) for order in orders} - {""}
