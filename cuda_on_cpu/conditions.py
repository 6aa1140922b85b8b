"""The value of an expression of whole numbers, as in `#if N > 3` or in `[2 * N]`."""

import re
from collections.abc import Sequence

from cuda_on_cpu.tokens import Token, spelt

MOST_NESTED = 60
BINDS = {"||": 1, "or": 1, "&&": 2, "and": 2, "|": 3, "bitor": 3, "^": 4, "xor": 4, "&": 5, "bitand": 5}
BINDS |= {"==": 6, "!=": 6, "not_eq": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8}
BINDS |= {"+": 9, "-": 9, "*": 10, "/": 10, "%": 10}
SIGNS = ("!", "not", "~", "compl", "-", "+")
NUMBER = re.compile(r"(?P<digits>0[xX][0-9a-fA-F]+|0[bB][01]+|\d{1,40})(?P<suffix>[uUlLzZ]{0,3})")
CHARACTER = re.compile(r"'([^\\'])'")


class NotReadError(ValueError):
    """An expression that is wrong, or that is not read here: the reason."""


def value(words: Sequence[Token]) -> int:
    """The value of an expression of 64-bit numbers. Names are 0, as in #if. Raises NotReadError."""
    reader = _Reader(words)
    found, _ = reader.choice(0, True)
    if reader.words:
        raise NotReadError(f"`{spelt(words)[:60]}`")
    return found


class _Reader:
    """The words of an expression that have not been read, the next one last. Numbers are (value, whether unsigned)."""

    def __init__(self, words: Sequence[Token]):
        combined: list[str] = []
        for word in words:
            if word.near and combined and combined[-1] + word.text in BINDS and word.kind == "other":
                combined[-1] += word.text
            else:
                combined.append(word.text)
        self.whole, self.words = spelt(words)[:60], combined[::-1]

    def choice(self, depth: int, counts: bool) -> tuple[int, bool]:
        """`a ? b : c`, or an expression without. `counts`: it is not left aside, as by 0 &&."""
        found = self.binary(1, depth, counts)
        if not self.words or self.words[-1] != "?":
            return found
        self.words.pop()
        yes = self.choice(depth + 1, counts and bool(found[0]))
        if not self.words or self.words.pop() != ":":
            raise NotReadError(f"`{self.whole}` has ? without :")
        no = self.choice(depth + 1, counts and not found[0])
        return _wrapped((yes if found[0] else no)[0], yes[1] or no[1])

    def binary(self, least: int, depth: int, counts: bool) -> tuple[int, bool]:
        left = self.single(depth, counts)
        while self.words and BINDS.get(self.words[-1], 0) >= least:
            sign = self.words.pop()
            left_aside = (sign in ("||", "or") and left[0]) or (sign in ("&&", "and") and not left[0])
            right = self.binary(BINDS[sign] + 1, depth + 1, counts and not left_aside)
            left = _computed(sign, left, right, counts)
        return left

    def single(self, depth: int, counts: bool) -> tuple[int, bool]:
        if depth > MOST_NESTED:
            raise NotReadError("its brackets are too deep")
        if not self.words:
            raise NotReadError(f"`{self.whole}` ends too early")
        word = self.words.pop()
        if word in SIGNS:
            number, unsigned = self.single(depth + 1, counts)
            if word in ("!", "not"):
                return int(not number), False
            return _wrapped({"-": -number, "+": number}.get(word, ~number), unsigned)
        if word == "(":
            found = self.choice(depth + 1, counts)
            if not self.words or self.words.pop() != ")":
                raise NotReadError(f"a ( of `{self.whole}` is never closed")
            return found
        if match := NUMBER.fullmatch(word.replace("'", "")) if word[0] != "'" else None:
            digits = match["digits"]
            octal = digits.isdecimal() and digits.startswith("0")
            try:
                return _wrapped(int(digits, 8 if octal else 0), "u" in match["suffix"].lower())
            except ValueError:
                raise NotReadError(f"`{word}` is no whole number") from None
        if match := CHARACTER.fullmatch(word):
            return ord(match[1]), False
        if re.fullmatch(r"[^\W\d]\w*", word) and not (self.words and self.words[-1] == "("):
            return int(word == "true"), False
        raise NotReadError(f"`{word[:60]}` in `{self.whole}`")


def _wrapped(number: int, unsigned: bool) -> tuple[int, bool]:
    """A number in 64 bits."""
    number %= 1 << 64
    return number if unsigned or number < 1 << 63 else number - (1 << 64), unsigned


def _computed(sign: str, left: tuple[int, bool], right: tuple[int, bool], counts: bool) -> tuple[int, bool]:
    unsigned = left[1] or right[1]
    (a, _), (b, _) = _wrapped(left[0], unsigned), _wrapped(right[0], unsigned)
    match sign:
        case "||" | "or":
            return int(bool(a or b)), False
        case "&&" | "and":
            return int(bool(a and b)), False
        case "==":
            return int(a == b), False
        case "!=" | "not_eq":
            return int(a != b), False
        case "<":
            return int(a < b), False
        case ">":
            return int(a > b), False
        case "<=":
            return int(a <= b), False
        case ">=":
            return int(a >= b), False
        case "<<":
            return _wrapped(left[0] << (right[0] % 64), left[1])
        case ">>":
            return _wrapped(left[0] >> (right[0] % 64), left[1])
        case "/" | "%":
            if not b:
                if counts:
                    raise NotReadError("it divides by zero")
                return 0, unsigned
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return _wrapped(quotient if sign == "/" else a - quotient * b, unsigned)
    found = {"|": a | b, "bitor": a | b, "^": a ^ b, "xor": a ^ b, "&": a & b, "bitand": a & b}
    return _wrapped(found[sign] if sign in found else {"+": a + b, "-": a - b, "*": a * b}[sign], unsigned)
