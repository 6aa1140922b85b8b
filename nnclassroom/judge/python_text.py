"""Python text as Python reads it: its syntax tree, its lines, and whether a function is still empty."""

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


def is_empty(text: str) -> bool:
    """Whether the function's body is only a docstring, `...`, `pass` or `raise NotImplementedError`."""
    try:
        node = tree(text).body[0]
    except (SyntaxError, IndexError):  # reported when it is built
        return False
    return all(_says_nothing(statement) for statement in getattr(node, "body", ()))


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        return "NotImplementedError" in ast.unparse(statement)
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass)
