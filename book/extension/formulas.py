"""Formulas as MathML, which browsers draw by themselves, made by math-core. One that it cannot read is a warning."""

import re

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

NAME = "mathml"
TAG = re.compile(r"\\tag\{([^{}]*)\}")  # a formula's number, which math-core takes in numbered environments only
# A prime is high as it is: as a superscript it is raised and made smaller a second time.
PRIMED = re.compile(r"<msup>(<mi[^>]*>[^<]*</mi>)<mo>([′″]+)</mo></msup>")
LOG = logging.getLogger(__name__)


def register(app: Sphinx) -> None:
    """Make this the renderer `mathml`."""
    app.add_html_math_renderer(NAME, (inline, None), (block, None))


def mathml(text: str, display: bool) -> str:
    """A LaTeX formula as MathML. LatexError if math-core cannot read it."""
    numbered = TAG.sub(lambda match: rf"\qquad \text{{({match[1]})}}", text.strip())
    made = LatexToMathML().convert_with_local_state(numbered, displaystyle=display)
    return PRIMED.sub(r"<mrow>\1<mo form='postfix' lspace='0' rspace='0'>\2</mo></mrow>", made)


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line."""
    translator.body.append(f'<span class="math notranslate">{_converted(translator, node, False)}</span>')
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """A formula in a line of its own."""
    translator.body.append(f'<div class="math notranslate">{_converted(translator, node, True)}</div>\n')
    raise nodes.SkipNode


def _converted(translator: HTML5Translator, node: nodes.Element, display: bool) -> str:
    try:
        return mathml(node.astext(), display)
    except LatexError as error:
        LOG.warning("a formula that math-core cannot read: %s: %s", node.astext(), error, location=node)
        return f"<code>{translator.encode(node.astext())}</code>"
