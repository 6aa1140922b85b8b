"""The pseudo language: each text in brackets; a word on the screen without them is one that no catalogue has."""

import ast
import re
from collections.abc import Iterator

from . import compare, literals
from .units import WORD

OPEN, CLOSE = "⟦", "⟧"


def bracketed(text: str, kind: str) -> str:
    """The text in brackets; blanks at both ends, holes, and the cells of a table stay where they are."""
    if kind == "table row":
        cells = re.split(r"(?<!\\)\|", text.strip().strip("|"))
        return "| " + " | ".join(f"{OPEN}{cell.strip()}{CLOSE}" for cell in cells) + " |"
    return "".join(_word_in_hole(each) if is_hole else _in_brackets(each) for is_hole, each in _parts(text, kind))


def _parts(text: str, kind: str) -> Iterator[tuple[bool, str]]:
    """The pieces of a text, and whether each is a hole."""
    holes = {"template": compare.JAVASCRIPT_HOLE, "string": compare.TEMPLATE_HOLE}.get(kind)
    if kind == "f-string":
        yield from ((part == "hole", each) for part, each in literals.segments(text))
    elif holes is None:
        yield False, text
    else:
        begin = 0
        for hole in holes.finditer(text):
            yield False, text[begin : hole.start()]
            yield True, hole[0]
            begin = hole.end()
        yield False, text[begin:]


def _in_brackets(text: str) -> str:
    bare = text.strip()
    if not WORD.search(bare):
        return text
    before, _, after = text.partition(bare)
    return f"{before}{OPEN}{bare}{CLOSE}{after}"


def _word_in_hole(hole: str) -> str:
    """The hole, with the words that are chosen in it in brackets."""
    opening = "f'''"
    try:
        tree = ast.parse(f"{opening}{hole}'''", mode="eval")
    except SyntaxError:
        return hole
    nodes = [node for node in literals.word_nodes(tree) if WORD.search(node.value)]
    for node in sorted(nodes, key=lambda node: node.col_offset, reverse=True):
        source = f"{opening}{hole}".encode()
        begin, end = node.col_offset, node.end_col_offset
        literal = source[begin:end].decode()
        if node.lineno != 1 or not re.fullmatch(r"'[^'\\]*'|\"[^\"\\]*\"", literal):
            continue  # of an inner f-string, say
        said = literal[0] + _in_brackets(literal[1:-1]) + literal[0]
        hole = (source[:begin] + said.encode() + source[end:]).decode()[len(opening) :]
    return hole


def without_brackets(text: str) -> str:
    """What of a text is in no brackets; one that is cut off counts as closed at its end, or as begun with its line."""
    depth, bare = 0, []
    for letter in text:
        if letter == OPEN:
            depth += 1
        elif letter == CLOSE and depth:
            depth -= 1
            bare.append(" ")
        elif letter == CLOSE:
            while bare and bare[-1] != "\n":
                bare.pop()
        elif depth == 0:
            bare.append(letter)
    return "".join(bare)
