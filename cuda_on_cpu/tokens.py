"""Split .cu text into the tokens of C++: the one place that knows comments, strings, characters and joined lines."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

# A string or a character that does not end goes on to the end of its line, as for g++; a raw string, to the end of the
# text. Blanks are those of ASCII: any other blank is a character that CUDA C does not have.
# What is frequent comes first, under names of its own where it would hide something: see KINDS.
TOKEN = re.compile(
    r"""(?P<word>[^\W\d]\w*+(?!["'\\]))|(?P<newline>\n)|(?P<sign>[(){}[\];,=+*&|~!>-])"""
    r"""|(?P<number>\.?\d(?:[eEpP][+-]|'?\w|\.)*)"""
    r"""|(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"""
    r"""|(?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\((?:.*?\)(?P=delimiter)"|.*))"""
    r"""|(?P<string>(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*+"|'(?:\\.|[^'\\\n])*+'))"""
    r"""|(?P<open>(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*+|'(?:\\.|[^'\\\n])*+))"""
    r"""|(?P<name>(?:[^\W\d]|\\u[0-9a-fA-F]{4})(?:\w|\\u[0-9a-fA-F]{4})*)"""
    r"""|(?P<trigraph>\?\?[=/'()!<>-])|(?P<digraph>%:)|(?P<bracket><%|%>|<:(?!:(?![:>]))|:>)"""
    r"""|(?P<paste>\#\#)|(?P<other>[^ \t\f\v\r\n])""",
    re.DOTALL | re.VERBOSE,
)
KINDS = {"word": "name", "sign": "other"}
JOINED = re.compile(r"\\\n")
BRACKETS = {"<%": "{", "%>": "}", "<:": "[", ":>": "]"}  # other spellings, which NVRTC and g++ know
OPEN_COMMENT = "/*"
# What is no code, in a text whose lines are not joined.
HIDDEN = re.compile(
    r"""//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)|\b(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\((?:.*?\)(?P=delimiter)"|.*)"""
    r"""|"(?:\\.|[^"\\\n])*+"?|(?<!\w)'(?:\\.|[^'\\\n])*+'?""",
    re.DOTALL,
)


class Token(NamedTuple):
    """A token: its kind, which is a group of TOKEN or what KINDS calls it, its text, and its line.

    directive: the directive it belongs to, such as "define", otherwise "". That of the # that begins one is "#".
    near: no blank is between it and the token before.
    """

    kind: str
    text: str
    line: int
    directive: str
    near: bool


@functools.lru_cache(maxsize=16)  # a long text takes some 100 bytes a letter
def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a text, without comments. A comment that never ends is a token, OPEN_COMMENT, of the kind open."""
    text = text.replace("\r\n", "\n")
    # Lines joined by a backslash: `breaks` are their positions, so that later lines keep their numbers.
    joined, breaks, position, length = [], [], 0, 0
    for match in JOINED.finditer(text):
        joined.append(text[position : match.start()])
        position = match.end()
        length += len(joined[-1])
        breaks.append(length)
    joined.append(text[position:])
    found: list[Token] = []
    make: Callable[..., Token] = functools.partial(
        tuple.__new__, Token
    )  # a third of the time of Token(…): this is what an import waits for
    line, directive, first, end, breaks = 1, "", True, -1, breaks[::-1]
    for match in TOKEN.finditer("".join(joined)):
        start = match.start()
        while breaks and breaks[-1] <= start:
            breaks.pop()
            line += 1
        kind, word = match.lastgroup or "", match[0]
        if kind == "newline":
            directive, first = "", True
            line += 1
            continue
        if kind == "comment":
            if word.startswith("/*"):
                if len(word) < 4 or not word.endswith("*/"):
                    found.append(make(("open", OPEN_COMMENT, line, directive, False)))
                line += word.count("\n")
            continue
        if first:
            directive, first = "#" if word in ("#", "%:") else "", False
        elif directive == "#":
            directive = word if word != "#" else "# #"
        if kind == "bracket":
            kind, word = "sign", BRACKETS[word]
        elif kind == "raw" and not _ends(match):
            kind = "open"
        found.append(make((KINDS.get(kind, kind), word, line, directive, start == end)))
        end = match.end()
        if kind in ("raw", "open"):
            line += word.count("\n")
    return tuple(found)


def _ends(raw: re.Match[str]) -> bool:
    """Whether a raw string has its end."""
    closing = f'){raw["delimiter"]}"'
    return str(raw[0]).endswith(closing) and len(raw[0]) >= raw[0].index("(") + 1 + len(closing)


def blanked(text: str, strings: bool = True) -> str:
    """The text with blanks in place of its comments and, with `strings`, of its strings; lines and columns stay."""

    def blank(match: re.Match[str]) -> str:
        hidden = strings or match[0].startswith(("//", "/*"))
        return re.sub(r"[^\n]", " ", match[0]) if hidden else match[0]

    return HIDDEN.sub(blank, text)


def spelt(words: Sequence[Token]) -> str:
    """Tokens as text, with a blank where the text has some."""
    return "".join(word.text if word.near else f" {word.text}" for word in words).strip()
