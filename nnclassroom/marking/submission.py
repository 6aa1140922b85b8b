"""Submissions: reading them without trusting them, and `nncourse submit`, which packs one in a file.

A submission is a folder my_kernels/ or a .zip of one. Only plain texts are read, and nothing is run here: kernels
(sigmoid.numpy.py, sigmoid.naive.cu) and the record of attempts. progress.json is a claim, and is not read.
"""

import json
import os
import re
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.kept_kernels import ATTEMPTS, MOST_RECORD, MOST_TEXT
from nnclassroom.version import course_version
from nnclassroom.zips import write_zip
from nncourse.errors import CourseError, at_most, read_regular

MOST_ENTRIES = 4000  # in a .zip, or in a folder
KERNEL_FILE = re.compile(r"([^\W\d]\w*)\.([^\W\d]\w*)\.(py|cu)", re.ASCII)
OTHERS = ("progress.json", "report.md", ATTEMPTS)  # what a submission holds besides kernels


@dataclass(frozen=True)
class Submission:
    """A student's kernels by file name, the recorded attempts (a claim), and why some files could not be read."""

    student: str
    texts: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, Counter] = field(default_factory=dict)  # "operation.kernel" -> number of each kind of verdict
    problems: tuple[str, ...] = ()

    def problem_of(self, file: str) -> str:
        """Why this file could not be read; "" if it could."""
        return next((said for said in self.problems if said.startswith(f"{file}: ")), "")


def find(paths: Sequence[Path]) -> list[Submission]:
    """The submissions in these paths, sorted by student: each a my_kernels/, a .zip of one, or a folder of these.

    A submission that cannot be read has `problems`; the others are still read. Raises CourseError for a missing path,
    and for two students of one name.
    """
    found: dict[str, tuple[Path, Submission]] = {}
    for path in paths:
        if not path.exists():
            raise CourseError(f"{path}: wanted a folder of kept kernels, a .zip of it, or a folder of such; found none")
        for place, submission in _in(path):
            name = submission.student
            if name in found:
                raise CourseError(
                    f"{place} and {found[name][0]}: wanted one submission of {name}; rename or remove one"
                )
            found[name] = place, submission
    return [found[name][1] for name in sorted(found)]


def _in(path: Path) -> Iterator[tuple[Path, Submission]]:
    """The submissions of one path of the command line."""
    if not path.is_dir():
        if path.suffix.lower() != ".zip":
            raise CourseError(f"{path}: wanted a folder or a .zip")
        yield path, from_zip(path, path.stem)
        return
    path = path.resolve()
    if own := _kernels_folder(path):
        yield own, from_folder(own, path.parent.name if path.name == "my_kernels" else path.name)
        return
    for entry in sorted(path.iterdir()):
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_symlink():
            yield entry, Submission(entry.stem, problems=("submission: a link, which is not followed",))
        elif entry.is_dir():
            yield entry, _of_student(entry)
        elif entry.suffix.lower() == ".zip":
            yield entry, from_zip(entry, entry.stem)


def _of_student(folder: Path) -> Submission:
    """The submission in a student's folder: kernels, my_kernels/, or one .zip, as learning platforms store it."""
    if own := _kernels_folder(folder):
        return from_folder(own, folder.name)
    zips = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".zip")
    if len(zips) == 1 and not zips[0].is_symlink():
        return from_zip(zips[0], folder.name)
    if zips:
        return Submission(folder.name, problems=(f"submission: wanted one .zip, found {len(zips)}",))
    return Submission(folder.name)


def _kernels_folder(folder: Path) -> Path | None:
    """Its my_kernels/ if there is one, the folder itself if it holds kernels or their records, else None."""
    inner = folder / "my_kernels"
    if inner.is_dir() and not inner.is_symlink():
        return inner
    names = [entry.name for entry in os.scandir(folder)]
    there = any(KERNEL_FILE.fullmatch(name) or name in OTHERS for name in names)
    return folder if there or folder.name == "my_kernels" else None


def from_folder(folder: Path, student: str) -> Submission:
    """The submission in a folder. Links, devices, long files and files that are no text are problems."""
    names = sorted(entry.name for entry in os.scandir(folder))
    if len(names) > MOST_ENTRIES:
        return Submission(student, problems=(f"submission: {len(names)} files; at most {MOST_ENTRIES} are read",))
    return _made(student, [(name, lambda most, name=name: read_regular(folder / name, most)) for name in names])


def from_zip(path: Path, student: str) -> Submission:
    """The submission in a .zip, which is never unpacked. It is refused as a whole if it has what no harmless program
    writes: links, paths out of the archive, a password, or the same name twice.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if refused := _why_refused(entries):
                return Submission(student, problems=(f"submission: {refused}",))
            places = {entry: PurePosixPath(entry.filename) for entry in entries if not entry.is_dir()}
            wanted = {entry: place for entry, place in places.items() if _is_wanted(place)}
            folders = {place.parent for place in wanted.values() if KERNEL_FILE.fullmatch(place.name)}
            folders = folders or {place.parent for place in wanted.values()}
            if len(folders) > 1:
                folders = {folder for folder in folders if folder.name == "my_kernels"}
            if len(folders) != 1 and wanted:
                return Submission(student, problems=("submission: wanted one folder of kernels in the .zip",))
            own = sorted((place.name, entry) for entry, place in wanted.items() if place.parent in folders)
            return _made(
                student, [(name, lambda most, entry=entry: _read_entry(archive, entry, most)) for name, entry in own]
            )
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        return Submission(student, problems=(f"submission: the .zip cannot be read ({error})",))


def _is_wanted(place: PurePosixPath) -> bool:
    hidden = any(part.startswith((".", "__MACOSX")) for part in place.parts)
    return not hidden and bool(KERNEL_FILE.fullmatch(place.name) or place.name in OTHERS)


def _why_refused(entries: list[zipfile.ZipInfo]) -> str:
    """Why a .zip is not read at all; "" if it is."""
    if len(entries) > MOST_ENTRIES:
        return f"{len(entries)} files in the .zip; at most {MOST_ENTRIES} are read"
    repeated = [name for name, count in Counter(entry.filename for entry in entries).items() if count > 1]
    if repeated:
        return f"{repeated[0][:80]!r} is twice in the .zip"
    for entry in entries:
        name, mode = entry.filename, entry.external_attr >> 16
        if name.startswith("/") or "\\" in name or ":" in name or ".." in PurePosixPath(name).parts:
            return f"a path out of the .zip, {name[:80]!r}"
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            return f"{name[:80]!r} is a link or a device"
        if entry.flag_bits & 1:
            return "the .zip has a password"
    return ""


def _made(student: str, files: list) -> Submission:
    """The submission with these files: pairs of a name, and a function that reads at most the given number of bytes."""
    texts, problems, attempts = {}, [], {}
    for name, read in files:
        is_kernel = KERNEL_FILE.fullmatch(name)
        if not (is_kernel or name == ATTEMPTS):
            continue
        try:
            text = read(MOST_TEXT if is_kernel else MOST_RECORD).decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            problems.append(f"{name}: no text in UTF-8")
        except (OSError, zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, EOFError) as error:
            problems.append(f"{name}: {error}")
        else:
            if is_kernel:
                texts[name] = text
            else:
                attempts = _attempts(text)
    return Submission(student, texts, attempts, tuple(problems))


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    with archive.open(entry) as file:
        return at_most(file.read(most + 1), most)


def _attempts(text: str) -> dict[str, Counter]:
    """The number of recorded verdicts of each kind for each exercise. Other lines are ignored."""
    found: dict[str, Counter] = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("key"), str) and isinstance(entry.get("kind"), str):
            found.setdefault(entry["key"][:100], Counter())[entry["kind"][:40]] += 1
    return found


def pack(path: Path, name: str = "") -> int:
    """Write the kept kernels and their records to a .zip. Returns the number of kernels."""
    folder = kept_kernels.folder()
    if path.suffix.lower() != ".zip":
        raise CourseError(f"{path}: wanted a name that ends with .zip")
    names = sorted(entry.name for entry in os.scandir(folder)) if folder.is_dir() else []
    kernels = [each for each in names if KERNEL_FILE.fullmatch(each)]
    if not kernels:
        raise CourseError(f"{folder}: wanted kernels to hand in, and none is kept there yet")
    about = {"name": name, "course": course_version()}
    files = {"submission.json": (json.dumps(about, indent=1, ensure_ascii=False) + "\n").encode()}
    for each in [*kernels, *(other for other in OTHERS if other in names)]:
        try:
            files[f"my_kernels/{each}"] = read_regular(folder / each, MOST_TEXT if each in kernels else MOST_RECORD)
        except (OSError, ValueError) as error:
            raise CourseError(f"{folder / each}: cannot be handed in: {error}") from None
    write_zip(path, files)
    return len(kernels)
