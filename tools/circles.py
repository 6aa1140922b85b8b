"""Find circles of imports in the packages and in benchmarks/: `python tools/circles.py`. The tests run it too.

import-linter checks the direction of imports between packages and subpackages, but finds no circles within one of them.
Every import statement counts, also inside a function or for annotations alone, since a reader follows these too.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from nncourse.language import GENERATED, PACKAGES

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (*PACKAGES, "benchmarks")


def modules(root: Path = ROOT) -> dict[str, Path]:
    """The files in FOLDERS, by the names of their modules."""
    files = [path for name in FOLDERS for path in sorted((root / name).rglob("*.py"))]
    return {name_of(path.relative_to(root)): path for path in files if GENERATED not in path.parents}


def name_of(file: Path) -> str:
    """The module in a file that is named from the root."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(text: str, known: Set[str]) -> set[str]:
    """Those of the known modules that a file's text imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in full.values()}
    return found & known


def graph(root: Path = ROOT) -> dict[str, set[str]]:
    """What each module imports."""
    files = modules(root)
    return {name: imported(path.read_text("utf-8"), files.keys()) for name, path in files.items()}


def circles(imports: Mapping[str, Set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by whatever detour: the strongly connected parts (Tarjan 1972)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in sorted(imports.get(module, ())):
            if other not in numbers:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == numbers[module]:
            part = list(_popped(stack, module))
            if len(part) > 1 or module in imports.get(module, ()):
                found.append(sorted(part))

    for module in imports:
        if module not in numbers:
            visit(module)
    return found


def _popped(stack: list[str], last: str) -> Iterator[str]:
    while (module := stack.pop()) != last:
        yield module
    yield last


if __name__ == "__main__":
    there = circles(graph())
    for each in there:
        print("a circle of imports:", ", ".join(each))
    sys.exit(1 if there else 0)
