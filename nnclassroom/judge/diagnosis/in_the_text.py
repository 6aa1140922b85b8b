"""Slips that a wrong result alone does not show, but the text of the kernel does."""

import ast
import re
from collections.abc import Mapping

from nnclassroom.judge import python_text
from nncourse.kernels.operation import Operation

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
BEFORE = r"(?:[=(,+\-?:{]|\breturn\b)\s*"  # not a factor, which may be a float


def whole_division(operation: Operation, source: str) -> Mapping[str, str]:
    """A quotient of whole numbers in CUDA C, such as 1 / batch, and what to write for it; {} if there is none."""
    size = rf"(?:{'|'.join(operation.size_names)})\b(?!\s*\.)"
    quotient = rf"{BEFORE}(1\s*/\s*(?:{size}|2\b(?!\.)|\(\s*2\s*\*\s*{size}\s*\)))"
    found = re.search(quotient, COMMENT.sub(" ", source))
    return {"quotient": found[1], "better": found[1].replace("1", "1.0f", 1)} if found else {}


def swapped_indices(operation: Operation, source: str) -> Mapping[str, str]:
    """An index in CUDA C such as D[j * n_out + i] that swaps row and column, and what to write for it; {} if none does.

    Which of the two counts rows, is seen from what it is compared with.
    """
    text = COMMENT.sub(" ", source)

    def counted(variable: str) -> set[str]:
        """The sizes below which a variable stays."""
        return set(re.findall(rf"\b{variable}\s*(?:<|>=)\s*(\w+)\b", text)).intersection(operation.size_names)

    for array in (*operation.arguments, *operation.results):
        if len(array.dims) == 2:
            rows, columns = array.dims
            for found in re.finditer(rf"\b{array.name}\s*\[\s*(\w+)\s*\*\s*{columns}\s*\+\s*(\w+)\s*\]", text):
                if rows != columns and counted(found[1]) == {columns} and counted(found[2]) == {rows}:
                    return {"swapped": found[0], "better": f"{array.name}[{found[2]} * {columns} + {found[1]}]"}
    return {}


def not_shared(source: str) -> Mapping[str, str]:
    """An array in CUDA C that each thread has for itself, although threads meet at barriers and share its elements.

    Its index is a thread's own, as in tile[y][x]; a thread's private array has other indices.
    """
    text = COMMENT.sub(" ", source)
    own = {*re.findall(r"(\w+)\s*=\s*threadIdx\.[xyz]\b", text), *re.findall(r"threadIdx\.[xyz]", text)}
    for found in re.finditer(r"(__shared__\s+)?\b(?:float|int)\s+(\w+)\s*((?:\[[^\]]*\]\s*)+)[;=]", text):
        indices = {each.strip() for each in re.findall(rf"\b{found[2]}\s*\[([^\]]*)\]", text)}
        if not found[1] and "__syncthreads" in text and indices & own:
            return {"unshared": found[2]}
    return {}


def rebinding(operation: Operation, text: str) -> Mapping[str, str]:
    """A statement such as `W = W - rate * G`, whose W should change in place, and what to write for it; else {}.

    A function that keeps the array under another name may still change it.
    """
    tree = ast.walk(python_text.tree(text))
    function = next((node for node in tree if isinstance(node, ast.FunctionDef) and node.name == operation.name), None)
    if function is None:
        return {}
    parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    needed = parameters[: len(parameters) - len(function.args.defaults)]
    own = needed[-len(operation.arguments) :]  # without a group
    changing = {operation.names.index(named.name) for named in operation.shapes.in_place}
    names = {name for number, name in enumerate(own) if number in changing}
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    if any(isinstance(node.value, ast.Name) and node.value.id in names for node in assigned):
        return {}
    for node in assigned:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in names and isinstance(node.value, ast.BinOp):
            used = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
            if target.id in used:
                statement = ast.unparse(node)
                return {"rebinds": statement, "within": statement.replace(" = ", "[:] = ", 1)}
    return {}
