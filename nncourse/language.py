"""The packages in a different language: with NNCOURSE_LANG=es all modules come from the generated languages/es.

`python tools/translate.py write es` makes that folder from the English sources and locale/es; set-up does so too.
"""

import hashlib
import os
import sys
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[1]  # the course's, or site-packages
# Of the course. Some may be missing: fused_epochs, without which it trains more slowly, and the last two.
PACKAGES = ("cuda_on_cpu", "nncourse", "fused_epochs", "nnclassroom", "nnmarking", "nnexperiment")
GENERATED = ROOT / "nncourse" / "languages"
SHIPPED = ROOT / "nncourse" / "course"  # setup.py writes it into the wheel
COURSE = SHIPPED if SHIPPED.is_dir() else ROOT  # the folder with notebooks/, datasets/ and benchmarks/results/
STAMP = ".made_from"
VARIABLE = "NNCOURSE_LANG"
ENGLISH = "en"


class LanguageError(ImportError):
    """The packages are not available in the chosen language; one line says what to do."""

    def _render_traceback_(self) -> list[str]:
        return [f"✗ {self}"]


def current() -> str:
    """The chosen language, such as "es"."""
    return os.environ.get(VARIABLE) or ENGLISH


def in_one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """For sys.excepthook: show only the message of a LanguageError, and exit with status 2."""
    if not issubclass(kind, LanguageError):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"nncourse: {error}", file=sys.stderr)
    sys.exit(2)


def files_in(folder: Path) -> list[Path]:
    """All files in a folder, except compiled Python."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def english_files(root: Path = ROOT) -> list[Path]:
    """The files of the English packages, except generated and compiled ones."""
    others = {root / folder.relative_to(ROOT) for folder in (GENERATED, SHIPPED)}
    return [path for name in PACKAGES for path in files_in(root / name) if others.isdisjoint(path.parents)]


def stamp(root: Path) -> str:
    """A hash of the English packages. When it changes, generated packages are outdated; catalogues do not count."""
    together = hashlib.sha256()
    for path in english_files(root):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        together.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return together.hexdigest()


def folder_of(language: str) -> Path:
    """The folder that contains the packages in a language.

    Raises LanguageError if there is none, and in a clone if it is older than its sources.
    """
    if language == ENGLISH:
        return ROOT
    folder = GENERATED / language
    again = f"python tools/translate.py write {language}"
    sources = ROOT / "locale" / language
    if not (folder / STAMP).is_file():
        if sources.is_dir():
            raise LanguageError(f"{VARIABLE}={language}: this language is not set up yet: run {again}")
        there = [ENGLISH, *sorted(path.name for path in GENERATED.glob("*") if (path / STAMP).is_file())]
        raise LanguageError(f"{VARIABLE}={language}: expected one of {', '.join(there)}; got {language!r}")
    if sources.is_dir() and (folder / STAMP).read_text("utf-8") != stamp(ROOT):
        raise LanguageError(f"{VARIABLE}={language}: older than its sources: run {again}")
    return folder
