"""Units of CUDA C and C: its comments."""

import re
from collections.abc import Iterator

from .units import WORD, Unit, as_it_is, flowing, joined

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
MARK = re.compile(r"//+[ \t]?(?:-{3,} )?")
EXAMPLE = re.compile(r"//[ \t]{4}|//\t")
NO_TEXT = re.compile(r"%%cuda |clang-format|NOLINT|-+$|=+$")


def units(source: str, width: int = 120) -> list[Unit]:
    """The comments of a C source that have words, neighbouring lines as one unit."""
    return [unit for block in _blocks(source) for unit in _unit(source, block, width)]


def without_comments(source: str) -> str:
    """The code alone: what a translation may not change."""
    bare = TOKEN.sub(lambda found: "" if found[0].startswith(("//", "/*")) else found[0], source)
    return "\n".join(line.rstrip() for line in bare.splitlines() if line.strip())


def _blocks(source: str) -> Iterator[list[re.Match]]:
    """Comments that belong together: lines of // below one another, at the same column and with nothing before them."""
    block: list[re.Match] = []
    for found in TOKEN.finditer(source):
        if not found[0].startswith(("//", "/*")):
            continue
        if block and _goes_on(source, block[-1], found):
            block.append(found)
            continue
        if block:
            yield block
        block = [found]
    if block:
        yield block


def _goes_on(source: str, last: re.Match, following: re.Match) -> bool:
    between = source[last.end() : following.start()]
    lines = all(each[0].startswith("//") for each in (last, following))
    aligned = _column(source, last.start()) == _column(source, following.start())
    text = MARK.sub("", following[0], count=1)
    if any("---" in each[0] or EXAMPLE.match(each[0]) for each in (last, following)):
        return False
    return lines and aligned and between.strip(" \t") == "\n" and bool(WORD.search(text)) and not _set_apart(text)


def _set_apart(text: str) -> bool:
    """A line that is not the flow of a paragraph: indented, or a list's item."""
    return text.startswith(("  ", "- ", "* ")) or bool(NO_TEXT.match(text.strip()))


def _column(source: str, place: int) -> int:
    return place - (source.rfind("\n", 0, place) + 1)


def _unit(source: str, block: list[re.Match], width: int) -> Iterator[Unit]:
    first, end = block[0], block[-1].end()
    if EXAMPLE.match(first[0]):
        return
    if first[0].startswith("/*"):
        begin, end = first.start() + 2, first.end() - 2
        text = source[begin:end]
        lead = len(text) - len(text.lstrip())
        begin, end = begin + lead, end - (len(text) - len(text.rstrip()))
        text = joined(re.sub(r"^[ \t]*\*[ \t]?", "", line) for line in source[begin:end].split("\n"))
        writer = as_it_is
    else:
        mark = MARK.match(first[0])
        begin = first.start() + (mark.end() if mark else 2)
        text = joined(MARK.sub("", each[0], count=1) for each in block)
        column = _column(source, first.start())
        writer = flowing(_column(source, begin), " " * column + "// ", width) if len(block) > 1 else as_it_is
        end = begin + len(source[begin:end].rstrip())
    if WORD.search(text) and not NO_TEXT.match(text.strip()):
        yield Unit(begin, end, text.strip(), "comment", writer)
