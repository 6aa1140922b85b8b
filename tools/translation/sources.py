"""All English sources: their units, and the catalogue of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import markdown, notebooks, package, python_text, words
from .catalogue import Entry
from .units import Unit
from .words import Words

COMMON = "common"  # the catalogue of what occurs in several
DOCUMENTS = (  # what students and instructors read; pages for contributors stay English
    "README.md",
    *(f"docs/{name}.md" for name in ("command-line", "install", "instructors", "answers", "jupyterhub", "marking")),
    *(f"docs/{name}.md" for name in ("report", "speed", "training", "accessibility", "syllabus")),
    "slurm/README.md",
    "datasets/README.md",
    "benchmarks/README.md",
)
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


def collect(root: Path, chosen: Sequence[str] = ()) -> list[Source]:
    """All sources, notebooks first; or only those whose units are in the chosen catalogues."""
    tables = words.read(root / "locale" / "words.toml")
    packages = package.files(root)
    books = {path: notebooks.read(path) for path in sorted((root / "notebooks").glob("*.ipynb"))}
    texts = [path.read_text("utf-8") for path in packages if path.suffix == ".py"]
    texts += [text for book in books.values() for text in notebooks.python_cells(book)]
    names = python_text.names_in(texts)
    documents = [path for pattern in DOCUMENTS for path in sorted(root.glob(pattern))]
    where = {path: path.stem for path in books}
    where |= {path: package.area(path.relative_to(root).as_posix()) for path in packages}
    where |= dict.fromkeys(documents, "docs") | dict.fromkeys(root.glob(BOOK), "book")
    found = []
    for path, catalogue in where.items():
        if not chosen or COMMON in chosen or catalogue in chosen:
            file = path.relative_to(root).as_posix()
            rules = words.of_file(tables, file, names)
            units = notebooks.units(books[path], rules) if path in books else _units(path, catalogue, rules)
            found.append(Source(path, file, catalogue, rules, tuple(units)))
    return found


def _units(path: Path, catalogue: str, rules: Words) -> list[Unit]:
    """The units of a file that is no notebook."""
    if catalogue == "docs":
        text = path.read_text("utf-8")
        return [*markdown.units(text, measured=False), *markdown.units_in_code(text)]
    return python_text.units(path.read_text("utf-8"), rules) if catalogue == "book" else package.units(path, rules)


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
