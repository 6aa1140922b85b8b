"""When the course moves cells from one notebook to another, the student's versions of these cells move with them.

Notebooks are identified by their names, cells by their ids. `handed_out` and `new` have each cell's hash, by notebook.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

Hashes = Mapping[str, Mapping[str, str]]


def destinations(handed_out: Hashes, new: Hashes) -> dict[str, dict[str, str]]:
    """Where cells have moved: old notebook -> id -> new notebook.

    An id alone is not enough, since two notebooks may use the same id. The new notebook must have a cell of the old one
    word for word. Or it did not exist before, and most of its old cells come from the old one.
    """
    found: dict[str, dict[str, str]] = {}
    gone = {old: [name for name in cells if name not in new.get(old, {})] for old, cells in handed_out.items()}
    for notebook, cells in new.items():
        arrived = {name for name in cells if name not in handed_out.get(notebook, {})}
        shared = {old: [name for name in names if name in arrived] for old, names in gone.items()}
        sources = sorted(shared, key=lambda old: -len(shared[old]))
        for old in sources:
            exact = any(handed_out[old][name] == cells[name] for name in shared[old])
            if exact or (notebook not in handed_out and old == sources[0]):
                for name in shared[old]:
                    if name in arrived and name not in found.get(old, {}):
                        found.setdefault(old, {})[name] = notebook
                        arrived.discard(name)
    return found


def follow(
    cells: Sequence[Any], handed_out: Mapping[str, str], where: Mapping[str, str], stays: bool
) -> tuple[list[Any], dict[str, list[Any]]]:
    """A student's cells of one notebook: those that stay, and those that move, by the notebook they move to.

    A student's own cell follows the cell before it. Cells at the top follow the first cell that moves, if the notebook
    itself is dropped.
    """
    remaining: list[Any] = []
    going: dict[str, list[Any]] = {}
    target = None if stays else next((where[cell.id] for cell in cells if cell.id in where), None)
    for cell in cells:
        if cell.id in handed_out:
            target = where.get(cell.id)
        (remaining if target is None else going.setdefault(target, [])).append(cell)
    return remaining, going


def shift(handed_out: MutableMapping[str, dict[str, str]], old: str, where: Mapping[str, str]) -> None:
    """Move the entries of these cells of `old` in `handed_out` to the notebooks where the cells are now."""
    for name in [name for name in handed_out[old] if name in where]:
        handed_out.setdefault(where[name], {})[name] = handed_out[old].pop(name)
