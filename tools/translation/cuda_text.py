"""Units of CUDA C and C: its comments."""

import re
from collections.abc import Iterator

from .units import WORD, Unit, as_it_is, flowing, joined

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
MARK = re.compile(r"//+[ \t]?(?:-{3,} )?")
EXAMPLE = re.compile(r"//[ \t]{4}|//\t")
LEAD = re.compile(r"[ \t]*(?:\*(?!/)[ \t]?)?")  # of the later lines of /* … */
PLAIN_C = 100  # the width of /* … */
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
        if block and _goes_on(source, block, found):
            block.append(found)
            continue
        if block:
            yield block
        block = [found]
    if block:
        yield block


def _goes_on(source: str, block: list[re.Match], following: re.Match) -> bool:
    last = block[-1]
    between = source[last.end() : following.start()]
    lines = all(each[0].startswith("//") for each in (last, following))
    aligned = _column(source, last.start()) == _column(source, following.start())
    text = MARK.sub("", following[0], count=1)
    lines = lines and aligned and between.strip(" \t") == "\n" and bool(WORD.search(text))
    if _indent(block[0]) >= 2 and not EXAMPLE.match(block[0][0]):  # an item of a list: its later lines are set in
        return lines and _indent(following) > _indent(block[0])
    if any("---" in each[0] or EXAMPLE.match(each[0]) for each in (last, following)):
        return False
    return lines and not _set_apart(text)


def _indent(comment: re.Match) -> int:
    """How many blanks a line of // has before its words, without the usual one."""
    text = MARK.sub("", comment[0], count=1)
    return len(text) - len(text.lstrip()) if comment[0].startswith("//") else 0


def _set_apart(text: str) -> bool:
    """A line that is not the flow of a paragraph: indented, or a list's item."""
    return text.startswith(("  ", "- ", "* ")) or bool(NO_TEXT.match(text.strip()))


def _column(source: str, place: int) -> int:
    return place - (source.rfind("\n", 0, place) + 1)


def _unit(source: str, block: list[re.Match], width: int) -> Iterator[Unit]:
    while len(block) > 1 and not MARK.sub("", block[0][0], count=1).strip():
        block = block[1:]
    first, end = block[0], block[-1].end()
    if EXAMPLE.match(first[0]):
        return
    if first[0].startswith("/*"):
        for paragraph in re.finditer(r"\S(?:[^\n]|\n(?![ \t]*\n))*", source[first.start() + 2 : first.end() - 2]):
            yield from _part(source, first.start() + 2 + paragraph.start(), paragraph[0].rstrip())
        return
    mark = MARK.match(first[0])
    begin = first.start() + (mark.end() if mark else 2) + _indent(first)
    text = joined(MARK.sub("", each[0], count=1) for each in block)
    later = " " * _column(source, first.start()) + "// " + " " * (_indent(block[-1]) if _indent(first) else 0)
    writer = flowing(_column(source, begin), later, width) if len(block) > 1 else as_it_is
    end = begin + len(source[begin:end].rstrip())
    if WORD.search(text) and not NO_TEXT.match(text.strip()):
        yield Unit(begin, end, text.strip(), "comment", writer)


def _part(source: str, begin: int, paragraph: str) -> Iterator[Unit]:
    """A paragraph of /* … */."""
    first, *lines = paragraph.split("\n")
    first, begin = LEAD.sub("", first, count=1), begin + LEAD.match(first).end()
    text = joined([first, *(LEAD.sub("", line, count=1) for line in lines)]).strip()
    writer = flowing(_column(source, begin), LEAD.match(lines[0])[0], PLAIN_C) if lines else as_it_is
    end = begin + len(paragraph) - (len(paragraph.split("\n")[0]) - len(first))
    if WORD.search(text) and not NO_TEXT.match(text):
        yield Unit(begin, end, text, "comment", writer)
