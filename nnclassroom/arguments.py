"""Command lines: a parser whose errors are one line, in the language of the course, and what it reads."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from nncourse.errors import CourseError, refuse_unknown

Item = TypeVar("Item")
THREADS = "number of BLAS threads on the CPU, in each process (default: as many as make it faster)"
PROGRAM = (sys.executable, "-m", "nnclassroom")  # how other processes start `nncourse`
# What argparse says itself, by the text that it looks up with gettext. English says the same.
ARGPARSE_WORDS = {
    "usage: ": "usage: ",
    "positional arguments": "positional arguments",
    "options": "options",
    "show this help message and exit": "show this help message and exit",
    "argument %(argument_name)s: %(message)s": "argument %(argument_name)s: %(message)s",
    "the following arguments are required: %s": "the following arguments are required: %s",
    "unrecognized arguments: %s": "unrecognized arguments: %s",
    "expected one argument": "expected one argument",
    "expected at least one argument": "expected at least one argument",
    "ignored explicit argument %r": "ignored explicit argument %r",
    "ambiguous option: %(option)s could match %(matches)s": "ambiguous option: %(option)s could match %(matches)s",
    "invalid choice: %(value)r (choose from %(choices)s)": "invalid choice: %(value)r (choose from %(choices)s)",
    "invalid %(type)s value: %(value)r": "invalid %(type)s value: %(value)r",
}


class Parser(argparse.ArgumentParser):
    """A parser that speaks the language of the course and raises its errors as a CourseError, without the usage."""

    def __init__(self, *arguments: Any, **options: Any):
        with _in_our_words():
            super().__init__(*arguments, **options)

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        with _in_our_words():
            return super().parse_known_args(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        raise CourseError(f"{message} (see {self.prog} --help)" if self.add_help else message)


@contextmanager
def _in_our_words() -> Iterator[None]:
    before = argparse._  # type: ignore[attr-defined]  # the name by which argparse calls gettext
    argparse._ = lambda text: ARGPARSE_WORDS.get(text) or before(text)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        argparse._ = before  # type: ignore[attr-defined]


def number(text: str) -> float:
    """A number of the command line, as float."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number such as 0.01, with a point; got {text!r}") from None


def whole(text: str) -> int:
    """A whole number of the command line, from 0."""
    if not (text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 999999999; got {text!r}")
    return int(text)


def chosen(what: str, text: str, names: Mapping[Item, Sequence[str]]) -> tuple[Item, ...]:
    """The items of which a name stands in the text, such as 02,03 or 2,3; all for an empty text.

    Raises CourseError for a name of none of them.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = dict.fromkeys(name for column in zip(*names.values(), strict=True) for name in column)
    words = [f"0{word}" if word not in known and f"0{word}" in known else word for word in words]
    for word in words:
        refuse_unknown(what, word, known)
    return tuple(item for item, own in names.items() if not words or set(words) & set(own))
