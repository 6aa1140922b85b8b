"""Shapes as text: what "A (batch, n_in), W (n_out, n_in), b (n_out,)" says, and whether given arrays agree with it."""

import re
from dataclasses import dataclass

import numpy as np

from nncourse.errors import CourseError

DTYPES = {"float": np.float32, "int": np.int32}


@dataclass(frozen=True)
class Argument:
    """One array of an operation: `A (batch, n_in)`. `z (*n)` is n numbers in any shape, `rate ()` is one number.

    Numbers are floats unless the word int follows: `labels (n,) int`.
    """

    name: str
    dims: tuple[str, ...]
    kind: str

    @property
    def any_shape(self) -> bool:
        return self.dims == ("*n",)

    @property
    def size_name(self) -> str:
        """The name, if this is one whole number, and so a size itself; else nothing."""
        return self.name if self.kind == "int" and not self.dims else ""

    def __str__(self) -> str:
        shape = ", ".join(self.dims) + ("," if len(self.dims) == 1 and not self.any_shape else "")
        return f"{self.name} ({shape})" + (" int" if self.kind == "int" else "")


def parse(text: str) -> tuple[Argument, ...]:
    """The arguments that a contract's text names."""
    found = re.findall(r"(\w+) \(([^)]*)\)( int)?", text)
    return tuple(
        Argument(name, tuple(dim.strip() for dim in dims.split(",") if dim.strip()), kind.strip() or "float")
        for name, dims, kind in found
    )


def sizes(arguments: tuple[Argument, ...], values: tuple, operation: str) -> dict[str, int]:
    """The size that each letter of the contract stands for, read off `values`.

    Raises CourseError where the values' number or shapes do not agree with the contract or with each other.
    """
    if len(values) != len(arguments):
        wanted = ", ".join(map(str, arguments))
        raise CourseError(f"{operation}: wanted {len(arguments)} arguments, {wanted}; got {len(values)}")
    known: dict[str, int] = {}
    for argument, value in zip(arguments, values, strict=True):
        if argument.any_shape:
            found = {"n": value.size}
        elif argument.dims:
            if np.ndim(value) != len(argument.dims):
                raise CourseError(f"{operation}: wanted {argument}, got {argument.name} of shape {np.shape(value)}")
            found = dict(zip(argument.dims, value.shape, strict=True))
        else:
            found = {argument.size_name: int(value)} if argument.size_name else {}
        for dim, size in found.items():
            if known.setdefault(dim, size) != size:
                shapes = ", ".join(f"{a.name} {np.shape(v)}" for a, v in zip(arguments, values, strict=True))
                raise CourseError(f"{operation}: {dim} is {known[dim]} in one argument and {size} in another: {shapes}")
    return known


def result_shape(result: Argument, values: tuple, known: dict[str, int]) -> tuple[int, ...]:
    """The shape of the result; `(*n)` has the shape of the first argument."""
    return np.shape(values[0]) if result.any_shape else tuple(known[dim] for dim in result.dims)
