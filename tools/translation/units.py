"""A unit: a text for people inside a source, and how its translation is put there."""

import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass

WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class Unit:
    """The text that a translator sees, where it stands in its source, and what is written there instead."""

    begin: int
    end: int
    text: str
    kind: str
    write: Callable[[str], str]
    place: str = ""


def as_it_is(text: str) -> str:
    """The translation itself: for units whose source has no escapes and no line breaks of its own."""
    return text


def replaced(source: str, units: Iterable[Unit], say: Callable[[Unit], str | None]) -> str:
    """The source with the translation of each unit; `say` returns None for one that stays as it is."""
    for unit in sorted(units, key=lambda unit: unit.begin, reverse=True):
        said = say(unit)
        if said is not None:
            source = source[: unit.begin] + unit.write(said) + source[unit.end :]
    return source


def joined(lines: Iterable[str]) -> str:
    """Lines of one paragraph as one line."""
    return " ".join(line.strip() for line in lines)


def flowing(first: int, indent: str, width: int) -> Callable[[str], str]:
    """A writer that breaks a paragraph into lines: the first begins at column `first`, others with `indent`."""

    def write(text: str) -> str:
        lines = textwrap.wrap(
            text,
            width=max(width - len(indent), 40),
            initial_indent=" " * max(first - len(indent), 0),
            break_long_words=False,
            break_on_hyphens=False,
        )
        return ("\n" + indent).join(lines).lstrip(" ")

    return write


def same_place(units: Iterable[Unit], place: str) -> list[Unit]:
    """The units, each with the place that a translator is told."""
    return [Unit(each.begin, each.end, each.text, each.kind, each.write, place or each.place) for each in units]
