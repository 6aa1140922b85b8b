"""UserError for a user's mistake or a missing tool, suggestions for misspelt names, and files: decoded, and written."""

import codecs
import difflib
import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

MOST_LISTED, MOST_ALIKE = 24, 8  # names in a message; if there are more, so many of them
# In what a compiler says: a result such as "6: NVRTC_ERROR_COMPILATION, compilation log:", the number of a message, a
# path that is the compiler's own, and a name with its type, such as _Z1gf.
CODE = re.compile(r"\b(?:\d+: )?(?:NVRTC|CUDA|NVVM|NVJITLINK)_[A-Z_]+,?(?: compilation log:?)?| #\d+(?:-\w+)?")
OWN_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/][\w.+~-]+){2,}[\\/]?")
MANGLED = re.compile(r"\b_ZN?(?:12_GLOBAL__N_1)?(\d+)(\w+)")
SYSTEM_WORDS = {  # why the system refuses a file
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


class UserError(ValueError):
    """A mistake that the user can correct. The message is one line: what was wanted, what came, what to do next.

    The command line prints it on stderr and exits with status 2; it catches no other exception of the package. In a
    notebook it is an error of its cell like any other, shown as its one line.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython and Jupyter show in place of a traceback: they ask an exception for this method."""
        return [f"✗ {self}"]


class MissingToolError(UserError):
    """This machine lacks a program or a library that the work needs, such as a compiler; the message says which."""


class CudaCompileError(UserError):
    """A .cu text does not compile. For each error: "file:line: error: …", then the source line and a caret.

    `kind` is "compile", or "missing in the emulator" if a GPU would run the text.
    """

    def __init__(self, message: str, kind: str = "compile"):
        super().__init__(message)
        self.kind = kind


def first_words(log: str) -> str:
    """The first line of a tool's log that says something, without paths and codes: for logs that nothing else reads."""
    said = (CODE.sub("", line).strip() for line in log.replace("\0", "").splitlines())
    first = next((line for line in said if re.search(r"[^\W\d]{2}", line)), "nothing")
    return OWN_PATH.sub("…", first)


def unmangled(said: str) -> str:
    """What a compiler says, with g in place of _Z1gf."""
    return MANGLED.sub(lambda match: match[2][: int(match[1])] or match[0], said)


def nearest(got: str, known: Iterable[str]) -> str:
    """`; did you mean x?` with the known name closest to `got`; "" if none is close."""
    close = difflib.get_close_matches(got, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def refuse_unknown(what: str, got: str, known: Iterable[str]) -> None:
    """Raise UserError if `got` is not one of the known names. `what` describes the name wanted.

    The message lists the known names, a set in alphabetical order; if there are many, only those most similar to `got`.
    """
    if got in known:
        return
    names = listed = sorted(known) if isinstance(known, set | frozenset) else list(known)
    if len(names) > MOST_LISTED:
        alike = difflib.get_close_matches(str(got), names, n=MOST_ALIKE, cutoff=0.3)
        listed = [*sorted([*dict.fromkeys([*alike, *names])][:MOST_ALIKE]), f"… ({len(names)} in all)"]
    raise UserError(f"expected {what}, one of {', '.join(listed)}; got {got!r}{nearest(str(got), names)}")


def reason_of(error: Exception) -> str:
    """Why a file could not be used, without its name. If `error` is not an OSError, its text."""
    number = getattr(error, "errno", None)
    return SYSTEM_WORDS.get(number or 0) or getattr(error, "strerror", None) or str(error)


def decoded(content: bytes) -> str:
    """The text of a file: UTF-8, with a byte-order mark or without, or UTF-16 with one, as Windows' Notepad writes.

    Raises UnicodeDecodeError for anything else.
    """
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig")


def is_no_file(path: Path) -> bool:
    """Whether `path` exists but is not a regular file: a folder, or a device such as /dev/null."""
    return os.path.exists(path) and not os.path.isfile(path)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically: write() fills a temporary file in the same folder, which then replaces `path`.

    A reader sees either the old file or the complete new one. Missing folders are not created.
    Raises UserError if the file cannot be written.
    """
    if is_no_file(path):
        raise UserError(f"{path}: cannot be written: it exists and is not a file")
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as beside:
            new = Path(beside) / path.name
            write(new)
            os.replace(new, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {reason_of(error)}") from error
