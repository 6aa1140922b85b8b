"""Change Markdown texts that become pages: cut out marked parts, and remove links to files that are not pages."""

import posixpath
import re
from collections.abc import Collection
from textwrap import indent

PART = r"<!-- book: {name} -->\n(?P<text>.*?)<!-- book: end -->"
COLUMNS = re.compile(r"\S+ {2,}\S")  # a name, and behind some spaces what it is
LINK = re.compile(r"(?<!!)\[(?P<words>[^\]\[]+)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def part(text: str, name: str) -> str:
    """What stands in a text between the comments `<!-- book: NAME -->` and `<!-- book: end -->`; joined if several."""
    found = [match["text"].strip() for match in re.finditer(PART.format(name=name), text, re.DOTALL)]
    if not found:
        raise ValueError(f"there is no part <!-- book: {name} --> in the text that begins {text[:60]!r}")
    return "\n\n".join(found)


def without_dead_links(text: str, page: str, pages: Collection[str]) -> str:
    """The text of a page with the words alone in place of links to files that are not among the pages.

    `page` and `pages` are paths in the book's source.
    """

    def kept(match: re.Match) -> str:
        target = match["target"]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) in pages
        return match[0] if there else match["words"]

    return LINK.sub(kept, text)


def figure(file: str, words: str) -> str:
    """A figure with its words. It turns dark on dark pages, and scrolls sideways where a phone is narrower than it."""
    image = [f"```{{image}} {file}", f":alt: {words}", ":class: nncourse-figure nncourse-turned", "```"]
    return "\n".join(["````{container} nncourse-picture", *image, "````"])


def row(cells: Collection[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(headings: Collection[str], rows: Collection[Collection[str]]) -> str:
    """A Markdown table."""
    return "\n".join([row(headings), "|" + "---|" * len(headings), *map(row, rows)])


def of_docstring(text: str) -> str:
    """A docstring as Markdown: what is indented or a list in columns is code, the rest plain text with `code` in it."""
    return "\n\n".join(_of_paragraph(paragraph) for paragraph in text.split("\n\n"))


def _of_paragraph(text: str) -> str:
    if text.startswith("    "):
        return text
    return indent(text, "    ") if all(COLUMNS.match(line) for line in text.splitlines()) else plain(text)


def plain(text: str) -> str:
    """Text with what Markdown would take for its own escaped, but for what stands between backticks."""
    pieces = text.split("`")
    escaped = (re.sub(r"([*_<>$\[\]{}\\])", r"\\\1", each) if i % 2 == 0 else each for i, each in enumerate(pieces))
    return re.sub("^%", r"\\%", "`".join(escaped), flags=re.MULTILINE)  # such a line is a comment
