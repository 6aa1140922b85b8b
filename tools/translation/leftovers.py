"""Words on the screen without brackets: of a notebook that runs in the pseudo language, and of commands."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat

from . import on_screen
from .allowed import Allowed, lines
from .commands import PSEUDO

COMMANDS = """
import contextlib, io, json, sys
from nnclassroom.commands import main

for line in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main(line.split(" ") if line else [])
    print(json.dumps([line, said.getvalue()]))
"""


def of_notebook(path: Path, solve: str, allowed: Allowed) -> list[str]:
    """The words of one notebook in root/notebooks/pseudo: the cell, the words, and where they stand."""
    with tempfile.TemporaryDirectory() as kernels:
        environment = _environment(path.parents[2], Path(kernels)) | {"NNCOURSE_SOLVE": solve}
        notebook = on_screen.run(nbformat.read(path, as_version=4), str(path.parent), environment)
    name = f"{path.stem}{' solved' if solve else ''}"
    found = [line for cell, text in on_screen.texts(notebook) for line in lines(f"{name}: {cell}", text, allowed)]
    return list(dict.fromkeys(found))


def of_commands(commands: Sequence[str], root: Path, folder: Path, allowed: Allowed) -> dict[str, list[str]]:
    """The words that commands print which run in this folder, by command, such as "check relu"; and no traceback."""
    told = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input=json.dumps(commands),
        env=_environment(root, folder / "my_kernels") | {"COLUMNS": "120"},
        capture_output=True,
        text=True,
        cwd=folder,
    )
    if told.returncode:
        raise RuntimeError(told.stderr)
    said = dict(map(json.loads, told.stdout.splitlines()))
    return {command: lines(f"nncourse {command}", text, allowed) for command, text in said.items()}


def _environment(root: Path, kernels: Path) -> dict[str, str]:
    """Of a process that speaks the pseudo language, with the package in this root and kept kernels in that folder."""
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "NNCOURSE_LANG": PSEUDO,
        "NNCOURSE_MY_KERNELS": str(kernels),
        "PYTHONPATH": os.pathsep.join(paths),
    }
