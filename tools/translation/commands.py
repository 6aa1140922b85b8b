"""The four commands of tools/translate.py."""

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from . import catalogue, compare, notebooks, package, sources, stamp
from .catalogue import Entry, Key, Said
from .sources import Source
from .units import Unit, replaced

MOST_SHOWN = 10  # lines of one kind for a catalogue


def folder(root: Path, language: str) -> Path:
    """Where the catalogues of a language lie."""
    return root / "locale" / language


def read_all(root: Path, language: str, chosen: Collection[str] = ()) -> dict[str, list[Said]]:
    """The translations of all catalogues there are, or of the chosen ones."""
    paths = sorted(folder(root, language).glob("*.po"))
    return {path.stem: catalogue.read(path, language) for path in paths if not chosen or path.stem in chosen}


def update(root: Path, language: str, chosen: Sequence[str] = ()) -> int:
    """Write the catalogues anew from today's English; what is gone is dropped.

    A translation that is for a file which is no more is named: another file may need it.
    """
    entries = sources.entries(sources.collect(root))
    there = read_all(root, language)
    today = {entry.text: entry for wanted in entries.values() for entry in wanted}
    all_said = [said for each in there.values() for said in each if said.string]
    known = {(said.context, said.text): said for said in sorted(all_said, key=usable)}  # of two the usable one
    for said in known.values():
        if said.context and said.text in today and said.context not in today[said.text].contexts:
            print(f"dropped, there is no {said.context}: {said.text[:70]!r}: {said.string[:70]!r}")
    gone = [said for said in known.values() if said.text not in today and not said.context]
    for name, wanted in entries.items():
        if not chosen or name in chosen:
            merged = catalogue.merged(wanted, known, gone)
            catalogue.write(folder(root, language) / f"{name}.po", language, wanted, merged)
    if not chosen:
        for name in there.keys() - entries.keys():
            (folder(root, language) / f"{name}.po").unlink()
    return 0


def usable(said: Said) -> bool:
    """Whether a translation is there and nobody doubts it."""
    return bool(said.string) and not said.fuzzy


def status(root: Path, language: str, chosen: Sequence[str] = ()) -> int:
    """Print, for each catalogue, how much is translated, and what is missing or wrong. Returns 1 if anything is."""
    entries = sources.entries(sources.collect(root))
    there = read_all(root, language)
    bad = done = total = 0
    for name in sorted(entries):
        if chosen and name not in chosen:
            continue
        missing, wrong, finished = problems(entries[name], there.get(name, []))
        lines = missing + wrong
        words = sources.words_in(entries[name])
        print(f"{name:34} {finished:5} of {len(entries[name]):5} units, {words:6} words")
        print(*(f"    ✗ {line}" for line in lines[:MOST_SHOWN]), sep="\n", end="\n" if lines else "")
        if len(lines) > MOST_SHOWN:
            print(f"    … and {len(lines) - MOST_SHOWN} more")
        bad, done, total = bad + bool(lines), done + finished, total + len(entries[name])
    print(f"{'all':34} {done:5} of {total:5} units")
    return int(bool(bad))


def problems(entries: list[Entry], translations: list[Said]) -> tuple[list[str], list[str], int]:
    """What is missing or old, and what is wrong, a line each; and how many texts are translated.

    It compares with today's English, not with what the catalogue says of itself: a forgotten update shows too.
    """
    there = {entry.text: entry for entry in entries}
    plain = {said.text: said for said in translations if not said.context}
    missing, wrong = [], []
    finished = 0
    for entry in entries:
        said = plain.get(entry.text)
        if said is None or not said.string:
            missing.append(f"untranslated: {shown(entry)}")
        elif said.fuzzy:
            missing.append(f"fuzzy: {shown(entry)}")
        else:
            finished += 1
    for said in translations:
        if said.text not in there:
            missing.append(f"stale, run update: {said.text[:70]!r}")
        elif usable(said):
            wrong += [f"{shown(there[said.text])}: {what}" for what in wrong_in(said, there[said.text].kind)]
    return missing, wrong, finished


def wrong_in(said: Said, kind: str) -> list[str]:
    """What a translation changes that it may not."""
    found = compare.differs(said.text, said.string, kind)
    return [line for what, line in found.items() if not said.allows(what)]


def shown(entry: Entry) -> str:
    """An entry in a line: where it is, and how it begins."""
    return f"{entry.places[0]}: {entry.text[:70]!r}"


def write(root: Path, language: str, chosen: Sequence[str] = ()) -> int:
    """Write notebooks/LANGUAGE, nncourse/languages/LANGUAGE and build/texts/LANGUAGE; or of these what is chosen.

    What has no translation, and so stays English, is told. Returns 1 if a translation could not be used.
    """
    found = sources.collect(root, chosen)
    if unknown := {*chosen} - {source.catalogue for source in found} - {sources.COMMON}:
        print(f"translate: expected names of catalogues such as 01_neurons; got {', '.join(sorted(unknown))}")
        return 1
    translations = read_all(root, language, {*chosen, sources.COMMON} if chosen else ())
    if not translations:
        print(f"translate: no catalogues in {folder(root, language)}: run update {language} first")
        return 1
    for out in () if chosen else (root / "notebooks" / language, root / "build" / "texts" / language):
        shutil.rmtree(out, ignore_errors=True)
    refused: list[str] = []
    silent: list[str] = []
    speaker = spoken(translations, refused, silent)
    refused += write_notebooks(root, language, found, speaker)
    refused += write_texts(root, language, found, speaker)
    refused += write_package(root, language, found, speaker, whole=not chosen)
    print(*(f"✗ {line}" for line in dict.fromkeys(refused)), sep="\n", end="\n" if refused else "")
    if silent:
        print(f"✗ {len(silent)} texts stay English, since they have no translation:")
        print(*(f"    {line}" for line in silent[:MOST_SHOWN]), *["    …"] * (len(silent) > MOST_SHOWN), sep="\n")
    return int(bool(refused))


Speaker = Callable[[Source, Unit], str | None]


def spoken(translations: dict[str, list[Said]], refused: list[str], silent: list[str]) -> Speaker:
    """What says a unit in another language; None where it is not translated.

    What may not be used goes to `refused`, what has no translation to `silent`, a line each.
    """
    known = {(said.context, said.text): said for each in translations.values() for said in each if usable(said)}

    def say(source: Source, unit: Unit) -> str | None:
        said = said_of(known, source, unit)
        if said is None:
            silent.append(f"{source.file}, {unit.place}: {unit.text[:60]!r}")
            return None
        wrong = wrong_in(said, unit.kind)
        refused.extend(f"{source.file}, {unit.place}: {unit.text[:60]!r}: {line}" for line in wrong)
        return None if wrong else said.string

    return say


def said_of(known: dict[Key, Said], source: Source, unit: Unit) -> Said | None:
    """The translation of a unit: the one of its place if there is one."""
    contexts = (*reversed(source.contexts(unit)), None)
    return next((known[context, unit.text] for context in contexts if (context, unit.text) in known), None)


def write_notebooks(root: Path, language: str, found: list[Source], speaker: Speaker) -> list[str]:
    """The notebooks, without outputs. Returns what was refused."""
    out = root / "notebooks" / language
    out.mkdir(parents=True, exist_ok=True)
    refused = []
    for source in found:
        if source.path.suffix != ".ipynb":
            continue
        book = notebooks.read(source.path)
        result, cells = notebooks.translated(book, source.words, partial(speaker, source), language)
        refused += [f"{source.file}, cell {cell}: the translation changes the code" for cell in cells]
        notebooks.write(result, out / source.path.name)
    return refused


def write_package(root: Path, language: str, found: list[Source], speaker: Speaker, whole: bool) -> list[str]:
    """The packages, and stamps of what all was made from; or only the files found. Returns what was refused."""
    out = root / package.GENERATED / language
    new = out.with_name(f".{language}") if whole else out
    refused = []
    by_path = {source.path: source for source in found}
    if whole:
        shutil.rmtree(new, ignore_errors=True)
    for path in package.files(root):
        source = by_path.get(path)
        if source is None:
            continue
        target = new / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = package.translated(path, source.units, partial(speaker, source)) if source.units else None
        if source.units and text is None:
            refused.append(f"{source.file}: the translation changes the code")
        if text is None:
            shutil.copyfile(path, target)
        else:
            target.write_text(text, "utf-8")
    if whole:
        stamp.write(root, language, new)
        shutil.rmtree(out, ignore_errors=True)
        new.rename(out)
    return refused


def write_texts(root: Path, language: str, found: list[Source], speaker: Speaker) -> list[str]:
    """The documents and the book's words, in a folder laid out like the repository. Returns what was refused."""
    out = root / "build" / "texts" / language
    refused = []
    for source in found:
        if not (source.file == sources.BOOK or source.path.suffix == ".md"):
            continue
        target = out / source.file
        target.parent.mkdir(parents=True, exist_ok=True)
        english = source.path.read_text("utf-8")
        text = replaced(english, source.units, partial(speaker, source))
        if source.path.suffix == ".py" and not package.same_code(source.path, english, text):
            refused.append(f"{source.file}: the translation changes the code")
            text = english
        target.write_text(text, "utf-8")
    return refused


def read(root: Path, language: str, chosen: Sequence[str]) -> int:
    """Take what somebody has changed in the generated notebooks into the catalogues they were written from.

    Returns 1 if a cell has changed in more than its words, or a translation changes what it may not.
    """
    translations = read_all(root, language)
    where = {(s.context, s.text): name for name, each in translations.items() for s in each if usable(s)}
    known = {(s.context, s.text): s for each in translations.values() for s in each if usable(s)}
    new: dict[str, dict[Key, str]] = {}
    refused: list[str] = []
    for source in sources.collect(root, chosen):
        edited = root / "notebooks" / language / source.path.name
        if source.path.suffix != ".ipynb" or source.catalogue not in chosen or not edited.is_file():
            continue
        books = (notebooks.read(source.path), notebooks.read(edited))
        heard, cells = notebooks.heard(*books, source.words, lambda unit, of=source: said_of(known, of, unit), language)
        refused += [f"{source.file}, cell {cell}: more than its words has changed: left as it was" for cell in cells]
        for unit, said, string in heard:
            wrong = wrong_in(replace(said, string=string), unit.kind)
            refused += [f"{source.file}, {unit.place}: {unit.text[:60]!r}: {line}" for line in wrong]
            if not wrong:
                key = said.context, said.text
                new.setdefault(where[key], {})[key] = string
                print(f"{where[key]}, {unit.place}: {string[:90]}")
    for name, strings in new.items():
        catalogue.say_again(folder(root, language) / f"{name}.po", language, strings)
    print(*(f"✗ {line}" for line in refused), sep="\n", end="\n" if refused else "")
    return int(bool(refused))
