"""HTML for verdicts and tables: plain elements in the page's own text colour, for light and dark themes.

Styles are inline because JupyterLab removes <style> from the saved outputs of an untrusted notebook.
"""

import base64
import io
import sys
from collections.abc import Iterable, Sequence
from html import escape
from types import ModuleType
from typing import Any

from nncourse.language import current

EDGES = {"right": "#2a9d3a", "wrong": "#d1453b"}
PAPER = """
@page { size: A4; margin: 16mm }
body { max-width: 48em; margin: 2em auto; padding: 0 1em; color: #111; background: #fff; font: 11pt/1.4 sans-serif }
h2 { margin-top: 1.6em; border-bottom: 1px solid #999 }
h2, h3 { break-after: avoid }
table { border-collapse: collapse; font-size: 8.5pt }
th { border-bottom: 1px solid #999 }
td, th { vertical-align: top }
.progress td { white-space: nowrap }
.progress td:nth-child(2) { white-space: normal; overflow-wrap: anywhere }
section, ol, pre, .whole, tbody, tr, img, .nncourse { break-inside: avoid }
.source, pre { font: 8.5pt/1.35 monospace; background: #f6f6f6; padding: .4em }
.source { padding-left: 3.5em }
.source li, pre { white-space: pre-wrap; overflow-wrap: anywhere }
.source li::marker { color: #777 }
img { max-width: 100%; max-height: 17em }
img.whole { max-height: 25em }
@media print { body { max-width: none; margin: 0; padding: 0; font-size: 10pt; print-color-adjust: exact } }
"""


def page(body: str, kind: str = "") -> str:
    """A block with a coloured edge; `kind` is "right", "wrong" or ""."""
    style = f"margin:.3em 0;padding:.2em .8em;border-left:.25em solid {EDGES.get(kind, '#888')}"
    return f'<div class="nncourse {kind}" style="{style}">{body}</div>'


def cells(texts: Sequence[str], columns: int = 0, tag: str = "td", words: int = 1) -> str:
    """One row of a table: the first `words` texts are left-aligned, the others right-aligned.

    If there are fewer texts than `columns`, the last one spans the remaining columns.
    """
    left = columns - len(texts) + 1
    row = ""
    for place, text in enumerate(texts):
        wide = place == len(texts) - 1 and left > 1
        side = "left" if place < words or wide else "right"
        span = f' colspan="{left}"' if wide else ""
        row += f'<{tag}{span} style="padding:.1em .7em;text-align:{side};background:none">{escape(text)}</{tag}>'
    return f"<tr>{row}</tr>"


def table(lines: Sequence[Sequence[str]], heads: Sequence[str] = (), words: int = 1) -> str:
    """A table as wide as the page, with `heads` over its columns; rows as cells() makes them."""
    head = f"<thead>{cells(heads, tag='th', words=words)}</thead>" if heads else ""
    body = "".join(cells(line, len(heads), words=words) for line in lines)
    return f'<table class="whole">{head}{body}</table>'


def paragraphs(texts: Iterable[str]) -> str:
    """Each text that says something as a paragraph."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts if text)


def image(figure: Any, text: str, whole: bool = False) -> str:
    """A matplotlib figure as inline SVG, with `text` as its text alternative.

    A `whole` figure may be as wide as the page; two others fit side by side.
    """
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    data = base64.b64encode(file.getvalue()).decode()
    size = 'class="whole" ' if whole else ""
    return f'<img {size}alt="{escape(text)}" src="data:image/svg+xml;base64,{data}">'


def document(title: str, body: str, style: str = "") -> str:
    """A self-contained HTML page for screen and print, without scripts or other files. `style` adds to its own."""
    top = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    top += f"<title>{escape(title)}</title><style>{PAPER}{style}</style>"
    return f'<!DOCTYPE html>\n<html lang="{current()}"><head>{top}</head>\n<body>{body}</body></html>\n'


def running_ipython() -> ModuleType | None:
    """The IPython module if running in a notebook or an IPython shell, else None."""
    ipython = sys.modules.get("IPython")
    return ipython if ipython and ipython.get_ipython() else None
