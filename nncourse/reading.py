"""Numbers out of data files: CSV tables and IDX arrays, with errors that name the place; and fetching IDX files.

What the numbers mean, which of them are targets for instance, is the business of datasets.py.
"""

import csv
import gzip
import hashlib
import io
import math
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nncourse.errors import CourseError, write_atomically

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Rows:
    """The rows of a CSV file as text, and what an error needs to name a place among them."""

    path: Path
    names: tuple[str, ...]  # of the columns; empty without a header
    width: int  # columns of the first line
    lines: list[str]  # the rows that hold data
    numbers: list[int]  # where each of them stands in the file, counted from 1

    def error(self, row: int, column: int, wanted: str) -> CourseError:
        """A CourseError about one field, both counted from 0."""
        name = f" ({self.names[column][:40]!r})" if self.names else ""
        field = _fields(self.lines[row])[column]
        got = repr(field[:40]) if field else "an empty field"
        place = f"{self.path}: row {self.numbers[row]}, column {column + 1}{name}"
        return CourseError(f"{place}: {wanted} is wanted, got {got}")


def read_table(path: Path) -> tuple[Rows, np.ndarray]:
    """Read a CSV file of finite numbers: its rows as text, and their values (rows, columns) float64.

    The first line is a header when no field of it is a number. Raises CourseError for everything else that is not a
    number which float32 can hold, for rows of different length, and for a file that is no text or has no rows.
    """
    numbered = [(number, line) for number, line in enumerate(_read_lines(path), start=1) if line.strip()]
    if not numbered:
        raise CourseError(f"{path}: the file is empty; rows of numbers, set apart by commas, are wanted")
    first = _fields(numbered[0][1])
    if len(first) < 2:
        raise CourseError(f"{path}: only one column; features and a label, set apart by commas, are wanted")
    has_header = any(first) and not any(map(_is_number, first))
    data = numbered[1:] if has_header else numbered
    if not data:
        raise CourseError(f"{path}: there is a header, but no row of numbers under it")
    names = tuple(first) if has_header else ()
    rows = Rows(path, names, len(first), [line for _, line in data], [number for number, _ in data])
    values = _parse(rows)
    faults = np.argwhere(~(np.abs(values) <= LARGEST_FLOAT32))  # `not <=` rather than `>`: true for NaN as well
    if len(faults):
        row, column = map(int, faults[0])
        raise rows.error(row, column, "a finite number of at most 3.4e38 (float32)")
    return rows, values


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8-sig").split("\n")  # "-sig": spreadsheets put a byte-order mark in front
    except OSError as error:
        raise CourseError(f"{path}: a CSV file is wanted, but it cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise CourseError(f"{path}: a CSV file is wanted, but this is no text in UTF-8") from error


def _fields(line: str) -> list[str]:
    """The fields of one line, without their quotes."""
    try:
        return [field.strip() for field in next(csv.reader([line], skipinitialspace=True))]
    except csv.Error:  # a field of over 128 KiB: certainly no number
        return line.split(",")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _parse(rows: Rows) -> np.ndarray:
    """The values, by NumPy's fast reader or, where that one stumbles, field by field, to name the first wrong one."""
    try:
        values = np.loadtxt(rows.lines, delimiter=",", quotechar='"', comments=None, ndmin=2)
        return values.reshape(len(rows.lines), rows.width)
    except ValueError:
        pass  # it does not say enough about the place
    for row, line in enumerate(rows.lines):
        fields = _fields(line)
        if len(fields) != rows.width:
            wanted = f"{rows.width} are wanted, as in the first row"
            raise CourseError(f"{rows.path}: row {rows.numbers[row]} has {len(fields)} columns, {wanted}")
        for column, field in enumerate(fields):
            if not _is_number(field):
                raise rows.error(row, column, "a number")
    return np.array([[float(field) for field in _fields(line)] for line in rows.lines])


def read_idx(path: str | Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes, gzipped or not, as a uint8 array of the shape that it states.

    The format is that of MNIST (LeCun, Cortes and Burges): two zero bytes, a type code, the number of dimensions, each
    dimension as a big-endian 32-bit integer, then the values.
    Raises CourseError for a file that is missing, of another format, damaged, or not of the stated length.
    """
    try:
        content = Path(path).read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CourseError(f"{path}: an IDX file is wanted, but it cannot be read ({reason})") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise CourseError(f"{path}: an IDX file of unsigned bytes is wanted, but this is another format")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise CourseError(f"{path}: an IDX file is wanted, but this one ends within its header; fetch it again")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    if len(shape) not in (1, 3) or len(content) - start != math.prod(shape):
        found = f"{len(content) - start} bytes follow a header that says {shape}"
        raise CourseError(f"{path}: an IDX file of labels or images is wanted, but {found}; fetch it again")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def fetch(file: str, md5: str, mirrors: Sequence[str], folder: Path, timeout: float = 20.0) -> Path:
    """Fetch `file` from the first mirror that delivers it with the right MD5, put it into `folder`, return its path.

    A mirror that says nothing for `timeout` seconds is given up. Raises CourseError when none delivers.
    """
    # Imported here because they are slow to import and seldom needed.
    from http.client import HTTPException
    from urllib.request import urlopen

    from tqdm import tqdm

    failures = []
    for mirror in mirrors:
        content = io.BytesIO()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (
                urlopen(f"{mirror}/{file}", timeout=timeout) as response,
                tqdm.wrapattr(response, "read", total=response.length, desc=file) as shown,
            ):
                shutil.copyfileobj(shown, content)
            found = hashlib.md5(content.getbuffer(), usedforsecurity=False).hexdigest()
            if found != md5:
                raise ValueError(f"the MD5 is {found}, not {md5}")
            write_atomically(folder / file, lambda new, content=content: new.write_bytes(content.getbuffer()))
            return folder / file
        except (OSError, HTTPException, ValueError) as error:
            failures.append(f"{mirror}: {' '.join(str(error).split())}")
    raise CourseError(f"cannot fetch {file}: download it elsewhere, put it into {folder} ({'; '.join(failures)})")
