"""Folders in which compiled programs are kept.

The name of each kept file is a hash of all it was made of, the compiler and its options included: so none is ever out
of date, and all processes may share the folders.
"""

import os
import time
from pathlib import Path

from cuda_on_cpu.errors import UserError, reason_of

UNUSED_DAYS = 30  # files unused for this many days are removed


def is_there(path: Path) -> bool:
    """Whether a file is kept. If so, it is marked as used."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def cache_folder(name: str) -> Path:
    """A folder for kept files, named from the user's cache folder; UserError if there can be none."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot keep programs there: {reason_of(error)}; set XDG_CACHE_HOME") from None
    return folder


def remove_unused(folder: Path) -> None:
    """Remove the files of a folder that nobody has used for UNUSED_DAYS."""
    oldest = time.time() - UNUSED_DAYS * 86400
    for program in folder.iterdir():
        if program.is_file() and program.stat().st_mtime < oldest:
            program.unlink(missing_ok=True)
