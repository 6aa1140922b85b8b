"""The colours of a notebook's code: Python, and CUDA C below a first line that begins with %%cuda."""

from collections.abc import Iterator

from ipython_pygments_lexers import IPython3Lexer
from pygments.lexers import CudaLexer
from pygments.token import _TokenType
from sphinx.application import Sphinx

NAME = "nncourse"  # the language of the notebooks: see book/notebook_pages.py
MAGIC = "%%cuda"


def register(app: Sphinx) -> None:
    app.add_lexer(NAME, CellLexer)


class CellLexer(IPython3Lexer):
    """The source of one code cell."""

    name = "a cell of the course"
    aliases = (NAME,)

    def get_tokens_unprocessed(self, text: str, *stack: object) -> Iterator[tuple[int, _TokenType, str]]:
        if not text.startswith(MAGIC):
            yield from super().get_tokens_unprocessed(text, *stack)
            return
        first, newline, body = text.partition("\n")
        yield from super().get_tokens_unprocessed(first + newline)
        for place, kind, value in CudaLexer().get_tokens_unprocessed(body):
            yield place + len(first + newline), kind, value
