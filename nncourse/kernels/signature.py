"""The part of an operation that its kernels must follow: its name, its arguments and its results."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nncourse.errors import CourseError
from nncourse.kernels import contract as contracts
from nncourse.kernels.contract import Argument, Sizes

OUTPUTS = ("overwritten", "accumulated")


@dataclass(eq=False)
class Signature:
    """The part of an operation that its kernels know.

    name, formula: `dense_forward`, `Z = A Wᵀ + b`.
    contract: arguments -> results, as text. `A (batch, n_in)` is an array, `z (*n)` an array of any shape with n
        elements, `rate ()` one number. Elements are float32; those of `labels (n,) int` are int32. batch, n_in and n
        are the names of sizes; an argument `classes () int` is a size too. Every size of a result is stated by an
        argument, or derived from sizes that are: `… -> Z (batch, n_out) where n_out = n_in // 2`. See contract.py.
    output: a CUDA kernel writes every element of the new array that it gets ("overwritten"), or it adds to zeros
        ("accumulated").

    A result with the name of an argument is computed in place: the kernel changes that argument. The other results are
    new arrays. A kernel returns its result, or a tuple if the contract has several.

    Raises CourseError for an invalid contract.
    """

    name: str
    formula: str
    contract: str
    output: str = field(default="overwritten", kw_only=True)

    def __post_init__(self) -> None:
        try:
            self.shapes = contracts.parse(self.contract)
        except CourseError as error:
            raise CourseError(f"{self.name}: {error}") from None
        if self.output not in OUTPUTS:
            raise CourseError(f"{self.name}: expected an output {' or '.join(OUTPUTS)}; got {self.output!r}")

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        return self.shapes.arguments

    @cached_property
    def results(self) -> tuple[Argument, ...]:
        return self.shapes.results

    @cached_property
    def result(self) -> Argument:
        """The first result, which most operations have alone."""
        return self.shapes.results[0]

    @cached_property
    def in_place(self) -> bool:
        """True where kernels change arguments and make no new array."""
        return not self.shapes.new

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The arguments' names."""
        return self.shapes.names

    @cached_property
    def size_names(self) -> tuple[str, ...]:
        """The sizes in the contract, each once, derived ones last: ("batch", "n_in", "n_out")."""
        return self.shapes.size_names

    @cached_property
    def cuda_arguments(self) -> tuple[str, ...]:
        """What a CUDA function takes: arguments, new results, sizes, each once. A, W, b, Z, batch, n_in, n_out."""
        arrays = [name for name in self.names if name not in self.size_names]
        return tuple(dict.fromkeys([*arrays, *(result.name for result in self.shapes.new), *self.size_names]))

    @cached_property
    def cuda_arrays(self) -> tuple[str, ...]:
        """Of `cuda_arguments` the arrays, which a CUDA function takes as pointers: A, W, b, Z."""
        arrays = {each.name for each in self.arguments if each.dims} | {each.name for each in self.results}
        return tuple(name for name in self.cuda_arguments if name in arrays)

    def sizes(self, *arguments: Any) -> Sizes:
        """The contract's sizes for these arguments; CourseError if these do not agree with it."""
        return self.shapes.sizes(arguments, self.name)
