"""Units of markdown: paragraphs, headings, list items, table rows, and the words inside formulas."""

import re
from collections.abc import Iterator

from .units import WORD, Unit, as_it_is, joined

# What stands before a unit's text and is no part of it.
MARK = re.compile(r"[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+(?:\[[ x]\] )?|#{1,6} +|> ?)*")
# A line that begins a block of its own.
BEGINS = re.compile(r"[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]|#{1,6} |\||>|<|\$\$|```|~~~|---+\s*$)")
ONE_LINE = re.compile(r"[ \t]*(?:#{1,6} |\||<)")  # such a line is a block by itself
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]")
FENCE = re.compile(r"[ \t]*(```|~~~)")
TAGS_BEFORE, TAGS_AFTER = re.compile(r"(?:\s*<[^>]+>)*\s*"), re.compile(r"\s*(?:</?[^>]+>\s*)*$")
NO_WORDS = re.compile(r"`[^`]*`|\$[^$]*\$|<[^>]+>|\]\([^)]*\)|https?://\S+")
WORDS_OF_FORMULA = re.compile(r"\\text\{([^{}]*[^\W\d_]{2,}[^{}]*)\}")
MEASURED = re.compile(r"[\d.,×%⁻⁰¹²³⁴⁵⁶⁷⁸⁹+−;·() -]*(?:[nµm]?s|[kMGT]B|TFLOP/s)?")
ALT = re.compile(r"""\b(?:alt|title)="([^"]*)\"""")


def units(source: str, measured: bool = True) -> list[Unit]:
    """The units of a markdown text, in order; without `measured` no rows of measurements."""
    found = [unit for begin, end, kind in _blocks(source) for unit in _units_of(source, begin, end, kind)]
    return found if measured else [unit for unit in found if unit.kind != "table row" or not of_numbers(unit.text)]


def has_words(text: str) -> bool:
    """Whether something is left to translate without code, formulas, numbers, addresses and tags."""
    return bool(WORD.search(NO_WORDS.sub(" ", text))) or bool(WORDS_OF_FORMULA.search(text))


def of_numbers(row: str) -> bool:
    """Whether a table row is one of measurements: a name, and at least two numbers with their units."""
    _, *cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
    numbers = [cell for cell in cells if cell != "–"]
    measured = [bool(re.search(r"\d", cell) and MEASURED.fullmatch(cell)) for cell in numbers]
    return len(cells) > 1 and any(measured) and all(measured)


def _blocks(source: str) -> Iterator[tuple[int, int, str]]:
    """(begin, end, kind) of each block that is "text" or "formula"; code and blank lines are left out."""
    begin, fence, in_formula, in_list, after_blank = None, "", False, False, True
    place = 0
    for line in source.splitlines(keepends=True):
        start, place = place, place + len(line)
        end = start + len(line.rstrip("\n"))
        if fence:
            fence = "" if line.strip().startswith(fence) else fence
            continue
        if in_formula:
            if "$$" in line:
                yield begin, end, "formula"
                begin, in_formula = None, False
            continue
        blank = not line.strip()
        code = after_blank and not in_list and re.match(r" {4}|\t", line) and not blank
        if begin is not None and (blank or code or BEGINS.match(line)):
            yield begin, start - 1, "text"
            begin = None
        if blank:
            after_blank = True
            continue
        if code:  # the next indented line is code too
            continue
        if after_blank and not line.startswith((" ", "\t")):
            in_list = False
        after_blank = False
        if opened := FENCE.match(line):
            fence = opened[1]
        elif line.lstrip().startswith("$$"):
            if line.count("$$") == 1:
                begin, in_formula = start, True
            else:
                yield start, end, "formula"
        elif ONE_LINE.match(line):
            yield start, end, "text"
        else:
            in_list = in_list or bool(ITEM.match(line))
            begin = start if begin is None else begin
    if begin is not None:
        yield begin, len(source.rstrip("\n")), "formula" if in_formula else "text"


def _units_of(source: str, begin: int, end: int, kind: str) -> Iterator[Unit]:
    if kind == "formula":
        for found in WORDS_OF_FORMULA.finditer(source, begin, end):
            yield Unit(found.start(1), found.end(1), found[1], "words in a formula", as_it_is)
        return
    mark = MARK.match(source, begin, end)
    what = _kind(source[begin:end])
    begin = mark.end() if mark else begin
    if what == "tags":
        before = TAGS_BEFORE.match(source, begin, end)
        after = TAGS_AFTER.search(source, before.end() if before else begin, end)
        for found in ALT.finditer(source, begin, before.end() if before else begin):
            if WORD.search(found[1]):
                yield Unit(found.start(1), found.end(1), found[1], "alternative text", as_it_is)
        begin, end = before.end() if before else begin, after.start() if after else end
        what = "paragraph"
    text = source[begin:end]
    if not has_words(text):
        return
    lines = text.split("\n")
    hard = any(line.endswith(("  ", "\\")) for line in lines[:-1])
    yield Unit(begin, end, text if hard else joined(lines), what, as_it_is)


def _kind(text: str) -> str:
    start = text.lstrip()
    if start.startswith("#"):
        return "heading"
    if start.startswith("|"):
        return "table row"
    if start.startswith("<"):
        return "tags"
    return "list item" if ITEM.match(text) else "paragraph"
