"""The units of the package's files, and these files in another language."""

from collections.abc import Callable, Iterable
from pathlib import Path

from . import compare, cuda_text, javascript, python_text, stamp, toml_text
from .units import Unit, replaced
from .words import Words

ENGLISH = stamp.module(Path(__file__).resolve().parents[2])  # the names of nncourse/language.py
GENERATED = ENGLISH["GENERATED"].name  # the folder of the package that holds what is generated
HINTS = "exercises.toml"
C_SUFFIXES = (".cu", ".c", ".h")
COMMAND_LINE = ("cli.py", "arguments.py")


def files(package: Path) -> list[Path]:
    """The files of the package without what is generated or compiled."""
    return ENGLISH["english_files"](package)


def units(path: Path, words: Words) -> list[Unit]:
    """The units of one file; none for a file of data."""
    source = path.read_text("utf-8") if path.suffix in (".py", ".js", *C_SUFFIXES) or path.name == HINTS else ""
    if path.suffix == ".py":
        return python_text.units(source, words)
    if path.suffix == ".js":
        return javascript.units(source, words)
    if path.name == HINTS:
        return toml_text.units(source)
    return cuda_text.units(source) if words.code else []


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
    """The catalogue of a file that is named from the package's folder."""
    folder, _, name = file.partition("/")
    if name == HINTS:
        return "package_hints"
    if not name:
        return "package_command_line" if file in COMMAND_LINE else "package_rest"
    if file.endswith(".js"):
        return "package_widgets"
    return f"package_{folder}"
