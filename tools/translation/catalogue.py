"""Catalogues: what is to be translated, by file, and what translators have said, in locale/LANGUAGE/*.po."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po, write_po

WIDTH = 100
ALIKE = 0.6  # a text that is so much like one that is gone, is that one, changed
MOST_PLACES = 3
WAS = "was: "  # in a comment, before the English of a fuzzy translation
NAME = re.compile(r"([\w/]+(?:[._/]+\w+)+/?)")  # of a file, or of code: kernels/dense.cu, self.name
HOLE, CODE = re.compile(r"(\{[^{}]*\})"), re.compile(r"(`[^`]+`)")
HEADER = """\
msgid ""
msgstr ""
"Project-Id-Version: nncourse\\n"
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""


@dataclass
class Entry:
    """One text of a catalogue and where it occurs."""

    text: str
    kind: str
    places: list[str] = field(default_factory=list)  # for the translator
    contexts: set[str] = field(default_factory=set)  # by which a translation may be for some places only


@dataclass(frozen=True)
class Said:
    """One translation as a catalogue has it."""

    text: str
    context: str | None
    string: str
    fuzzy: bool
    notes: tuple[str, ...] = ()  # the translator's
    was: str = ""  # the English that a fuzzy translation translates

    def allows(self, what: str) -> bool:
        """Whether a note of the translator says that this may differ: "differs: code"."""
        return any(what in note.removeprefix("differs:") for note in self.notes if note.startswith("differs:"))


Key = tuple[str | None, str]  # a context and a text


def read(path: Path, language: str) -> list[Said]:
    """The translations of a .po file, in order; none if there is no such file."""
    if not path.exists():
        return []
    return [_said(message) for message in read_po(BytesIO(path.read_bytes()), locale=language) if message.id]


def _said(message: Message) -> Said:
    notes = [note for note in message.user_comments if note and not note.startswith("|")]
    was = " ".join(message.auto_comments).partition(WAS)[2] if message.fuzzy else ""
    return Said(message.id, message.context, message.string or "", message.fuzzy, tuple(notes), was)


def write(path: Path, language: str, entries: Iterable[Entry], translations: Iterable[Said]) -> None:
    """A .po file with these entries in this order, each with its translations."""
    by_text: dict[str, list[Said]] = {}
    for said in translations:
        by_text.setdefault(said.text, []).append(said)
    catalogue = Catalog(charset="utf-8")
    for entry in entries:
        for said in by_text.get(entry.text, ()):
            places = [*entry.places[:MOST_PLACES], *(["…"] if len(entry.places) > MOST_PLACES else [])]
            catalogue.add(
                entry.text,
                said.string,
                auto_comments=[*places, *([WAS + said.was] if said.fuzzy and said.was else [])],
                user_comments=said.notes,
                flags=["fuzzy"] if said.fuzzy else [],
                context=said.context,
            )
    _save(path, language, catalogue)


def say_again(path: Path, language: str, new: Mapping[Key, str]) -> None:
    """Put these translations into a .po file in the place of others; all else stays."""
    catalogue = read_po(BytesIO(path.read_bytes()), locale=language)
    for message in catalogue:
        if (string := new.get((message.context, message.id))) is not None:
            message.string = string
            message.flags.discard("fuzzy")
    _save(path, language, catalogue)


def _save(path: Path, language: str, catalogue: Catalog) -> None:
    """Without the comments #| of gettext, which Babel breaks into lines that msgfmt refuses."""
    for message in catalogue:
        message.flags -= {"python-format", "python-brace-format"}  # Babel guesses
    file = BytesIO()
    write_po(file, catalogue, width=WIDTH, omit_header=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER.format(language=language) + file.getvalue().decode("utf-8").rstrip("\n") + "\n", "utf-8")


def merged(entries: list[Entry], known: Mapping[Key, Said], gone: list[Said]) -> list[Said]:
    """The translations for today's entries: those there are, or fuzzy ones from a text that is gone.

    `known` holds the translations of all catalogues, since an English file may have moved to another one. Of `gone`,
    the translations of texts that are no more, those are taken out that are used. A text that has none gets an empty
    one.
    """
    said = []
    for entry in entries:
        said.append(known.get((None, entry.text)) or _changed(entry.text, gone))
        said += [known[key] for context in sorted(entry.contexts) if (key := (context, entry.text)) in known]
    return said


def _changed(text: str, gone: list[Said]) -> Said:
    """The translation of the most similar text, fuzzy unless only names of code differ; else an empty one."""
    alike = difflib.get_close_matches(text, [each.text for each in gone], n=1, cutoff=ALIKE)
    if not alike:
        return Said(text, None, "", False)
    old = next(each for each in gone if each.text == alike[0])
    gone.remove(old)
    if not old.fuzzy and (again := with_new_names(old, text)):
        return again
    return Said(text, None, old.string, True, old.notes, old.was or old.text)


def with_new_names(old: Said, text: str) -> Said | None:
    """The translation of a text in which only paths, names, holes or code between backticks are others."""
    for code in (NAME, HOLE, CODE):
        before, after, said = (code.split(each) for each in (old.text, text, old.string))
        if before[::2] == after[::2]:
            new = {one: other for one, other in zip(before[1::2], after[1::2], strict=True) if one != other}
            if set(new) <= set(said[1::2]):
                return Said(text, None, "".join(new.get(each, each) for each in said), False, old.notes)
    return None
