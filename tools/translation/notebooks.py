"""The units of a notebook, and the notebook in another language."""

import copy
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import replace

from nbformat import NotebookNode

from . import compare, cuda_text, markdown, python_text
from .units import Unit, replaced, same_place
from .words import Words

WIDTH = 110  # of comments that are wrapped anew
# Before the first code cell; it prints nothing. Only what is imported after nncourse speaks the language.
SWITCH = 'import os\n\nos.environ["NNCOURSE_LANG"] = "{language}"\nimport nncourse\n\n'
FENCED = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def units(notebook: NotebookNode, words: Words) -> list[Unit]:
    """The units of all cells; each has its cell's id for a place."""
    return [unit for cell in notebook.cells for unit in same_place(_units_of(cell, words), cell.id)]


def python_cells(notebook: NotebookNode) -> list[str]:
    """The sources of the cells in Python."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "code" and not cell.source.startswith("%%cuda")]


def _units_of(cell: NotebookNode, words: Words) -> list[Unit]:
    if cell.cell_type != "code":
        return [*markdown.units(cell.source), *_fenced(cell.source)]
    if cell.source.startswith("%%cuda"):
        return cuda_text.units(cell.source, WIDTH)
    return python_text.units(cell.source, words, WIDTH)


def _fenced(text: str) -> Iterator[Unit]:
    """The comments of the Python that a markdown cell shows."""
    for shown in FENCED.finditer(text):
        try:
            found = python_text.units(shown[1], Words(), WIDTH)
        except (SyntaxError, tokenize.TokenError):  # a piece of a program
            continue
        for unit in found:
            if unit.kind == "comment":
                yield replace(unit, begin=unit.begin + shown.start(1), end=unit.end + shown.start(1))


def translated(
    notebook: NotebookNode, words: Words, say: Callable[[Unit], str | None], language: str
) -> tuple[NotebookNode, list[str]]:
    """The notebook without outputs, and the ids of cells whose code a translation would change: they stay English."""
    result, refused, first = copy.deepcopy(notebook), [], True
    for cell in result.cells:
        source = replaced(cell.source, same_place(_units_of(cell, words), cell.id), say)
        if cell.cell_type == "code":
            if not same_code(cell.source, source):
                refused.append(cell.id)
                source = cell.source
            if first and language and not source.startswith("%%"):
                source, first = SWITCH.format(language=language) + source, False
            cell.outputs, cell.execution_count = [], None
        cell.source = source
    return result, refused


def same_code(english: str, other: str) -> bool:
    """Whether both cells compute the same."""
    if english.startswith("%%cuda"):
        return cuda_text.without_comments(english) == cuda_text.without_comments(other)
    try:
        return _magics(english) == _magics(other) and compare.skeleton(english) == compare.skeleton(other)
    except SyntaxError:
        return False


def _magics(source: str) -> list[str]:
    return [line for line in source.splitlines() if line.startswith(("%", "!"))]
