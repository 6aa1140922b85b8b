"""`nncourse handout`: write one .zip for students, in one language, with notebooks without outputs.

A hand-out in a language other than English has the packages in both languages; NNCOURSE_LANG selects one. Its
MANIFEST.json has the course's version, and a hash of each file and of each notebook cell. With these hashes
`nncourse update` can tell later what a student has changed.
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
# Files that the course needs besides packages, notebooks and data. Tests and instructors' pages are left out.
PATTERNS: tuple[str, ...] = ("LICENSE", "Makefile", "pyproject.toml", "setup.py", "environment*.yml")
PATTERNS += ("requirements/*.txt", "tools/setup.py", "docs/report.md", "slurm/*.*")


def write(
    out: Path, language: str = languages.ENGLISH, notebooks_only: bool = False, address: str | None = None
) -> str:
    """Write the .zip. Returns a line that says what is in it. CourseError if this is not a clone of the course.

    address: of the repository, for the README; by default the one in pyproject.toml, if any.
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
    """The files of the packages in this language; none for English. CourseError if they are missing or outdated."""
    if language == languages.ENGLISH:
        return []
    try:
        return languages.files_in(languages.folder_of(language))
    except languages.LanguageError as error:
        raise CourseError(str(error)) from None
