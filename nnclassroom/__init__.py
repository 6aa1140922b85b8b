"""nnclassroom: what teaches with nncourse. It judges, shows, times, marks and hands out.

What notebooks use stands in __init__.pyi, and is loaded at its first use; all else may move. In a notebook importing it
brings the cell magic %%cuda.
"""

from pathlib import Path
from typing import Any

import lazy_loader

import nncourse

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__path__ = [str(Path(nncourse.__path__[0]).with_name("nnclassroom"))]  # in the language of nncourse

from nnclassroom.pages import running_ipython  # noqa: E402  (in that language)
from nncourse import threads  # noqa: E402

threads.begin_with_one()  # here, and in the processes of answers, of workers, of groups


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic `%%cuda OPERATION KERNEL [options]`, as `%load_ext nnclassroom` does."""

    def cell(line: str, body: str) -> None:
        from nnclassroom.notebook.exercise import cuda

        answer = cuda(line, body)
        shell.user_ns[f"{answer.attempt.operation.name}_{answer.attempt.name}"] = answer

    shell.register_magic_function(cell, "cell", "cuda")
    from nnclassroom.notebook import without_tools

    without_tools.watch(shell)


if _notebook := running_ipython():
    load_ipython_extension(_notebook.get_ipython())
