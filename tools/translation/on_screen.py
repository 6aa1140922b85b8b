"""What a student sees of a notebook that has run: outputs, pages in HTML, widgets, and the words in figures."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat

from tools.notebooks import client

WIDGETS = "application/vnd.jupyter.widget-state+json"
MARK = "▣ "  # before the words of a figure
# Run before the first cell: whatever text matplotlib draws is printed, since a picture cannot be read.
HOOK = f"""
import matplotlib.text

def _told(draw):
    def drawn(self, renderer, *arguments, **options):
        if self.get_visible() and self.get_text().strip():
            print({MARK!r} + self.get_text().replace(chr(10), " "))
        return draw(self, renderer, *arguments, **options)
    return drawn

matplotlib.text.Text.draw = _told(matplotlib.text.Text.draw)
"""
HOOK_CELL = "hook"
# Of a widget's state: what is no text for people.
NO_TEXTS = re.compile(
    r"^_|layout|style|_msg$|^(orientation|readout_format|icon|layout|dom_classes|format|outputs|values|form)$"
)
# In what describes a control or an array: how the code calls it.
NAMES = {"name", "kind", "plays", "dtype", "value", "settings", "surface"}
HIDDEN_TAGS = {"style", "script"}
CELLS = {"td", "th"}  # of a table, of which a row is a line
SPOKEN = {"alt", "title", "aria-label", "placeholder"}


def run(notebook: Any, folder: str, environment: dict[str, str], hook: str = HOOK) -> Any:
    """The notebook with its outputs; its cells run after `hook`, one after the other. HOOK prints figures' texts."""
    notebook.cells.insert(0, nbformat.v4.new_code_cell(hook, id=HOOK_CELL))
    client(notebook, Path(folder), timeout=600, allow_errors=True).execute(env=environment)
    return notebook


def texts(notebook: Any) -> Iterator[tuple[str, str]]:
    """Each text on the screen with the id of its cell, or "widget"."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            for text in of_output(output):
                yield cell.id, text
    state = notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {})
    for model in state.values():
        for name, value in model["state"].items():
            if not NO_TEXTS.search(name):
                yield from (("widget", text) for text in _of_value(value))


def of_output(output: Any) -> Iterator[str]:
    """The texts of one output."""
    if output.output_type == "stream":
        yield output.text
    elif output.output_type == "error":
        yield f"the cell failed: {output.ename}: {output.evalue}"
    else:
        data = output.data
        for kind in ("text/html", "image/svg+xml"):
            if kind in data:
                yield page(data[kind])
        yield from (data[kind] for kind in ("text/markdown", "text/plain") if kind in data)


def _of_value(value: Any) -> Iterator[str]:
    """The strings in a widget's trait; keys of dictionaries are names, and some of their values."""
    if isinstance(value, str):
        yield page(value) if "<" in value else value
    elif isinstance(value, dict):
        for key, each in value.items():
            if key == "options":  # a name, and the words that are shown for it
                yield from (words for _, words in each)
            elif key not in NAMES:
                yield from _of_value(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _of_value(each)


class _Page(HTMLParser):
    """Collects the text of a page, a row of a table in one line, and the attributes that are read out."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.hidden = 0
        self.in_row = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in HIDDEN_TAGS
        if tag == "tr":
            self.in_row = True
            self.texts.append("")
        self.texts += [value for name, value in attributes if name in SPOKEN and value]

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in HIDDEN_TAGS
        self.in_row &= tag != "tr"

    def handle_data(self, data: str) -> None:
        if self.in_row:
            self.texts[-1] += f"{data}  "
        elif not self.hidden:
            self.texts.append(data)


def page(html: str) -> str:
    """The text of a page in HTML, and of its images and controls."""
    reader = _Page()
    reader.feed(html)
    return "\n".join(reader.texts)
