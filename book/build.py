"""Build one language of the book: python -m book.build, which tools/book.py starts with NNCOURSE_LANG set."""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

from book.assembly import Choice, assemble
from book.editions import ROOT, edition
from book.live import STATIC
from nnclassroom import commands
from nnclassroom.version import course_version
from nncourse.errors import CourseError

# What the theme calls its controls, where it has no translation, and what the book calls them.
THEME_WORDS = {
    "Toggle primary sidebar": "LIST_OF_PAGES",
    "Toggle secondary sidebar": "ON_THIS_PAGE",
    "Main": "PAGES",
    "": "PAGES_BELOW",
    "Page": "HEADINGS",
}

SAID = ("ENLARGE", "CLOSE", "MOVE_SIDEWAYS")  # words for static/nncourse.js


def main(arguments: list[str] | None = None) -> int:
    """Assemble the source tree, and run Sphinx, for which a warning is an error. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m book.build", description=__doc__)
    parser.add_argument("--lang", default="en")
    parser.add_argument("--languages", type=json.loads, default={}, help='languages of the book: {"en": "English"}')
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "book")
    parser.add_argument("--notebooks", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--only", help="notebooks and topics to make, separated by commas")
    parser.add_argument("--address", default="")
    asked = parser.parse_args(arguments)

    def say(what: str) -> None:
        print(f"book, {asked.lang}: {what}", flush=True)

    try:
        this = edition(asked.lang, asked.notebooks, asked.texts)
        only = asked.only.split(",") if asked.only else None
        source = asked.out / "source" / asked.lang
        assemble(this, source, asked.out / "cache", Choice(only, only), asked.address, say)
        words = this.words()
    except CourseError as error:
        print(f"book: {error}", file=sys.stderr)
        return 1
    say("pages")
    return sphinx(asked.lang, source, asked.out, words, asked.languages)


def sphinx(language: str, source: Path, out: Path, words: ModuleType, languages: dict[str, str]) -> int:
    """Run Sphinx on a source tree; the pages are in `out`/html/`language`. Returns its exit status."""
    from sphinx.application import Sphinx

    settings = {
        "language": language,
        "copyright": words.COPYRIGHT,
        "html_title": words.TITLE,
        "html_static_path": [str(ROOT / "book" / STATIC), str(source / STATIC)],
        "html_theme_options.search_bar_text": words.SEARCH,
        "nb_code_prompt_show": words.SHOW_OUTPUT,
        "nb_code_prompt_hide": words.HIDE_OUTPUT,
        "nncourse_description": words.DESCRIPTION,
        "nncourse_version": words.VERSION.format(version=course_version()),
        "nncourse_says": {name: getattr(words, name) for name in SAID},
        "nncourse_languages": languages,
        "nncourse_theme_words": {theirs: getattr(words, ours) for theirs, ours in THEME_WORDS.items()},
    }
    # myst-nb writes its copies of notebooks and images beside the pages: each language has a folder for both.
    building, pages = out / "building" / language, out / "html" / language
    for old in (building, pages):
        shutil.rmtree(old, ignore_errors=True)
    app = Sphinx(
        srcdir=source,
        confdir=ROOT / "book",
        outdir=building / "html",
        doctreedir=out / "doctrees" / language,
        buildername="html",
        confoverrides=settings,
        warningiserror=True,
        freshenv=True,  # a page that is not read again would keep its warnings to itself
        parallel=os.cpu_count() or 1,
        status=None,
    )
    app.build()
    for templates in (building / "html" / "_static").glob("*webpack-macros.html"):  # of the themes; no pages
        templates.unlink()
    pages.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(building / "html", pages)
    shutil.rmtree(building)
    thesis = ["experiment", "recorded", "--out", str(pages / "notebooks")]  # which cells of notebooks 13 and 14 write
    return commands.main(thesis) or app.statuscode


if __name__ == "__main__":
    sys.exit(main())
