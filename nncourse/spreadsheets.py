"""Tables as text, as spreadsheets and programs save them: separators, rows without content, numbers.

The tables of data sets and the lists of an instructor are both read with this.
"""

import math
import re

DECLARED = re.compile(r'"?sep=([,;|:\t])"?[\s,;]*', re.IGNORECASE)
EMPTY = ' \t\r\v\f\x1c\x1d\x1e\x1f\x85\xa0,;"'  # what a row without content is made of: blanks, separators, quotes


def lines_of(text: str) -> list[str]:
    """The lines of a text, with any kind of line ends."""
    if "\r" in text:  # otherwise two copies of a large text would be made for nothing
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.split("\n")


def declared_separator(line: str) -> str:
    """The separator that Excel declares in a first line such as `sep=;`; "" for any other line."""
    found = DECLARED.fullmatch(line)
    return found[1] if found else ""


def separator_of(line: str) -> str:
    """The separator of a row: comma, semicolon or tab.

    Separators in quotes, commas within a number (0,5) and tabs beside a comma do not count.
    """
    bare = re.sub(r"\t*,\t*", ",", re.sub(r'"[^"]*"', "", line.strip()))
    counts = {";": bare.count(";"), ",": len(re.findall(r"(?<!\d),|,(?!\d)", bare)), "\t": bare.count("\t")}
    most = max(counts, key=lambda separator: counts[separator])
    return most if counts[most] else ","


def number(field: str, comma: bool = False) -> float:
    """The number that a field holds; NaN for any other text. `comma`: the decimal separator is a comma, not a point.

    Python's float() also reads 1_0 and digits of other scripts, which nobody means as a number: these are NaN too.
    """
    if comma:
        field = field.replace(".", "?").replace(",", ".")
    try:
        value = float(field)
    except ValueError:
        return math.nan
    return value if field.isascii() and "_" not in field else math.nan
