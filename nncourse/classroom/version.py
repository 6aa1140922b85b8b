"""Which course this is: the package's version, and a hash of its files, since a clone changes between versions."""

import functools
import hashlib
from pathlib import Path

from nncourse import __version__

PACKAGE = Path(__file__).resolve().parents[1]


def package_files() -> list[Path]:
    """All files of the package, without what Python has compiled."""
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path for path in files if not path.name.startswith("."))


@functools.cache
def course_version() -> str:
    """Such as 0.2.0+1f0c9a2b: version, and the first digits of a hash of all files of the package."""
    together = hashlib.sha256()
    for path in package_files():
        content = path.read_bytes().replace(b"\r\n", b"\n")
        together.update(f"{path.relative_to(PACKAGE).as_posix()}\0{len(content)}\0".encode() + content)
    return f"{__version__}+{together.hexdigest()[:8]}"
