"""The units of the packages' files, and these files in another language."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from . import compare, cuda_text, javascript, python_text, stamp, toml_text
from .units import Unit, replaced
from .words import Words

ENGLISH = stamp.module(Path(__file__).resolve().parents[2])  # the names of nncourse/language.py
GENERATED = ENGLISH["GENERATED"].relative_to(ENGLISH["ROOT"])  # where what is generated lies, from the root
HINTS = "hints.toml"
C_SUFFIXES = (".cu", ".c", ".h")


def files(root: Path) -> list[Path]:
    """The files of the packages without what is generated or compiled."""
    return ENGLISH["english_files"](root)


def units(path: Path, words: Words) -> list[Unit]:
    """The units of one file; none for a file of data."""
    source = path.read_text("utf-8") if path.suffix in (".py", ".js", *C_SUFFIXES) or path.name == HINTS else ""
    if path.suffix == ".py":
        return units_of_module(source, words)
    if path.suffix == ".js":
        return javascript.units(source, words)
    if path.name == HINTS:
        return toml_text.units(source)
    return cuda_text.units(source) if words.code else []


def units_of_module(source: str, words: Words) -> list[Unit]:
    """The units of a module: strings, and the comments and docstrings that are shown."""
    lines = python_text.lines_shown(source, words)
    found = python_text.units(source, replace(words, code=bool(lines)))
    shown = (source.count("\n", 0, unit.begin) + 1 in lines for unit in found)
    return [unit for unit, here in zip(found, shown, strict=True) if here or unit.kind not in python_text.WRITTEN]


def translated(path: Path, units: Iterable[Unit], say: Callable[[Unit], str | None]) -> str | None:
    """The file's text in another language; None if the translation would change its code."""
    source = path.read_text("utf-8")
    result = replaced(source, units, say)
    return result if same_code(path, source, result) else None


def same_code(path: Path, english: str, other: str) -> bool:
    """Whether both texts of a file are the same code."""
    if path.suffix == ".py":
        try:
            return compare.skeleton(english) == compare.skeleton(other)
        except SyntaxError:
            return False
    if path.suffix == ".js":
        return javascript.skeleton(english) == javascript.skeleton(other)
    if path.name == HINTS:
        return toml_text.skeleton(english) == toml_text.skeleton(other)
    return cuda_text.without_comments(english) == cuda_text.without_comments(other)


def area(file: str) -> str:
    """The catalogue of a file that is named from the root: its package's and room's."""
    package, *rooms, name = file.split("/")
    if name == HINTS:
        return f"{package}_hints"
    return "_".join([package, *rooms[:1]])
