"""Write a .zip whose bytes depend only on its contents: it has no dates, and files are in the order of their names."""

import stat
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

from nncourse.errors import CourseError, refuse_unwritable, write_atomically

OLDEST = (1980, 1, 1, 0, 0, 0)  # the earliest date that a .zip can hold


def refuse_other_name(path: Path) -> None:
    """Raise CourseError unless the name ends with .zip."""
    if path.suffix.lower() != ".zip":
        raise CourseError(f"{path}: expected a name that ends with .zip")


def write_zip(path: Path, files: Mapping[str, bytes], programs: Collection[str] = ()) -> None:
    """Write the files, by their names in the .zip. `programs` are the names of executable files."""
    refuse_unwritable(path.absolute(), "the .zip")

    def write(new: Path) -> None:
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(name, OLDEST)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (stat.S_IFREG | (0o755 if name in programs else 0o644)) << 16
                entry.create_system = 3  # Unix, on every system
                archive.writestr(entry, files[name])

    if path.is_dir():
        raise CourseError(f"{path}: expected the name of a file, got a folder")
    write_atomically(path, write)
