"""Units of JavaScript: string and template literals for people, and comments."""

import re
from collections.abc import Iterator

from .units import WORD, Unit
from .words import Words

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`|/(?![/*\s])(?:\\.|\[[^\]]*\]|[^/\\\n])+/[gimsuy]*(?=[.,;)\s])""",
    re.DOTALL,
)
TWO_WORDS = re.compile(r"[^\W\d_]{2,}[,.:;!?)’]* +[^\W\d_]")
NO_TEXT = re.compile(r"[{};=<>]|^#|^change:|^rgb\(")
SHOWN_AS = re.compile(r"(?:\b(?:label|title|xlabel|ylabel)\b *[:=]|\b(?:textContent|title|alt) =) *$")
QUOTED = re.compile(r"\"[^\"]*\"")
HOLE = re.compile(r"\$\{[^{}]*\}")


def units(source: str, words: Words) -> list[Unit]:
    """The strings of a JavaScript text that people read; a template's text keeps its holes, ${…}."""
    return [unit for unit in _strings(source) if _is_for_people(unit, source[: unit.begin - 1], words)]


def skeleton(source: str) -> str:
    """The code without its strings: what a translation may not change. Holes of templates stay."""

    def bare(found: re.Match) -> str:
        if found[0][0] == "`":
            return "`" + "".join(sorted(QUOTED.sub('""', hole) for hole in HOLE.findall(found[0]))) + "`"
        return found[0][0] * 2 if found[0][0] in "\"'" else found[0]

    return TOKEN.sub(bare, source)


def _strings(source: str) -> Iterator[Unit]:
    for found in TOKEN.finditer(source):
        if found[0][0] in "\"'`":
            quote = found[0][0]
            text = re.sub(r"\\([\"'`])", r"\1", found[0][1:-1])
            kind = "template" if quote == "`" else "string"
            yield Unit(
                found.start() + 1,
                found.end() - 1,
                text,
                kind,
                lambda said, quote=quote: said.replace(quote, "\\" + quote),
            )


def _is_for_people(unit: Unit, before: str, words: Words) -> bool:
    if words.is_name(unit.text):
        return False
    bare = HOLE.sub(" ", unit.text)
    if unit.text in words.also or (SHOWN_AS.search(before[-40:]) and WORD.search(bare)):
        return True
    return bool(TWO_WORDS.search(bare) and not NO_TEXT.search(bare))
