"""Read CSV tables and IDX arrays, with errors that name file, row and column; download IDX files.

datasets.py interprets the numbers, for example which columns are targets.
"""

import csv
import gzip
import hashlib
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nncourse.errors import CourseError, reason_of, write_atomically

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Rows:
    """The rows of a CSV file as text, with the column names and line numbers that error messages need."""

    path: Path
    names: tuple[str, ...]  # of the columns; empty without a header
    width: int  # columns of the first line
    lines: list[tuple[int, str]]  # for each data row: line number in the file, counted from 1, and text

    def error(self, row: int, column: int, wanted: str) -> CourseError:
        """A CourseError about one field; `row` (among the data rows) and `column` count from 0."""
        name = f" ({self.names[column][:40]!r})" if self.names else ""
        number, line = self.lines[row]
        field = _fields(line)[column]
        got = repr(field[:40]) if field else "an empty field"
        return CourseError(f"{self.path}: row {number}, column {column + 1}{name}: {wanted} is wanted, got {got}")


def read_table(path: Path) -> tuple[Rows, np.ndarray]:
    """Read a CSV file of finite numbers. Returns its rows as text, and their values (rows, columns) float64.

    The first line is a header if none of its fields is a number.
    Raises CourseError for any other field that is not a finite number within float32's range, for rows of different
    lengths, and for a file that is not UTF-8 text or has no rows.
    """
    try:
        text = path.read_text("utf-8-sig")  # "-sig": spreadsheets write a byte-order mark
    except (OSError, ValueError) as error:
        reason = f"it cannot be read ({reason_of(error)})" if isinstance(error, OSError) else "this is no text in UTF-8"
        raise CourseError(f"{path}: a CSV file is wanted, but {reason}") from error
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    first = _fields(lines[0][1]) if lines else []
    has_header = any(first) and np.isnan([_number(field) for field in first]).all()
    data = lines[1:] if has_header else lines
    if len(first) < 2 or not data:
        raise CourseError(f"{path}: rows of two numbers or more, set apart by commas, are wanted, and there are none")
    rows = Rows(path, tuple(first) if has_header else (), len(first), data)
    values = _parse(rows)
    faults = np.argwhere(~(np.abs(values) <= LARGEST_FLOAT32))  # `not <=` rather than `>`: true for NaN as well
    if len(faults):
        raise rows.error(*faults[0], "a finite number of at most 3.4e38 (float32)")
    return rows, values


def _fields(line: str) -> list[str]:
    """The fields of one line, without their quotes."""
    try:
        return [field.strip() for field in next(csv.reader([line], skipinitialspace=True))]
    except csv.Error:  # a field of more than 128 KiB, which is not a number
        return line.split(",")


def _number(field: str) -> float:
    """The field as a number; NaN if it is not one."""
    try:
        return float(field)
    except ValueError:
        return math.nan


def _parse(rows: Rows) -> np.ndarray:
    """The values, read by np.loadtxt; if that fails, field by field, with NaN for a field that is not a number."""
    try:
        values = np.loadtxt([line for _, line in rows.lines], delimiter=",", quotechar='"', comments=None, ndmin=2)
        return values.reshape(len(rows.lines), rows.width)
    except ValueError:  # its message does not name the column
        table = [_fields(line) for _, line in rows.lines]
    for (number, _), fields in zip(rows.lines, table, strict=True):
        if len(fields) != rows.width:
            found = f"{len(fields)} columns, {rows.width} are wanted, as in the first row"
            raise CourseError(f"{rows.path}: row {number} has {found}")
    return np.array([[_number(field) for field in fields] for fields in table])


def read_idx(path: str | Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes, gzipped or not, as a uint8 array of the shape given in its header.

    The format is that of MNIST (LeCun, Cortes and Burges): two zero bytes, a type code, the number of dimensions, each
    dimension as a big-endian 32-bit integer, then the values.
    Raises CourseError for a file that is missing, damaged, in another format, or not of the length its header implies.
    """
    try:
        content = Path(path).read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise CourseError(f"{path}: an IDX file is wanted, but it cannot be read ({reason_of(error)})") from error
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


def fetch(file: str, md5: str, mirrors: Sequence[str], folder: Path) -> Path:
    """Download `file` into `folder` from the first mirror whose copy has this MD5. Returns its path.

    A mirror that sends nothing for 20 seconds is skipped. Raises CourseError if all mirrors fail.
    """
    # Imported here because they are slow to import and rarely needed.
    from http.client import HTTPException
    from urllib.request import urlopen

    from tqdm import tqdm

    failures = []
    for mirror in mirrors:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (
                urlopen(f"{mirror}/{file}", timeout=20) as response,
                tqdm.wrapattr(response, "read", total=getattr(response, "length", None), desc=file) as shown,
            ):
                content = b"".join(iter(partial(shown.read, 1 << 16), b""))
            found = hashlib.md5(content, usedforsecurity=False).hexdigest()
            if found != md5:
                raise ValueError(f"the MD5 is {found}, not {md5}")
            write_atomically(folder / file, lambda new, content=content: new.write_bytes(content))
            return folder / file
        except (OSError, HTTPException, ValueError) as error:
            failures.append(f"{mirror}: {' '.join(str(error).split())}")
    raise CourseError(f"cannot fetch {file}: download it elsewhere, put it into {folder} ({'; '.join(failures)})")
