"""A link on each page to the same page in the other languages."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def register(app: Sphinx) -> None:
    """`nncourse_languages` names the languages of the book: {"en": "English", "es": "Español"}."""
    app.add_config_value("nncourse_languages", {}, "html", dict)
    app.connect("html-page-context", add_links)


def add_links(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Give the page's template the links: a list of a language, its name and the address."""
    others = {code: name for code, name in app.config.nncourse_languages.items() if code != app.config.language}
    same = page if doctree is not None else app.config.root_doc
    up = context["pathto"]("", 1)  # the folder of this language
    context["nncourse_links"] = [(code, name, f"{up}../{code}/{same}.html") for code, name in others.items()]
