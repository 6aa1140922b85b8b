"""Imports of version 0.2 in a student's own cells, each with the line that replaces it.

The course's cells are brought up to date; a student's own are never rewritten. old_names.toml says what is where now.
"""

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from nnclassroom.handing_out.handout import cell_hash, parsed
from nncourse.errors import CourseError

# What is public is imported from the first of these that has it.
DOORS = ("nnclassroom", "nncourse", "nncourse.model", "nncourse.parallel", "nnclassroom.figures", "nnclassroom.widgets")
LOADED = re.compile(r"(?m)^%load_ext +(nncourse\.[\w.]+)")


def named(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """A line for each old name in the cells of this copy that are not the course's: the notebook, the cell, both texts.

    Notebooks that the student has put beside the course's count too.
    """
    said = []
    for place in sorted({(folder / name).parent for name in manifest["notebooks"]}):
        for path in sorted(place.glob("*.ipynb")):
            handed_out = manifest["notebooks"].get(path.relative_to(folder).as_posix(), {})
            try:
                cells = parsed(path.read_bytes(), path.name).cells
            except CourseError:
                continue  # said elsewhere
            for number, cell in enumerate(cells, 1):
                if cell.cell_type == "code" and cell_hash(cell) != handed_out.get(cell.id):
                    where = f"{path.stem}, cell {number} ({cell.get('id', '')})"
                    said += [f"{where}: for {old} write {new}" for old, new in replaced(cell.source)]
    return said


def replaced(text: str) -> list[tuple[str, str]]:
    """What a cell says in the words of version 0.2, and what to write in its place."""
    if text.startswith("%%cuda"):
        return []
    extensions = [(found[0], today(found[1], "load_ipython_extension")[0]) for found in LOADED.finditer(text)]
    said = [(old, f"%load_ext {new}") for old, new in extensions]
    modules: dict[str, str] = {}  # by the names that the cell gives them
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
                said.append((old, f"{name}, after from {home} import {name}"))
    return said


def _statements(text: str) -> list[ast.stmt]:
    """The statements of a cell without its magics; of a cell that is no Python as it stands, those of single lines."""
    plain = re.sub(r"(?m)^[%!]", "#", text)
    found: list[ast.stmt] = []
    for part in (plain, *map(textwrap.dedent, plain.splitlines())):
        try:
            found += ast.parse(part).body
        except SyntaxError:
            continue
        if part is plain:
            break
    return found


def _imports(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The same imports as lines of today, one for each module."""
    if isinstance(node, ast.Import):
        names = [ast.alias(_module(alias.name) or alias.name, alias.asname) for alias in node.names]
        return [ast.unparse(ast.Import(names))]
    lines: dict[str, list[ast.alias]] = {}
    for alias in node.names:
        module, name = today(node.module or "", alias.name)
        bound = alias.asname or (alias.name if name != alias.name else None)
        lines.setdefault(module, []).append(ast.alias(name, bound))
    return [ast.unparse(ast.ImportFrom(module, names, node.level)) for module, names in lines.items()]


def _in_call(call: ast.Call) -> Iterator[tuple[str, str]]:
    """operation.check(kernel) is check(operation, kernel); an update is an optimizer."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "check" and (call.args or call.keywords):
        new = ast.Call(ast.Name("check"), [function.value, *call.args], call.keywords)
        (imported,) = _imports(ast.ImportFrom("nnclassroom.judge.check", [ast.alias("check")], 0))
        yield ast.unparse(call), f"{ast.unparse(new)}, after {imported}"
    name = getattr(function, "attr", getattr(function, "id", ""))
    for keyword in call.keywords:
        if new := table()["arguments"].get(f"{name}.{keyword.arg}"):
            value = ast.unparse(keyword.value)
            yield f"{name}(…, {keyword.arg}={value})", f"{name}(…, {new}={value})"


def today(module: str, name: str) -> tuple[str, str]:
    """The module from which a name of an old one is imported now, and its name there; as given if nothing changed."""
    full = f"{module}.{name}"
    there = table()["names"].get(full) or _module(full)
    if there:
        home, _, new = there.rpartition(".")
    elif moved := _module(module):
        home, new = moved, name
    else:
        return module, name
    return _door(home, new), new


def _module(old: str) -> str | None:
    """Where a module is now; None if it has not moved."""
    return table()["modules"].get(old)


def _door(home: str, name: str) -> str:
    """The package that has the name in front, else its home."""
    for door in DOORS:
        package = import_module(door)
        if name in getattr(package, "__all__", ()) and getattr(package, name) is getattr(
            import_module(home), name, None
        ):
            return door
    return home


@cache
def table() -> dict[str, dict[str, str]]:
    """Modules, names and arguments of version 0.2, with those of today."""
    return tomllib.loads(Path(__file__).with_name("old_names.toml").read_text("utf-8"))
