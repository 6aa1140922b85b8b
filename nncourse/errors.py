"""CourseError, the error for a user's mistake (cuda_on_cpu calls it UserError), and safe reading of files."""

import os
import stat
import unicodedata
from pathlib import Path

from cuda_on_cpu.errors import (
    MissingToolError,
    decoded,
    is_no_file,
    nearest,
    reason_of,
    refuse_unknown,
    write_atomically,
)
from cuda_on_cpu.errors import UserError as CourseError

__all__ = [
    "CourseError",
    "DoesNotFitError",
    "MissingToolError",
    "TooLongError",
    "decoded",
    "nearest",
    "printable",
    "read_regular",
    "read_text",
    "reason_of",
    "refuse_unknown",
    "refuse_unwritable",
    "write_atomically",
]


def refuse_unwritable(path: Path, what: str) -> None:
    """Raise CourseError if `path` cannot be written. Call it before long work, so that its result is not lost."""
    if is_no_file(path) or len(os.fsencode(path.name)) > 200 or not os.access(path.parent, os.W_OK):
        raise CourseError(f"{path}: expected a file to save {what} as, in a folder that exists and can be written")


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Links are not followed, and pipes do not block.

    Raises FileNotFoundError, and OSError or ValueError with a text such as "is not a file".
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OSError(f"is a link or cannot be opened ({reason_of(error)})") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("is not a file")
        return at_most(file.read(most + 1), most)


class TooLongError(ValueError):
    """A file is longer than the most that is read."""


def at_most(content: bytes, most: int) -> bytes:
    """The content; TooLongError if it is longer than `most` bytes."""
    if len(content) > most:
        size = f"{most >> 20} MB" if most >= 1 << 20 else f"{most >> 10} KB"
        raise TooLongError(f"longer than {size}")
    return content


def printable(text: str) -> str:
    """The text, safe for any file and terminal: control characters and lone surrogates become U+FFFD.

    A text from outside, such as a file's name or an exception's message, may contain escape sequences.
    """
    return "".join("\ufffd" if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") else each for each in text)


def read_text(path: Path, most: int) -> str:
    """The text of a regular file of at most `most` bytes, as decoded() reads it; otherwise CourseError, which begins
    with the file's name.
    """
    try:
        return decoded(read_regular(path, most))
    except FileNotFoundError:
        raise CourseError(f"{path.name} is gone") from None
    except UnicodeDecodeError:
        raise CourseError(f"{path.name} is not text in UTF-8") from None
    except OSError as error:
        raise CourseError(f"{path.name} {error}") from None
    except ValueError as error:
        raise CourseError(f"{path.name} is {error}") from None


class DoesNotFitError(CourseError):
    """A kernel of a fused epoch cannot compute this network or batch on this machine; use another kernel."""
