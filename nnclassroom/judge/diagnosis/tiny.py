"""A tiny case in numbers: the arguments, what a kernel made of them, and what is right."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from nnclassroom.judge.cases import make_case
from nnclassroom.judge.compare import Call, Wrong, first_wrong
from nnclassroom.judge.run import Runner
from nnclassroom.judge.tolerance import references_of
from nnclassroom.judge.verdict import Case, Fault
from nncourse.errors import CourseError
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation

MOST_SHOWN = 12  # numbers of all arguments, and of all results
DRAWS = 24  # sizes among which those of tiny cases are found
MOST_TRIED = 3  # among which a bisection takes two calls: a verdict may take a fifth longer, and no more


def smaller(operation: Operation, case: Case, run: Runner, options: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of a tiny case with wrong values, for one with too many numbers: the smallest that bisection finds.

    It takes two calls of the kernel: most kernels that are wrong for some sizes are wrong for larger ones too.
    """
    found: dict[str, str] = {}
    tiny, rng = tiny_sizes(operation, case), np.random.default_rng(0)
    first, end = 0, len(tiny)
    while first < end:
        at = (first + end) // 2
        arguments = make_case(operation, tiny[at], case.values, rng, number=at, turn=at, decided=True).arguments
        returned = run(Case("", arguments, tiny=True), options)
        if isinstance(returned, Fault):  # not what is to be explained; but a GPU may be lost with it
            return found | {name: fact for name, fact in returned.facts.items() if name == "context"}
        call = Call(operation, arguments, returned, references_of(operation, arguments))
        wrong = first_wrong(call)
        if isinstance(wrong, Wrong) and (numbers := numbers_of(call, wrong)):
            found, end = numbers, at
        else:
            first = at + 1
    return found


def tiny_sizes(operation: Operation, case: Case) -> list[Sizes]:
    """Sizes for which the arguments have at most MOST_SHOWN numbers, the smallest first; others are as in the case.

    None is smaller or larger than all that the operation lists: a kernel for whole tiles need not be right for a part
    of one.
    """
    shapes, known = operation.shapes, operation.sizes(*case.arguments)
    sizes = {name: known[name] for name in shapes.free_names}
    changing, found = sorted(shapes.dims & sizes.keys()), list[tuple[int, Sizes]]()
    if not changing or "ranks" in sizes or not all(isinstance(size, int) for size in sizes.values()):
        return []
    listed = operation.trial.sizes_to_check
    given = [[each[name] for each in listed if name in each] or [1, 3] for name in changing]
    rows = np.random.default_rng(0).integers(2, 7, (DRAWS, len(changing))) // 2  # from 1 to 3
    rows = rows[((rows >= list(map(min, given))) & (rows <= list(map(max, given)))).all(axis=1)]
    for row in dict.fromkeys(map(tuple, rows.tolist())):
        tried = sizes | dict(zip(changing, row, strict=True))
        try:
            whole = shapes.complete(tried, operation.name)
        except CourseError:  # a derived size would be below 1
            continue
        count = sum(prod(whole[name] for name in each.size_names) for each in operation.arguments if each.dims)
        found.append((count, tried))
    tiny = [tried for count, tried in sorted(found, key=lambda each: each[0]) if count <= MOST_SHOWN]
    if len(tiny) <= MOST_TRIED:
        return tiny
    return [tiny[at] for at in np.linspace(0, len(tiny) - 1, MOST_TRIED).round().astype(int)]


def numbers_of(call: Call, wrong: Wrong) -> dict[str, str]:
    """The numbers of a tiny case in words; nothing for a larger one."""
    numbers = {name: value for name, value in call.before.items() if isinstance(value, np.ndarray | int | float)}
    arrays = {name: value for name, value in numbers.items() if isinstance(value, np.ndarray)}
    names, returned = (named.name for named in call.operation.results), call.returned
    got = dict(zip(names, returned.arrays, strict=False)) | {wrong.named.name: wrong.got} | returned.in_place
    yours = {name: value for name, value in got.items() if value is not None}
    counts = [sum(np.size(value) for value in each.values()) for each in (arrays, yours, call.references)]
    if not arrays or max(counts) > MOST_SHOWN:
        return {}
    return {"given": _listed(numbers), "yours": _listed(yours), "wanted": _listed(call.references)}


def _listed(numbers: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_numbers(np.asarray(value))}" for name, value in numbers.items())


def _numbers(values: np.ndarray) -> str:
    if values.ndim:
        return f"[{', '.join(map(_numbers, values))}]"
    return f"{values:.6g}" if values.dtype.kind == "f" else f"{values}"
