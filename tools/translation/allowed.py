"""Words on the screen that are no text to translate: names that locale/allowed.toml lists, and those of the course."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .pseudo import without_brackets

WORD = re.compile(r"[^\W\d_]{3,}")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@dataclass(frozen=True)
class Allowed:
    """Words, and patterns of what is no text: names with underscores or dots, formulas, contracts."""

    words: frozenset[str]
    patterns: tuple[re.Pattern, ...]


def read(root: Path) -> Allowed:
    """What locale/allowed.toml says, and the names of all exercises."""
    said = tomllib.loads((root / "locale" / "allowed.toml").read_text("utf-8"))
    exercises = tomllib.loads((root / "nncourse" / "classroom" / "exercises.toml").read_text("utf-8"))
    names = [part for name in _names(exercises) for part in WORD.findall(name)]
    words = [word for each in said["words"].values() for word in each]
    return Allowed(frozenset([*words, *names]), tuple(re.compile(each, re.MULTILINE) for each in said["patterns"]))


def _names(table: object) -> Iterable[str]:
    """The keys of a table and of the tables in it."""
    if isinstance(table, dict):
        for key, value in table.items():
            yield str(key)
            yield from _names(value)
    elif isinstance(table, list):
        for each in table:
            yield from _names(each)


def lines(place: str, text: str, allowed: Allowed) -> list[str]:
    """A line for each line of the text with a word that is in no brackets and is not allowed."""
    bare = CODE.sub(" ", without_brackets(text))
    for pattern in allowed.patterns:
        bare = pattern.sub(" ", bare)
    found = []
    for line in bare.splitlines():
        words = [word for word in WORD.findall(line) if word not in allowed.words]
        if words:
            found.append(f"{place}: {', '.join(dict.fromkeys(words))}: in {' '.join(line.split())[:100]!r}")
    return found
