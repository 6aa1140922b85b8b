"""Units of markdown: paragraphs, headings, list items, table rows, the words in formulas, and those in code."""

import re
from collections.abc import Iterator

from .units import WORD, Unit, as_it_is, joined

# What stands before a unit's text and is no part of it.
MARK = re.compile(r"[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+(?:\[[ x]\] )?|#{1,6} +|> ?)*")
# A line that begins a block of its own.
BEGINS = re.compile(r"[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]|#{1,6} |\||>|<(?!https?:)|\$\$|```|~~~|---+\s*$)")
ONE_LINE = re.compile(r"[ \t]*(?:#{1,6} |\||<(?!https?:))")  # such a line is a block by itself
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]")
FENCE = re.compile(r"[ \t]*(```|~~~)")
TAGS_BEFORE, TAGS_AFTER = re.compile(r"(?:\s*<[^>]+>)*\s*"), re.compile(r"\s*(?:</?[^>]+>\s*)*$")
NO_WORDS = re.compile(r"`[^`]*`|\$[^$]*\$|<[^>]+>|\]\([^)]*\)|https?://\S+")
WORDS_OF_FORMULA = re.compile(r"\\text\{([^{}]*[^\W\d_]{2,}[^{}]*)\}")
FIRST_CELL = re.compile(r"\|?\s*(.*?)\s*(?<!\\)\|")
MEASURED = re.compile(r"[\d.,×%⁻⁰¹²³⁴⁵⁶⁷⁸⁹+−;·() -]*(?:[nµm]?s|[kMGT]B|TFLOP/s)?")
COMMENT = re.compile(r"(?:^|\s)(?:#|//) +(\S.*)")
VERDICT = re.compile(r"\s*[✓✗○] ")
PROSE = re.compile(r"[^\W\d_]{2,} [^\W\d_]{2,}|[^\W\d_]{2,} \w [^\W\d_]{2,}")  # two words in a row, as in no formula
ALT = re.compile(r"""\b(?:alt|title)="([^"]*)\"""")


def units(source: str, measured: bool = True) -> list[Unit]:
    """The units of a markdown text, in order.

    Without `measured` a row of measurements has only its first cell, if that is no single name.
    """
    blocks = [block for block in _blocks(source) if block[2] != "code"]
    found = [unit for begin, end, kind in blocks for unit in _units_of(source, begin, end, kind)]
    if not measured:
        found = [_first_cell(unit) if unit.kind == "table row" and of_numbers(unit.text) else unit for unit in found]
    return [unit for unit in found if unit.kind != "table cell" or (has_words(unit.text) and " " in unit.text)]


def _first_cell(row: Unit) -> Unit:
    cell = FIRST_CELL.match(row.text)
    assert cell  # every row has one
    return Unit(row.begin + cell.start(1), row.begin + cell.end(1), cell[1], "table cell", as_it_is)


def units_in_code(source: str) -> list[Unit]:
    """The comments in the code that a markdown text shows, and the sentences of the verdicts that it prints."""
    found = []
    for lines in _blocks_of_code(source):
        printed = any(VERDICT.match(source, begin, end) for begin, end in lines)
        for begin, end in lines:
            if comment := COMMENT.search(source, begin, end):
                begin, kind = comment.start(1), "comment"
            elif printed and PROSE.search(source, begin, end):
                begin, kind = end - len(source[begin:end].lstrip()), "output"
            else:
                continue
            if has_words(source[begin:end]):
                found.append(Unit(begin, end, source[begin:end], kind, as_it_is))
    return found


def _blocks_of_code(source: str) -> Iterator[list[tuple[int, int]]]:
    """The lines of each block of code, as (begin, end)."""
    lines: list[tuple[int, int]] = []
    for begin, end, kind in _blocks(source):
        if lines and (kind != "code" or begin > lines[-1][1] + 1):
            yield lines
            lines = []
        if kind == "code":
            lines.append((begin, end))
    if lines:
        yield lines


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
    """(begin, end, kind) of each block of "text", of each "formula", and of each line of "code" that is not blank."""
    begin, fence, in_formula, in_list, after_blank = None, "", False, False, True
    place = 0
    for line in source.splitlines(keepends=True):
        start, place = place, place + len(line)
        end = start + len(line.rstrip("\n"))
        if fence:
            if line.strip().startswith(fence):
                fence = ""
            elif line.strip():
                yield start, end, "code"
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
            yield start, end, "code"
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
