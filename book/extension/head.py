"""The head of each page: its title, what it is about, and the words of its scripts."""

import json
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LONG = 160  # letters of a description


def register(app: Sphinx) -> None:
    """The settings: the front page's description, the version in words, and what the scripts say."""
    for name, kind in (("nncourse_description", str), ("nncourse_version", str), ("nncourse_says", dict)):
        app.add_config_value(name, kind(), "html", kind)
    app.connect("html-page-context", complete)


def complete(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Give a page's template what this module is about."""
    first = page == app.config.root_doc
    about = app.config.nncourse_description if first or doctree is None else summary(doctree)
    title = context.get("title", "")
    if first:  # its own would be the book's name, which stands behind it anyway
        context["title"] = title = app.config.nncourse_description.rstrip(".")
    named = {"name": "description", "content": about}, {"property": "og:title", "content": title}
    described = {"property": "og:description", "content": about}, {"property": "og:type", "content": "website"}
    tags = "".join(f"<meta {_attributes(tag)}>\n" for tag in (*named, *described))
    says = json.dumps(app.config.nncourse_says, ensure_ascii=False).replace("<", "\\u003c")
    script = f"<script>window.nncourseSays = {says};</script>\n"
    context["metatags"] = context.get("metatags", "") + tags + script
    context["nncourse_version"] = app.config.nncourse_version


def summary(doctree: nodes.document) -> str:
    """The first paragraph of a page that is not a box, shortened at a word's end."""
    paragraphs = (each for each in doctree.findall(nodes.paragraph) if isinstance(each.parent, nodes.section))
    text = " ".join(next((each.astext() for each in paragraphs), "").split())
    return text if len(text) <= LONG else text[:LONG].rpartition(" ")[0] + " …"


def _attributes(tag: dict[str, str]) -> str:
    return " ".join(f'{name}="{escape(value)}"' for name, value in tag.items())
