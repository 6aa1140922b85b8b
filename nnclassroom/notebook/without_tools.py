"""A cell that needs a tool which this machine lacks says in one line what to install, and the notebook goes on.

Such a tool is a C++ compiler, for the emulator, or NVIDIA's compiler library. A later cell that uses what this one
would have defined says the same. With NNCOURSE_STRICT=1, in tests, it is an error like any other.
"""

import ast
import contextlib
import html
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nnclassroom.pages import page
from nncourse.errors import MissingToolError


@dataclass(frozen=True)
class NotRun:
    """What is shown below a cell that could not run."""

    reason: str

    def __repr__(self) -> str:
        return f"– Not run here: {self.reason}"

    def _repr_html_(self) -> str:
        return page(html.escape(repr(self)))


def watch(shell: Any) -> None:
    """Let this notebook go on after cells that cannot run here."""
    if os.environ.get("NNCOURSE_STRICT") == "1":
        return
    lacking: dict[str, str] = {}  # names that cells would have defined, and why they could not

    def reason_of(error: BaseException | None) -> str:
        """Why the cell could not run here; "" for any other error."""
        if isinstance(error, MissingToolError):
            return str(error)
        return lacking.get(str(getattr(error, "name", None)), "") if isinstance(error, NameError) else ""

    def show(shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: int | None = None) -> None:
        from IPython.display import display

        if reason := reason_of(error):
            display(NotRun(reason))
        else:
            shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    def forgive(result: Any) -> None:
        if reason := reason_of(getattr(result, "error_in_exec", None)):
            lacking.update(dict.fromkeys(_defined(shell.transform_cell(result.info.raw_cell)), reason))
            result.error_in_exec = None  # else JupyterLab's Run All would end here

    shell.set_custom_exc((MissingToolError, NameError), show)
    shell.events.register("post_run_cell", forgive)


def _defined(cell: str) -> Iterator[str]:
    """The names that a cell assigns, at any place."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield node.name
