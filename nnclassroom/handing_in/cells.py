"""Answers in the cells of a notebook that was handed in: the kernels that the notebook would have kept."""

import json
from typing import Any

from nnclassroom.notebook import cuda_cell, python_cell
from nncourse.errors import CourseError, decoded


def answers(content: bytes) -> dict[str, str]:
    """The filled-in exercises of a notebook, by file name such as `sigmoid.numpy.py`; of several the last.

    ValueError if this is not a notebook. Nothing is run.
    """
    try:
        book = json.loads(decoded(content))
        sheets = [book, *(each for each in book.get("worksheets") or () if isinstance(each, dict))]  # of nbformat 3
        cells = [cell for sheet in sheets for cell in sheet.get("cells") or ()]
        if not any("cells" in sheet for sheet in sheets):
            raise KeyError("cells")
        sources = [_source(cell) for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("is not a notebook, or is damaged") from None
    found: dict[str, str] = {}
    left = python_cell.MOST_WORK
    for source in sources:
        left -= 0 if python_cell.is_python(source) else python_cell.work(source)
        if left >= 0:
            found |= in_cell(source)
    return found


def _source(cell: dict[str, Any]) -> str:
    """A cell's text, without surrogates (halves of characters), which JSON can hold and a file cannot."""
    given = cell.get("source", cell.get("input", ""))
    text = "".join(filter(lambda part: isinstance(part, str), given)) if isinstance(given, list) else given
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def in_cell(source: str) -> dict[str, str]:
    """The filled-in exercises of a cell, by file name."""
    try:
        python = python_cell.as_run(source)
        magic = python_cell.cell_magic(python)
        if magic is None or magic.name in python_cell.UNCHANGED_BY:
            return {f"{operation}.{kernel}.py": text for operation, kernel, text in python_cell.answers(python)}
    except SyntaxError:
        return {}
    if magic.name != "cuda" or cuda_cell.is_empty(magic.body):
        return {}
    try:
        options = cuda_cell.parsed(magic.line)
    except CourseError:
        return {}
    return {f"{options.operation}.{options.kernel}.cu": cuda_cell.text_to_keep(magic.line, magic.body)}
