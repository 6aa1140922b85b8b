"""Folders in which compiled programs are kept.

The name of each file is a hash of everything that it was made from, including the compiler and its options. So no file
is ever out of date, and all processes may share the folders.
"""

import os
import time
from pathlib import Path

from cuda_on_cpu.errors import UserError, reason_of

UNUSED_DAYS = 30


def is_there(path: Path) -> bool:
    """Whether a file exists. If so, it is marked as used."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def cache_folder(name: str) -> Path:
    """The folder `name` in the user's cache folder, created if necessary. UserError if it cannot be created.

    A relative XDG_CACHE_HOME is ignored, as its specification says.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # absolute, because compilers are started in other folders
        folder = (named if named.is_absolute() else Path.home() / ".cache").absolute() / name
    except RuntimeError:
        raise UserError("expected a folder to keep programs in, but there is no home; set XDG_CACHE_HOME") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot keep programs there: {reason_of(error)}; set XDG_CACHE_HOME") from None
    return folder


def remove_unused(folder: Path) -> None:
    """Remove the files of a folder that have not been used for UNUSED_DAYS."""
    oldest = time.time() - UNUSED_DAYS * 86400
    for program in folder.iterdir():
        if program.is_file() and program.stat().st_mtime < oldest:
            program.unlink(missing_ok=True)
