"""Read the function below @exercise: its text, and whether it is still empty."""

import ast
import inspect
import textwrap
from collections.abc import Callable

from nncourse.errors import CourseError


def text_of(function: Callable, name: str) -> str:
    """The function's source. Decorators become comments, so that line numbers stay; it also gets the name `name`.

    Raises CourseError if there is no readable `def`.
    """
    try:
        return text_of_source(inspect.getsource(function), name)
    except (OSError, TypeError, SyntaxError):
        raise CourseError(f"{name}: wanted a function whose text can be read: write it in a cell, with def") from None


def text_of_source(source: str, name: str) -> str:
    """The same for the text of a function with its decorators. SyntaxError if it is no Python."""
    lines = textwrap.dedent(source).splitlines()
    node = ast.parse("\n".join(lines)).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise CourseError(f"{name}: wanted a function made with def below @exercise")
    first = node.lineno - 1
    text = "\n".join([*(f"# {line}" for line in lines[:first]), *lines[first:]]) + "\n"
    return text if node.name == name else f"{text}\n{name} = {node.name}\n"


def is_empty(text: str) -> bool:
    """Whether the function's body is only a docstring, `...`, `pass` or `raise NotImplementedError`."""
    try:
        node = ast.parse(text).body[0]
    except (SyntaxError, ValueError):  # reported when it is built
        return False
    return all(_says_nothing(statement) for statement in getattr(node, "body", ()))


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        return "NotImplementedError" in ast.unparse(statement)
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass)
