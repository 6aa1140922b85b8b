"""`nncourse handout`: one .zip for students, in one language, with notebooks without outputs.

A hand-out in another language than English has the package in both: NNCOURSE_LANG chooses. Its MANIFEST.json holds the
course's version and a hash of each file and of each cell of a notebook, from which `nncourse update` later knows what a
student has changed.
"""

from pathlib import Path

from nnclassroom.handing_out import assistants
from nnclassroom.handing_out.notebook_files import clean, manifest_of, notebooks, packed
from nnclassroom.version import package_files
from nnclassroom.zips import refuse_other_name, write_zip
from nncourse import language as languages
from nncourse.errors import CourseError
from nnmarking import readme, repository

TOP = "course"  # the one folder in the .zip
# What the course needs besides packages, notebooks and data; tests and instructors' pages are left out.
PATTERNS: tuple[str, ...] = ("LICENSE", "Makefile", "pyproject.toml", "setup.py", "environment*.yml")
PATTERNS += ("requirements/*.txt", "tools/setup.py", "docs/report.md", "slurm/*.*")


def write(
    out: Path, language: str = languages.ENGLISH, notebooks_only: bool = False, address: str | None = None
) -> str:
    """Write the .zip. Returns a line that says what is in it. CourseError if this is no clone of the course.

    address: of the repository, for the README; by default the one that pyproject.toml has, if any.
    """
    refuse_other_name(out)
    root = languages.ROOT
    files = {f"notebooks/{path.name}": clean(path.read_bytes(), path.name) for path in notebooks(root, language)}
    count = len(files)
    files[assistants.FILE] = assistants.text(language).encode()
    programs = set()
    if not notebooks_only:
        patterns = [*PATTERNS, *repository.settings(root)["tool"]["nncourse"]["shipped"]]
        others = [path for pattern in patterns for path in root.glob(pattern) if path.is_file()]
        for path in [*package_files(), *_package_in(language), *others]:
            name = path.relative_to(root).as_posix()
            files[name] = path.read_bytes()
            programs |= {f"{TOP}/{name}"} if path.stat().st_mode & 0o100 else set()
        files["README.md"] = readme.text(language, repository.address(root, address)).encode()
    about = {"kind": "notebooks" if notebooks_only else "course", "language": language}
    write_zip(out, packed(files, TOP, about), programs)
    return f"{out}: {count} notebooks, {len(files)} files, course {manifest_of(files, about)['course']}"


def _package_in(language: str) -> list[Path]:
    """The files of the package in another language; none for English. CourseError where they are missing or old."""
    if language == languages.ENGLISH:
        return []
    try:
        return languages.files_in(languages.folder_of(language))
    except languages.LanguageError as error:
        raise CourseError(str(error)) from None
