"""The lists of an instructor, as spreadsheets and learning platforms save them: the class, and points given by hand."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nncourse.errors import CourseError, decoded, reason_of
from nncourse.spreadsheets import EMPTY, declared_separator, lines_of, separator_of

Say = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """A row of a list: the line in which it ends, counted from 1, and its fields by column."""

    line: int
    values: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A list: the names of its columns as they are written, its rows, and the separator."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    separator: str


def read(path: Path, what: str, say: Say) -> Table:
    """Read a list whose first row has the names of its columns; rows without content are skipped.

    Separators are commas, semicolons or tabs. `what` describes the list in messages. `say` gets a line if the text is
    neither UTF-8 nor UTF-16, and was read as Excel saves it on Windows.
    Raises CourseError for a file that cannot be read, and for a row with more fields than columns.
    """
    lines = lines_of(_text(path, what, say))
    declared = declared_separator(lines[0])
    first = 1 if declared else 0
    separator = declared or separator_of(next((line for line in lines[first:] if line.strip(EMPTY)), ""))
    reader = csv.reader(io.StringIO("\n".join(lines[first:]), newline=""), delimiter=separator)
    try:
        found = [(first + reader.line_num, fields) for fields in reader if any(map(str.strip, fields))]
    except csv.Error as error:
        raise CourseError(
            f"{path}, line {first + reader.line_num}: expected a row of a CSV file; got {error}"
        ) from None
    header = found[0][1] if found else []
    for line, fields in found:
        if (width := _width(fields)) > len(header):
            got = f"expected {len(header)} fields, as in the first row; got {width}"
            raise CourseError(f"{path}, line {line}: {got}: put quotes around a field that holds {separator!r}")
    columns = header[: max((_width(fields) for _, fields in found), default=0)]
    rows = (Row(line, dict(zip(columns, [*fields, *[""] * len(columns)], strict=False))) for line, fields in found[1:])
    return Table(tuple(columns), tuple(rows), separator)


def by_name(columns: Iterable[str]) -> dict[str, str]:
    """The columns by their names in lower case, without the blanks around them."""
    return {name.strip().casefold(): name for name in columns}


def _width(fields: list[str]) -> int:
    """The number of fields without the empty ones at the end, with which spreadsheets fill up rows."""
    return max(number for number, field in enumerate(fields, start=1) if field.strip())


def _text(path: Path, what: str, say: Say) -> str:
    wanted = f"{path}: expected {what} as CSV in UTF-8"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CourseError(f"{wanted}; it cannot be read: {reason_of(error)}") from None
    try:
        text, is_unicode = decoded(content), True
    except UnicodeDecodeError:
        text, is_unicode = content.decode("cp1252", "replace"), False
    is_binary = "\0" in text or content.startswith(b"PK")  # an Excel workbook is a zip archive
    if is_binary or "\ufffd" in text and not is_unicode:
        raise CourseError(f"{wanted}; this is not text: save it as CSV UTF-8 in your spreadsheet program")
    if not is_unicode:
        advice = "check the accents in its names, or save it as CSV UTF-8"
        say(f"{path}: not in UTF-8, so it is read as Windows-1252: {advice}")
    return text
