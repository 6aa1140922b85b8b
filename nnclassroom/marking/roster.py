"""The class as a learning platform knows it: names of hand-ins, a list of students, and the points put into that list.

The list is a CSV that the platform itself exports, Moodle's grading worksheet or Canvas's gradebook, or one of your own
with the columns `name` and `id`. It comes back with the points in a column, which the platform then reads.
"""

import csv
import io
import itertools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nncourse.errors import CourseError, write_atomically

# How platforms name what they let you download: person, number, and for Canvas the number of the attachment.
MOODLE = re.compile(r"(?P<name>[^_]+)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<file>.*))?", re.DOTALL)
CANVAS = re.compile(r"(?P<name>[^\W\d_]+)(?:_LATE)?_(?P<id>\d+)_(?P<attachment>\d+)_(?P<file>.+)", re.DOTALL)
NAMES = ("name", "full name", "student", "student name", "nombre completo", "nombre y apellidos")
PARTS = (("first name", "last name"), ("first name", "surname"), ("nombre", "apellido(s)"), ("nombre", "apellidos"))
IDS = ("id", "identifier", "identificador", "id number", "número de id", "sis user id", "sis login id", "username")
IDS += ("login", "user", "usuario", "email address", "email", "dirección de correo", "correo")
GRADES = ("grade", "calificación")  # Moodle's columns
MOST = ("maximum grade", "calificación máxima")
CANVAS_COLUMNS = ("student", "id", "sis user id", "sis login id", "section")
NUMBERED = re.compile(r"(?:participant|participante)\s*(\d+)", re.IGNORECASE)
NO_STUDENT = re.compile(r"\s*(points possible|student, test)", re.IGNORECASE)  # rows of Canvas
MOST_TOKENS = 4  # of a name that are tried in every order


@dataclass(frozen=True)
class Person:
    """Whom a hand-in is of, by its name: `Lovelace Ada_12345_assignsubmission_file_` is Lovelace Ada, 12345."""

    name: str
    number: str = ""
    feedback: str = ""  # the name under which the platform takes a page back; "" where it did not name the hand-in


def person(entry: str) -> Person:
    """The person that an entry's name means: in Moodle's form, in Canvas's, or the name itself."""
    if found := MOODLE.fullmatch(entry):
        return Person(found["name"], found["id"], moodle_feedback(found["name"], found["id"]))
    if found := CANVAS.fullmatch(entry):
        return Person(found["name"], found["id"], f"{found['name']}_{found['id']}_{found['attachment']}_feedback.html")
    return Person(entry)


def file_of(entry: str) -> str:
    """The student's own name of a file that a platform has named: `mse.numpy.py`; otherwise the name as it is."""
    found = MOODLE.fullmatch(entry) or CANVAS.fullmatch(entry)
    return (found and found["file"]) or entry


def moodle_feedback(name: str, number: str) -> str:
    return f"{name.replace('_', ' ')}_{number}_assignsubmission_file_feedback.html"


@dataclass(frozen=True)
class Roster:
    """The platform's list: its columns and rows, and of each row the student's name and ids."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    delimiter: str
    names: tuple[str, ...]  # "" for a row that is no student's
    ids: tuple[tuple[str, ...], ...]

    def row_of(self, who: Person) -> int | None:
        """The row of a person, by number, id or name; None where there is none, or more than one."""
        wanted = _foldings(who.name)
        by_number = [row for row, ids in enumerate(self.ids) if who.number and who.number in ids]
        by_id = [row for row, ids in enumerate(self.ids) if wanted & {_folded(each) for each in ids}]
        by_name = [row for row, name in enumerate(self.names) if name and wanted & _foldings(name)]
        found = by_number or by_id or by_name
        return found[0] if len(found) == 1 else None

    def feedback(self, row: int) -> str:
        """The name under which Moodle takes a page for this row; "" where the list is not Moodle's."""
        found = next(filter(None, (NUMBERED.fullmatch(each) for each in self.rows[row].values())), None)
        return moodle_feedback(self.names[row], found[1]) if found else ""

    def most(self, column: str) -> float | None:
        """The greatest grade, as the list has it: Moodle's in each row, Canvas's in one row of the points' column."""
        named = next((name for name in self.columns if name.strip().casefold() in MOST), column)
        students = [row for row, name in zip(self.rows, self.names, strict=True) if bool(name) == (named != column)]
        try:
            return float((students[0].get(named) or "").replace(",", ".")) if students else None
        except ValueError:
            return None


def read(path: Path) -> Roster:
    """The list in a CSV file. CourseError if it cannot be read, or has no column of names."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise CourseError(f"{path}: wanted the class's list as CSV in UTF-8; it cannot be read") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restval="")
    columns = {name.strip().casefold(): name for name in table.fieldnames or ()}
    whole = next((columns[name] for name in NAMES if name in columns), "")
    parts = next(([columns[part] for part in pair] for pair in PARTS if all(part in columns for part in pair)), [])
    if not (whole or parts):
        raise CourseError(f"{path}: wanted a column with names, such as {', '.join(NAMES[:3])}; got {first[:80]!r}")
    rows = [{key: value for key, value in row.items() if isinstance(key, str)} for row in table]
    known_by = [columns[name] for name in IDS if name in columns]
    names, ids = [], []
    for row in rows:
        name = " ".join(" ".join(row[column] or "" for column in ([whole] if whole else parts)).split())
        is_student = name and not NO_STUDENT.match(name)
        names.append(name if is_student else "")
        ids.append(_ids(row, known_by) if is_student else ())
    unlike = [
        f"{name} ({own[0]})" if own and names.count(name) > 1 else name for name, own in zip(names, ids, strict=True)
    ]
    return Roster(path, tuple(table.fieldnames or ()), tuple(rows), delimiter, tuple(unlike), tuple(ids))


def _ids(row: Mapping[str, str], columns: Sequence[str]) -> tuple[str, ...]:
    """What identifies a row's student: numbers, logins, addresses, and the part of an address before its @."""
    values = [(row[column] or "").strip() for column in columns]
    numbers = [found[1] if (found := NUMBERED.fullmatch(value)) else value for value in values]
    return tuple(dict.fromkeys(filter(None, [*numbers, *(each.partition("@")[0] for each in numbers)])))


def students(entries: Iterable[str], roster: Roster | None) -> dict[str, tuple[str, int | None]]:
    """The student's name of each entry, as in the list if there is one, and the row there.

    Two people of one name keep their numbers: `Smith John (12)`.
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
    """Write the list with the points by row in a column, which is returned: the one named, Moodle's, or a new one.

    Of Canvas's gradebook only the columns that name the student are written besides.
    """
    columns = {name.strip().casefold(): name for name in roster.columns}
    if not column:
        column = next((columns[name] for name in GRADES if name in columns), "points")
    is_canvas = "sis login id" in columns or "sis user id" in columns
    kept = [name for name in roster.columns if not is_canvas or name.strip().casefold() in CANVAS_COLUMNS]
    kept = kept if column in kept else [*kept, column]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, kept, extrasaction="ignore", delimiter=roster.delimiter, lineterminator="\n")
    writer.writeheader()
    for number, row in enumerate(roster.rows):
        is_total = is_canvas and (row.get(columns.get("student", "")) or "").strip().startswith("Points Possible")
        value = of if is_total else points.get(number)
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
