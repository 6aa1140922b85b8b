"""Give the theme's controls the book's own words, in titles and for screen readers: the theme has no translation."""

import re
from pathlib import Path

from sphinx.application import Sphinx

# docutils and the theme write these; Sphinx has written one already.
TWICE = re.compile(r'<meta name="viewport" content="width=device-width, initial-scale=1" ?/>')
NAMELESS = '<summary><span class="toctree-toggle"'
NAMED = re.compile(r'\b(?P<attribute>title|aria-label)="(?P<text>[^"]+)"')


def register(app: Sphinx) -> None:
    """`nncourse_theme_words` says what is written instead of which of the theme's words: {"Main": "Páginas"}.

    "" stands for the triangle that opens a part of the list of pages, and has no name.
    """
    app.add_config_value("nncourse_theme_words", {}, "html", dict)
    app.connect("build-finished", rename)


def rename(app: Sphinx, error: Exception | None) -> None:
    """Write the book's words into every page."""
    if error is None:
        for path in Path(app.outdir).rglob("*.html"):
            text = path.read_text("utf-8")
            path.write_text(renamed(text, app.config.nncourse_theme_words), "utf-8")


def renamed(page: str, words: dict[str, str]) -> str:
    """The page with other names for its controls, and without what stands in its head twice."""
    page = TWICE.sub("", page).replace(
        NAMELESS, f'<summary aria-label="{words.get("", "")}">' + NAMELESS.removeprefix("<summary>")
    )
    return NAMED.sub(lambda found: f'{found["attribute"]}="{words.get(found["text"], found["text"])}"', page)
