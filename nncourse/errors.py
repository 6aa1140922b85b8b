"""CourseError for user mistakes, suggestions for misspelt names, and atomic file writes."""

import difflib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

MOST_LISTED = 24  # names in a message
SYSTEM_WORDS = {  # why the system refuses a file, as the system says it in English
    errno.EACCES: "Permission denied",
    errno.EEXIST: "File exists",
    errno.EISDIR: "Is a directory",
    errno.ELOOP: "Too many levels of symbolic links",
    errno.ENAMETOOLONG: "File name too long",
    errno.ENOENT: "No such file or directory",
    errno.ENOSPC: "No space left on device",
    errno.ENOTDIR: "Not a directory",
    errno.ENOTEMPTY: "Directory not empty",
    errno.EPERM: "Operation not permitted",
    errno.EROFS: "Read-only file system",
}


class CourseError(ValueError):
    """A mistake that the user can correct. The message is one line: what was wanted, what came, what to do next.

    The command line prints it on stderr and exits with status 2; it catches no other exception of the package. In a
    notebook it is an error of its cell like any other, shown as its one line.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython and Jupyter show in place of a traceback: they ask an exception for this method."""
        return [f"✗ {self}"]


def nearest(got: str, known: Iterable[str]) -> str:
    """`; did you mean x?` with the known name closest to `got`; "" if none is close."""
    close = difflib.get_close_matches(got, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def refuse_unknown(what: str, got: str, known: Iterable[str]) -> None:
    """Raise CourseError if `got` is not one of the known names. `what` describes the name wanted.

    The message lists the known names; of many only those that are most like `got`.
    """
    if got in known:
        return
    names = listed = list(known)
    if len(names) > MOST_LISTED:
        alike = difflib.get_close_matches(str(got), names, n=8, cutoff=0.3) or names[:8]
        listed = [*alike, f"… ({len(names)} in all)"]
    raise CourseError(f"wanted {what}, one of {', '.join(listed)}; got {got!r}{nearest(str(got), names)}")


def reason_of(error: Exception) -> str:
    """What went wrong with a file, in words, without its name; of an error that is none of the system's, its text."""
    number = getattr(error, "errno", None)
    return SYSTEM_WORDS.get(number) or getattr(error, "strerror", None) or str(error)


def _is_no_file(path: Path) -> bool:
    """Whether `path` exists but is not a regular file: a folder, or a device such as /dev/null."""
    return os.path.exists(path) and not os.path.isfile(path)


def refuse_unwritable(path: Path, what: str) -> None:
    """Raise CourseError if `path` cannot be written: called before long work, so that its result is not lost."""
    if _is_no_file(path) or len(os.fsencode(path.name)) > 200 or not os.access(path.parent, os.W_OK):
        raise CourseError(f"{path}: wanted a file to save {what} in, in a folder that exists and can be written")


def read_regular(path: Path, most: int) -> bytes:
    """A regular file of at most `most` bytes. A link is not followed, and a pipe is not waited for.

    Raises FileNotFoundError, and OSError or ValueError whose text says what is wrong: "is no file".
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OSError(f"is a link or cannot be opened ({reason_of(error)})") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("is no file")
        return at_most(file.read(most + 1), most)


def at_most(content: bytes, most: int) -> bytes:
    """The content; ValueError if it is longer than `most` bytes."""
    if len(content) > most:
        raise ValueError(f"longer than {most >> 10} KB")
    return content


def read_text(path: Path, most: int) -> str:
    """The UTF-8 text of a regular file of at most `most` bytes; CourseError, which begins with its name, otherwise."""
    try:
        return read_regular(path, most).decode("utf-8")
    except FileNotFoundError:
        raise CourseError(f"{path.name} is gone") from None
    except UnicodeDecodeError:
        raise CourseError(f"{path.name} is no text in UTF-8") from None
    except OSError as error:
        raise CourseError(f"{path.name} {error}") from None
    except ValueError as error:
        raise CourseError(f"{path.name} is {error}") from None


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically: write() fills a temporary file in the same folder, which then replaces `path`.

    A reader sees either the old file or the complete new one. Missing folders are not created.
    Raises CourseError if the file cannot be written.
    """
    if _is_no_file(path):
        raise CourseError(f"{path}: cannot be written: it exists and is not a file")
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as beside:
            new = Path(beside) / path.name
            write(new)
            os.replace(new, path)
    except OSError as error:
        raise CourseError(f"{path}: cannot be written: {reason_of(error)}") from error


class DoesNotFitError(CourseError):
    """The network or batch is not for this kernel of a whole epoch on this machine; another kernel can be used."""
