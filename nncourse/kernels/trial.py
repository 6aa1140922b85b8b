"""What check() has to know of an operation to try kernels of it. Networks never read this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels.contract import Sizes

EDGE_CASES = ("zeros", "large", "infinite", "special", "ties", "nan", "one of zeros")


@dataclass(frozen=True)
class Trial:
    """How kernels of an operation are tried and timed.

    tolerance: an error of tolerance × 2⁻²³ × error scale is allowed.
    error_scale: error_scale(*arguments) adds up the absolute values of what is added up, and is a tuple where there are
        several results. By default it is the reference on absolute values; give it where the reference subtracts.
    values: values[name](rng, shape, sizes) makes an argument for which not every number will do.
    edge_cases: those of EDGE_CASES that are tried; see nnclassroom/judge/cases.py. With "nan", a NaN of the reference
        must come out as NaN, and nothing else may.
    advice: advice(place, *arguments) says more about a wrong element there.
    well_posed: well_posed(*arguments) is False where rounding alone may decide on a result, such as which of two values
        is the larger; then other numbers are drawn.
    sizes_to_check: where the usual sizes do not fit or miss typical cases, others, small ones first: for each case a
        dictionary of the sizes that are not derived. The edge cases have the first of them.
    draw_sizes: draw_sizes(rng) draws small sizes at random.
    large_sizes: some sizes above 65,536 in one direction; a Python loop should do each in a second.
    sizes_to_time: sizes_to_time("cpu"), or "gpu", are the sizes that are timed unless others are asked for.
    iterates: whether a result comes from many steps, one on the other: its FLOPs then say nothing of one sum's error.

    Raises CourseError for an edge case that is not known, and for sizes without sizes_to_check.
    """

    tolerance: float = 8.0
    error_scale: Callable[..., Any] | None = None
    values: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    edge_cases: tuple[str, ...] = ("zeros", "large", "infinite")
    advice: Callable[..., str] | None = None
    well_posed: Callable[..., bool] | None = None
    sizes_to_check: Sequence[Sizes] = ()
    draw_sizes: Callable[[np.random.Generator], Sizes] | None = None
    large_sizes: Sequence[Sizes] = ()
    sizes_to_time: Callable[[str], Sizes] | None = None
    iterates: bool = False

    def __post_init__(self) -> None:
        for name in self.edge_cases:
            refuse_unknown("an edge case", name, EDGE_CASES)
        if (self.draw_sizes or self.large_sizes) and not self.sizes_to_check:
            raise CourseError("wanted sizes_to_check beside draw_sizes and large_sizes; got none")
