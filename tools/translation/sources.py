"""All English sources: their units, and the catalogue of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat

from . import markdown, notebooks, package, python_text, words
from .catalogue import Entry
from .units import Unit
from .words import Words

COMMON = "common"  # the catalogue of what occurs in several
DOCUMENTS = ("README.md", "docs/*.md", "slurm/README.md", "datasets/README.md", "benchmarks/README.md")
BOOK = "book/words.py"  # what the web book says itself


@dataclass(frozen=True)
class Source:
    """One English file."""

    path: Path
    file: str  # from the root
    catalogue: str
    words: Words
    units: tuple[Unit, ...]

    def contexts(self, unit: Unit) -> tuple[str, ...]:
        """The names by which a translation may be for this place alone: the room's, the file's, a notebook's cell's."""
        return (self.catalogue, self.file, f"{self.file}#{unit.place}")


def collect(root: Path) -> list[Source]:
    """All sources, notebooks first."""
    tables = words.read(root / "locale" / "words.toml")
    paths = package.files(root)
    books = {path: nbformat.read(path, as_version=4) for path in sorted((root / "notebooks").glob("*.ipynb"))}
    texts = [path.read_text("utf-8") for path in paths if path.suffix == ".py"]
    texts += [text for book in books.values() for text in notebooks.python_cells(book)]
    names = python_text.names_in(texts)
    found = []
    for path, book in books.items():
        file = f"notebooks/{path.name}"
        chosen = words.of_file(tables, file, names)
        units = notebooks.units(book, chosen)
        found.append(Source(path, file, path.stem, chosen, tuple(units)))
    for path in paths:
        file = path.relative_to(root).as_posix()
        chosen = words.of_file(tables, file, names)
        units = package.units(path, chosen)
        found.append(Source(path, file, package.area(file), chosen, tuple(units)))
    for pattern in DOCUMENTS:
        for path in sorted(root.glob(pattern)):
            file = path.relative_to(root).as_posix()
            text = path.read_text("utf-8")
            units = [*markdown.units(text, measured=False), *markdown.units_in_code(text)]
            found.append(Source(path, file, "docs", words.of_file(tables, file, names), tuple(units)))
    if (root / BOOK).is_file():
        chosen = words.of_file(tables, BOOK, names)
        units = python_text.units((root / BOOK).read_text("utf-8"), chosen)
        found.append(Source(root / BOOK, BOOK, "book", chosen, tuple(units)))
    return found


def entries(sources: Iterable[Source]) -> dict[str, list[Entry]]:
    """What each catalogue holds, in the order of the sources; a text is in one catalogue only."""
    sources = list(sources)
    where: dict[str, set[str]] = {}
    for source in sources:
        for unit in source.units:
            where.setdefault(unit.text, set()).add(source.catalogue)
    found: dict[str, dict[str, Entry]] = {}
    for source in sources:
        for unit in source.units:
            name = source.catalogue if len(where[unit.text]) == 1 else COMMON
            entry = found.setdefault(name, {}).setdefault(unit.text, Entry(unit.text, unit.kind))
            place = _place(source, unit, name)
            if place not in entry.places:
                entry.places.append(place)
            entry.contexts.update(source.contexts(unit))
    return {name: list(texts.values()) for name, texts in found.items()}


def _place(source: Source, unit: Unit, catalogue: str) -> str:
    """Where a translator finds the unit."""
    file = source.path.name if catalogue != source.path.stem else ""
    return ", ".join(filter(None, (file, unit.place, unit.kind)))


def words_in(texts: Iterable[Entry]) -> int:
    """How many words these are."""
    return sum(len(entry.text.split()) for entry in texts)
