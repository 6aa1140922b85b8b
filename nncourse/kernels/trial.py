"""What check() needs to know about an operation to try its kernels. Networks never read this."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels.contract import Sizes

# The kinds of limits of a Budget: how many accesses of which memory a launch makes.
LIMIT_WORDS = {
    "reads": "at most {formula} reads of {of}",
    "sectors": "at most {formula} sectors of {of}, asked for by warps",
    "reads by a thread": "at most {formula} reads of {of} by one thread",
    "writes": "at most {formula} writes to global memory",
    "shared reads": "at least {formula} reads of what another thread has put into shared memory",
    "shared reads by a thread": "at most {formula} reads by one thread of what others have put into shared memory",
    "all shared reads": "at most {formula} reads of what other threads have put into shared memory",
    "shared writes": "at most {formula} writes to shared memory",
    "atomics": "at most {formula} atomic additions to {of}",
    "shared atomics": "at most {formula} atomic additions to shared memory",
    "additions": "at least {formula} atomic additions",
}
Mistakes = Iterator[tuple[str, Any]]  # what Trial.mistakes yields
EDGE_CASES = ("zeros", "large", "infinite", "special", "ties", "nan", "one of zeros")


@dataclass(frozen=True)
class Limit:
    """How often a launch may access memory: a kind of LIMIT_WORDS, a formula of sizes, and `of` which array."""

    kind: str
    formula: str
    of: str = ""

    def __str__(self) -> str:
        return LIMIT_WORDS[self.kind].format(formula=self.formula, of=self.of)


@dataclass(frozen=True)
class Budget:
    """What a CUDA kernel that is named for an idea must keep to, counted by the emulator for arguments of `sizes`.

    The limits leave room for other ways to the same idea, such as tiles of 8, 16 or 32.
    """

    sizes: Sizes
    limits: tuple[Limit, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.limits))


@dataclass(frozen=True)
class Trial:
    """How kernels of an operation are tried and timed.

    tolerance: an error of tolerance × 2⁻²³ × error scale is allowed.
    error_scale: error_scale(*arguments) is the sum of the absolute values of all terms, a tuple for several results. By
        default it is the reference on absolute values; state it if the reference subtracts.
    values: values[name](rng, shape, sizes) makes an argument for which not every number is valid.
    edge_cases: those of EDGE_CASES that are tried; see nnclassroom/judge/cases.py. With "nan", results are NaN
        where the reference is, and nowhere else; what NOT_FINITE says holds for all.
    advice: advice(place, *arguments) says more about a wrong element there.
    mistakes: mistakes(place, *arguments) yields usual mistakes: words, and what a kernel that makes it returns, as the
        reference does; or a float, for the element there alone. The words are said if just that came out.
    well_posed: well_posed(*arguments) is False if rounding alone may decide on a result, such as which of two values is
        the larger; other numbers are then drawn.
    sizes_to_check: sizes to use if the usual ones do not fit or miss typical cases, small ones first. Each case is a
        dictionary of the sizes that are not derived. The edge cases have the first of them.
    draw_sizes: draw_sizes(rng) draws small sizes at random.
    large_sizes: some sizes above 65,536 in one direction; a Python loop should take at most a second for each.
    sizes_to_time: sizes_to_time("cpu"), or "gpu", are the default sizes for timing.
    budgets: for kernels by their names, what they may access; see nnclassroom/judge/budget.py.
    iterates: whether each step uses the result of the one before: FLOPs then do not bound the error of one sum.

    Raises CourseError for an unknown edge case, and for other sizes without sizes_to_check.
    """

    tolerance: float = 8.0
    error_scale: Callable[..., Any] | None = None
    values: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    edge_cases: tuple[str, ...] = ("zeros", "large", "infinite")
    advice: Callable[..., str] | None = None
    mistakes: Callable[..., Iterable[tuple[str, Any]]] | None = None
    well_posed: Callable[..., bool] | None = None
    sizes_to_check: Sequence[Sizes] = ()
    draw_sizes: Callable[[np.random.Generator], Sizes] | None = None
    large_sizes: Sequence[Sizes] = ()
    sizes_to_time: Callable[[str], Sizes] | None = None
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    iterates: bool = False

    def __post_init__(self) -> None:
        for name in self.edge_cases:
            refuse_unknown("an edge case", name, EDGE_CASES)
        if (self.draw_sizes or self.large_sizes) and not self.sizes_to_check:
            raise CourseError("expected sizes_to_check beside draw_sizes and large_sizes; got none")


def shared_sum(elements: str, of: str, result: str) -> tuple[Limit, ...]:
    """The limits of a sum that threads share.

    None adds up too many of the elements, nor of the other threads' sums: in a tree it reads one in each round.
    Few add to the result at once.
    """
    few = "32"  # one for each warp
    shares = Limit("reads by a thread", f"{elements} // 32", of), Limit("shared reads by a thread", "24")
    return *shares, Limit("atomics", few, result), Limit("shared atomics", few)


def sizes_named(names: str) -> Callable[..., Sizes]:
    """A function that makes sizes from numbers: sizes_named("batch n")(2, 3) is {"batch": 2, "n": 3}."""
    return lambda *numbers: dict(zip(names.split(), numbers, strict=True))
