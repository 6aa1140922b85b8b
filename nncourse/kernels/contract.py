"""Contracts: parse "A (batch, n_in), W (n_out, n_in) -> Z (batch, n_out)" and check whether arrays agree with it.

`(batch, n_in)` is a shape of named sizes. `(*n)` is an array of any shape with n elements in all; all arrays of one
`(*n)` have the same shape. `()` is one number. Elements are float32, or int32 if the word int follows. An argument that
is one whole number is itself a size: `classes () int` makes classes the name of a size. `architecture () object` is a
Python object; the sizes in its dictionary `contract_sizes` belong to the contract too.

Sizes derived from others follow after `where`, and so do conditions with <= or >=:

    A (batch, n), k () int, stride () int -> Z (batch, n_out) where n_out = (n - k) // stride + 1, stride >= 1

Arguments that state a derived size are checked against its formula; if no argument states it, it is computed.
"""

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Any

import numpy as np

from nncourse.errors import CourseError

ARGUMENT = r"\s*(\w+) \(([\w\s,]*|\*n)\)( int| object)?\s*"
FORMULA = r"\s*(\w+) = ([^,=]+)"
CONDITION = r"\s*([^,=<>]+) (<=|>=) ([^,=<>]+)"
ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Constant)
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.USub)

Sizes = dict[str, Any]  # an integer for each name of a size; an object for an argument of kind object


@dataclass(frozen=True)
class Argument:
    """One argument of an operation, or one of its results: `A (batch, n_in)`."""

    name: str
    dims: tuple[str, ...]
    kind: str

    @property
    def any_shape(self) -> bool:
        return bool(self.dims) and self.dims[0].startswith("*")

    @property
    def dtype(self) -> type[np.generic]:
        return np.int32 if self.kind == "int" else np.float32

    @property
    def is_size(self) -> bool:
        """True for one whole number, and for an object, which is treated in the same way."""
        return self.kind != "float" and not self.dims

    @property
    def size_names(self) -> tuple[str, ...]:
        """The sizes that this argument states: those of its shape, or itself if is_size."""
        return (self.name,) if self.is_size else tuple(dim.lstrip("*") for dim in self.dims)

    def __str__(self) -> str:
        shape = ", ".join(self.dims) + ("," if len(self.dims) == 1 and not self.any_shape else "")
        return f"{self.name} ({shape})" + ("" if self.kind == "float" else f" {self.kind}")


@dataclass(frozen=True)
class Formula:
    """Integer arithmetic on sizes, + - * and //, as text: `(h_in + 2 * padding - k) // stride + 1`."""

    text: str

    @cached_property
    def _code(self) -> CodeType:
        try:
            tree = ast.parse(self.text.strip(), mode="eval")
            nodes = list(ast.walk(tree.body))
        except SyntaxError:
            nodes = [ast.Pass()]
        numbers = (node.value for node in nodes if isinstance(node, ast.Constant))
        allowed = all(isinstance(node, ARITHMETIC + OPERATORS) for node in nodes)
        if not allowed or not all(type(number) is int for number in numbers):
            raise CourseError(f"expected a formula of sizes, whole numbers, + - * // and brackets; got {self.text!r}")
        return compile(tree, "<formula>", "eval")

    @property
    def names(self) -> tuple[str, ...]:
        """The sizes in it."""
        return self._code.co_names

    def __call__(self, sizes: Mapping[str, Any]) -> int:
        """Its value; CourseError where it divides by zero."""
        try:
            return int(eval(self._code, {"__builtins__": {}}, dict(sizes)))  # only arithmetic gets this far
        except ZeroDivisionError:
            raise CourseError(f"{self.text} divides by zero for {_listed(self.names, sizes)}") from None


@dataclass(frozen=True)
class Condition:
    """A condition on sizes: `2 * padding <= size`."""

    left: Formula
    sign: str
    right: Formula

    @property
    def names(self) -> tuple[str, ...]:
        """The sizes in it."""
        return tuple(dict.fromkeys([*self.left.names, *self.right.names]))

    def __call__(self, sizes: Mapping[str, Any]) -> bool:
        left, right = self.left(sizes), self.right(sizes)
        return left <= right if self.sign == "<=" else left >= right

    def __str__(self) -> str:
        return f"{self.left.text} {self.sign} {self.right.text}"


@dataclass(frozen=True)
class Contract:
    """Arguments, results, derived sizes, and conditions on sizes."""

    text: str
    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]
    derived: Mapping[str, Formula] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments."""
        return tuple(argument.name for argument in self.arguments)

    @cached_property
    def _are_whole(self) -> tuple[bool, ...]:
        """For each argument, whether it is one whole number."""
        return tuple(argument.is_size and argument.kind == "int" for argument in self.arguments)

    @cached_property
    def in_place(self) -> tuple[Argument, ...]:
        """The results that are arguments too: a kernel changes these."""
        return tuple(result for result in self.results if result.name in self.names)

    @cached_property
    def new(self) -> tuple[Argument, ...]:
        """The other results: a kernel makes them."""
        return tuple(result for result in self.results if result.name not in self.names)

    @cached_property
    def size_names(self) -> tuple[str, ...]:
        """Every size of the contract once, the derived ones last."""
        stated = [name for argument in self.arguments for name in argument.size_names if name not in self.derived]
        return tuple(dict.fromkeys([*stated, *self.derived]))

    @cached_property
    def whole_in_formulas(self) -> frozenset[str]:
        """The whole-number arguments in formulas of derived sizes, such as a window and a stride."""
        used = {name for formula in self.derived.values() for name in formula.names}
        whole = (a.name for a, is_whole in zip(self.arguments, self._are_whole, strict=True) if is_whole)
        return frozenset(used.intersection(whole))

    @cached_property
    def dims(self) -> frozenset[str]:
        """The sizes in shapes of arguments and results. If one is below 1, an array is empty."""
        return frozenset(dim.lstrip("*") for array in (*self.arguments, *self.results) for dim in array.dims)

    @cached_property
    def free_names(self) -> tuple[str, ...]:
        """The sizes that are not derived."""
        return tuple(name for name in self.size_names if name not in self.derived)

    def reduces(self, result: Argument) -> bool:
        """Whether a result lacks a size of the arguments' shapes, over which it must then be a sum or a maximum."""
        shapes = {dim for argument in self.arguments for dim in argument.dims}
        return bool(shapes - set(result.dims))

    def sizes(self, values: Sequence[Any], operation: str) -> Sizes:
        """The value of each size for these arguments.

        Raises CourseError if their number or shapes do not agree with the contract or with each other.
        """
        if len(values) != len(self.arguments):
            wanted = ", ".join(map(str, self.arguments))
            raise CourseError(f"{operation}: expected {len(self.arguments)} arguments, {wanted}; got {len(values)}")
        known: Sizes = {}
        shapes: dict[str, tuple[str, tuple[int, ...]]] = {}  # of the arrays of any shape: the first's name and shape
        for argument, value in zip(self.arguments, values, strict=True):
            if argument.any_shape:
                there = argument.name, np.shape(value)
                name, shape = shapes.setdefault(argument.dims[0], there)
                if shape != there[1]:
                    both = f"{name} {shape} and {argument.name} {there[1]}"
                    raise CourseError(f"{operation}: {both} must have the same shape")
            for name, size in _stated(argument, value, operation):
                if known.setdefault(name, size) != size:
                    raise CourseError(f"{operation}: {name} is {known[name]} and also {size} in {self._shown(values)}")
        return self.complete(known, operation)

    def complete(self, known: Sizes, operation: str) -> Sizes:
        """`known` with the derived sizes.

        CourseError if a condition does not hold, or if a derived size is below 1 or differs from the known one.
        """
        complete = dict(known)
        for condition in self.conditions:
            if all(name in complete for name in condition.names) and not condition(complete):
                got = _listed(condition.names, complete)
                raise CourseError(f"{operation}: expected {condition}; got {got}")
        for name, formula in self.derived.items():
            if any(needed not in complete for needed in formula.names):
                continue  # the caller knows only some sizes
            size = formula(complete)
            got = f"{name} = {formula.text} = {size} for {_listed(formula.names, complete)}"
            if size < 1:
                raise CourseError(f"{operation}: expected {name} of at least 1; got {got}")
            if complete.setdefault(name, size) != size:
                raise CourseError(f"{operation}: {name} is {complete[name]}, but {got}")
        return complete

    def result_shapes(self, values: Sequence[Any], sizes: Sizes) -> tuple[tuple[int, ...], ...]:
        """The shape of each result; `(*n)` has the shape of the first argument of that kind."""
        any_shape = {a.dims[0]: np.shape(v) for a, v in zip(self.arguments, values, strict=True) if a.any_shape}
        return tuple(
            any_shape[result.dims[0]] if result.any_shape else tuple(sizes[dim] for dim in result.dims)
            for result in self.results
        )

    def key(self, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """All that sizes() reads of the values: shapes and whole numbers; None if their number is wrong."""
        whole = self._are_whole
        if len(values) != len(whole):
            return None
        pairs = zip(values, whole, strict=True)
        return tuple([_whole(value) if is_whole else getattr(value, "shape", None) for value, is_whole in pairs])

    def _shown(self, values: Sequence[Any]) -> str:
        pairs = zip(self.arguments, values, strict=True)
        return ", ".join(f"{a.name} {v if a.kind == 'object' else np.shape(v)}" for a, v in pairs)

    def __str__(self) -> str:
        return self.text


def _stated(argument: Argument, value: Any, operation: str) -> list[tuple[str, Any]]:
    """The sizes that one argument's value states, by name."""
    if argument.kind == "object":
        return [(argument.name, value), *getattr(value, "contract_sizes", {}).items()]
    if argument.any_shape:
        return [(argument.size_names[0], math.prod(np.shape(value)))]
    if argument.is_size:
        if (size := _whole(value)) is None or size < 0:
            raise CourseError(f"{operation}: expected {argument.name} as a whole number of at least 0, got {value!r}")
        return [(argument.name, size)]
    shape = np.shape(value) if argument.dims else ()
    if len(shape) != len(argument.dims):
        raise CourseError(f"{operation}: expected {argument}, got {argument.name} of shape {np.shape(value)}")
    return list(zip(argument.dims, shape, strict=True))


def _whole(value: Any) -> int | None:
    """The value as an integer; None if it is not one whole number."""
    if type(value) is int:
        return value
    try:
        return int(value) if np.shape(value) == () and int(value) == value else None
    except (TypeError, ValueError, OverflowError):  # None, text, NaN, infinity
        return None


def _listed(names: Sequence[str], sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {sizes.get(name, '?')}" for name in names)


def parse(text: str) -> Contract:
    """Parse a contract; CourseError if it is invalid."""
    body, where, formulas = text.partition(" where ")
    one_side = f"(?:{ARGUMENT},)*{ARGUMENT}"
    one = f"(?:{FORMULA}|{CONDITION})"
    whole = f"(?:{one},)*{one}"
    if not re.fullmatch(f"{one_side}->{one_side}", body) or (where and not re.fullmatch(whole, formulas)):
        wanted = "arguments -> results, such as A (batch, n_in), z (*n), rate (), labels (n,) int -> Z (batch, n_out)"
        raise CourseError(f"expected {wanted}; got {text!r}")
    arguments, results = (
        tuple(
            Argument(name, tuple(filter(None, map(str.strip, dims.split(",")))), kind.strip() or "float")
            for name, dims, kind in re.findall(ARGUMENT, side)
        )
        for side in body.split("->")
    )
    terms = formulas.split(",")
    named = [found.groups() for term in terms if (found := re.fullmatch(FORMULA, term))]
    compared = [found.groups() for term in terms if (found := re.fullmatch(CONDITION, term))]
    derived = {name: Formula(formula.strip()) for name, formula in named}
    conditions = tuple(Condition(Formula(a.strip()), sign, Formula(b.strip())) for a, sign, b in compared)
    made = Contract(text, arguments, results, derived, conditions)
    _refuse_repeated_names(made, [name for name, _ in named])
    _refuse_unknown_sizes(made)
    return made


def _refuse_repeated_names(made: Contract, derived: Sequence[str]) -> None:
    """CourseError if a name occurs twice, or if a result in place has another shape than its argument."""
    for names in (made.names, [result.name for result in made.results], derived):
        if repeated := {name for name in names if list(names).count(name) > 1}:
            raise CourseError(f"expected each name once; got {', '.join(sorted(repeated))} twice in {made.text!r}")
    for result in made.in_place:
        argument = made.arguments[made.names.index(result.name)]
        if (result.dims, result.kind) != (argument.dims, argument.kind):
            raise CourseError(f"expected {argument} in place with the same shape; got {result} in {made.text!r}")


def _refuse_unknown_sizes(made: Contract) -> None:
    """CourseError if a result, formula or condition has a size that is neither stated nor derived before it."""
    stated = {name for argument in made.arguments for name in argument.size_names} - made.derived.keys()
    objects = any(argument.kind == "object" for argument in made.arguments)
    for name, formula in made.derived.items():
        if unknown := set(formula.names) - stated:
            raise CourseError(f"expected sizes that are known for {name} = {formula.text}; got {', '.join(unknown)}")
        stated.add(name)
    for condition in made.conditions:
        if unknown := set(condition.names) - stated:
            raise CourseError(f"expected sizes that are known for {condition}; got {', '.join(unknown)}")
    unknown = {name for result in made.results for name in result.size_names if not result.is_size} - stated
    if unknown and not objects:
        raise CourseError(
            f"expected results with sizes of arguments; got {', '.join(sorted(unknown))} in {made.text!r}"
        )
    if (wrong := {r.dims for r in made.results if r.any_shape} - {a.dims for a in made.arguments}) and not objects:
        raise CourseError(f"expected an argument of the shape of each result; got {wrong} in {made.text!r}")
