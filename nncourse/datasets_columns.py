"""Find the column of a table that holds the classes, and refuse columns that are not what they seem.

A wrong column is worse than an error: on sorted data a network that learns the row's number reaches an accuracy of 1.
"""

import re
import shlex
import unicodedata
from collections.abc import Sequence

import numpy as np

from nncourse.datasets_csv import Rows
from nncourse.errors import CourseError, refuse_unknown

LABELS = {"label", "labels", "class", "classes", "target", "targets", "diagnosis", "y"}
LABELS |= {"clase", "clases", "etiqueta", "etiquetas", "objetivo", "diagnostico"}
ROW_NUMBERS = {"row", "rows", "rowname", "rownames", "rownum", "rownumber", "rowno", "nr", "no", "num", "number", "obs"}
ROW_NUMBERS |= {"observation", "case", "sample", "serialno", "sno", "fila", "numero", "registro", "caso", "muestra"}
ROW_NUMBERS |= {"record", "line", "counter", "slno"}
IDS = {"index", "idx", "indice", "level0"}  # and names that end in id: such numbers need not be consecutive
FEWEST_COUNTED = 10  # rows: with fewer, a feature may well be 1, 2, 3
FEWEST_COLUMNS = 6  # of a row 0, 1, 2, … that is certainly a header


def chosen(rows: Rows, label: str | int) -> int:
    """The column, counted from 0, that `label` names: by its name, or by its number, counted from 1."""
    text = str(label).strip()
    if re.fullmatch(r"[+-]?\d{1,9}", text):
        if not 1 <= int(text) <= rows.width:
            raise CourseError(f"{rows.path}: expected --label as a column's number, from 1 to {rows.width}; got {text}")
        return int(text) - 1
    if not rows.names:
        wanted = f"a column's number, from 1 to {rows.width}"
        raise CourseError(f"{rows.path}: expected --label as {wanted}, since the file has no header; got {text!r}")
    same = [column for column, name in enumerate(rows.names) if name == text]
    same = same or [column for column, name in enumerate(rows.names) if name.casefold() == text.casefold()]
    if not same:
        try:
            refuse_unknown("a column for --label", text, rows.names)
        except CourseError as error:
            raise CourseError(f"{rows.path}: {error}") from None
    if len(same) > 1:
        numbers = " and ".join(str(column + 1) for column in same)
        raise CourseError(f"{rows.path}: columns {numbers} are called {text!r}: give --label the number of one")
    return same[0]


def refuse_misplaced_labels(rows: Rows, features: Sequence[int]) -> None:
    """Raise CourseError if a feature has the name of a label, and none of the columns after the features has.

    A column y directly after a column x is a coordinate.
    """
    names = [_words(name) for name in rows.names]
    if any("".join(name) in LABELS for name in names[len(features) :]):
        return
    for column in features if rows.names else ():
        is_coordinate = names[column] == ["y"] and column > 0 and names[column - 1] == ["x"]
        if "".join(names[column]) in LABELS and not is_coordinate:
            own, last = rows.names[column], rows.names[-1]
            said = f"column {column + 1} is called {own!r}, but the classes are read from the last column, {last!r}"
            options = f"--label {shlex.quote(own)}, or --label {shlex.quote(last)} if {own!r} is a feature"
            raise CourseError(f"{rows.path}: {said}: add {options}")


def refuse_row_of_column_numbers(rows: Rows, values: np.ndarray, label: int) -> None:
    """Raise CourseError if the first row is a header of numbers, as pandas writes for columns without names.

    Its numbers are a sequence such as 0, 1, 2, …, and no other row is one. In a narrow table a row of data may look
    like this, so there two more conditions must hold: its label occurs in no other row, while other labels repeat; and
    the rows below have fractions, or there are at least ten.
    """
    first, rest = values[0], values[1:]
    if rows.names or not len(rest) or (np.diff(first) != 1).any() or first[-1] < 2 or first[0] != np.floor(first[0]):
        return
    if (np.diff(rest) == 1).all(axis=1).any():
        return
    if rows.width < FEWEST_COLUMNS:
        labels = rest[:, label]
        repeats = len(labels) >= 2 * len(np.unique(labels))
        fractions = ((rest != np.floor(rest)).mean(axis=0) > 0.5).any()
        if first[label] in labels or not repeats or not (fractions or len(rest) >= FEWEST_COUNTED):
            return
    row = f"row {rows.lines[0][0]}, {first[0]:g}, {first[1]:g}, …,"
    said = "numbers the columns and does not look like the other rows: replace it with names, or delete it"
    raise CourseError(f"{rows.path}: {row} {said}")


def row_numbers(rows: Rows, values: np.ndarray, features: Sequence[int], others: Sequence[int]) -> tuple[str, ...]:
    """A note for each feature, and for each of the other columns, that may be the row's number.

    Raises CourseError if a feature certainly is the row's number: judging by its name and its values, or because it is
    the first column of a table without names and counts the rows.
    """
    notes = []
    for column in _telling_all_apart(values, [*features, *others]):
        name = _words(rows.names[column]) if rows.names else []
        counted = _counts(values[:, column])
        is_id = name[-1:] == ["id"] or "".join(name) in IDS
        is_number = counted and "".join(name) in ROW_NUMBERS
        many = len(values) >= FEWEST_COUNTED and rows.width > 2
        is_first = many and counted and not rows.names and column == 0
        if column in features and (is_id or is_number or is_first):
            rename = "rename it" if rows.names else "give the file a header"
            said = "has a different whole number in each row, as a row's number or an identifier"
            raise CourseError(f"{rows.path}: {rows.column(column)} {said}: delete it, or {rename} if it is a feature")
        if many and (counted or _is_consecutive(values[:, column])):
            said = "counts, as a row's number does: if it is one, delete it before you train"
            notes.append(f"{rows.path}: {rows.column(column)} {said}")
    return tuple(notes)


def single_class(rows: Rows, labels: np.ndarray, column: int) -> tuple[str, ...]:
    """A note if all labels are the same."""
    if (labels != labels[0]).any():
        return ()
    advice = "if the classes are in another column, name it with --label"
    return (f"{rows.path}: all labels are {labels[0]:g} in {rows.column(column)}: {advice}",)


def _telling_all_apart(values: np.ndarray, columns: Sequence[int]) -> list[int]:
    """The columns with a different whole number in each row, if there are two rows or more."""
    few = values[:16]  # enough to rule out nearly all columns
    likely = (few == np.floor(few)).all(axis=0) & ((np.diff(np.sort(few, axis=0), axis=0) != 0).all(axis=0))
    found = [column for column in columns if likely[column] and len(values) > 1]
    return [column for column in found if _are_different_wholes(values[:, column])]


def _are_different_wholes(numbers: np.ndarray) -> bool:
    return bool((numbers == np.floor(numbers)).all()) and len(np.unique(numbers)) == len(numbers)


def _counts(numbers: np.ndarray) -> bool:
    """Whether different whole numbers are 0 to n - 1 or 1 to n, in any order."""
    return numbers.min() in (0, 1) and numbers.max() - numbers.min() == len(numbers) - 1


def _is_consecutive(numbers: np.ndarray) -> bool:
    """Whether each number is the one before plus 1, or each minus 1."""
    steps = np.diff(numbers)
    return abs(steps[0]) == 1 and bool((steps == steps[0]).all())


def _words(name: str) -> list[str]:
    """The words of a name, without capitals and accents: PatientId and "patient_id" both become patient, id."""
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    bare = "".join(c for c in unicodedata.normalize("NFKD", parted) if not unicodedata.combining(c))
    return re.findall(r"[^\W_]+", bare.casefold())
