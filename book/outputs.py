"""Read notebooks with outputs: those that were committed with them, and others, which are run once and cached."""

import hashlib
import os
from pathlib import Path
from typing import Any

import nbformat

import nncourse
from nncourse import language as languages
from nncourse.errors import CourseError

NO_KERNELS = "no_kernels"  # a folder that is not there: notebooks run as handed out


def with_outputs(path: Path, language: str, cache: Path) -> Any:
    """The notebook. One that has no outputs is run as handed out, in its language, unless `cache` has the result.

    What is kept is found by a hash of the notebook and of the package that it imports. CourseError if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    if any(cell.get("outputs") for cell in notebook.cells):
        return notebook
    kept = cache / f"{path.stem}.{language}.{_stamp(path)}.ipynb"
    if not kept.is_file():
        run(notebook, path, language, cache / NO_KERNELS)
        for old in cache.glob(f"{path.stem}.{language}.*.ipynb"):
            old.unlink()
        cache.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, kept)
    return nbformat.read(kept, as_version=4)


def run(notebook: Any, path: Path, language: str, no_kernels: Path) -> None:
    """Run a notebook in place, in the folder of its file. CourseError if a cell fails."""
    from nbclient.exceptions import CellExecutionError

    from tools.notebooks import client, normalise

    environment = os.environ | {"NNCOURSE_LANG": language, "NNCOURSE_MY_KERNELS": str(no_kernels)}
    environment.pop("NNCOURSE_SOLVE", None)
    try:
        client(notebook, path.parent).execute(env=environment)
    except CellExecutionError as error:
        raise CourseError(
            f"{path.name}: a cell failed while the book ran the notebook: {error.ename}: {error.evalue}"
        ) from None
    normalise(notebook)


def _stamp(path: Path) -> str:
    """A hash of a notebook and of every file of the packages in this language."""
    files = [path, *languages.english_files(Path(nncourse.__path__[0]).parent)]
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:16]
