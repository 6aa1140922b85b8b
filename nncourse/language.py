"""The package in another language: NNCOURSE_LANG=es takes all its modules from languages/es, which is generated.

`python tools/translate.py write es` makes that folder from the English sources and locale/es; set-up does so too.
"""

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent  # the English one
ROOT = PACKAGE.parent  # the course's, or site-packages
GENERATED = PACKAGE / "languages"
STAMP = ".made_from"
VARIABLE = "NNCOURSE_LANG"


class LanguageError(ImportError):
    """The package cannot be had in the language asked for: one line says what to do."""

    def _render_traceback_(self) -> list[str]:
        return [f"✗ {self}"]


def files_in(folder: Path) -> list[Path]:
    """All files in a folder, without what Python has compiled."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def english_files(package: Path = PACKAGE) -> list[Path]:
    """The files of the English package, without what is generated or compiled."""
    return [path for path in files_in(package) if path.relative_to(package).parts[0] != GENERATED.name]


def stamp(root: Path, language: str) -> str:
    """A hash of what a language's files are made from: the English package and the catalogues."""
    together = hashlib.sha256()
    for path in [*english_files(root / PACKAGE.name), *sorted((root / "locale" / language).glob("*.po"))]:
        content = path.read_bytes().replace(b"\r\n", b"\n")
        together.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return together.hexdigest()


def folder_of(language: str) -> Path:
    """The folder of the package's modules in a language; the English one for "" and "en".

    Raises LanguageError for a language that is not there, and in a clone for one that is older than its sources.
    """
    if language in ("", "en"):
        return PACKAGE
    folder = GENERATED / language
    again = f"python tools/translate.py write {language}"
    sources = ROOT / "locale" / language
    if not (folder / STAMP).is_file():
        if sources.is_dir():
            raise LanguageError(f"{VARIABLE}={language}: this language is not set up yet: run {again}")
        there = ["en", *sorted(path.name for path in GENERATED.glob("*") if (path / STAMP).is_file())]
        raise LanguageError(f"{VARIABLE}={language}: wanted one of {', '.join(there)}; got {language!r}")
    if sources.is_dir() and (folder / STAMP).read_text("utf-8") != stamp(ROOT, language):
        raise LanguageError(f"{VARIABLE}={language}: older than its sources: run {again}")
    return folder
