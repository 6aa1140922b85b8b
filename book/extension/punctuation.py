"""A full stop, a comma or a bracket stays on the line of the formula before it."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

CLOSING = re.compile(r"[.,;:!?)’”]+")
TOGETHER = "nncourse-together"  # a class of nncourse.css


def register(app: Sphinx) -> None:
    app.add_transform(Together)


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
