"""The files of a hand-in, whatever they lie in: a folder, a .zip, or a .tar.gz. Archives are never unpacked.

An archive is refused as a whole if it has what no harmless program writes: links, paths out of it, a password, or the
same name twice.
"""

import gzip
import os
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nncourse.errors import at_most, read_regular

MOST_ENTRIES = 4000  # in an archive, or in a folder
MOST_UNPACKED = 256 << 20  # bytes of a .tar.gz
MOST_IN_TAR = 16 << 20  # bytes of one of its files
DEEPEST = 6  # folders in each other
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
UNREADABLE = (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error)


@dataclass(frozen=True)
class Piece:
    """A file: where it lies, and a function that reads at most so many bytes of it, or raises one of UNREADABLE."""

    place: PurePosixPath
    read: Callable[[int], bytes]


def is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES)


def stem_of(name: str) -> str:
    """The name of a file without what tells its form: `ada` of `ada.tar.gz`."""
    ending = next((each for each in ARCHIVES if name.lower().endswith(each)), PurePosixPath(name).suffix)
    return name[: len(name) - len(ending)] or name


def is_hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX", "__pycache__"))


@contextmanager
def opened(path: Path) -> Iterator[list[Piece]]:
    """The files in a folder or an archive, or the one file. ValueError says why an archive is refused."""
    if path.is_dir():
        yield in_folder(path)
    elif path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            yield _in_zip(archive)
    elif is_archive(path.name):
        yield _in_tar(path)
    else:
        yield [Piece(PurePosixPath(path.name), lambda most: read_regular(path, most))]


def in_folder(folder: Path) -> list[Piece]:
    """What lies in a folder and below it. Links, pipes and folders with the name of a file are refused when read."""
    found: list[Piece] = []

    def look(inner: Path, depth: int) -> None:
        for entry in sorted(os.scandir(inner), key=lambda entry: entry.name):
            if is_hidden(entry.name):
                continue
            if len(found) == MOST_ENTRIES:
                raise ValueError(f"more than {MOST_ENTRIES} files; at most {MOST_ENTRIES} are read")
            below = entry.is_dir(follow_symlinks=False) and not entry.name.endswith((".py", ".cu"))
            if below and depth < DEEPEST:
                look(Path(entry.path), depth + 1)
            elif not below:
                place = PurePosixPath(Path(entry.path).relative_to(folder).as_posix())
                found.append(Piece(place, lambda most, path=Path(entry.path): read_regular(path, most)))

    look(folder, 0)
    return found


def _in_zip(archive: zipfile.ZipFile) -> list[Piece]:
    entries = archive.infolist()
    _refuse([entry.filename for entry in entries])
    for entry in entries:
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ValueError(f"{entry.filename[:80]!r} is a link or a device")
        if entry.flag_bits & 1:
            raise ValueError("the archive has a password")

    def read(entry: zipfile.ZipInfo, most: int) -> bytes:
        with archive.open(entry) as file:
            return at_most(file.read(most + 1), most)

    return [
        Piece(PurePosixPath(entry.filename), lambda most, entry=entry: read(entry, most))
        for entry in entries
        if not entry.is_dir()
    ]


class _Bounded:
    """A file of which no more than MOST_UNPACKED bytes are read."""

    def __init__(self, file):
        self.file, self.left = file, MOST_UNPACKED

    def read(self, size: int) -> bytes:
        got = self.file.read(size)
        self.left -= len(got)
        if self.left < 0:
            raise ValueError(f"more than {MOST_UNPACKED >> 20} MB in the archive")
        return got


def _in_tar(path: Path) -> list[Piece]:
    """The files of a .tar.gz or .tar, from one pass over it."""
    found, names = [], []
    is_plain = path.name.lower().endswith(".tar")
    with (
        path.open("rb") if is_plain else gzip.open(path) as file,
        tarfile.open(
            fileobj=_Bounded(file),
            mode="r|",  # type: ignore[call-overload]  # it only reads
        ) as archive,
    ):
        for member in archive:
            names.append(member.name.removeprefix("./"))
            if len(names) > MOST_ENTRIES:
                break
            if not (member.isreg() or member.isdir()):
                raise ValueError(f"{member.name[:80]!r} is a link or a device")
            if content := archive.extractfile(member) if member.isreg() else None:
                held = content.read(MOST_IN_TAR + 1)
                found.append(Piece(PurePosixPath(names[-1]), lambda most, held=held: at_most(held, most)))
    _refuse(names)
    return found


def _refuse(names: Sequence[str]) -> None:
    """ValueError for names that no harmless program writes into an archive."""
    if len(names) > MOST_ENTRIES:
        raise ValueError(f"{len(names)} files in the archive; at most {MOST_ENTRIES} are read")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{repeated[0][:80]!r} is twice in the archive")
    for name in names:
        if name.startswith("/") or "\\" in name or ":" in name or ".." in PurePosixPath(name).parts:
            raise ValueError(f"a path out of the archive, {name[:80]!r}")
