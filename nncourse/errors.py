"""The one exception for a user's mistake; a guess at what was meant; files of which no error leaves a half."""

import difflib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path


class CourseError(ValueError):
    """A mistake that its maker can mend: one line that says what was wanted, what came, what to do next.

    The command line prints it on stderr and exits with status 2; nothing else in the package is caught there.
    In a notebook it is an error of its cell like any other, but shown as its line.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython and Jupyter show in place of a traceback: they ask an exception for this method."""
        return [f"✗ {self}"]


def nearest(got: str, known: Iterable[str]) -> str:
    """`; did you mean x?` where a name that is known is nearly what came, else nothing."""
    close = difflib.get_close_matches(got, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def refuse_unknown(what: str, got: str, known: Iterable[str]) -> None:
    """CourseError, which lists what is known, for what is not."""
    if got not in known:
        raise CourseError(f"wanted {what}, one of {', '.join(known)}; got {got!r}{nearest(str(got), known)}")


def _is_no_file(path: Path) -> bool:
    """True where something else is there: a folder, or a device such as /dev/null."""
    return os.path.exists(path) and not os.path.isfile(path)


def refuse_unwritable(path: Path, what: str) -> None:
    """CourseError before long work, not after it, where its outcome could not be saved."""
    if _is_no_file(path) or len(os.fsencode(path.name)) > 200 or not os.access(path.parent, os.W_OK):
        raise CourseError(f"{path}: wanted a file to save {what} in, in a folder that exists and can be written")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let write() fill a file beside `path`, then rename it: a reader sees the old file or the new one, whole.

    Missing folders are not made. Raises CourseError where the file cannot be written.
    """
    if _is_no_file(path):
        raise CourseError(f"{path}: cannot be written: it is there, and no file")
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as beside:
            new = Path(beside) / path.name
            write(new)
            os.replace(new, path)
    except OSError as error:
        raise CourseError(f"{path}: cannot be written: {error.strerror}") from error


class DoesNotFitError(CourseError):
    """A network or batch too large for a kernel of dense_sgd_epoch on this machine: another kernel can do it."""
