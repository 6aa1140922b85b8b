"""The hand-ins of a class: the contents of the instructor's folders and archives, sorted by student."""

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from nnclassroom.handing_in import pieces
from nnclassroom.handing_in.caught import caught
from nnclassroom.handing_in.hand_in import Submission, together
from nnclassroom.handing_in.pieces import Piece, is_archive, is_hidden, stem_of
from nnclassroom.handing_in.platform_names import file_of, person
from nnclassroom.handing_in.submission import KERNEL_FILE, OTHERS, parts_of, read
from nncourse.errors import CourseError, printable
from nnmarking import roster
from nnmarking.roster import Roster


def find(paths: Sequence[Path], known: Collection[str] = (), listed: Roster | None = None) -> list[Submission]:
    """The submissions in these paths, sorted by student.

    paths: each is a folder my_kernels/, an archive of one, or a folder or archive with the hand-ins of a class.
    known: the file names of the exercises, by which renamed files are recognised.
    listed: the class. Names are taken from it, and its students who handed in nothing get a submission too.
    An unreadable submission has a reason. together() joins a student's hand-ins. CourseError for a missing path.
    """
    entries: list[Submission] = []
    for path in paths:
        if not path.exists():
            raise CourseError(f"{path}: expected a hand-in or a folder of hand-ins; there is no such file or folder")
        entries += _in(path, known)
    found: dict[str, list[Submission]] = {}
    people = roster.students([each.student for each in entries], listed)
    for each in entries:
        name, row = people[each.student]
        unlisted = [f"not listed in {listed.path.name}"] if listed and row is None else []
        who = person(each.student)
        number = who.number or _number(listed, row)
        back = who.feedback or (listed.feedback(row) if listed and row is not None else "")
        notes = (*each.notes, *unlisted)
        own = replace(each, student=name, number=number, row=row, feedback=back, notes=notes)
        found.setdefault(name, []).append(own)
    if listed:
        for row, name in enumerate(listed.names):
            if name and name not in found:
                back = listed.feedback(row)
                number = _number(listed, row)
                found[name] = [Submission(name, reason="nothing handed in", number=number, row=row, feedback=back)]
    return [replace(together(own), entries=sum(bool(each.entry) for each in own)) for _, own in sorted(found.items())]


def _number(listed: Roster | None, row: int | None) -> str:
    """The first id in a row of the class's list; "" if there is none."""
    return next(iter(listed.ids[row]), "") if listed and row is not None else ""


def _in(path: Path, known: Collection[str]) -> Iterator[Submission]:
    """The submissions in one path of the command line."""
    path = path.resolve()
    if not path.is_dir():
        yield from caught(lambda: _of_class(path, known), lambda said: []) or [read(path, _student_of(path), known)]
    elif _is_one(path):
        yield read(path, printable(path.parent.name if path.name == "my_kernels" else path.name), known)
    else:
        for entry in sorted(path.iterdir()):
            if not is_hidden(entry.name):
                yield read(entry, _student_of(entry), known)


def _of_class(path: Path, known: Collection[str]) -> list[Submission]:
    """The submissions in an archive of a whole class, as platforms offer it; none if the archive is one student's."""
    if not is_archive(path.name):
        return []
    with pieces.opened(path) as found:
        entries: dict[str, list[Piece]] = {}
        for each in found:
            entries.setdefault(each.place.parts[0], []).append(each)
        named = [name for name in entries if not is_hidden(name)]
        if not all(person(stem_of(name)).number for name in named):
            return []
        return [_entry_of_class(name, entries[name], known) for name in sorted(named)]


def _entry_of_class(name: str, found: Sequence[Piece], known: Collection[str]) -> Submission:
    is_file = any(len(each.place.parts) == 1 for each in found)
    made = Submission(printable(stem_of(name) if is_file else name), entry=printable(name))
    own = [PurePosixPath(file_of(name) if is_file else "/".join(each.place.parts[1:])) for each in found]
    placed = [replace(each, place=place) for each, place in zip(found, own, strict=True)]
    parts = caught(lambda: list(parts_of(made, placed, known, 0.0)), lambda said: [replace(made, reason=said)])
    return replace(together(parts), entry=made.entry, replaced=0)


def _student_of(entry: Path) -> str:
    is_folder = os.path.isdir(entry) and not os.path.islink(entry)
    return printable(entry.name if is_folder else stem_of(entry.name))


def _is_one(folder: Path) -> bool:
    """Whether this is the folder of one student, and not that of a class, which may hold stray kernels too."""
    names = [entry.name for entry in folder.iterdir() if not is_hidden(entry.name)]
    if "my_kernels" in names or folder.name == "my_kernels":
        return True
    named_by_platform = any(file_of(name) != name for name in names)
    has_kernels = any(KERNEL_FILE.fullmatch(name) or name in OTHERS for name in names) and not named_by_platform
    return has_kernels and not any(is_archive(name) or _holds_kernels(folder / name) for name in names)


def _holds_kernels(path: Path) -> bool:
    if not os.path.isdir(path) or os.path.islink(path):
        return False
    with contextlib.suppress(OSError):  # it cannot be entered
        return any(KERNEL_FILE.fullmatch(each.name) or each.name == "my_kernels" for each in path.iterdir())
    return False
