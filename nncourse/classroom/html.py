"""HTML for verdicts and tables: plain elements, the page's own text colour, so that light and dark themes both work.

Styles stand in the elements: JupyterLab removes <style> from saved outputs of a notebook that it does not trust yet.
"""

import sys
from collections.abc import Sequence
from html import escape
from types import ModuleType

EDGES = {"right": "#2a9d3a", "wrong": "#d1453b"}


def page(body: str, kind: str = "") -> str:
    """A block with a coloured edge; `kind` is right, wrong or nothing."""
    style = f"margin:.3em 0;padding:.2em .8em;border-left:.25em solid {EDGES.get(kind, '#888')}"
    return f'<div class="nncourse {kind}" style="{style}">{body}</div>'


def cells(texts: Sequence[str], columns: int = 0, tag: str = "td", words: int = 1) -> str:
    """One row of a table: `words` on the left, then numbers. The last of too few texts takes up the columns left."""
    left = columns - len(texts) + 1
    row = ""
    for place, text in enumerate(texts):
        wide = place == len(texts) - 1 and left > 1
        side = "left" if place < words or wide else "right"
        span = f' colspan="{left}"' if wide else ""
        row += f'<{tag}{span} style="padding:.1em .7em;text-align:{side};background:none">{escape(text)}</{tag}>'
    return f"<tr>{row}</tr>"


def running_ipython() -> ModuleType | None:
    """IPython, if this runs in a notebook or its shell."""
    ipython = sys.modules.get("IPython")
    return ipython if ipython and ipython.get_ipython() else None
