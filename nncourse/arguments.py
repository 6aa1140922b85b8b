"""What argparse itself says, in the language of the course: its headings, its own help, and its errors."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """The text that argparse looks up with gettext, and what is said for it; English says the same."""

    key: str
    words: str


MESSAGES = (
    Message(key="usage: ", words="usage: "),
    Message(key="positional arguments", words="positional arguments"),
    Message(key="options", words="options"),
    Message(key="show this help message and exit", words="show this help message and exit"),
    Message(key="argument %(argument_name)s: %(message)s", words="argument %(argument_name)s: %(message)s"),
    Message(key="the following arguments are required: %s", words="the following arguments are required: %s"),
    Message(key="unrecognized arguments: %s", words="unrecognized arguments: %s"),
    Message(key="expected one argument", words="expected one argument"),
    Message(key="expected at least one argument", words="expected at least one argument"),
    Message(key="ignored explicit argument %r", words="ignored explicit argument %r"),
    Message(
        key="ambiguous option: %(option)s could match %(matches)s",
        words="ambiguous option: %(option)s could match %(matches)s",
    ),
    Message(
        key="invalid choice: %(value)r (choose from %(choices)s)",
        words="invalid choice: %(value)r (choose from %(choices)s)",
    ),
    Message(key="invalid %(type)s value: %(value)r", words="invalid %(type)s value: %(value)r"),
)


@contextmanager
def in_our_words() -> Iterator[None]:
    """Within it parsers say what they say in the language of the course: make them there, and parse there."""
    said = {message.key: message.words for message in MESSAGES}
    before = argparse._  # type: ignore[attr-defined]  # the name by which argparse calls gettext
    argparse._ = lambda text: said.get(text) or before(text)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        argparse._ = before  # type: ignore[attr-defined]
