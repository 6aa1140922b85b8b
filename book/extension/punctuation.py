"""Keep on one line: a formula with the full stop, comma or bracket after it, and short code with hyphens."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

CLOSING = re.compile(r"[.,;:!?)’”]+")
TOGETHER = "nncourse-together"  # a class of nncourse.css
SHORT = 24  # letters of code that fit into a line of a phone


def register(app: Sphinx) -> None:
    app.add_transform(Together)
    app.add_transform(Whole)


class Together(SphinxTransform):
    """Puts a formula and the punctuation behind it into one piece of line."""

    default_priority = 410

    def apply(self, **kwargs: Any) -> None:
        for formula in list(self.document.findall(nodes.math)):
            parent, place = formula.parent, formula.parent.index(formula)
            following = parent[place + 1] if place + 1 < len(parent) else None
            match = CLOSING.match(following.astext()) if isinstance(following, nodes.Text) else None
            if match:
                text = following.astext()
                parent[place + 1] = nodes.Text(text[match.end() :])
                parent[place] = nodes.inline("", "", formula, nodes.Text(match[0]), classes=[TOGETHER])


class Whole(SphinxTransform):
    """Keeps short code such as --cpu-steps or 30-60-10-1 in one line: a browser would break it at a hyphen."""

    default_priority = 410

    def apply(self, **kwargs: Any) -> None:
        for code in self.document.findall(nodes.literal):
            if "-" in code.astext() and len(code.astext()) <= SHORT:
                code["classes"].append(TOGETHER)
