"""The cases on which check() tries a kernel. They follow from the operation alone: every kernel gets all of them.

First stage: small sizes and edge values, so that a fault is shown on simple data.
* Sizes: ones; odd ones; a tile of 16, and 17 in each direction; multiples of 4 but not of 8, for kernels that read four
  elements at once; one row and one column; long and thin ones above 1,024; and some drawn at random, the last of them
  equal. Each of these comes twice, to detect kernels that remember results by shape: the second time with numbers that
  are a million times as large, or much smaller; or with one array for two arguments. Arrays of any shape come with one
  to four axes. Operations on images have too many sizes for this: they list their own, and draw some.
* Values: random; zeros; zeros among others; from −20 to 20; all negative; all equal; ones. If the operation's
  `edge_cases` names them: "large", in thousands, of mixed sign, all negative, and with rows of very different size;
  "infinite", one +∞ or −∞ in one argument; "special", values at which activations often fail, all of them in each
  array, and infinities; "ties", few different numbers, zeros of both signs, numbers that differ in the last bit, and
  the lowest; "low", numbers far below zero, for a search for the largest; "nan", one argument with some or mostly NaN,
  or mostly −∞; "one of zeros", each argument in turn.
* Zeros, huge values, infinities and NaN come once more where a block of threads does not hold all elements: some of
  them are a thread's second, or belong to a later block.
* Scalars are positive, negative, zero, and from 1e-5 to 1000.
* One case after some hundred calls with other numbers in the same arrays, and after some with the same sum and the same
  first number, or the same number at both ends, to detect kernels that count their calls or remember.
Second stage, only if all of the first passed: each size in turn above 65,536, which 16 bits cannot count, or above the
threads of a launch whose size is fixed; and each two sizes above 256. The last terms of long sums are large, so that
one too few shows.

The random numbers differ from check to check, so that no answer can know them; a `seed` makes them the same.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, count, cycle, islice
from math import isqrt, prod
from typing import Any

import numpy as np

from nnclassroom.judge.tolerance import EPS, is_decided, references_of
from nnclassroom.judge.verdict import Case
from nncourse.errors import CourseError
from nncourse.kernels.contract import Argument
from nncourse.kernels.operation import Operation

# The kinds of values that are tried with each name of an operation's `edge_cases`.
KINDS = {
    "zeros": ("zeros",),
    "large": ("zeros among others", "zeros among others", "from −20 to 20", "negative", "equal", "ones")
    + ("large", "large and negative", "rows of different size"),
    "infinite": ("infinite", "minus infinite") * 3,
    "special": ("special", "special", "alone", "minus alone", "infinite", "minus infinite"),
    "ties": ("few different", "zeros of both signs", "hardly different", "lowest"),
    "low": ("far below zero",),
    "nan": ("some NaN", "mostly NaN", "mostly minus infinite"),
    "one of zeros": ("one of zeros",) * 6,
}
# Those that come once more beyond one block: "some infinite" only where an infinity does not make every result NaN.
BEYOND_ONE_BLOCK = {
    "large": ("zeros among others", "huge"),
    "infinite": ("infinite", "some infinite"),
    "nan": ("some NaN",),
}
# Of the drawn sizes, at the second time. Products of two numbers of 1e-15 are numbers still: far smaller ones
# a GPU would take for 0, and what is divided by a small ε is large again.
MAGNITUDES = {"huge": 1e6, "tiny": 1e-6, "vanishing": 1e-15}
NOT_FINITE = {"infinite", "minus infinite", "some infinite", "alone", "minus alone", *KINDS["nan"]}
VALUES = {  # the words for each kind
    "random": "random values",
    "eighths": "random values",
    "twins": "random values",
    "huge": "huge values",
    "tiny": "tiny values",
    "vanishing": "values around 1e-15",
    "positive": "positive values",
    "zeros": "zeros only",
    "zeros among others": "zeros among the values",
    "from −20 to 20": "values from −20 to 20",
    "negative": "negative values",
    "equal": "equal values",
    "ones": "ones only",
    "large": "large values",
    "large and negative": "large and negative values",
    "rows of different size": "rows of different size",
    "infinite": "an infinite value",
    "minus infinite": "a value of −∞",
    "some infinite": "some infinite values",
    "special": "special values",
    "alone": "an infinite value alone",
    "minus alone": "a value of −∞ alone",
    "few different": "few different values",
    "zeros of both signs": "zeros of both signs",
    "hardly different": "hardly different values",
    "lowest": "values near −3e38",
    "far below zero": "values around −1e12",
    "some NaN": "some NaN",
    "mostly NaN": "mostly NaN",
    "mostly minus infinite": "mostly −∞",
    "one of zeros": "one array of zeros",
}
MOST = 1 << 17  # elements of an argument: for a square matrix of 2,500 rows Python loops would take many seconds
ABOVE_16_BITS = 1 << 16
SIMPLE = 9  # sizes with which arrays of any shape have one axis, before larger ones
RANDOM_SIZES = 4  # how many are drawn, from 1 to LARGEST_RANDOM; each is tried twice
LARGEST_RANDOM = 40
TWO_LARGE = 257, 300
LAST = 8  # terms of a long sum that stand out
LARGEST_BLOCK = 1024  # threads
BEYOND_FIXED = 300  # elements beyond the threads of a launch of fixed size
MOST_DRAWS = 50  # of a case, until rounding alone does not decide its result
AGAIN = 100, 1000  # from how many to how many calls come before that of one case
# Kinks, the range limits of exp in float32, and where approximations of activations are cut off too early.
_SPECIAL = (0.0, 1e-30, 1e-6, 1e-3, 0.5, 1.0, 4.5, 7.5, 11.0, 16.7, 20.0, 50.0, 87.5, 88.8, 104.0, 1000.0)
SPECIAL = np.outer(_SPECIAL, [1, -1]).ravel().astype(np.float32)


def cases(operation: Operation, seed: int | None = None, fixed: int = 0) -> Iterator[Case]:
    """All cases of an operation, small ones first. Their number does not depend on the seed.

    fixed: the threads of a launch that does not grow with the sizes. Larger sizes show whether its threads loop.
    """
    rng = np.random.default_rng(secrets.randbits(64) if seed is None else seed)
    own = operation.trial.sizes_to_check
    given, (tried, usual) = bool(own), (own, own[0]) if own else usual_sizes(operation)
    turn = count()
    make = partial(make_case, operation, rng=rng, decided=True)
    for number, sizes in enumerate(tried):
        if _is_small(operation, sizes):
            axes = number if number >= SIMPLE else 0
            yield replace(make(sizes, "random", number=number, axes=axes, turn=next(turn)), plain=True)
    if operation.trial.draw_sizes or not given:
        for number, sizes in enumerate(_drawn_sizes(operation, rng, usual)):
            for again, kind in enumerate(("random", [*MAGNITUDES, "twins"][number])):
                # of many equal terms, such as ln 2 for each tiny number, a right sum is rounded the same way each time
                few = usual if kind in MAGNITUDES else sizes
                yield make(few, kind, number=number + again, axes=number + 1, turn=next(turn))
    for kind in dict.fromkeys(operation.trial.edge_cases):
        for position, values in enumerate(KINDS[kind]):
            sizes = _sizes_for(operation, usual, values, given)
            yield make(sizes, values, axes=position, position=position // 2, turn=next(turn))
        if wide := _beyond_one_block(operation, tried, fixed):
            for position, values in enumerate(BEYOND_ONE_BLOCK.get(kind, ())):
                yield make(wide, values, axes=position, position=int(rng.integers(12)), turn=next(turn))
    yield replace(make(usual, "eighths"), again=int(rng.integers(*AGAIN)))
    most = max(ABOVE_16_BITS, fixed)
    for sizes in operation.trial.large_sizes if given else large_sizes(operation, rng, most):
        if given and fixed > max(sizes.values()):
            sizes = _enlarged(operation, sizes, fixed + 1)
        yield make(sizes, _values_of_large(operation), large=True, turn=next(turn))


def random_case(operation: Operation, sizes: dict[str, Any], seed: int = 0) -> Case:
    """Random arguments of an operation.

    sizes: a number for each size of the contract that is not derived: {"batch": 2, "n_in": 3, "n_out": 4}.
    seed: the same seed gives the same numbers.

    Raises CourseError for sizes that do not fit.

    >>> case = random_case(find("dense_forward"), {"batch": 2, "n_in": 3, "n_out": 4})
    >>> [array.shape for array in case.arguments]
    [(2, 3), (4, 3), (4,)]
    """
    return make_case(operation, sizes, "random", np.random.default_rng(seed))


def middling(operation: Operation) -> dict[str, Any]:
    """Those of the small sizes to try in which warps, rows and columns show how a kernel accesses memory."""
    own = operation.trial.sizes_to_check
    tried = [sizes for sizes in own or usual_sizes(operation)[0] if _is_small(operation, sizes)]
    return max(tried, key=lambda sizes: prod(min(sizes[name], 40) for name in operation.shapes.dims & sizes.keys()))


def halved(operation: Operation, case: Case) -> Case | None:
    """A large case with its largest size halved, and other numbers; None if none fits."""
    known = operation.sizes(*case.arguments)
    sizes = {name: known[name] for name in operation.shapes.free_names}
    largest = max(operation.shapes.dims.intersection(sizes), key=lambda name: sizes[name])
    sizes[largest] //= 2
    if sizes[largest] < 1 or not _fits(operation, sizes):
        return None
    return make_case(operation, sizes, _values_of_large(operation), np.random.default_rng(), large=True)


def _values_of_large(operation: Operation) -> str:
    """Positive numbers for sums: in a long sum of both signs, a few terms too many would hardly show."""
    return "positive" if any(map(operation.shapes.reduces, operation.results)) else "random"


# ---- sizes


def usual_sizes(operation: Operation) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The sizes to try with random values, and those for edge values.

    Whole numbers from which sizes are derived, such as a window and a stride, are tried small too, for several windows
    and for windows that overlap. Sizes for which a derived size would be below 1 are left out.
    """
    shapes = operation.shapes
    steps, others = _steps_and_others(operation)
    named = [dict(zip(shapes.free_names, sizes, strict=True)) for sizes in hostile_sizes(len(shapes.free_names))]
    odd = dict(zip(others, islice(cycle((12, 18, 7)), len(others)), strict=False))
    odd |= dict(zip(steps, cycle((3, 2)), strict=False))
    if steps:
        small = [dict(zip(steps, cycle(pattern), strict=False)) for pattern in ((1,), (2, 1), (3, 2), (1, 3), (5, 2))]
        large = [dict(zip(others, sizes, strict=True)) for sizes in hostile_sizes(len(others))]
        named += [sizes | small[(number + more) % 5] for number, sizes in enumerate(large) for more in (0, 2)]
    tried = [sizes for sizes in named if _fits(operation, sizes)]
    if not tried:
        raise CourseError(
            f"{operation.name}: expected sizes_to_check, since no usual sizes fit the contract's formulas"
        )
    return tried, odd if _fits(operation, odd) else tried[0]


def hostile_sizes(count: int) -> list[tuple[int, ...]]:
    """Tuples of `count` sizes: ones, odd ones, a tile of 16, 17 in each direction, multiples of 4, a long one."""
    if count == 1:
        return [(1,), (2,), (7,), (31,), (32,), (33,), (255,), (256,), (257,), (1000,), (1025,), (2500,)]
    patterns = (1,), (3, 5, 2), (16,), (17, 16, 16), (1, 37, 1), (19, 1, 23), (33, 65, 18), (20, 132, 4), (1025, 3, 2)
    sizes = [tuple(islice(cycle(pattern), count)) for pattern in patterns]
    return list(dict.fromkeys(each[shift:] + each[:shift] for each in sizes for shift in range(count)))


def _steps_and_others(operation: Operation) -> tuple[list[str], list[str]]:
    """The free sizes that are whole numbers of formulas, such as a stride, and the other free sizes."""
    shapes = operation.shapes
    steps = [name for name in shapes.free_names if name in shapes.whole_in_formulas]
    return steps, [name for name in shapes.free_names if name not in steps]


def _drawn_sizes(operation: Operation, rng: np.random.Generator, usual: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """RANDOM_SIZES sizes at random, if possible with derived sizes of at least 1; the last ones are equal."""
    for number in range(RANDOM_SIZES):
        draw = operation.trial.draw_sizes or partial(_draw, operation, equal=number == RANDOM_SIZES - 1)
        drawn = (draw(rng) for _ in range(20))
        yield next((sizes for sizes in drawn if _fits(operation, sizes)), usual)


def _draw(operation: Operation, rng: np.random.Generator, equal: bool) -> dict[str, int]:
    """Sizes from 1 to LARGEST_RANDOM, all equal or not; small ones for windows and strides."""
    steps, others = _steps_and_others(operation)
    of_any_shape = {name for argument in operation.arguments if argument.any_shape for name in argument.size_names}
    sizes = {name: int(rng.integers(1, LARGEST_RANDOM + 1)) for name in others}
    if equal:
        size = int(rng.integers(2, LARGEST_RANDOM))
        sizes = dict.fromkeys(others, size + (size >= 16))  # 16 is among the usual ones
    sizes |= {name: int(np.prod(rng.integers(2, 5, 3))) for name in of_any_shape}  # with three axes
    return sizes | {name: int(rng.integers(1, 4)) for name in steps}


def _enlarged(operation: Operation, sizes: dict[str, Any], size: int) -> dict[str, Any]:
    """These sizes with the largest of them replaced, if the contract's formulas allow it."""
    larger = sizes | {max(sizes, key=lambda name: sizes[name]): size}
    return larger if _fits(operation, larger) and _is_small(operation, larger, 4 * size) else sizes


def large_sizes(operation: Operation, rng: np.random.Generator, above: int = ABOVE_16_BITS) -> Iterator[dict[str, int]]:
    """Each size in turn above this one, the others 1 or 2; for a square matrix, more elements than that.

    They are one less than a multiple of 32, so that by fours, eights or warps as many as can be are left over.

    Where an argument is a whole number, such as the number of classes, each of these comes with 1 and with 3. Then each
    two sizes at once above 256, for kernels that go wrong only where both need several tiles, or blocks of a cache.
    """
    steps, others = _steps_and_others(operation)
    whole = {argument.name for argument in operation.arguments if argument.is_size}
    for name in others:
        twice = any(array.size_names.count(name) > 1 for array in (*operation.arguments, *operation.results))
        most = isqrt(above) + int(rng.integers(2, 60)) if twice else (above + int(rng.integers(300, 999))) | 31
        few = int(rng.integers(300, 400)) if twice else int(rng.integers(1, 3))  # to reach many places of a matrix
        for number in (1, 3) if whole - {name} - set(steps) else (1,):
            sizes = {other: number if other in whole else few for other in others}
            sizes = dict.fromkeys(steps, 1) | sizes | {name: most}
            if _fits(operation, sizes) and _is_small(operation, sizes, max(4 * MOST, 4 * above)):
                yield sizes
    for pair in combinations(others, 2):
        sizes = dict.fromkeys((*steps, *others), 1) | {name: int(rng.integers(*TWO_LARGE)) for name in pair}
        if _fits(operation, sizes) and _is_small(operation, sizes):
            yield sizes


def _sizes_for(operation: Operation, usual: dict[str, Any], values: str, given: bool) -> dict[str, Any]:
    """The sizes for edge values: one element for a value alone, enough elements for all special values."""
    if given:
        return usual
    if values.endswith("alone"):
        return dict.fromkeys(usual, 1)
    return {name: 2 * len(SPECIAL) + 4 for name in usual} if values == "special" else usual


def _beyond_one_block(operation: Operation, tried: Sequence[dict[str, Any]], fixed: int) -> dict[str, Any] | None:
    """The first sizes for which an argument has more elements than a block has threads; None if there are none.

    They are enlarged where a launch of fixed size has more threads than that.
    """
    wide = next((sizes for sizes in tried if not _is_small(operation, sizes, LARGEST_BLOCK)), None)
    if wide is None or not fixed or not all(isinstance(size, int) for size in wide.values()):
        return wide
    return _enlarged(operation, wide, max(fixed + BEYOND_FIXED, *wide.values()))


def _is_small(operation: Operation, sizes: dict[str, Any], most: int = MOST) -> bool:
    """Whether no argument and no result has more elements than `most`."""
    known = operation.shapes.complete(sizes, operation.name)
    arrays = (*operation.arguments, *operation.results)
    return all(prod(known[dim.lstrip("*")] for dim in array.dims) <= most for array in arrays)


def _fits(operation: Operation, sizes: dict[str, Any]) -> bool:
    """True if every derived size is at least 1."""
    try:
        operation.shapes.complete(sizes, operation.name)
    except CourseError:
        return False
    return True


# ---- arguments


def make_case(
    operation: Operation,
    sizes: dict[str, Any],
    kind: str,
    rng: np.random.Generator,
    number: int = 0,
    axes: int = 0,
    position: int = 0,
    turn: int = 0,
    large: bool = False,
    decided: bool = False,
) -> Case:
    """One case: arguments of these sizes with values of this kind.

    `number` chooses the sign of scalars, `axes` the shape of arrays of any shape, `position` the array that gets what
    only one may get, such as an infinity. `turn` counts the cases: the operation's `values` find it among the sizes.
    `decided` draws again where rounding alone decides a result. Values whose reference has NaN are replaced by random
    ones, unless they hold NaN themselves.
    """
    sizes = operation.shapes.complete(sizes, operation.name)
    arrays = [
        argument.name
        for argument in operation.arguments
        if argument.dims and argument.kind == "float" and argument.name not in operation.trial.values
    ]
    chosen = arrays[position % len(arrays)] if arrays else ""

    def value_of(argument: Argument, kind: str) -> Any:
        shape = tuple(sizes[name] for name in argument.size_names) if argument.dims else ()
        if argument.any_shape:
            shape = _shape_of(shape[0], axes)
        if argument.name in operation.trial.values:
            return operation.trial.values[argument.name](rng, shape, {**sizes, "turn": turn})
        if argument.kind != "float":
            return sizes[argument.name]
        return _floats(kind, shape, argument.name == chosen, rng) if argument.dims else _scalar(rng, number, kind)

    for _ in range(MOST_DRAWS if decided else 1):
        arguments = tuple(value_of(argument, kind) for argument in operation.arguments)
        arguments = _with_twins(operation, arguments) if kind == "twins" else arguments
        if is_decided(operation, arguments):
            break
    if kind not in {"random", "eighths", "twins", "zeros", *MAGNITUDES, *KINDS["nan"]}:
        with np.errstate(all="ignore"):
            if any(np.isnan(reference).any() for reference in references_of(operation, arguments).values()):
                kind, arguments = "random", tuple(value_of(argument, "random") for argument in operation.arguments)
    shapes = ", ".join(
        f"{argument.name} {np.shape(value) if argument.dims else f'{value:.4g}' if argument.kind == 'float' else value}"
        for argument, value in zip(operation.arguments, arguments, strict=True)
    )
    floats = any(
        argument.kind == "float" and argument.name not in operation.trial.values for argument in operation.arguments
    )
    label = f"{shapes}, {VALUES[kind]}" if floats else shapes
    return Case(label, arguments, large, kind in NOT_FINITE, values=kind)


def _with_twins(operation: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with one array for the first two of one shape that no kernel changes, as in A Aᵀ."""
    made = [*arguments]
    free = [
        at
        for at, argument in enumerate(operation.arguments)
        if argument.dims and argument.kind == "float" and argument.name not in operation.trial.values
        if argument.name not in {named.name for named in operation.results}
    ]
    for first, second in combinations(free, 2):
        if made[first].shape == made[second].shape:
            made[second] = made[first]
            return tuple(made)
    return arguments


def _shape_of(n: int, axes: int) -> tuple[int, ...]:
    """A shape with n elements and one to four axes, among them one row and one column."""
    columns, rows = _two_factors(n)
    outer, inner = _two_factors(columns)
    shapes = (n,), (rows, columns), (outer, inner, rows), (1, n), (outer, inner, *_two_factors(rows)), (n, 1)
    return shapes[axes % len(shapes)]


def _two_factors(n: int) -> tuple[int, int]:
    """Two numbers whose product is n, as near to each other as can be, the larger first."""
    smaller = next(size for size in range(isqrt(n), 0, -1) if n % size == 0)
    return n // smaller, smaller


def _scalar(rng: np.random.Generator, number: int, kind: str) -> float:
    """A number: mostly from 0 to 1, but also negative, zero, and far from 1 both ways, as learning rates may be."""
    usual = float(rng.uniform(0.01, 1))
    choices = usual, -usual, usual, 10 * usual, 0.0, usual / 1000, 1000 * usual
    return choices[number % len(choices)] if kind in ("random", "eighths", "twins", *MAGNITUDES) else usual


def _floats(kind: str, shape: tuple[int, ...], chosen: bool, rng: np.random.Generator) -> np.ndarray:
    """Float32 values of one kind. Only the chosen argument gets an infinity, so that the reference is seldom NaN."""
    values: np.ndarray = rng.standard_normal(shape).astype(np.float32)
    match kind:
        case "huge" | "tiny" | "vanishing":
            values *= MAGNITUDES[kind]
        case "eighths":  # their sum is exact in any order
            values = np.round(8 * values) / 8
        case "zeros":
            values[...] = 0
        case "zeros among others":
            values[rng.random(shape) < 0.3] = 0
            values[rng.random(shape) < 0.2] = -0.0
            if len(shape) > 1:  # a whole row, and a whole column
                values[rng.integers(shape[0])] = 0
                values[..., rng.integers(shape[-1])] = 0
        case "from −20 to 20":
            values = rng.uniform(-20, 20, shape)
        case "positive":
            values = (np.abs(values) + 0.1) * _rising(shape)
            values.reshape(-1)[-LAST:] *= 100  # among some ten thousand terms one that is left out would hardly show
        case "negative":
            values = -np.abs(values) - 0.5
        case "ones":
            values[...] = 1
        case "equal":
            values[...] = values.flat[0]
        case "large":
            values *= 1000
        case "large and negative":
            values = -np.abs(1000 * values) - 500
        case "rows of different size":
            values += np.resize([-1000, 0, 300, -30, 1000], shape[:1]).reshape(-1, *[1] * (len(shape) - 1))
        case "special":
            # another start in each array, so that each value meets others
            values = np.resize(np.roll(SPECIAL, rng.integers(SPECIAL.size)), shape)
        case "few different":
            values = rng.integers(-1, 2, shape)
        case "zeros of both signs":
            values = rng.choice([-1, -0.0, 0.0], shape)
        case "hardly different":
            values = 1 + rng.integers(0, 4, shape) * EPS
        case "far below zero":
            values = -1e12 * (1 + np.abs(values))
        case "lowest":
            values = rng.uniform(-3.4e38, -3e38, shape)
        case "some NaN" | "mostly NaN" if chosen:
            nan = rng.random(shape) < (0.7 if kind == "mostly NaN" else 0.1)
            nan.flat[rng.integers(nan.size)] = True
            values[nan] = np.copysign(np.nan, rng.standard_normal(nan.sum()))  # the sign of NaN has no meaning
        case "mostly minus infinite" if chosen:
            values[rng.random(shape) < 0.9] = -np.inf
        case "one of zeros" if chosen:
            values[...] = 0
        case "some infinite" if chosen:
            values[rng.random(shape) < 0.05] = np.inf
        case "infinite" | "minus infinite" | "alone" | "minus alone" if chosen:
            values.flat[rng.integers(values.size)] = -np.inf if kind.startswith("minus") else np.inf
    return np.asarray(values, np.float32)


def _rising(shape: tuple[int, ...]) -> np.ndarray:
    """Factors from 0.5 to 2 along the longest axis, so that its first numbers are no good in place of the last."""
    longest = int(np.argmax(shape))
    return np.linspace(0.5, 2, shape[longest]).reshape([-1 if axis == longest else 1 for axis in range(len(shape))])
