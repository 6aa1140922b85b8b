"""Answers in the cells of a notebook that was handed in: the texts that the notebook would have kept."""

import ast
import json
import re
from collections.abc import Iterator

from nnclassroom.notebook import cuda_cell, python_cell
from nncourse.errors import CourseError

MAGIC = re.compile(r"(?m)^\s*[%!].*$")


def answers(content: bytes) -> dict[str, str]:
    """The filled-in exercises of a notebook by the names of their files, `sigmoid.numpy.py`; of several the last.

    ValueError if this is no notebook. Nothing is run.
    """
    try:
        cells = json.loads(content.decode("utf-8-sig"))["cells"]
        sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        texts = [source if isinstance(source, str) else "".join(source) for source in sources]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("is no notebook, or is damaged") from None
    return {name: text for source in texts for name, text in _in_cell(source)}


def _in_cell(source: str) -> Iterator[tuple[str, str]]:
    source = source.strip("\n") + "\n"
    if source.startswith("%%cuda"):
        first, _, body = source.partition("\n")
        line = first.removeprefix("%%cuda").strip()
        try:
            options = cuda_cell.parsed(line)
        except CourseError:
            return
        if not cuda_cell.is_empty(body):
            yield f"{options.operation}.{options.kernel}.cu", cuda_cell.text_to_keep(line, body)
    elif "exercise(" in source:
        yield from _functions(source)


def _functions(source: str) -> Iterator[tuple[str, str]]:
    plain = MAGIC.sub("", source)
    try:
        body = ast.parse(plain).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body:
        named = next(filter(None, map(_exercise, getattr(node, "decorator_list", ()))), None)
        if named and isinstance(node, ast.FunctionDef):
            first = min(each.lineno for each in node.decorator_list) - 1
            text = python_cell.text_of_source("\n".join(plain.splitlines()[first : node.end_lineno]), named[0])
            if not python_cell.is_empty(text):
                yield f"{named[0]}.{named[1]}.py", text


def _exercise(decorator: ast.expr) -> tuple[str, str] | None:
    """Operation and kernel of `@exercise("sigmoid", kernel="numpy")`; None for another decorator."""
    if not (isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "exercise"):
        return None
    given = [*decorator.args, *(word.value for word in decorator.keywords if word.arg == "kernel")]
    names = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    fits = len(names) == 2 and all(name.isidentifier() for name in names)
    return (names[0], names[1]) if fits else None
