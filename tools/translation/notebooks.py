"""The units of a notebook, and the notebook in another language."""

import copy
import json
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import compare, cuda_text, literals, markdown, python_text
from .catalogue import Said
from .units import Unit, joined, replaced, same_place
from .words import Words

if TYPE_CHECKING:  # it takes a second to import
    from nbformat import NotebookNode

WIDTH = 110  # of comments that are wrapped anew
# Before the first code cell; it prints nothing. Only what is imported after nncourse speaks the language.
SWITCH = 'import os\n\nos.environ["NNCOURSE_LANG"] = "{language}"\nimport nncourse\n\n'
FENCED = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Node(dict):
    """A part of a notebook's JSON, with attributes as those of nbformat."""

    __setattr__ = dict.__setitem__

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


def read(path: Path) -> "NotebookNode":
    """A notebook whose cells have their sources in one text."""
    notebook = json.loads(path.read_text("utf-8"), object_hook=Node)
    for cell in notebook.cells:
        cell.source = "".join(cell.source)
    return notebook


def write(notebook: "NotebookNode", path: Path) -> None:
    """Write it as nbformat does."""
    cells = [cell | {"source": cell.source.splitlines(keepends=True)} for cell in notebook.cells]
    text = json.dumps(notebook | {"cells": cells}, ensure_ascii=False, indent=1, sort_keys=True)
    path.write_text(text + "\n", "utf-8")


def units(notebook: "NotebookNode", words: Words) -> list[Unit]:
    """The units of all cells; each has its cell's id for a place."""
    return [unit for cell in notebook.cells for unit in same_place(_units_of(cell, words), cell.id)]


def python_cells(notebook: "NotebookNode") -> list[str]:
    """The sources of the cells in Python."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "code" and not cell.source.startswith("%%cuda")]


def _units_of(cell: "NotebookNode", words: Words) -> list[Unit]:
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
    notebook: "NotebookNode", words: Words, say: Callable[[Unit], str | None], language: str
) -> tuple["NotebookNode", list[str]]:
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


def heard(
    english: "NotebookNode", edited: "NotebookNode", words: Words, say: Callable[[Unit], Said | None], language: str
) -> tuple[list[tuple[Unit, Said, str]], list[str]]:
    """What an edited notebook says in another way than its catalogues: the unit, its translation, and the new one.

    Also the ids of cells in which more has changed than the words of translated units.
    """
    sources, found, changed = {cell.id: cell.source for cell in edited.cells}, [], []
    for cell in english.cells:
        units = sorted(same_place(_units_of(cell, words), cell.id), key=lambda unit: unit.begin)
        said = {unit: each for unit in units if (each := say(unit))}
        source = sources.get(cell.id, "").removeprefix(SWITCH.format(language=language))
        parts = re.fullmatch(_pattern(cell.source, said), source, re.DOTALL)
        if not parts:
            changed.append(cell.id)
            continue
        for (unit, each), written in zip(said.items(), parts.groups(), strict=True):
            if written != unit.write(each.string):
                found.append((unit, each, as_text(unit, written)))
    return found, changed


def _pattern(source: str, units: Iterable[Unit]) -> str:
    """A regular expression for the source with any words in the place of its units."""
    parts, place = [], 0
    for unit in units:
        parts.append(re.escape(source[place : unit.begin]))
        place = unit.end
    return "(.+?)".join([*parts, re.escape(source[place:])])


def as_text(unit: Unit, written: str) -> str:
    """A translation as a catalogue has it, from how it is written in a source."""
    if unit.kind.endswith("string"):
        return literals.text_of(literals.pieces(written, 0, len(written)))
    if unit.kind == "comment":
        return joined(re.sub(r"^\s*(#|//) ?", "", line) for line in written.split("\n"))
    return "\n\n".join(joined(each.split("\n")) for each in written.split("\n\n"))


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
