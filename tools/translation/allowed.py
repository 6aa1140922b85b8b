"""Words on the screen that are no text to translate: names that locale/allowed.toml lists, and those of the course."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import names
from .pseudo import without_brackets

WORD = re.compile("[A-Za-z]{3,}")  # of English
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@dataclass(frozen=True)
class Names:
    """Words that are names, and patterns of what is no text."""

    words: frozenset[str]
    patterns: tuple[re.Pattern, ...]


@dataclass(frozen=True)
class Allowed:
    """The names that hold wherever they stand, and those of some places, which a pattern of the place tells."""

    everywhere: Names
    where: tuple[tuple[re.Pattern, Names], ...]

    def at(self, place: str) -> list[Names]:
        """What is allowed in this place; the place's own patterns first, which are longer ones."""
        return [*(here for pattern, here in self.where if pattern.search(place)), self.everywhere]


def read(root: Path) -> Allowed:
    """What locale/allowed.toml says. A pattern's {operation} stands for the names of all operations, and so on."""
    said = tomllib.loads((root / "locale" / "allowed.toml").read_text("utf-8"))
    known = names.of_the_course(root) | {kind: set(some) for kind, some in said["names"].items()}
    known["name"] = set().union(*known.values())
    kinds = {kind: names.one_of(some) for kind, some in known.items()}
    words = frozenset(word for each in said["words"].values() for word in each)
    where = [(re.compile(table["place"]), _names(table, kinds)) for table in said.get("where", ())]
    return Allowed(Names(words, _names(said | {"words": ()}, kinds).patterns), tuple(where))


def _names(table: Mapping, kinds: Mapping[str, str]) -> Names:
    patterns = [_filled(pattern, kinds) for pattern in table.get("patterns", ())]
    return Names(frozenset(table.get("words", ())), tuple(map(re.compile, patterns)))


def _filled(pattern: str, kinds: Mapping[str, str]) -> str:
    """The pattern with the names for {operation}, {kernel} and the like; other braces stay."""
    for kind, choice in kinds.items():
        pattern = pattern.replace(f"{{{kind}}}", choice)
    return pattern


def lines(place: str, text: str, allowed: Allowed) -> list[str]:
    """A line for each line of the text with a word that is in no brackets and is not allowed in this place."""
    here = allowed.at(place)
    known = frozenset().union(*(each.words for each in here))
    found = []
    for line in CODE.sub(" ", without_brackets(text)).splitlines():
        bare = line
        for pattern in (pattern for each in here for pattern in each.patterns):
            bare = pattern.sub(" ", bare)
        words = [word for word in WORD.findall(bare) if word not in known]
        if words:
            found.append(f"{place}: {', '.join(dict.fromkeys(words))}: in {' '.join(line.split())[:160]!r}")
    return found
