"""Writes nncourse/calls.py anew from the operations' contracts: `python tools/calls.py`. A test keeps it up to date."""

import textwrap
from pathlib import Path

from nncourse.catalogue import operations
from nncourse.kernels import update
from nncourse.kernels.activations import activations_among
from nncourse.kernels.contract import Argument
from nncourse.kernels.operation import Operation

FILE = Path(__file__).parents[1] / "nncourse" / "calls.py"

HEAD = '''"""What a backend can be asked: a method for each operation, for editors and type checkers.

Made by tools/calls.py from the operations' contracts: change these, not this file. A Backend of backend.py has
a kernel in the place of each method. Beside the methods stands what networks have to know of the operations.
"""

from collections.abc import Mapping
from typing import Any

Array = Any  # a NumPy array on the CPU, a CuPy array on a GPU

# The activations, and what each of their outputs is computed from: a number of Z, or a row.
ACTIVATIONS
ADAM


class Calls:
    """The operations of a backend, and where their arrays lie."""

    name: str
    device: str
    kernels: Mapping[str, Any]
    notes: Mapping[str, str]
    yours: frozenset[str]
    asked: frozenset[str]
    unused: frozenset[str]

    @property
    def epochs(self) -> Mapping[str, Any]:
        """The kernels that compute fused epochs, by operation."""
        raise NotImplementedError

    def to_device(self, array: Array) -> Array:
        """`array` where this backend's kernels want it."""
        raise NotImplementedError
'''


def annotation(argument: Argument) -> str:
    """The Python type of an argument or a result."""
    if argument.kind == "object":
        return "Any"
    return "Array" if argument.dims else {"int": "int", "float": "float"}[argument.kind]


def method(operation: Operation) -> str:
    """One method of the class."""
    listed = ["self", *(f"{argument.name}: {annotation(argument)}" for argument in operation.arguments)]
    arguments = ", ".join(listed)
    results = [annotation(result) if result.dims else "Array" for result in operation.results]
    result = results[0] if len(results) == 1 else f"tuple[{', '.join(results)}]"
    title = f"{operation.equation} {operation.formula}".strip()
    if not title.endswith("."):
        title += "."
    words = textwrap.wrap(operation.contract, 112)
    documentation = "\n".join(f"        {line}" for line in words)
    head = f"    def {operation.name}({arguments}) -> {result}:"
    if len(head) > 120:  # as ruff breaks it
        lines = f"        {arguments}\n" if len(arguments) <= 112 else "".join(f"        {each},\n" for each in listed)
        head = f"    def {operation.name}(\n{lines}    ) -> {result}:"
    return f'{head}\n        """{title}\n\n{documentation}\n        """\n        raise NotImplementedError\n'


def text() -> str:
    """The whole file."""
    known = operations()
    listed = [f'    "{name}": "{unit}",' for name, unit in activations_among(known).items()]
    adam = f'{{"beta1": {update.BETA_1}, "beta2": {update.BETA_2}, "epsilon": {update.EPSILON}}}'
    head = HEAD.replace("ACTIVATIONS\n", "\n".join(["ACTIVATIONS = {", *listed, "}", ""]))
    head = head.replace("ADAM\n", f"ADAM = {adam}  # what stands in adam_update\n")
    return "\n".join([head, *map(method, known.values())])


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
