"""Put the notebooks' widgets on the book's pages, where they work without Python.

A widget is made, together with the book, by its own cell and by the cells above it that define the names in it.
What it needs on the page is cached under a hash of these cells and of the packages.
"""

import ast
import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

import nncourse
from nncourse import language as languages
from nncourse.errors import CourseError

STATIC = "static"  # what Sphinx copies into its _static
FOLDER = "live"  # there
MAGIC = re.compile(r"^%.*$", re.MULTILINE)


@dataclass(frozen=True)
class Live:
    """A widget of a page: the names of its script and of its state, and both as JavaScript texts."""

    script: str
    state: str
    texts: dict[str, str]  # file -> text


def sources(notebook: Any, number: int) -> list[str]:
    """The source of a code cell, behind those of the cells above that make what it reads, in their order."""
    cells = {
        i: MAGIC.sub("", cell.source)
        for i, cell in enumerate(notebook.cells[: number + 1])
        if cell.cell_type == "code" and not cell.source.startswith("%%")
    }
    trees = {i: ast.parse(source) for i, source in cells.items()}
    made = {i: {name for name, context in _names(tree) if context is not ast.Load} for i, tree in trees.items()}
    wanted, waiting = {number}, [number]
    while waiting:
        place = waiting.pop()
        for name, context in _names(trees[place]):
            if context is ast.Load and name not in made[place]:
                above = max((i for i in made if i < place and name in made[i]), default=None)
                if above is not None and above not in wanted:
                    wanted.add(above)
                    waiting.append(above)
    return [cells[i] for i in sorted(wanted)]


def _names(tree: ast.AST) -> Iterator[tuple[str, type]]:
    """The names of a cell, each with ast.Load, ast.Store or ast.Del."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, type(node.ctx)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, ast.Store
        elif isinstance(node, ast.arg):
            yield node.arg, ast.Store
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0], ast.Store


def value_of(sources: Iterable[str]) -> Any:
    """Run these cells; the value of the expression with which the last one ends. Nothing is printed or shown."""
    space: dict[str, Any] = {"__name__": "__main__"}
    *before, last = (ast.parse(source) for source in sources)
    end = last.body.pop()
    assert isinstance(end, ast.Expr), "a widget's cell ends with the widget"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for tree in (*before, last):
            exec(compile(tree, "<a cell>", "exec"), space)
        return eval(compile(ast.Expression(end.value), "<a cell>", "eval"), space)


class Kept:
    """What pages need of widgets, kept in a folder from one book to the next."""

    def __init__(self, folder: Path, language: str):
        self.folder, self.language = folder, language
        root = Path(nncourse.__path__[0]).parent
        self.packages = hashlib.sha256(b"".join(path.read_bytes() for path in languages.english_files(root)))

    def live(self, cells: list[str], name: str) -> Live:
        """The widget of these cells, called `name`. CourseError if they fail."""
        stamp = self.packages.copy()
        stamp.update("\0".join(cells).encode())
        end = f"{self.language}.{stamp.hexdigest()[:16]}.json"
        same = next(self.folder.glob(f"*.{end}"), None)  # of this name, or of another with the same cells
        kept = same or self.folder / f"{name}.{end}"
        if not same:
            for old in self.folder.glob(f"{name}.{self.language}.*.json"):
                old.unlink()
            self.folder.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(made(cells, name), ensure_ascii=False), "utf-8")
        return Live(**json.loads(kept.read_text("utf-8")))


def made(cells: list[str], name: str) -> dict[str, Any]:
    """The fields of a Live."""
    from nnclassroom.widgets import alone

    try:
        widget = value_of(cells)
    except Exception as error:
        raise CourseError(f"{name}: a cell failed while the book made its widget: {error!r}") from error
    script, state = alone.name_of(widget), json.dumps(alone.state(widget), ensure_ascii=False, separators=(",", ":"))
    own = f"{{ css: {json.dumps(str(widget._css), ensure_ascii=False)}, make() {{\n{alone.script(widget)}}} }}"
    texts = {
        f"{FOLDER}/{script}.js": f'(window.nncourseLive ??= {{}})["{script}"] = {own};\n',
        f"{FOLDER}/{name}.js": f'(window.nncourseStates ??= {{}})["{name}"] = {state};\n',
    }
    widget.close()
    return {"script": script, "state": name, "texts": texts}


def html(live: Live, up: str, words: ModuleType) -> str:
    """The widget's place on a page; `up` leads from the page to the folder of its language."""
    names = f'data-script="{live.script}" data-state="{live.state}"'
    loads = "".join(f'<script defer src="{up}_static/{file}"></script>' for file in live.texts)
    return f'{loads}<div class="nncourse-live" {names}><noscript>{escape(words.NO_SCRIPT)}</noscript></div>'
