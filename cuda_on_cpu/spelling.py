"""What makes a text no C++, whatever it says: characters that CUDA C does not have, quotes and brackets never closed.

A compiler's own words about these hide the mistake: "unrecognized token" under a blank, or an error at the end of the
text for a bracket at its beginning.
"""

import re
import unicodedata
from collections.abc import Sequence

from cuda_on_cpu.errors import CudaCompileError
from cuda_on_cpu.tokens import OPEN_COMMENT, Token

CLOSING = {"{": "}", "(": ")", "[": "]"}
OPENING = {closing: opening for opening, closing in CLOSING.items()}
# No character of CUDA C outside of strings and comments. A letter of any alphabet may be spelt \u00ed in a name.
STRANGE = re.compile(r"[^ -~]|[@`$]|\\(?!u[0-9a-fA-F]{4})")
NEVER = re.compile("[\0\ud800-\udfff]")
ALIKE = {
    '"': "“”„‟«»″",
    "'": "‘’‚‛′´",
    "-": "−–—‐‑‒―",
    "*": "×∗⋅·",
    "/": "÷∕⁄",
    "<=": "≤",
    ">=": "≥",
    "!=": "≠",
    "->": "→",
}
WRITE = {character: word for word, characters in ALIKE.items() for character in characters}
NAMES = "names are made of a–z, A–Z, 0–9 and _"


def never_read(text: str, file: str) -> CudaCompileError | None:
    """The mistake of a text with a character at which compilers stop reading, or that they are never given."""
    if match := NEVER.search(text):
        line = text.count("\n", 0, match.start()) + 1
        return CudaCompileError(f"{file}:{line}: error: {advice(match[0])}")
    return None


def closings(words: Sequence[Token], file: str) -> tuple[dict[int, int], CudaCompileError | None]:
    """The position of the closing bracket of each opening one, and the first mistake that makes a text no C++.

    A bracket that is never closed counts as closed at the end.
    """
    closed: dict[int, int] = {}
    opened: list[int] = []
    mistake: tuple[Token, str] | None = None
    for number, word in enumerate(words):
        kind, text = word.kind, word.text
        if kind == "name" and text.isascii() or kind in ("string", "raw"):
            continue
        if text in CLOSING:
            opened.append(number)
        elif text in OPENING:
            if opened and words[opened[-1]].text == OPENING[text]:
                closed[opened.pop()] = number
            elif not mistake and OPENING[text] in {words[each].text for each in opened}:
                mistake = _never_closed(words[opened[-1]])
            else:
                mistake = mistake or (word, f"this {text} closes nothing: no {OPENING[text]} is open here")
        elif kind == "open":
            mistake = mistake or _never_closed(word)
        elif not mistake and (strange := STRANGE.search(text)):
            mistake = word, advice(strange[0])
    if opened and not mistake:
        mistake = _never_closed(words[opened[-1]])
    closed |= dict.fromkeys(opened, len(words))
    if not mistake:
        return closed, None
    word, said = mistake
    return closed, CudaCompileError(f"{file}:{word.line}: error: {said}")


def _never_closed(word: Token) -> tuple[Token, str]:
    """The mistake of a bracket, a comment or a quote, which begins what the token has of it."""
    if word.text in CLOSING or word.text == OPEN_COMMENT:
        return word, f"this {word.text} is never closed"
    quote = word.text.lstrip("uULR8")[0]
    return word, f"this {quote} is never closed{'' if 'R' in word.text.partition(quote)[0] else ' in its line'}"


def advice(character: str) -> str:
    """A character's number and name, and what to write in its place."""
    name = unicodedata.name(character, "")
    return f"U+{ord(character):04X}{' ' * bool(name)}{name}; {_instead(character, name)}"


def _instead(character: str, name: str) -> str:
    kind, plain = unicodedata.category(character), unicodedata.normalize("NFKC", character)
    if kind == "Zs":
        return "write an ordinary space"
    if kind in ("Zl", "Zp") or character == "\x85":
        return "write an ordinary line break"
    if character in WRITE:
        return f"write {WRITE[character]}"
    if name.startswith("FULLWIDTH ") or (
        plain != character and len(plain) == 1 and plain.isascii() and kind[0] in "PS"
    ):
        return f"write {plain}"
    if kind[0] in "LMN" or character == "$":
        return NAMES
    if character == "\\":
        return "a line goes on only if nothing, and no blank, follows it"
    if kind in ("Cf", "Cc", "Cs"):
        return "delete it"
    return "CUDA C has it in comments and strings only"
