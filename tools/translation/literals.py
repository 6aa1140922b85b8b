"""String literals of Python: their pieces, their text as a translator sees it, and how a text becomes a literal again.

An f-string's text keeps its holes as they stand in the source, {…}, and doubles other braces, as Python does.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

BEGIN = re.compile(r"""([a-zA-Z]*)('''|\"\"\"|'|")""")
ESCAPE = re.compile(r"\\(?:\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|.)", re.DOTALL)
QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")


@dataclass(frozen=True)
class Piece:
    """One literal of several that stand side by side."""

    prefix: str
    quote: str
    body: tuple[int, int]  # its place in the source
    raw_text: str

    @property
    def is_f(self) -> bool:
        """Whether it has holes."""
        return "f" in self.prefix.lower()


def pieces(source: str, begin: int, end: int) -> list[Piece]:
    """The literals in source[begin:end], which may have comments between them."""
    found = []
    place = begin
    while place < end:
        if source[place] == "#":
            place = source.index("\n", place)
        opening = BEGIN.match(source, place, end)
        if not opening:
            place += 1
            continue
        prefix, quote = opening.groups()
        close = opening.end()
        while not source.startswith(quote, close):
            close += 2 if source[close] == "\\" else 1
        found.append(Piece(prefix, quote, (opening.end(), close), source[opening.end() : close]))
        place = close + len(quote)
    return found


def segments(text: str) -> Iterator[tuple[str, str]]:
    """("text", …) and ("hole", "{…}") of an f-string's text, in order."""
    place = begin = 0
    while place < len(text):
        if text.startswith(("{{", "}}"), place):
            place += 2
        elif text[place] == "{":
            if place > begin:
                yield "text", text[begin:place]
            close = _end_of_hole(text, place)
            yield "hole", text[place:close]
            place = begin = close
        else:
            place += 1
    if place > begin:
        yield "text", text[begin:place]


def _end_of_hole(text: str, place: int) -> int:
    depth = 0
    while place < len(text):
        quoted = QUOTED.match(text, place) if text[place] in "'\"" else None
        if quoted:
            place = quoted.end()
            continue
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        place += 1
        if depth == 0:
            return place
    raise ValueError(f"a hole is not closed: {text!r}")


def text_of(parts: list[Piece]) -> str:
    """The text of literals side by side, with the holes of f-strings."""
    with_holes = any(part.is_f for part in parts)
    said = []
    for part in parts:
        raw = "r" in part.prefix.lower()
        if part.is_f:
            said += [each if kind == "hole" else _decoded(each, raw) for kind, each in _f_segments(part.raw_text, raw)]
        else:
            text = _decoded(part.raw_text, raw)
            said.append(text.replace("{", "{{").replace("}", "}}") if with_holes else text)
    return "".join(said)


def _f_segments(text: str, raw: bool) -> Iterator[tuple[str, str]]:
    """Segments of an f-string's source, in which \\N{…} is no hole."""
    if raw or "\\N{" not in text:
        yield from segments(text)
        return
    named = re.sub(r"\\N\{([^}]*)\}", lambda found: ast.literal_eval(f'"{found[0]}"'), text)
    yield from segments(named)


def _decoded(text: str, raw: bool) -> str:
    if raw:
        return text
    return ESCAPE.sub(lambda found: ast.literal_eval(f'"{found[0]}"') if found[0] != '\\"' else '"', text)


def words_of(text: str) -> str:
    """What people read of a text: holes are blanks, but for words that are chosen in them."""
    try:
        return "".join(each if kind == "text" else f"\0{' '.join(chosen(each))}\0" for kind, each in segments(text))
    except ValueError:  # braces that are no holes
        return text


def chosen(hole: str) -> list[str]:
    """The words that a hole holds, as in {'yes' if z else 'no'} or {'name':>9}."""
    try:
        tree = ast.parse(f"f'''{hole}'''", mode="eval")
    except SyntaxError:
        return []
    return [each.value for each in word_nodes(tree)]


def word_nodes(node: ast.AST) -> Iterator[ast.Constant]:
    """The strings of a hole that are words, so that a translation may have others in their places.

    A key, an argument of a call and what is compared are names; what get() gives where there is no key, is not.
    """
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node
        return
    names: list[ast.AST | None] = []
    if isinstance(node, ast.Subscript):
        names = [node.slice]
    elif isinstance(node, ast.Call):
        shown = {"join": node.args, "get": node.args[1:]}.get(getattr(node.func, "attr", ""), [])
        names = [each for each in (*node.args, *node.keywords) if each not in shown]
    elif isinstance(node, ast.Compare):
        names = [node.left, *node.comparators]
    elif isinstance(node, ast.FormattedValue):
        names = [node.format_spec]
    for child in ast.iter_child_nodes(node):
        if not any(child is name for name in names):
            yield from word_nodes(child)


def writer(parts: list[Piece], column: int, width: int) -> Callable[[str], str]:
    """What makes a literal of a text again, in the style of the source."""

    def write(text: str) -> str:
        with_holes = any(part.is_f for part in parts)
        cut = list(segments(text)) if with_holes else [("text", text)]
        holes = "".join(each for kind, each in cut if kind == "hole")
        quote = parts[0].quote
        if len(quote) == 1 and quote in holes:
            quote = next((other for other in ("'", '"') if other not in holes), '"""')
        raw = all("r" in part.prefix.lower() for part in parts) and not ("\n" in text and len(quote) == 1)
        raw = raw and quote[0] not in text and not text.endswith("\\")
        prefix = "f" * with_holes + "r" * raw
        atoms = [
            each if kind == "hole" or raw else _escaped(each, quote)
            for kind, part in cut
            for each in ([part] if kind == "hole" or len(parts) == 1 else re.findall(r"\S*\s+|\S+", part))
        ]
        if len(parts) == 1:
            return f"{prefix}{quote}{''.join(atoms)}{quote}"
        return ("\n" + " " * column).join(f"{prefix}{quote}{line}{quote}" for line in _lines(atoms, width - column - 4))

    return write


def _lines(atoms: list[str], width: int) -> list[str]:
    """The atoms in lines of about this width; a line goes on as long as no blank ends it."""
    lines = [""]
    for atom in atoms:
        if lines[-1] and len(lines[-1]) + len(atom) > width and lines[-1].endswith((" ", "\\n")):
            lines.append("")
        lines[-1] += atom
    return lines


def _escaped(text: str, quote: str) -> str:
    """The text as it stands between quotes."""
    several = len(quote) == 3
    said = []
    for number, letter in enumerate(text):
        if letter == "\\":
            said.append("\\\\")
        elif letter == quote[0] and (not several or text[number : number + 3] == quote or number == len(text) - 1):
            said.append("\\" + letter)
        elif letter == "\n":
            said.append("\n" if several else "\\n")
        elif letter.isprintable() or letter == "\xa0":
            said.append(letter)
        else:
            said.append(letter.encode("unicode_escape").decode())
    return "".join(said)
