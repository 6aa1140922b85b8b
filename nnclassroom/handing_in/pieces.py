"""The files of a hand-in, whether it is a folder, a .zip, a .tar.gz or one file. Nothing is ever unpacked.

Archives and folders are read alike. Hidden files do not count. Reading a link, a device or a file with a password
raises an error with the reason. An archive is refused as a whole only for a path that leads out of it.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from nncourse.errors import at_most, printable, read_regular, reason_of

MOST_ENTRIES = 100_000  # in an archive or a folder, hidden ones left out
MOST_PASSED = 4 << 30  # bytes of a .tar.gz, unpacked, in one pass
MOST_HELD = 256 << 20  # bytes of its files that are held in memory
MOST_IN_TAR = 64 << 20  # bytes of one of its files
MOST_INNER = 256 << 20  # bytes of an archive inside another
DEEPEST = 64  # folders inside each other
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz")
# The first bytes of formats that are not read, and of those that may be around a .tar.
CLOSED = {b"Rar!": "RAR", b"7z\xbc\xaf": "7z", b"%PDF": "PDF"}
AROUND_TAR: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file)),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}


@dataclass(frozen=True)
class Piece:
    """A file: its path in the hand-in, a function that reads at most this many bytes of it, and its date.

    The function raises OSError or ValueError if the file cannot be read; the message says why: "is a link".
    """

    place: PurePosixPath
    read: Callable[[int], bytes]
    time: float = 0.0  # seconds since 1970; 0 if it is unknown


def is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES)


def stem_of(name: str) -> str:
    """The name of a file without its extension: `ada` of `ada.tar.gz`."""
    ending = next((each for each in ARCHIVES if name.lower().endswith(each)), PurePosixPath(name).suffix)
    return name[: len(name) - len(ending)] or name


def is_hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX", "__pycache__"))


@contextmanager
def opened(path: Path) -> Iterator[list[Piece]]:
    """The files in a folder or an archive, or the one file. ValueError or OSError says why it is refused."""
    if path.is_dir():
        yield _in_folder(path)
    elif is_archive(path.name):
        with path.open("rb") as file:
            yield _in_archive(file)
    else:
        yield [Piece(PurePosixPath(path.name), lambda most: read_regular(path, most), path.stat().st_mtime)]


def inside(archive: Piece) -> list[Piece]:
    """The files of an archive that is itself a file of a hand-in. ValueError or OSError says why it is refused."""
    return _in_archive(io.BytesIO(archive.read(MOST_INNER)))


def _in_folder(folder: Path) -> list[Piece]:
    """The files in a folder and below it. Links and pipes are refused when they are read."""
    found: list[Piece] = []
    left = [(folder, 0)]
    while left:
        inner, depth = left.pop()
        below = []
        with suppress(OSError):  # a folder that cannot be entered holds nothing
            for entry in sorted(os.scandir(inner), key=lambda entry: entry.name):
                if is_hidden(entry.name):
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and depth < DEEPEST:
                    below.append((Path(entry.path), depth + 1))
                if is_folder and not entry.name.endswith((".py", ".cu")):
                    continue
                _refuse_more_than(MOST_ENTRIES, len(found))
                found.append(_regular(Path(entry.path), folder, entry.stat(follow_symlinks=False).st_mtime))
        left += reversed(below)
    return found


def _regular(path: Path, folder: Path, date: float) -> Piece:
    return Piece(PurePosixPath(path.relative_to(folder).as_posix()), lambda most: read_regular(path, most), date)


def _in_archive(file: IO[bytes]) -> list[Piece]:
    """The files of an archive. Its first bytes tell its format, since its name may be wrong."""
    head = file.read(8)
    file.seek(0)
    for first, form in CLOSED.items():
        if head.startswith(first):
            raise ValueError(f"this is a {form} file: expected a .zip or a .tar.gz")
    try:
        if head.startswith(b"PK"):
            return _in_zip(zipfile.ZipFile(file))
        around = next((made for first, made in AROUND_TAR.items() if head.startswith(first)), None)
        return _in_tar(around(file) if around else file)
    except _RefusedError:
        raise
    except Exception as error:  # these libraries raise many types for damaged files
        raise ValueError(f"not an archive, or damaged ({reason_of(error) or type(error).__name__})") from error


class _RefusedError(ValueError):
    """An archive is refused although it is not damaged."""


def _in_zip(archive: zipfile.ZipFile) -> list[Piece]:
    found: dict[PurePosixPath, Piece] = {}
    for entry in archive.infolist():
        place = _place(entry.filename)
        if place is None or entry.filename.endswith(("/", "\\")):
            continue
        _refuse_more_than(MOST_ENTRIES, len(found))
        date = time.mktime((*entry.date_time, 0, 0, -1)) if _is_date(entry.date_time) else 0.0
        found[place] = Piece(place, partial(_of_zip, archive, entry), date)
    return list(found.values())


def _is_date(given: tuple[int, ...]) -> bool:
    return given[0] > 1980 and 1 <= given[1] <= 12 and 1 <= given[2] <= 31


def _of_zip(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
        raise ValueError("is a link or a device")
    if entry.flag_bits & 1:
        raise ValueError("has a password")
    try:
        with archive.open(entry) as file:
            content = file.read(most + 1)
    except Exception as error:  # zipfile and its decompressors raise many types
        raise ValueError(f"is damaged in the archive ({reason_of(error) or type(error).__name__})") from error
    return at_most(content, most)


class _Bounded:
    """A file of which no more than MOST_PASSED bytes are read."""

    def __init__(self, file: IO[bytes]):
        self.file, self.left = file, MOST_PASSED

    def read(self, size: int) -> bytes:
        got = self.file.read(size)
        self.left -= len(got)
        if self.left < 0:
            raise _RefusedError(f"more than {MOST_PASSED >> 20} MB in the archive")
        return got


def _in_tar(file: IO[bytes]) -> list[Piece]:
    """The files of a .tar, from one pass over it. If a name is there twice, the last one counts, as tar unpacks it."""
    found: dict[PurePosixPath, Piece] = {}
    held = 0
    with tarfile.open(fileobj=_Bounded(file), mode="r|") as archive:  # type: ignore[call-overload]  # it only reads
        for member in archive:
            place = _place(member.name)
            if place is None or member.isdir() or any(map(is_hidden, place.parts)):
                continue
            _refuse_more_than(MOST_ENTRIES, len(found))
            content = archive.extractfile(member) if member.isreg() else None
            part = content.read(min(MOST_IN_TAR, MOST_HELD - held) + 1) if content else None
            held += len(part or b"")
            found[place] = Piece(place, _held(part), float(member.mtime))
    return list(found.values())


def _held(content: bytes | None) -> Callable[[int], bytes]:
    def read(most: int) -> bytes:
        if content is None:
            raise ValueError("is a link or a device")
        return at_most(content, most)

    return read


def _refuse_more_than(most: int, count: int) -> None:
    if count >= most:
        raise _RefusedError(f"more than {most} files; at most {most} are read")


def _place(name: str) -> PurePosixPath | None:
    r"""An entry's path in an archive, in which Windows separates folders with \; None for the archive's own folder.

    ValueError for a path that leads out of the archive, which no harmless program writes.
    """
    place = PurePosixPath(name.replace("\\", "/"))
    if place.is_absolute() or ".." in place.parts or re.match(r"[A-Za-z]:", place.name or ".") or ":/" in str(place):
        raise _RefusedError(f"a path out of the archive, {printable(name)[:80]!r}")
    return place if place.parts else None
