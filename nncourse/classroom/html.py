"""HTML for verdicts and tables: plain elements, the page's own text colour, so that light and dark themes both work."""

from collections.abc import Sequence
from html import escape

STYLE = (
    "<style>.nncourse{margin:.3em 0;padding:.2em .8em;border-left:.25em solid #888}"
    ".nncourse.right{border-color:#2a9d3a}.nncourse.wrong{border-color:#d1453b}"
    ".nncourse table{border-collapse:collapse;margin:.3em 0;font-variant-numeric:tabular-nums}"
    ".nncourse td,.nncourse th{padding:.1em .7em;text-align:right;background:none}"
    ".nncourse td:first-child,.nncourse th:first-child{text-align:left}"
    ".nncourse td[colspan]{text-align:left}.nncourse pre{margin:.3em 0;background:none;color:inherit}</style>"
)


def page(body: str, kind: str = "") -> str:
    """A block with a coloured edge; `kind` is right, wrong or nothing."""
    return f'{STYLE}<div class="nncourse {kind}">{body}</div>'


def cells(texts: Sequence[str], columns: int = 0, tag: str = "td") -> str:
    """One row of a table. The last of too few texts takes up the columns that are left."""
    *first, last = map(escape, texts)
    left = columns - len(texts) + 1
    wide = f' colspan="{left}"' if left > 1 else ""
    return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in first)}<{tag}{wide}>{last}</{tag}></tr>"
