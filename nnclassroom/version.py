"""Which course this is: its version, and a hash of its files, since a clone changes between versions.

The files are the English ones, whatever the language: it is the same course.
"""

import functools
import hashlib
from pathlib import Path

from nncourse import __version__
from nncourse.language import ROOT, english_files


def package_files() -> list[Path]:
    """All files of the English packages, without what Python has compiled."""
    return [path for path in english_files() if not path.name.startswith(".")]


@functools.cache
def course_version() -> str:
    """Such as 0.2.0+1f0c9a2b: version, and the first digits of a hash of all files of the packages."""
    together = hashlib.sha256()
    for path in package_files():
        content = path.read_bytes().replace(b"\r\n", b"\n")
        together.update(f"{path.relative_to(ROOT).as_posix()}\0{len(content)}\0".encode() + content)
    return f"{__version__}+{together.hexdigest()[:8]}"
