"""The package's kernels as texts that stand by themselves: each, pasted into its exercise, is right."""

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

from cuda_on_cpu.text import CudaSource
from nnclassroom.exercises.catalogue import find
from nnclassroom.pages import running_ipython
from nncourse.errors import CourseError
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

# A top-level definition in a .cu text: the comment above it, and all lines up to its closing brace, or a single line.
CUDA_FUNCTION = re.compile(
    r"(?:^//[^\n]*\n)*^(?:extern|__device__|template)[^\n]*?(?:__launch_bounds__ ?\([^\n)]*\)[^\n]*?)?(\w+)\("
    r"(?:[^\n]*\}$|[^\n]*(?:\n[^\n]*?)*?^\})",
    re.MULTILINE,
)
CUDA_DEFINITION = re.compile(r"^(?:#define|__constant__ \w+) (\w+)\b.*", re.MULTILINE)  # of one line, at the top level


def solution(operation: str, kernel: str) -> None:
    """Show the package's kernel: one way to write it, not the only one. Raises CourseError if there is no such kernel.

    >>> solution("sigmoid", "numpy")
    def sigmoid(z):
        return 0.5 * np.tanh(0.5 * z) + 0.5
    """
    chosen = find(operation)[kernel]  # CourseError if there is no such kernel
    is_cuda, text = isinstance(chosen, CudaKernel), text_of(chosen)
    if notebook := running_ipython():
        notebook.display.display(notebook.display.Code(text, language="cuda" if is_cuda else "python"))
    else:
        print(text)


def solution_text(operation: str, kernel: str) -> str:
    """The text of the package's kernel; "" if it has none of that name."""
    chosen = find(operation).kernels.get(kernel)
    if chosen is None:
        return ""
    return _cuda_text(chosen) if isinstance(chosen, CudaKernel) else _python_text(chosen.where)


def text_of(kernel: Kernel) -> str:
    """A kernel of the package as readers see it: its function, with its idea in CUDA C and all that it uses.

    CourseError if it is not a function in a file.
    """
    if not isinstance(kernel, CudaKernel):
        return _standing_alone(kernel)
    text = _cuda_text(kernel)
    return "\n\n".join(filter(None, (_cuda_idea(kernel), _cuda_definitions(kernel.source, text), text)))


def file_of(where: str) -> Path:
    """The file of `kernels/dense.py:12`, which names it from its package or from the folder above its own.

    CourseError if no package has it.
    """
    name = where.partition(":")[0]
    packages = Path(__file__).parents[2]
    for folder in (packages / "nncourse", packages / "nnclassroom", packages):
        for path in (found for pattern in (name, f"*/{name}") for found in folder.glob(pattern)):
            return path
    raise CourseError(f"{where}: there is no function to show")


def _python_text(where: str) -> str:
    """The function that begins at `kernels/file.py:line`, without its decorators."""
    text = file_of(where).read_text("utf-8")
    return "\n".join(_lines(text, _function(ast.parse(text), where)))


def _function(tree: ast.Module, where: str) -> ast.FunctionDef:
    line = int(where.partition(":")[2])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and line in [node.lineno, *(each.lineno for each in node.decorator_list)]:
            return node
    raise CourseError(f"{where}: there is no function to show")


def _lines(text: str, node: ast.stmt, name: str = "") -> list[str]:
    """The source of a statement; a function's without decorators and types, whose names a notebook need not know."""
    lines = (ast.get_source_segment(text, node) or "").splitlines()
    if not isinstance(node, ast.FunctionDef):
        return lines
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return [f"def {name or node.name}({ast.unparse(node.args)}):", *lines[node.body[0].lineno - node.lineno :]]


def _standing_alone(kernel: Kernel) -> str:
    """A Python kernel under its operation's name. What it uses of its file stands at its top."""
    whole = file_of(kernel.where).read_text("utf-8")
    tree = ast.parse(whole)
    function = _function(tree, kernel.where)
    signature, *lines = _lines(whole, function, kernel.operation.name)
    for default in [each for each in function.args.defaults if isinstance(each, ast.Name)]:
        signature = signature.replace(f"={default.id}", f"={_constants(tree)[default.id]}")
    used = (textwrap.indent("\n".join(_lines(whole, node)), "    ") for node in _used(tree, function))
    return "\n".join([signature, *used, *lines])


def _used(tree: ast.Module, function: ast.FunctionDef) -> list[ast.stmt]:
    """The functions and constants of a file that a function uses, and that these use, in the file's order."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    known = {node.name: node for node in functions} | {
        name: node for node in tree.body if isinstance(node, ast.Assign) for name in _constants(ast.Module([node], []))
    }
    found: set[ast.stmt] = set()
    wanted: list[ast.stmt] = list(function.body)
    while wanted:
        names = {node.id for node in ast.walk(wanted.pop()) if isinstance(node, ast.Name)}
        new = {known[name] for name in names & set(known)} - found
        found |= new
        wanted += new
    return [node for node in tree.body if node in found]


def _constants(tree: ast.Module) -> dict[str, Any]:
    """The constants of a file, such as MOST = 3, and A, B = 1, 2."""
    found: dict[str, Any] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                found[name] = value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for target, element in zip(names, values, strict=True):
                    if isinstance(target, ast.Name) and isinstance(element, ast.Constant):
                        found[target.id] = element.value
    return found


def _cuda_text(kernel: CudaKernel) -> str:
    """The kernel's function in its .cu text, after the device functions that it calls."""
    functions = {match[1]: match[0] for match in CUDA_FUNCTION.finditer(_whole(kernel.source))}
    wanted, found = [kernel.entry], {}
    while wanted:
        name = wanted.pop()
        found[name] = functions[name]
        called = [other for other in functions if re.search(rf"\b{other}(?:<[^<>;]*>)?\(", functions[name])]
        wanted += [other for other in called if other not in found]
    return "\n\n".join(functions[name] for name in functions if name in found)


def _whole(source: CudaSource) -> str:
    """A .cu text after those that it uses."""
    return "\n\n".join(each.text for each in (*source.before, source))


def _cuda_idea(kernel: CudaKernel) -> str:
    """The line on the kernel in the head of a .cu file of its operation, as a comment; "" if there is none."""
    operation = kernel.operation
    assert isinstance(operation, Operation)
    texts = [each.source.text for each in operation.kernels.values() if isinstance(each, CudaKernel)]
    found = (re.search(rf"^//   {kernel.name}  +(.+)$", text, re.MULTILINE) for text in texts)
    return next((f"// {match[1]}" for match in found if match), "")


def _cuda_definitions(source: CudaSource, text: str) -> str:
    """The constants of a .cu source that `text` uses, and those that these need, one a line."""
    given = (define.partition("=") for define in source.defines)
    lines = {name: f"#define {name} {value}" for name, _, value in given}
    lines |= {match[1]: match[0] for match in CUDA_DEFINITION.finditer(_whole(source))}
    names: set[str] = set()
    while new := {name for name in lines if re.search(rf"\b{name}\b", text)} - names:
        names |= new
        text = "\n".join(lines[name] for name in new)
    return "\n".join(line for name, line in lines.items() if name in names)
