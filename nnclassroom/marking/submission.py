"""Submissions: reading them without trusting them. Every entry of a class's folder gives one.

A submission is a folder my_kernels/, an archive of one, or notebooks, whose cells are read. Only plain texts are read,
and nothing is run here: kernels (sigmoid.numpy.py, sigmoid.naive.cu) and the record of attempts. progress.json is a
claim, and is not read.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from nnclassroom.exercises.kept_kernels import ATTEMPTS, MOST_RECORD, MOST_TEXT
from nnclassroom.marking import cells, pieces, roster
from nnclassroom.marking.pieces import UNREADABLE, Piece, is_archive, is_hidden, stem_of
from nnclassroom.marking.roster import Roster
from nncourse.errors import CourseError, nearest, reason_of

KERNEL_FILE = re.compile(r"([^\W\d]\w*)\.([^\W\d]\w*)\.(py|cu)", re.ASCII)
OTHERS = ("progress.json", "report.md", ATTEMPTS)  # what a submission holds besides kernels
RECORD = "submission.json"  # of `nncourse submit`
MOST_NOTEBOOK, MOST_NOTEBOOKS = 16 << 20, 40  # bytes, and how many are read
CLOSED = (".rar", ".7z", ".pdf", ".docx", ".doc")  # forms that are seen, and not read
# What browsers and file managers add to the name of a second copy, and editors to any name.
OF_A_COPY = re.compile(r"\s*\(\d+\)|[\s_-]+cop(?:y|ia)\b|\bcopy of\s+|\.txt$|-\d+(?=\.(?:py|cu)$)|\s+", re.IGNORECASE)


@dataclass(frozen=True)
class Submission:
    """A student's kernels by file name, the recorded attempts (a claim), and why some files could not be read."""

    student: str
    texts: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, Counter] = field(default_factory=dict)  # "operation.kernel" -> number of each kind of verdict
    reason: str = ""  # why nothing was read at all
    problems: tuple[str, ...] = ()  # what was not read: "file: reason"
    notes: tuple[str, ...] = ()  # what was read otherwise than it was named
    entry: str = ""  # its name in the class's folder; "" where nothing was handed in
    time: datetime | None = None
    is_recorded: bool = False  # whether the time is the one that `nncourse submit` wrote; else the file's
    minutes: float = 0.0  # between the first and the last recorded attempt: a claim, too
    replaced: int = 0  # number of other entries of the same student
    number: str = ""  # by which a learning platform knows the student
    row: int | None = None  # of the class's list
    feedback: str = ""  # the name under which the platform takes a page back

    def problem_of(self, file: str) -> str:
        """Why this file could not be read; "" if it could."""
        return next((said for said in self.problems if said.startswith(f"{file}: ")), "")


def find(paths: Sequence[Path], known: Collection[str] = (), listed: Roster | None = None) -> list[Submission]:
    """The submissions in these paths, sorted by student: each a my_kernels/, an archive of one, or a folder of these.

    known: the names of the exercises' files, by which renamed ones are recognised.
    listed: the class. Names are taken from it, and who is on it and handed in nothing has a submission too.
    A submission that cannot be read has `problems`; the others are still read. Of several of a student one counts, as
    newest() says. Raises CourseError for a missing path.
    """
    entries = []
    for path in paths:
        if not path.exists():
            raise CourseError(f"{path}: wanted a folder of kept kernels, an archive of it, or a folder of such")
        entries += _in(path, known)
    found: dict[str, list[Submission]] = {}
    people = roster.students([each.student for each in entries], listed)
    for each in entries:
        name, row = people[each.student]
        unlisted = [f"not in {listed.path.name}"] if listed and row is None else []
        number = roster.person(each.student).number or _number(listed, row)
        back = roster.person(each.student).feedback or (listed.feedback(row) if listed and row is not None else "")
        about = {"number": number, "row": row, "feedback": back, "notes": (*each.notes, *unlisted)}
        found.setdefault(name, []).append(replace(each, student=name, **about))
    if listed:
        for row, name in enumerate(listed.names):
            if name and name not in found:
                back = listed.feedback(row)
                number = _number(listed, row)
                found[name] = [Submission(name, reason="nothing handed in", number=number, row=row, feedback=back)]
    return [replace(newest(own), replaced=len(own) - 1) for _, own in sorted(found.items())]


def _number(listed: Roster | None, row: int | None) -> str:
    """The first of the ids in a row of the class's list; "" without one."""
    return next(iter(listed.ids[row]), "") if listed and row is not None else ""


def newest(given: Sequence[Submission]) -> Submission:
    """Of several hand-ins of one student the newest that holds kernels, with a note that says so."""
    if len(given) == 1:
        return given[0]
    readable = [each for each in given if each.texts] or list(given)
    recorded = [each for each in readable if each.is_recorded] or readable
    chosen = max(recorded, key=lambda each: (each.time.timestamp() if each.time else 0.0, each.entry))
    of_what = "by its record" if chosen.is_recorded else "by the file's date"
    when = f"{chosen.time:%Y-%m-%d %H:%M}" if chosen.time else "no date"
    note = f"of {len(given)} hand-ins {chosen.entry} counts, of {when} {of_what}"
    unread = [f"{each.entry} is not read: {each.reason}" for each in given if not each.texts]
    return replace(chosen, notes=(*chosen.notes, note, *(unread if chosen.texts else ())))


def _in(path: Path, known: Collection[str]) -> Iterator[Submission]:
    """The submissions of one path of the command line."""
    path = path.resolve()
    if not path.is_dir():
        yield read(path, stem_of(path.name), known)
    elif _is_one(path):
        yield read(path, path.parent.name if path.name == "my_kernels" else path.name, known)
    else:
        for entry in sorted(path.iterdir()):
            if not is_hidden(entry.name):
                is_folder = entry.is_dir() and not entry.is_symlink()
                yield read(entry, entry.name if is_folder else stem_of(entry.name), known)


def _is_one(folder: Path) -> bool:
    """Whether this is the folder of one student, and not of a class, in which somebody's kernels may lie about."""
    names = [entry.name for entry in folder.iterdir() if not is_hidden(entry.name)]
    if "my_kernels" in names or folder.name == "my_kernels":
        return True
    has_kernels = any(KERNEL_FILE.fullmatch(name) or name in OTHERS for name in names)
    return has_kernels and not any(is_archive(name) or _holds_kernels(folder / name) for name in names)


def _holds_kernels(path: Path) -> bool:
    if not path.is_dir() or path.is_symlink():
        return False
    return any(KERNEL_FILE.fullmatch(each.name) or each.name == "my_kernels" for each in path.iterdir())


def read(path: Path, student: str, known: Collection[str] = ()) -> Submission:
    """The submission in one entry: a folder, an archive or a notebook. It has a problem if there is nothing in it."""
    made = Submission(student, entry=path.name)
    if path.is_symlink():
        return replace(made, reason="a link, which is not followed")
    name = path.name.lower()
    if not (path.is_dir() or is_archive(name) or name.endswith(".ipynb")):
        return replace(made, reason="wanted a .zip, a .tar.gz, a folder or a notebook")
    try:
        with pieces.opened(path) as found:
            made = replace(_made(made, found, known), entry=path.name)
    except UNREADABLE as error:
        return replace(made, reason=f"cannot be read: {reason_of(error)}")
    if made.texts or made.reason:
        return _dated(made, path)
    archives = sorted(each for each in path.iterdir() if is_archive(each.name)) if path.is_dir() else []
    if archives:  # as learning platforms store what a student uploads
        inside = newest([read(each, student, known) for each in archives])
        return replace(inside, entry=path.name)
    return _dated(replace(made, reason=made.problems[0] if made.problems else _why_empty(found)), path)


def _dated(made: Submission, path: Path) -> Submission:
    if made.time:
        return made
    return replace(made, time=datetime.fromtimestamp(path.stat().st_mtime).astimezone())


def _why_empty(found: Sequence[Piece]) -> str:
    names = [each.place.name for each in found]
    closed = [name for name in names if name.lower().endswith((*CLOSED, *pieces.ARCHIVES))]
    if closed:
        return f"{closed[0]} is not read: wanted a .zip or a .tar.gz"
    if any(name.endswith(".ipynb") for name in names):
        return "no filled-in exercise in its notebooks"
    return f"no kernel in it, {len(names)} other files" if names else "nothing in it"


def _made(made: Submission, given: Sequence[Piece], known: Collection[str]) -> Submission:
    """The submission with what these files hold: kernels of one folder, the records, and the notebooks' answers."""
    given = [each for each in given if not any(map(is_hidden, each.place.parts))]
    folders = _folders([each.place for each in given], known)
    if len(folders) > 1:
        return replace(made, reason="wanted one folder of kernels in it")
    texts: dict[str, str] = {}
    problems: list[str] = []
    notes: list[str] = []
    attempts: dict[str, Counter] = {}
    time, minutes = None, 0.0
    for each in sorted(given, key=lambda each: (not KERNEL_FILE.fullmatch(each.place.name), each.place)):
        name = each.place.name
        if name == RECORD and len(each.place.parts) <= 2:
            time = _time(_text(each, MOST_RECORD, []))
        elif each.place.parent in folders:
            if name == ATTEMPTS:
                attempts, minutes = _attempts(_text(each, MOST_RECORD, problems))
                continue
            wanted = name if name in known or KERNEL_FILE.fullmatch(name) else ""
            if renamed := _renamed(name, known):
                if renamed in texts:
                    problems.append(f"{name}: not read, since there is {renamed}")
                    continue
                wanted = renamed
                notes.append(f"{name} is read as {renamed}")
            elif wanted and known and name not in known and (guess := nearest(name, known)):
                notes.append(f"{name} is no exercise here{guess}")
            if wanted and (text := _text(each, MOST_TEXT, problems)) is not None:
                texts[wanted] = text
    _from_notebooks(given, texts, problems, notes)
    return replace(
        made,
        texts=texts,
        attempts=attempts,
        minutes=minutes,
        problems=tuple(problems),
        notes=tuple(notes),
        time=time,
        is_recorded=time is not None,
    )


def _folders(places: Sequence[PurePosixPath], known: Collection[str]) -> set[PurePosixPath]:
    """The folder of the kernels: my_kernels if there is one, else the outermost; several if that is not clear."""
    is_named = [place for place in places if KERNEL_FILE.fullmatch(place.name) or _renamed(place.name, known)]
    folders = {place.parent for place in is_named} or {place.parent for place in places if place.name in OTHERS}
    if len(folders) > 1 and (own := {folder for folder in folders if folder.name == "my_kernels"}):
        return own
    outermost = min((len(folder.parts) for folder in folders), default=0)
    return {folder for folder in folders if len(folder.parts) == outermost}


def _renamed(name: str, known: Collection[str]) -> str:
    """The exercise's file that was renamed, as in `sigmoid(1).numpy.py`; "" for any other name, and for its own."""
    if name in known or not name.lower().endswith((".py", ".cu", ".txt")):
        return ""
    folded = OF_A_COPY.sub("", name).lower()
    return next((each for each in known if each.lower() == folded), "")


def _from_notebooks(given: Sequence[Piece], texts: dict[str, str], problems: list[str], notes: list[str]) -> None:
    """Add the answers in notebooks to exercises of which there is no kept kernel."""
    notebooks = [each for each in given if each.place.suffix.lower() == ".ipynb"]
    if len(notebooks) > MOST_NOTEBOOKS:
        problems.append(f"notebooks: {len(notebooks)} of them; {MOST_NOTEBOOKS} are read")
    for each in notebooks[:MOST_NOTEBOOKS]:
        try:
            answers = cells.answers(each.read(MOST_NOTEBOOK))
        except UNREADABLE as error:
            problems.append(f"{each.place.name}: {error}")
            continue
        new = {name: text for name, text in answers.items() if name not in texts and len(text) <= MOST_TEXT}
        texts |= new
        if new:
            answers_in_words = "1 answer" if len(new) == 1 else f"{len(new)} answers"
            notes.append(f"{each.place.name}: {answers_in_words} read from its cells")


def _text(piece: Piece, most: int, problems: list[str]) -> str | None:
    """The text of a file; None if it cannot be read, with a problem that says why."""
    try:
        return piece.read(most).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        problems.append(f"{piece.place.name}: no text in UTF-8")
    except UNREADABLE as error:
        problems.append(f"{piece.place.name}: {error}")
    return None


def _time(record: str | None) -> datetime | None:
    """The time that a record of submission holds; None without one."""
    try:
        return datetime.fromisoformat(json.loads(record or "")["time"]).astimezone()
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _attempts(text: str | None) -> tuple[dict[str, Counter], float]:
    """The number of recorded verdicts of each kind for each exercise, and the minutes from the first to the last.

    Other lines are ignored.
    """
    found: dict[str, Counter] = {}
    times = []
    for line in (text or "").splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("key"), str) and isinstance(entry.get("kind"), str):
            found.setdefault(entry["key"][:100], Counter())[entry["kind"][:40]] += 1
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                times.append(datetime.fromisoformat(entry.get("date")).timestamp())
    return found, (max(times) - min(times)) / 60 if times else 0.0
