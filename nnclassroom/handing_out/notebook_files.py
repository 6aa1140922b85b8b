"""The notebooks of a hand-out and of a student's copy, without outputs; and the manifest, with a hash of each cell."""

import contextlib
import hashlib
import json
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nnclassroom import arguments
from nnclassroom.version import course_version
from nncourse import language as languages
from nncourse.errors import CourseError, decoded, refuse_unknown

MANIFEST = "MANIFEST.json"


def notebooks(root: Path, language: str) -> list[Path]:
    """The notebooks in a language: English ones are in notebooks/, others in a folder below it."""
    folder = root / "notebooks"
    there = {languages.ENGLISH: folder} | {
        path.name: path for path in sorted(folder.glob("*")) if any(path.glob("*.ipynb"))
    }
    if not any(folder.glob("*.ipynb")):
        raise CourseError(f"{root}: expected a clone of the course, with its notebooks/: run this command in a clone")
    refuse_unknown("a language of the notebooks", language, there)
    return sorted(there[language].glob("*.ipynb"))


def chosen(root: Path, language: str, text: str) -> tuple[Path, ...]:
    """The notebooks that a text names by number, name or path, such as 2,03b_dense_on_the_gpu; all for an empty one."""
    names = {path: (path.stem.partition("_")[0], path.stem) for path in notebooks(root, language)}
    words = [Path(word.strip()).name.removesuffix(".ipynb") for word in text.split(",")]
    return arguments.chosen("a notebook", ",".join(words), names)


def clean(content: bytes, name: str) -> bytes:
    """The notebook without outputs, execution counts and metadata. CourseError if the content is not a notebook."""
    notebook = parsed(content, name)
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata["language_info"] = language_info()
    return to_bytes(notebook)


def language_info() -> dict[str, Any]:
    """This Python as ipykernel describes it. JupyterLab adds missing parts, and takes the notebook for unsaved."""
    return {
        "codemirror_mode": {"name": "ipython", "version": sys.version_info[0]},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": sys.version.split()[0],
    }


def parsed(content: bytes, name: str) -> Any:
    """The notebook in a file's content, in the format nbformat 4. CourseError if it is not a notebook.

    Parts that Jupyter can do without are added: metadata, texts, outputs. Cells may have no ids.
    """
    import nbformat

    try:
        found = json.loads(decoded(content))
        is_old = "cells" not in found
        if not is_old:
            _complete(found)
        minor = found["nbformat_minor"]
        found["nbformat_minor"] = min(minor, 4)  # from 5 on nbformat invents ids, others each time
        with _quiet():
            notebook = nbformat.reads(json.dumps(found), as_version=4)
        _complete(notebook)
        if is_old:
            for cell in notebook.cells:
                cell.pop("id", None)
        else:
            notebook.nbformat_minor = minor
    except Exception:  # nbformat raises many types for files that are not notebooks
        raise CourseError(f"{name}: expected a notebook; this file is not one, or is damaged") from None
    return notebook


def _complete(notebook: dict[str, Any]) -> None:
    """Add the parts that every notebook and cell has. Raises ValueError if the text of a cell is not known."""
    if type(notebook.get("nbformat_minor")) is not int:
        notebook["nbformat_minor"] = 0
    for each in (notebook, *notebook["cells"]):
        if not isinstance(each.get("metadata"), dict):
            each["metadata"] = {}
    for cell in notebook["cells"]:
        source = cell["source"] = "" if cell.get("source") is None else cell["source"]
        if not (isinstance(source, str | list) and isinstance(cell["cell_type"], str)):
            raise ValueError
        if not isinstance(cell.get("id", ""), str):
            del cell["id"]
        if cell["cell_type"] == "code":
            outputs = cell.get("outputs")
            cell["outputs"] = [each for each in outputs if _is_output(each)] if isinstance(outputs, list) else []
            cell.setdefault("execution_count", None)


def _is_output(output: Any) -> bool:
    """Whether nbformat can write an output. No page shows an output that it cannot write."""
    kind = output.get("output_type") if isinstance(output, dict) else None
    if kind == "stream":
        return isinstance(output.get("text"), str | list)
    return isinstance(kind, str) and (kind == "error" or isinstance(output.get("data"), dict))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the log and the warnings in which nbformat says at length what is wrong with a notebook."""
    log = logging.getLogger("traitlets")
    was, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.disabled = was


def to_bytes(notebook: Any) -> bytes:
    """The content of a notebook's file. A surrogate, which UTF-8 cannot encode, is escaped as in JSON: \\ud800."""
    import nbformat

    with _quiet():
        text = nbformat.writes(notebook)
    return (text.rstrip("\n") + "\n").encode(errors="backslashreplace")


def cell_hash(cell: Any) -> str:
    """A hash of a cell's kind and text; outputs and metadata do not count."""
    return hashlib.sha256(f"{cell.cell_type}\0{cell.source.strip()}".encode(errors="backslashreplace")).hexdigest()[:16]


def packed(files: Mapping[str, bytes], top: str, about: Mapping[str, str]) -> dict[str, bytes]:
    """The files and their manifest, below one folder."""
    manifest = json.dumps(manifest_of(files, about), indent=1) + "\n"
    return {f"{top}/{name}": content for name, content in files.items()} | {f"{top}/{MANIFEST}": manifest.encode()}


def manifest_of(files: Mapping[str, bytes], about: Mapping[str, str]) -> dict[str, Any]:
    """The manifest of these files: a hash of each file, and of the cells of each notebook in their order.

    Its version of the course has a part for the packages and a part for the texts of the notebooks.
    """
    notebooks = {name: cell_hashes(content, name) for name, content in sorted(files.items()) if name.endswith(".ipynb")}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    texts = hashlib.sha256(json.dumps(notebooks, sort_keys=True).encode()).hexdigest()[:8]
    return {"course": f"{course_version()}.{texts}", **about, "files": hashes, "notebooks": notebooks}


def cell_hashes(content: bytes, name: str) -> dict[str, str]:
    """The hash of each cell of a notebook, by id."""
    cells = parsed(content, name).cells
    give_ids(cells, {})
    return {cell.id: cell_hash(cell) for cell in cells}


def give_ids(cells: Iterable[Any], base: Mapping[str, str]) -> None:
    """Give an id to each cell that has none or a repeated one: its id in `base` if unchanged, otherwise a new one."""
    by_text = {text: name for name, text in base.items()}
    taken: set[str] = set()
    for number, cell in enumerate(cells):
        if not cell.get("id") or cell["id"] in taken:
            usual = by_text.get(cell_hash(cell), "")
            cell["id"] = usual if usual and usual not in taken else f"own-{number}-{cell_hash(cell)}"
        taken.add(cell["id"])
