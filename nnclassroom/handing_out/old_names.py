"""Names from earlier versions in a student's own cells, each with its replacement.

An update never rewrites a student's own cells. old_names.toml lists the old names and those of today.
"""

import ast
import re
import textwrap
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nnclassroom.handing_out.notebook_files import cell_hash, parsed
from nncourse.backend import OLD_CHOICES
from nncourse.errors import CourseError

# A public name is imported from the first of these that has it.
DOORS = ("nnclassroom", "nncourse", "nncourse.model", "nncourse.parallel", "nnclassroom.figures", "nnclassroom.widgets")
LOADED = re.compile(r"(?m)^%load_ext +(nncourse\.[\w.]+)")


def named(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """A line for each old name in the student's own cells of this copy: the notebook, the cell, the old and new text.

    Notebooks that the student has added beside the course's are searched too.
    """
    said = []
    for place in sorted({(folder / name).parent for name in manifest["notebooks"]}):
        for path in sorted(filter(Path.is_file, place.glob("*.ipynb"))):
            handed_out = manifest["notebooks"].get(path.relative_to(folder).as_posix(), {})
            try:
                cells = parsed(path.read_bytes(), path.name).cells
            except (CourseError, OSError):
                continue  # reported elsewhere, or a file of the student's own
            for number, cell in enumerate(cells, 1):
                if cell.cell_type == "code" and cell_hash(cell) != handed_out.get(cell.get("id", "")):
                    known_as = f" ({cell.id})" if cell.get("id") else ""
                    where = f"{path.stem}, cell {number}{known_as}"
                    said += [f"{where}: for {old} write {new}" for old, new in replaced(cell.source)]
    return said


def replaced(text: str) -> list[tuple[str, str]]:
    """Each old name in the text of a cell, and what to write in its place."""
    if text.startswith("%%cuda"):
        return []
    extensions = [(found[0], today(found[1], "load_ipython_extension")[0]) for found in LOADED.finditer(text)]
    said = [(old, f"%load_ext {new}") for old, new in extensions]
    modules: dict[str, str] = {}  # by their names in the cell
    for node in (node for statement in _statements(text) for node in ast.walk(statement)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            old, new = ast.unparse(node), "; ".join(_imports(node))
            said += [(old, new)] if new != old else []
            whole = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            modules |= {alias.asname or alias.name: whole + alias.name for alias in node.names}
        elif isinstance(node, ast.Call):
            said += _in_call(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            old, module = ast.unparse(node), modules.get(node.value.id, "")
            if f"{module}.{node.attr}" in table()["names"]:
                home, name = today(module, node.attr)
                said.append((old, f"{name}, and add: from {home} import {name}"))
    return said


def _statements(text: str) -> list[ast.stmt]:
    """The statements of a cell without its magics; if it is not valid Python, those of its single lines."""
    plain = re.sub(r"(?m)^[%!]", "#", text)
    found: list[ast.stmt] = []
    for part in (plain, *map(textwrap.dedent, plain.splitlines())):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about \s in a string
                statements = ast.parse(part).body
                ast.unparse(ast.Module(statements, []))  # fails here if the text is too deep for the steps below
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the text is not Python
            continue
        found += statements
        if part is plain:
            break
    return found


def _imports(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The same imports with the names of today, one line for each module."""
    if isinstance(node, ast.Import):
        modules = table()["modules"]
        names = [ast.alias(modules.get(alias.name, alias.name), alias.asname) for alias in node.names]
        return [ast.unparse(ast.Import(names))]
    lines: dict[str, list[ast.alias]] = {}
    for alias in node.names:
        module, name = today(node.module or "", alias.name)
        bound = alias.asname or (alias.name if name != alias.name else None)
        lines.setdefault(module, []).append(ast.alias(name, bound))
    return [ast.unparse(ast.ImportFrom(module, names, node.level)) for module, names in lines.items()]


def _in_call(call: ast.Call) -> Iterator[tuple[str, str]]:
    """Old calls: operation.check(kernel) is now check(operation, kernel), and some arguments have new names."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "check" and (call.args or call.keywords):
        new = ast.Call(ast.Name("check"), [function.value, *call.args], call.keywords)
        (imported,) = _imports(ast.ImportFrom("nnclassroom.judge.check", [ast.alias("check")], 0))
        yield ast.unparse(call), f"{ast.unparse(new)}, and add: {imported}"
    name = getattr(function, "attr", getattr(function, "id", ""))
    for keyword in call.keywords:
        if today_called := table()["arguments"].get(f"{name}.{keyword.arg}"):
            value = ast.unparse(keyword.value)
            if name == "choose":  # a kernel of a whole epoch is a plan now
                value = {f"{old!r}": f"{plan!r}" for old, plan in OLD_CHOICES.items()}.get(value, value)
            written = today_called.format(value) if "{" in today_called else f"{today_called}={value}"
            yield f"{name}(…, {keyword.arg}={value})", written if "(…" in written else f"{name}(…, {written})"


def today(module: str, name: str) -> tuple[str, str]:
    """The module from which a name of an old module is imported now, and its name there; as given if unchanged."""
    full, modules = f"{module}.{name}", table()["modules"]
    if there := table()["names"].get(full) or modules.get(full):
        home, _, new = there.rpartition(".")
    elif moved := modules.get(module):
        home, new = moved, name
    else:
        return module, name
    if not find_spec(home.partition(".")[0]):  # an instructor's package, which is missing here
        return home, new
    for door in map(import_module, DOORS):
        public = new in getattr(door, "__all__", ())
        if public and getattr(door, new) is getattr(import_module(home), new, None):
            return door.__name__, new
    return home, new


@cache
def table() -> dict[str, dict[str, str]]:
    """Modules, names and arguments of earlier versions, each with its replacement."""
    found = tomllib.loads(Path(__file__).with_name("old_names.toml").read_text("utf-8"))
    for kind, packages in found.pop("same").items():
        for old, homes in packages.items():
            for new, names in homes.items():
                found[kind] |= {f"{old}.{name}": f"{new}.{name}" for name in names}
    return found
