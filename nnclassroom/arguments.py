"""What argparse itself says, in the language of the course: its headings, its own help, and its errors."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

# By the text that argparse looks up with gettext. English says the same.
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


@contextmanager
def in_our_words() -> Iterator[None]:
    """Within it argparse speaks the language of the course: parsers are made there, and parse there."""
    before = argparse._  # type: ignore[attr-defined]  # the name by which argparse calls gettext
    argparse._ = lambda text: ARGPARSE_WORDS.get(text) or before(text)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        argparse._ = before  # type: ignore[attr-defined]
