"""Python text as Python reads it: its syntax tree, and its lines."""

import ast
import re
import warnings

LINE_END = re.compile(r"\r\n|\r|\n")


def tree(text: str) -> ast.Module:
    r"""The text's syntax tree. SyntaxError for whatever is not Python, also for what is too deep or holds a zero byte.

    Warnings, such as the one about "\sigma" in a docstring, say nothing about an answer. Where the environment makes
    errors of them, they stay unsaid.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(str(error)) from None


def lines(text: str) -> list[str]:
    """The text's lines, without their ends, as Python counts them.

    str.splitlines() also splits at form feeds and at U+2028, which to Python are characters like others.
    """
    found = LINE_END.split(text)
    return found if found[-1] else found[:-1]
