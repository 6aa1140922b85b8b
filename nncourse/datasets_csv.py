"""Read tables of numbers, in all forms of CSV, with errors that name file, row and column.

datasets_columns.py finds the classes among the columns, and refuses columns that are not what they seem.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nncourse.errors import CourseError, decoded, reason_of
from nncourse.spreadsheets import EMPTY, declared_separator, lines_of, number, separator_of

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # 1,234: a comma as it is written in English
UNNAMED = re.compile(r"(unnamed: ?[\d.]+)?", re.IGNORECASE)  # what pandas calls a column without a name
Line = tuple[int, str]  # its number in the file, counted from 1, and its text


@dataclass(frozen=True)
class Rows:
    """The rows of a table as text, with the column names and line numbers that error messages need."""

    path: Path
    names: tuple[str, ...]  # of the columns; empty without a header
    width: int  # columns of the first row
    lines: list[Line]  # of each data row
    separator: str = ","

    def error(self, row: int, column: int, wanted: str, advice: str = "") -> CourseError:
        """A CourseError about one field; `row` (among the data rows) and `column` count from 0."""
        number, line = self.lines[row]
        field = _fields(line, self.separator)[column]
        got = repr(field[:40]) if field else "an empty field"
        where = f"{self.path}: row {number}, {self.column(column)}"
        return CourseError(f"{where}: expected {wanted}; got {got}{advice}")

    def column(self, column: int) -> str:
        """A column, counted from 0, as messages name it: its number from 1, and its name."""
        return f"column {column + 1}" + (f" ({self.names[column][:40]!r})" if self.names else "")


def read_table(path: Path) -> tuple[Rows, np.ndarray]:
    """Read a table of finite numbers. Returns its rows as text, and their values (rows, columns) float64.

    Separators are commas, semicolons or tabs; decimal commas are read if the comma is not the separator. The file may
    begin with a line `sep=;` and with comments, lines that start with #. Rows without content are skipped.
    The first row is a header if none of its fields is a number; its names may span several lines, in quotes.
    Raises CourseError for any other field that is not a finite number within float32's range, for rows of different
    lengths, for a column without a name, and for a file that is not text or has no rows.
    """
    rows = _rows(path)
    values, comma = _parse(rows)
    faults = np.argwhere(~(np.abs(values) <= LARGEST_FLOAT32))  # `not <=` rather than `>`: true for NaN as well
    if len(faults):
        commas = ", with a decimal comma as elsewhere in the file" if comma else ""
        advice, (row, column) = "", faults[0]
        if not row and not rows.names:
            advice = "; if this row is a header, give every column a name that is not a number"
        elif not row and np.isnan(values[0]).all():
            advice = "; if this row belongs to the header, delete it: a header has one row"
        raise rows.error(row, column, f"a finite number of at most 3.4e38 (float32){commas}", advice)
    return rows, values


def _rows(path: Path) -> Rows:
    """The rows of a file. Raises CourseError if it has none, or only one column, or a column without a name."""
    lines = _lines(path)
    separator = declared_separator(lines[0][1]) if lines else ""
    lines = lines[1:] if separator else lines
    comments = next((count for count, (_, line) in enumerate(lines) if line.lstrip(' "')[:1] != "#"), len(lines))
    above, lines = lines[:comments], lines[comments:]
    if not lines:
        raise CourseError(f"{path}: expected rows of numbers in two columns or more; the file has none")
    count = _lines_of_first(lines)
    separator = separator or separator_of(lines[min(count, len(lines) - 1)][1])
    first = _fields(" ".join(line for _, line in lines[:count]), separator)
    names = tuple(first) if not any(map(_is_number, first)) else ()
    data = lines[count:] if names else lines
    if not names and above:  # NumPy's savetxt makes a comment of the header
        names = _names_in(above[-1][1], separator, len(first))
    if len(first) < 2:
        found = f"row {lines[0][0]}, {first[0][:40]!r}, has one column"
        advice = "separate the columns by commas, semicolons or tabs, and delete lines above the table"
        raise CourseError(f"{path}: expected two columns or more; {found}: {advice}")
    if not data:
        raise CourseError(f"{path}: expected rows of numbers below the header; the file has none")
    if nameless := [column for column, name in enumerate(names, start=1) if UNNAMED.fullmatch(name)]:
        advice = "name it, or delete it if it holds row numbers (pandas leaves them out with index=False)"
        raise CourseError(f"{path}: column {nameless[0]} has no name: {advice}")
    return Rows(path, names, len(first), data, separator)


def _lines(path: Path) -> list[Line]:
    """The lines of a file that have content."""
    try:
        text = decoded(path.read_bytes())
    except (OSError, ValueError) as error:
        is_text = not isinstance(error, UnicodeDecodeError)
        reason = f"it cannot be read ({reason_of(error)})" if is_text else "it is not text in UTF-8: save it in UTF-8"
        raise CourseError(f"{path}: expected a CSV file, but {reason}") from error
    lines = enumerate(lines_of(text), start=1)
    return [(number, line) for number, line in lines if line.strip(EMPTY) or line.count('"') % 2]


def _lines_of_first(lines: Sequence[Line]) -> int:
    """The number of lines of the first row: a name in quotes may span several."""
    quotes = 0
    for count, (_, line) in enumerate(lines, start=1):
        quotes += line.count('"')
        if quotes % 2 == 0:
            return count
    return 1  # a quotation mark that is never closed


def _names_in(comment: str, separator: str, width: int) -> tuple[str, ...]:
    """The names in a comment, if it has one for each column."""
    names = _fields(comment, separator)
    names[0] = names[0].lstrip("#").strip()
    return tuple(names) if len(names) == width and not any(map(_is_number, names)) else ()


def _is_number(field: str) -> bool:
    """Whether a field is a number in any spelling, NaN and infinity included: then its row is not a header."""
    try:
        float(field.replace(",", "."))
    except ValueError:
        return False
    return True


def _fields(line: str, separator: str) -> list[str]:
    """The fields of one line, without their quotes."""
    try:
        return [field.strip() for field in next(csv.reader([line], delimiter=separator, skipinitialspace=True))]
    except csv.Error:  # a field of more than 128 KiB, which is not a number
        return line.split(separator)


def _parse(rows: Rows) -> tuple[np.ndarray, bool]:
    """The values, and whether they have decimal commas.

    They are read by np.loadtxt; if that fails, field by field, with NaN for a field that is not a number.
    """
    lines = [line for _, line in rows.lines]
    # Between semicolons a comma is a decimal comma. Thousands such as 1,234,567 become 1.234.567: not a number.
    comma = rows.separator == ";" and any("," in line for line in lines) and not any("." in line for line in lines)
    try:
        read = [line.replace(",", ".") for line in lines] if comma else lines
        values = np.loadtxt(read, delimiter=rows.separator, quotechar='"', comments=None, ndmin=2)
        return values.reshape(len(lines), rows.width), comma
    except ValueError:  # its message does not name the column
        table = [_fields(line, rows.separator) for line in lines]
    for (at, _), fields in zip(rows.lines, table, strict=True):
        if len(fields) != rows.width:
            wanted = f"{rows.width} columns, as in the first row"
            raise CourseError(f"{rows.path}: expected {wanted}; row {at} has {len(fields)} columns")
    comma = _has_decimal_commas(rows, table)
    return np.array([[number(field, comma) for field in fields] for fields in table]), comma


def _has_decimal_commas(rows: Rows, table: Sequence[Sequence[str]]) -> bool:
    """Whether the commas within fields are decimal commas. In quotes or between tabs they may separate thousands."""
    found: Iterator[str] = (field for fields in table for field in fields if DECIMAL_COMMA.fullmatch(field))
    return any(rows.separator == ";" or not THOUSANDS.fullmatch(field) for field in found)
