"""Extend Sphinx and myst-nb for the book: formulas as MathML, described figures, CUDA C in cells, heads, languages."""

from typing import Any

from sphinx.application import Sphinx

from book.extension import cells, figures, formulas, head, other_languages, punctuation, theme_words


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this."""
    formulas.register(app)
    figures.register(app)
    punctuation.register(app)
    cells.register(app)
    head.register(app)
    other_languages.register(app)
    theme_words.register(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
