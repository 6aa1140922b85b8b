"""Reading submissions without trusting them. Every student in a class's folder has one submission.

A submission is everything that a student handed in: folders my_kernels/, archives of them, single kernels, and
notebooks, whose cells are read. Only kernels (sigmoid.numpy.py, sigmoid.naive.cu) and records are read, as plain text;
nothing is run here. The entries in progress.json are claims, which only `nncourse take` uses.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from nnclassroom.exercises.kept_kernels import ATTEMPTS, MOST_RECORD, MOST_TEXT, record_in
from nnclassroom.handing_in import cells, pieces, platform_names
from nnclassroom.handing_in.caught import caught
from nnclassroom.handing_in.hand_in import Submission, together
from nnclassroom.handing_in.pieces import Piece, is_archive, is_hidden
from nnclassroom.notebook.python_cell import DECORATOR
from nncourse.errors import TooLongError, decoded, nearest, printable, reason_of

KERNEL_FILE = re.compile(r"([^\W\d]\w*)\.([^\W\d]\w*)\.(py|cu)", re.ASCII)
PROGRESS = "progress.json"
OTHERS = (PROGRESS, "report.md", ATTEMPTS)  # files of a submission besides kernels
RECORD = "submission.json"  # of `nncourse submit`
MOST_NOTEBOOK, MOST_NOTEBOOKS = 64 << 20, 40  # bytes of a notebook, and notebooks that are read
CLOSED = (".rar", ".7z", ".pdf", ".docx", ".doc")  # formats that are not read
MOST_ARCHIVES, DEEPEST = 40, 3  # archives in a hand-in, and inside each other
MOST_NAMED = 3  # files that are named if nothing in a hand-in can be read
EXPORT = re.compile(r"(?:[^.]*[\W_])?\d\d(?:[\W_][^.]*)?\.py")  # a notebook that Jupyter exports: 02_activations.py
# Additions to a name: by browsers and file managers for a second copy, by editors for any file.
OF_A_COPY = re.compile(r"\s*\(\d+\)|[\s_-]+cop(?:y|ia)\b|\bcopy of\s+|\.txt$|-\d+(?=\.(?:py|cu)$)|\s+", re.IGNORECASE)


def read(path: Path, student: str, known: Collection[str] = ()) -> Submission:
    """The submission in one entry: a folder, an archive, a notebook or a kernel. It has a reason if it is empty."""
    made = Submission(student, entry=printable(path.name))
    return caught(lambda: _read(path, made, known), lambda said: replace(made, reason=said))


def _read(path: Path, made: Submission, known: Collection[str]) -> Submission:
    if path.is_symlink():
        return replace(made, reason="a link, which is not followed")
    own = platform_names.file_of(path.name)  # without the words that a platform has put before it
    is_kernel = own != path.name and (KERNEL_FILE.fullmatch(own) or _renamed(own, known))
    is_notebook = own.lower().endswith(".ipynb") or EXPORT.fullmatch(own)
    if not (path.is_dir() or is_archive(own) or is_notebook or is_kernel):
        form = PurePosixPath(own).suffix
        got = f"; got a {printable(form)}" if form else ""
        return replace(made, reason=f"expected a .zip, a .tar.gz, a folder or a notebook{got}")
    date = path.stat().st_mtime
    try:
        with pieces.opened(path) as found:
            if path.is_file() and not is_archive(own):
                found = [replace(found[0], place=PurePosixPath(own))]
            parts = list(parts_of(made, found, known, date if is_archive(own) and path.is_file() else 0.0))
    except (OSError, ValueError) as error:
        return replace(made, reason=f"cannot be read: {reason_of(error)}")
    whole = together(parts)
    return replace(whole, entry=made.entry, replaced=0, time=whole.time or _moment(date))


def parts_of(
    made: Submission,
    found: Sequence[Piece],
    known: Collection[str],
    date: float,
    depth: int = 0,
    numbers: Iterator[int] | None = None,
) -> Iterator[Submission]:
    """The submission of the files in a folder or an archive, then those of each archive among these files.

    date: of the archive; 0 in a folder, whose files have dates.
    depth, numbers: number of archives around this one, and of those read so far: a small file can hold very many.
    """
    numbers = numbers or count()
    found = [each for each in found if not any(map(is_hidden, each.place.parts))]
    archives = [each for each in found if is_archive(each.place.name)]
    loose = _made(made, [each for each in found if not is_archive(each.place.name)], known, date)
    if loose.texts or loose.problems or loose.attempts or loose.claims or not archives:
        yield loose
    for each in archives:
        inner = replace(made, entry=printable(each.place.name))
        if depth == DEEPEST or next(numbers) >= MOST_ARCHIVES:
            yield replace(inner, reason=f"more than {MOST_ARCHIVES} archives, or more than {DEEPEST} inside each other")
            continue
        try:
            yield from parts_of(inner, pieces.inside(each), known, date or each.time, depth + 1, numbers)
        except (OSError, ValueError) as error:
            yield replace(inner, reason=f"cannot be read: {reason_of(error)}")


@dataclass(frozen=True)
class _Text:
    """A text that may be the answer to an exercise, with the name of its file. Of two texts the higher rank counts."""

    file: str
    text: str
    kind: int  # CELL, RENAMED or NAMED
    place: str
    in_my_kernels: bool
    time: float

    @property
    def rank(self) -> tuple[Any, ...]:
        return self.kind, self.in_my_kernels, self.time, -self.place.count("/"), self.place


CELL, RENAMED, NAMED = range(3)


def _made(made: Submission, given: Sequence[Piece], known: Collection[str], date: float) -> Submission:
    """The submission with the contents of these files: kernels, records, and the answers in notebooks."""
    problems: list[str] = []
    notes: list[str] = []
    texts = [text for each in given if (text := _kernel(each, known, problems))]
    texts += _from_notebooks(given, problems)
    chosen = _chosen(texts, problems, notes)
    unknown = [file for file, each in chosen.items() if known and file not in known and each.kind == NAMED]
    notes += [f"{file} is not an exercise here{guess}" for file in unknown if (guess := nearest(file, known))]
    time = _time(_record(given, RECORD, []))
    attempts, minutes = _attempts(_record(given, ATTEMPTS, problems))
    return replace(
        made,
        texts={file: each.text for file, each in chosen.items()},
        in_cells=sum(each.kind == CELL for each in chosen.values()),
        attempts=attempts,
        minutes=minutes,
        claims=record_in(_record(given, PROGRESS, []) or "{}") or {},
        problems=tuple(problems),
        notes=tuple(notes),
        time=time or _moment(date or max((each.time for each in given), default=0.0)),
        is_recorded=time is not None,
        reason="" if chosen else problems[0] if problems else _why_empty(given),
    )


def _why_empty(given: Sequence[Piece]) -> str:
    names = [printable(each.place.name) for each in given]
    closed = [name for name in names if name.lower().endswith(CLOSED)]
    if closed:
        return f"{closed[0]} is not read: expected a .zip or a .tar.gz"
    if any(name.lower().endswith(".ipynb") for name in names):
        return "no filled-in exercise in its notebooks"
    if not names:
        return "nothing in it"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"no kernel and no notebook in it, only {', '.join(sorted(names)[:MOST_NAMED])}{more}"


def _chosen(texts: Sequence[_Text], problems: list[str], notes: list[str]) -> dict[str, _Text]:
    """The text that counts for each exercise: a kept kernel rather than a cell, and the newer of two of a kind."""
    chosen: dict[str, _Text] = {}
    for each in sorted(texts, key=lambda each: each.rank):
        older = chosen.get(each.file)
        chosen[each.file] = each
        if older is None or older.text == each.text or (older.kind, each.kind) == (CELL, NAMED):
            continue
        if (older.kind, each.kind) == (RENAMED, NAMED):
            problems.append(f"{PurePosixPath(older.place).name}: not read, since there is {each.file}")
        else:
            is_newer = each.kind == CELL or each.in_my_kernels == older.in_my_kernels
            why = "it is newer" if is_newer else "it is a kept kernel"
            notes.append(f"{each.file} is there twice: {each.place} counts and not {older.place}, since {why}")
    renamed = (each for each in chosen.values() if each.kind == RENAMED)
    notes += [f"{PurePosixPath(each.place).name} is read as {each.file}" for each in renamed]
    return chosen


def _kernel(piece: Piece, known: Collection[str], problems: list[str]) -> _Text | None:
    """The kernel in a file; None if the file is not a kernel, or cannot be read."""
    name = piece.place.name
    renamed = _renamed(name, known)
    if not (renamed or name in known or KERNEL_FILE.fullmatch(name)):
        return None
    text = _text(piece, MOST_TEXT, problems)
    return None if text is None else _of_piece(piece, renamed or name, text, RENAMED if renamed else NAMED)


def _of_piece(piece: Piece, file: str, text: str, kind: int) -> _Text:
    in_my_kernels = piece.place.parent.name == "my_kernels"
    return _Text(file, text, kind, printable(piece.place.as_posix()), in_my_kernels, piece.time)


def _renamed(name: str, known: Collection[str]) -> str:
    """The exercise's file name before it was renamed, as to `sigmoid(1).numpy.py`; "" if it was not renamed."""
    if name in known or not name.lower().endswith((".py", ".cu", ".txt")):
        return ""
    folded = OF_A_COPY.sub("", name).lower()
    return next((each for each in known if each.lower() == folded), "")


def _from_notebooks(given: Sequence[Piece], problems: list[str]) -> Iterator[_Text]:
    """The answers in the cells of notebooks, and in Python files that Jupyter exported from notebooks."""
    notebooks = [each for each in given if each.place.suffix.lower() == ".ipynb"]
    notebooks += [each for each in given if EXPORT.fullmatch(each.place.name)]
    if len(notebooks) > MOST_NOTEBOOKS:
        problems.append(f"notebooks: {len(notebooks)} of them; the newest {MOST_NOTEBOOKS} are read")
        notebooks = sorted(notebooks, key=lambda each: each.time)[-MOST_NOTEBOOKS:]
    for each in notebooks:
        name = printable(each.place.name)
        try:
            answers = _answers(each)
        except (OSError, ValueError) as error:
            advice = "; clear its outputs" if isinstance(error, TooLongError) else ""
            problems.append(f"{name}: {reason_of(error)}{advice}")
            continue
        for file, text in answers.items():
            if len(text) <= MOST_TEXT:
                yield _of_piece(each, file, text, CELL)
            else:
                problems.append(f"{file}: in {name}, longer than {MOST_TEXT >> 10} KB")


def _answers(notebook: Piece) -> dict[str, str]:
    if notebook.place.suffix == ".py":
        text = decoded(notebook.read(MOST_RECORD))
        return cells.in_cell(text) if DECORATOR in text else {}
    return cells.answers(notebook.read(MOST_NOTEBOOK))


def _record(given: Sequence[Piece], name: str, problems: list[str]) -> str | None:
    """The text of the newest record of that name, preferably one in my_kernels; None if there is none."""
    named = [each for each in given if each.place.name == name]
    newest = max(named, key=lambda each: (each.place.parent.name == "my_kernels", each.time), default=None)
    return _text(newest, MOST_RECORD, problems) if newest else None


def _text(piece: Piece, most: int, problems: list[str]) -> str | None:
    """The text of a file; None if it cannot be read, with a problem that says why."""
    name = printable(piece.place.name)
    try:
        return decoded(piece.read(most)).replace("\r\n", "\n")
    except UnicodeDecodeError:
        problems.append(f"{name}: not a text in UTF-8")
    except (OSError, ValueError) as error:
        problems.append(f"{name}: {reason_of(error)}")
    return None


def _moment(seconds: float) -> datetime | None:
    """A file's date as a time; None without a date, and for a date that is not in the calendar."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(seconds).astimezone() if seconds > 0 else None
    return None


def _time(record: str | None) -> datetime | None:
    """The time in the record of `nncourse submit`; None without a record."""
    try:
        return datetime.fromisoformat(json.loads(record or "")["time"]).astimezone()
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _attempts(text: str | None) -> tuple[dict[str, Counter[str]], float]:
    """The number of recorded verdicts of each kind for each exercise, and the minutes from the first to the last."""
    found: dict[str, Counter[str]] = {}
    times = []
    for line in (text or "").split("\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue  # not a record
        if isinstance(entry, dict) and isinstance(entry.get("key"), str) and isinstance(entry.get("kind"), str):
            found.setdefault(entry["key"][:100], Counter())[entry["kind"][:40]] += 1
            with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
                times.append(datetime.fromisoformat(entry["date"]).timestamp())
    return found, (max(times) - min(times)) / 60 if times else 0.0
