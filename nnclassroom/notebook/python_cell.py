"""The answers in a cell of Python: the text of each function below @exercise, and whether it is still empty.

The notebook and the marking of a hand-in read cells by the same functions.
"""

import ast
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from nnclassroom.judge.python_text import is_empty, lines, tree
from nnclassroom.pages import running_ipython
from nncourse.errors import CourseError

DECORATOR = "exercise"
UNCHANGED_BY = ("time", "capture", "prun")  # cell magics that run the Python below them
MOST_WORK = 300_000  # about a second of IPython's transformer, which reads a cell once for each of its magics
DEEPEST = 3  # magics in each other, such as %%capture above %%time


@dataclass(frozen=True)
class Function:
    """A function in a cell: its exercise, if its decorator names one, its text as it is kept, and its first line."""

    name: str
    operation: str
    kernel: str
    text: str
    line: int


@dataclass(frozen=True)
class CellMagic:
    """A cell that begins with %%name: what follows the name in its first line, and the other lines."""

    name: str
    line: str
    body: str


def text_of(function: Callable[..., Any], name: str) -> str:
    """The function's source. Decorators become comments, so that line numbers stay; it also gets the name `name`.

    Raises CourseError if there is no readable `def`.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code:
        for each in _in_this_cell(code):
            if (each.name, each.line) == (code.co_name, code.co_firstlineno):
                return _named(each, name)
    try:
        source = inspect.getsource(function)
        found = next(functions(f"if 1:\n{source}" if source[:1].isspace() else source), None)
    except (OSError, TypeError, SyntaxError):
        found = None
    if found is None:
        raise CourseError(f"{name}: expected a function whose text can be read: write it in a cell, with def")
    return _named(found, name)


def _in_this_cell(code: CodeType) -> list[Function]:
    """The functions of the cell that IPython is running, if this code is of that cell.

    inspect.getsource() alone would not do: IPython splits a cell at every character that str.splitlines() takes for the
    end of a line, and below `%%time` it keeps no lines at all.
    """
    notebook = running_ipython()
    given = notebook.get_ipython().history_manager.input_hist_raw if notebook else ()
    if not given:
        return []
    try:
        source = as_run(given[-1])
        magic = cell_magic(source)
        known = linecache.cache.get(code.co_filename)
        is_this = [line.rstrip("\n") for line in known[2]] == source.splitlines() if known and len(known) > 2 else magic
        return list(functions(source)) if is_this else []
    except SyntaxError:
        return []


def as_run(source: str) -> str:
    """A cell as Jupyter runs it: Python, which IPython's own transformer makes of magics, `!ls` and `sigmoid?`.

    SyntaxError if it makes no Python of it.
    """
    if is_python(source):
        return source
    if work(source) > MOST_WORK:
        raise SyntaxError("too long for its many magics")
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        made = TransformerManager().transform_cell(source)
    except Exception as error:  # it raises many types for what is no cell
        raise SyntaxError(str(error)) from None
    tree(made)
    return made


def is_python(source: str) -> bool:
    """Whether the cell is Python as it stands, which IPython leaves as it is."""
    try:
        tree(source)
    except SyntaxError:
        return False
    return True


def work(source: str) -> int:
    """How much IPython's transformer has to do for a cell that is not Python; it takes a cell magic as a whole."""
    magics = sum(map(source.count, ("%", "!", "?")))
    return 0 if source.lstrip().startswith("%%") else len(source) * (10 + magics)


def cell_magic(source: str) -> CellMagic | None:
    """The magic of a cell that as_run() has returned; None if it has none."""
    match tree(source).body:
        case [ast.Expr(value=ast.Call(func=ast.Attribute(attr="run_cell_magic"), args=[name, line, body]))]:
            values = [each.value for each in (name, line, body) if isinstance(each, ast.Constant)]
            words = [value for value in values if isinstance(value, str)]
            return CellMagic(*words) if len(words) == 3 else None
    return None


def functions(source: str, depth: int = 0) -> Iterator[Function]:
    """The functions of a cell that as_run() has returned, in order, also those in an `if` or below `%%time`.

    SyntaxError if it is not Python.
    """
    magic = cell_magic(source)
    if magic and magic.name in UNCHANGED_BY:
        yield from functions(as_run(magic.body), depth + 1) if depth < DEEPEST else ()
        return
    body = tree(source)
    inside_strings = _inside_strings(body)
    for node in _functions(body.body):
        operation, kernel = next(filter(None, map(_exercise, node.decorator_list)), ("", ""))
        text, line = _text(node, lines(source), inside_strings)
        yield Function(node.name, operation, kernel, text, line)


def _functions(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif not isinstance(node, ast.ClassDef | ast.AsyncFunctionDef):
            for name in ("body", "handlers", "orelse", "finalbody"):
                yield from _functions(getattr(node, name, ()))


def _exercise(decorator: ast.expr) -> tuple[str, str] | None:
    """Operation and kernel of `@exercise("sigmoid", kernel="numpy")`, whatever the name of exercise; else None."""
    if not isinstance(decorator, ast.Call):
        return None
    named = {word.arg: word.value for word in decorator.keywords}
    called = getattr(decorator.func, "id", "") or getattr(decorator.func, "attr", "")
    given = [*decorator.args, *(named[name] for name in ("operation", "kernel") if name in named)]
    names = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    fits = len(names) == 2 and all(name.isidentifier() for name in names)
    return (names[0], names[1]) if fits and (called == DECORATOR or "kernel" in named) else None


def _inside_strings(body: ast.Module) -> set[int]:
    """The lines that begin inside a string, whose spaces at the left belong to it."""
    texts = (node for node in ast.walk(body) if isinstance(node, ast.Constant | ast.JoinedStr))
    spans = [(node.lineno, node.end_lineno or 0) for node in texts if node.lineno != node.end_lineno]
    return {line for first, last in spans for line in range(first + 1, last + 1)}


def _text(node: ast.FunctionDef, of_cell: Sequence[str], inside_strings: set[int]) -> tuple[str, int]:
    """The function's text at the left edge, with its decorators as comments, and its first line in the cell."""
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    made = []
    for number in range(first, (node.end_lineno or node.lineno) + 1):
        line = of_cell[number - 1]
        if number not in inside_strings and not line[: node.col_offset].strip():
            line = line[node.col_offset :]
        made.append(f"# {line}" if number < node.lineno else line)
    return "\n".join(made) + "\n", first


def _named(function: Function, name: str) -> str:
    """The function's text, in which it has this name."""
    return function.text if function.name == name else f"{function.text}\n{name} = {function.name}\n"


def answers(source: str) -> Iterator[tuple[str, str, str]]:
    """Operation, kernel and text of each filled-in exercise in a cell of Python that as_run() has returned."""
    for each in functions(source):
        if each.operation and not is_empty(each.text):
            yield each.operation, each.kernel, _named(each, each.operation)
