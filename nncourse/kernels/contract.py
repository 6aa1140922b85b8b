"""Shapes as text: what "A (batch, n_in), W (n_out, n_in) -> Z (batch, n_out)" says, and whether arrays agree with it.

`(batch, n_in)` is a shape, by its letters; `(*n)` is n numbers in any shape; `()` is one number. Numbers are floats
unless the word int follows. A single whole number is itself a size: after `classes () int` there is a letter classes.
`architecture () object` is no number, but a value that may fix sizes: those in its dictionary `letters`.
"""

import re
from dataclasses import dataclass

import numpy as np

from nncourse.errors import CourseError

ARGUMENT = r"\s*(\w+) \(([\w\s,]*|\*n)\)( int| object)?\s*"


@dataclass(frozen=True)
class Argument:
    """One argument of an operation, or its result: `A (batch, n_in)`."""

    name: str
    dims: tuple[str, ...]
    kind: str

    @property
    def any_shape(self) -> bool:
        return self.dims == ("*n",)

    @property
    def dtype(self) -> type:
        return np.int32 if self.kind == "int" else np.float32

    @property
    def letters(self) -> tuple[str, ...]:
        """The sizes that this argument tells: those of its shape, or itself if it is one whole number or an object."""
        if self.kind != "float" and not self.dims:
            return (self.name,)
        return tuple(dim.lstrip("*") for dim in self.dims)

    def __str__(self) -> str:
        shape = ", ".join(self.dims) + ("," if len(self.dims) == 1 and not self.any_shape else "")
        return f"{self.name} ({shape})" + ("" if self.kind == "float" else f" {self.kind}")


def parse(text: str) -> tuple[tuple[Argument, ...], Argument]:
    """The arguments and the result that a contract names; CourseError for text that is not understood."""
    if not re.fullmatch(f"(?:{ARGUMENT},)*{ARGUMENT}->{ARGUMENT}", text):
        wanted = "arguments -> result, such as A (batch, n_in), z (*n), rate (), labels (n,) int -> Z (batch, n_out)"
        raise CourseError(f"wanted {wanted}; got {text!r}")
    *arguments, result = (
        Argument(name, tuple(filter(None, map(str.strip, dims.split(",")))), kind.strip() or "float")
        for name, dims, kind in re.findall(ARGUMENT, text)
    )
    return tuple(arguments), result


def sizes(arguments: tuple[Argument, ...], values: tuple, operation: str) -> dict[str, int]:
    """The size that each letter of the contract stands for, read off `values`.

    Raises CourseError where the values' number or shapes do not agree with the contract or with each other.
    """
    if len(values) != len(arguments):
        wanted = ", ".join(map(str, arguments))
        raise CourseError(f"{operation}: wanted {len(arguments)} arguments, {wanted}; got {len(values)}")
    known: dict[str, int] = {}
    for argument, value in zip(arguments, values, strict=True):
        if argument.kind == "object":
            found = {argument.name: value, **getattr(value, "letters", {})}
        elif argument.any_shape:
            found = {argument.letters[0]: value.size}
        else:
            shape = np.shape(value) if argument.dims else (int(value),) if argument.letters else ()
            if len(shape) != len(argument.letters):
                raise CourseError(f"{operation}: wanted {argument}, got {argument.name} of shape {np.shape(value)}")
            found = dict(zip(argument.letters, shape, strict=True))
        for letter, size in found.items():
            if known.setdefault(letter, size) != size:
                pairs = zip(arguments, values, strict=True)
                all_shapes = ", ".join(f"{a.name} {v if a.kind == 'object' else np.shape(v)}" for a, v in pairs)
                raise CourseError(f"{operation}: {letter} is {known[letter]} and also {size} in {all_shapes}")
    return known


def result_shape(result: Argument, values: tuple, known: dict[str, int]) -> tuple[int, ...]:
    """The shape of the result; `(*n)` has the shape of the first argument."""
    return np.shape(values[0]) if result.any_shape else tuple(known[letter] for letter in result.dims)


def shapes(arguments: tuple[Argument, ...], values: tuple) -> tuple | None:
    """All that sizes() reads of the values, as a key: shapes and whole numbers; None if their number is wrong."""
    if len(values) != len(arguments):
        return None
    return tuple(
        int(value) if argument.kind == "int" and not argument.dims else getattr(value, "shape", None)
        for argument, value in zip(arguments, values, strict=True)
    )
