"""Hypothesis searches for arguments on which a kernel of the package is wrong and which cases.py lacks."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from nnclassroom.judge import check
from nnclassroom.judge.run import Memory, run_here
from nnclassroom.judge.verdict import Case
from nncourse.catalogue import operations
from nncourse.errors import CourseError
from tests.tiers import many

# Numbers of float32 that are easy to shrink; those so small that a GPU may take them for 0 are left out.
NUMBERS = st.floats(-1e4, 1e4, width=32).map(lambda x: x if abs(x) > 1e-20 else 0.0)
OWN = [(operation, name) for operation in operations().values() for name in ("numpy",) if name in operation.kernels]


@st.composite
def cases_of(draw, name):
    """For the operation of that name: any sizes up to 9, any numbers.

    Numbers such as a padding may be 0. Sizes that the contract refuses are no example. Arguments for which not all will
    do are made as the operation makes them.
    """
    operation = operations()[name]
    shapes = operation.shapes
    sizes = {size: draw(st.integers(int(size in shapes.dims), 9)) for size in shapes.free_names}
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    made = []
    try:
        known = shapes.complete(sizes, operation.name)
    except CourseError:
        reject()
    for argument in operation.arguments:
        shape = tuple(known[name] for name in argument.size_names) if argument.dims else ()
        if argument.name in operation.trial.values:
            made.append(operation.trial.values[argument.name](rng, shape, known | {"turn": draw(st.integers(0, 9))}))
        elif argument.kind != "float":
            made.append(known[argument.name])
        else:
            value = draw(arrays.arrays(np.float32, shape, elements=NUMBERS))
            made.append(value if argument.dims else float(value))
    return Case("found by Hypothesis", tuple(made))


@pytest.mark.parametrize("own", many(OWN, lambda own: f"{own[0].name}-{own[1]}", operation=lambda own: own[0].name))
def test_no_arguments_are_found_on_which_a_kernel_is_wrong(own):
    operation, name = own
    kernel = operation[name]

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(cases_of(operation.name))
    def is_right(case):
        references = check.references_of(operation, case.arguments)
        assume(not any(np.isnan(reference).any() for reference in references.values()))
        run = lambda case, options: run_here(operation, kernel, "cpu", Memory(), case, options)  # noqa: E731
        verdict = check.judge(operation, name, run, "cpu", only=case)
        assert verdict, f"{verdict}\n{case.arguments}"

    is_right()
