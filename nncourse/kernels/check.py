"""check(): compare a kernel with a float64 truth, on random data and on data chosen to expose mistakes.

* Sizes: ones; odd ones; a tile of 16, and 17 in each direction; multiples of 4 but not of 8, for kernels that read four
  elements at once; long and thin ones above 1,024.
* Values: random, and the kinds in the operation's `hostile`: zeros (the kink of ReLU); large, in thousands (exp
  overflows); infinite, one infinity in the first argument; special, values at which activations often fail.
* A kernel must not change its arguments: they are compared afterwards.
* The result array of a CUDA kernel is filled with NaN, to detect elements that are never written. On a GPU all arrays
  have guard elements on both sides, to detect out-of-bounds writes. On the emulator every case runs with the threads in
  forward, reverse and shuffled order, to detect missing barriers, and once more with race detection, because a race may
  have no effect where threads run one after the other.
* Errors of a few float32 roundings are allowed (the operation's `tolerance`); NaN never passes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from math import prod

import numpy as np

from nncourse import device as devices
from nncourse.cuda.compile import CudaCompileError
from nncourse.cuda.emulate import ORDERS
from nncourse.errors import CourseError
from nncourse.kernels.contract import Argument

HOSTILE = ("zeros", "large", "infinite", "special")
PLACES = {
    "cpu": "on the CPU",
    "gpu": "on the GPU",
    "emulator": "on the CPU emulator, in three thread orders, and no races",
}
# The runs of each case: label -> options of the emulator. Elsewhere each case runs once.
EMULATED = {
    **{f"threads in {order} order": {"order": order, "seed": 1} for order in ORDERS},
    "looking for races": {"races": True},
}
ONCE = {"": {}}
EPS = float(np.finfo(np.float32).eps)
TINY = float(np.finfo(np.float32).tiny)  # below this a GPU may flush to zero
GUARD = 1 << 14  # guard elements on each side of a GPU array: as many as 16 rows of the longest array
MOST = 1 << 17  # elements of an argument: for a square matrix of 2,500 rows Python loops would take many seconds
SENTINEL = -987654321  # what integers hold before they are written; floats hold NaN
# Contents of the guard elements: two different NaNs for outputs and inputs, so that copying one to the other is
# detected; 0 for integers, because a kernel that reads past the end may use the value as an index, and a huge index
# would make the process's CUDA context unusable.
OUTPUT_GUARD, INPUT_GUARDS = 0x7FC0DEAD, {"f": 0x7FC0BEEF, "i": 0}
SPECIAL = np.outer([0.0, 1e-30, 0.5, 20.0, 88.8, 104.0, 1000.0, np.inf], [1, -1])  # kinks, and the range limits of exp


@dataclass(frozen=True)
class Case:
    """Arguments for a kernel, and a label that describes them."""

    label: str
    arguments: tuple


@dataclass(frozen=True)
class Verdict:
    """The result of check(): `ok`, one line of text, and the case that failed, which can be run again."""

    ok: bool
    line: str
    case: Case | None = None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return ("✓ " if self.ok else "✗ ") + self.line

    __repr__ = __str__


def check(operation, kernel, device: str | None = None, seed: int = 0) -> Verdict:
    """Run `kernel` on every case until one fails. `device` is "cpu", "gpu" or "emulator". Called by Operation.check."""
    device = _place(kernel, device)
    title = f"{operation.name} ({kernel.name})"
    runs = EMULATED if device == "emulator" else ONCE
    count = 0
    for case in cases(operation, seed):
        count += 1
        for run, options in runs.items():
            try:
                fault = _fault(operation, kernel, case, device, options)
            except CudaCompileError as error:
                return Verdict(False, f"{title}: does not compile\n{error}")
            shares = "__shared__" in getattr(getattr(kernel, "source", None), "text", "")
            if fault and " wrong, first " in fault and device == "emulator" and shares:
                # A missing barrier can cause wrong values; a report of the race is more helpful.
                race = _fault(operation, kernel, case, device, EMULATED["looking for races"]) or ""
                fault = race if "both touch shared" in race else fault
            if fault:
                label = f"{case.label}, {run}" if run else case.label
                return Verdict(False, f"{title}: {label}: {fault}", case)
    return Verdict(True, f"{title}: right in {count} cases {PLACES[device]}")


def _place(kernel, device: str | None) -> str:
    """Where to run: `device` if given, else the kernel's device, or the emulator for CUDA C without a GPU."""
    gpu = devices.gpu_available()
    device = device or ("emulator" if kernel.cuda and not gpu else kernel.device)
    possible = ("gpu", "emulator") if kernel.cuda else ("cpu", "gpu")
    if device not in possible:
        raise CourseError(f"{kernel.name}: wanted {' or '.join(possible)} to check it on, got {device!r}")
    if device == "gpu" and not gpu:
        raise CourseError(f"{kernel.name} cannot be checked here: {devices.why_no_gpu()}")
    return device


def cases(operation, seed: int = 0) -> Iterator[Case]:
    """All cases of an operation, small ones first, so that a fault is reported on simple data."""
    rng = np.random.default_rng(seed)
    tried, odd = operation.sizes_to_check, next(iter(operation.sizes_to_check), None)
    if odd is None:
        tried, odd = _usual_sizes(operation)
    for sizes in tried:
        known = operation.shapes.complete(sizes, operation.name)
        if all(prod(known[dim.lstrip("*")] for dim in argument.dims) <= MOST for argument in operation.arguments):
            yield _case(operation, known, "random", rng)
    for kind in operation.hostile:
        yield _case(operation, odd, kind, rng)


def _usual_sizes(operation) -> tuple[list[dict], dict]:
    """The sizes to try with random values, and those for hostile values.

    Whole numbers from which sizes are derived, such as a window and a stride, are tried small too, so that there are
    several windows, and windows that overlap. Sizes for which a derived size would be below 1 are left out.
    """
    shapes = operation.shapes
    steps = [name for name in shapes.free_names if name in shapes.whole_in_formulas]
    others = [name for name in shapes.free_names if name not in steps]
    named = [dict(zip(shapes.free_names, sizes, strict=True)) for sizes in hostile_sizes(len(shapes.free_names))]
    odd = dict(zip(others, islice(cycle((5, 18, 7)), len(others)), strict=False))
    odd |= dict(zip(steps, cycle((3, 2)), strict=False))
    if steps:
        small = [dict(zip(steps, cycle(pattern), strict=False)) for pattern in ((1,), (2, 1), (3, 2), (1, 3), (5, 2))]
        large = [dict(zip(others, sizes, strict=True)) for sizes in hostile_sizes(len(others))]
        named += [sizes | small[(number + more) % 5] for number, sizes in enumerate(large) for more in (0, 2)]
    tried = [sizes for sizes in named if _fits(operation, sizes)]
    if not tried:
        raise CourseError(f"{operation.name}: wanted sizes_to_check, since no usual sizes fit the contract's formulas")
    return tried, odd if _fits(operation, odd) else tried[0]


def _fits(operation, sizes: dict) -> bool:
    """True if every derived size is at least 1."""
    try:
        operation.shapes.complete(sizes, operation.name)
    except CourseError:
        return False
    return True


def random_case(operation, sizes: dict, seed: int = 0) -> Case:
    """Random arguments of these sizes, a number for each size of the contract that is not derived."""
    return _case(operation, sizes, "random", np.random.default_rng(seed))


def hostile_sizes(count: int) -> list[tuple[int, ...]]:
    """`count` sizes at a time: ones, odd ones, a tile of 16, 17 in each direction, multiples of 4, a long one."""
    if count == 1:
        return [(1,), (2,), (7,), (31,), (32,), (33,), (255,), (256,), (257,), (1000,), (1025,), (2500,)]
    patterns = (1,), (3, 5, 2), (16,), (17, 16, 16), (33, 65, 18), (20, 132, 4), (1025, 3, 2)
    sizes = [tuple(islice(cycle(pattern), count)) for pattern in patterns]
    return list(dict.fromkeys(each[shift:] + each[:shift] for each in sizes for shift in range(count)))


def _case(operation, sizes: dict[str, int], kind: str, rng: np.random.Generator) -> Case:
    """One case: arguments of these sizes with values of this kind."""
    arguments = []
    sizes = operation.shapes.complete(sizes, operation.name)
    for position, argument in enumerate(operation.arguments):
        shape = tuple(sizes[name] for name in argument.size_names) if argument.dims else ()
        if argument.any_shape and shape[0] % 5 == 0:
            shape = (5, shape[0] // 5)
        if argument.name in operation.values:
            value = operation.values[argument.name](rng, shape, sizes)
        elif argument.kind != "float":
            value = sizes[argument.name]
        else:
            value = _floats(kind, shape, position, rng) if argument.dims else float(rng.uniform(0.01, 1))
        arguments.append(value)
    shapes = ", ".join(
        f"{argument.name} {np.shape(value) if argument.dims else f'{value:.4g}' if argument.kind == 'float' else value}"
        for argument, value in zip(operation.arguments, arguments, strict=True)
    )
    return Case(f"{shapes}, {kind} values", tuple(arguments))


def _floats(kind: str, shape: tuple[int, ...], position: int, rng: np.random.Generator) -> np.ndarray:
    """Float32 values of one kind. Only the first argument gets an infinity, so that the truth is never NaN."""
    values = rng.standard_normal(shape).astype(np.float32)
    if kind == "infinite" and position == 0:
        values.flat[rng.integers(values.size)] = np.inf
    hostile = {"zeros": np.zeros_like(values), "large": 1000 * values, "special": np.resize(SPECIAL, shape)}
    return hostile.get(kind, values).astype(np.float32)


def _fault(operation, kernel, case: Case, device: str, options: dict) -> str | None:
    """Run one case. Returns None, or a short description of what is wrong."""
    truths = truths_of(operation, case.arguments)
    guards: list = []
    copy = partial(_guarded, guards) if device == "gpu" else lambda values, bits: values.copy()
    arguments = [copy(value, INPUT_GUARDS[value.dtype.kind]) if _is_array(value) else value for value in case.arguments]
    if kernel.cuda and not operation.in_place:
        options = options | {"out": out_of(operation, truths, lambda values: copy(values, OUTPUT_GUARD))}
    try:
        with np.errstate(all="ignore"):  # intermediate overflow is allowed if the result is right
            result = kernel(*arguments, **options)
        devices.synchronise(device)
    except CudaCompileError:
        raise
    except CourseError as error:
        return str(error)
    except Exception as error:  # a student's function may raise anything; it becomes the verdict
        return f"raised {type(error).__name__}: {error}"
    if any((cells != bits).any() for cells, bits in guards):
        return "writes outside of its arrays: is the guard right?"
    in_place = {named.name: named for named in operation.shapes.in_place}
    for name, value, before in zip(operation.names, arguments, case.arguments, strict=True):
        same = _is_array(before) and np.array_equal(devices.to_device(value, "cpu"), before, equal_nan=True)
        if name in in_place:
            if fault := _compare_one(operation, in_place[name], value, truths[name], case.arguments):
                return f"{name} is to be changed in place{', but is as it was' if same else ''}: {fault}"
        elif _is_array(before) and not same:
            return f"changes its argument {name}"
    return compare(operation, result, truths, case.arguments)


def truths_of(operation, arguments: tuple) -> dict[str, np.ndarray]:
    """The truth of each result, by its name."""
    return _by_result(operation, operation.truth(*map(_float64, arguments)))


def _by_result(operation, values) -> dict[str, np.ndarray]:
    """What a truth or a magnitude returns, for each result: a tuple where there are several."""
    several = values if len(operation.results) > 1 else (values,)
    return {named.name: np.asarray(value) for named, value in zip(operation.results, several, strict=True)}


def out_of(operation, truths: dict[str, np.ndarray], copy: Callable = lambda values: values):
    """The `out` of a CUDA kernel: an unwritten array for each new result, passed through `copy`."""
    arrays = tuple(copy(unwritten(named, truths[named.name].shape)) for named in operation.shapes.new)
    return arrays[0] if len(arrays) == 1 else arrays


def unwritten(result, shape: tuple[int, ...]) -> np.ndarray:
    """A result array of NaN or SENTINEL, so that an element that is never written is detected."""
    return np.full(shape, np.nan if result.kind == "float" else SENTINEL, result.dtype)


def _is_array(value) -> bool:
    return isinstance(value, np.ndarray)


def compare(operation, result, truths: dict[str, np.ndarray], arguments: tuple) -> str | None:
    """None if all results equal the truth up to rounding; else what is wrong with the first that does not."""
    several = len(operation.results) > 1
    if several and not (isinstance(result, tuple) and len(result) == len(operation.results)):
        return f"returns {_kind(result)}: wanted a tuple of {', '.join(map(str, operation.results))}"
    for named, value in zip(operation.results, result if several else (result,), strict=True):
        if fault := _compare_one(operation, named, value, truths[named.name], arguments):
            return fault
    return None


def _kind(value) -> str:
    """A few words for a value that is not a tuple of the right length."""
    if value is None:
        return "nothing"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"one {type(value).__name__}"


def _compare_one(operation, named: Argument, result, truth: np.ndarray, arguments: tuple) -> str | None:
    """None if one result equals the truth up to rounding; else the number of wrong elements, and the first of them."""
    name, dtype = named.name, named.dtype
    if result is None:
        return f"returns nothing: wanted {named}"
    if isinstance(result, float) and truth.shape == ():
        result = np.float32(result)
    got = np.asarray(devices.to_device(result, "cpu"))
    if got.shape != truth.shape:
        return f"{name} has shape {got.shape}, wanted {truth.shape}"
    if got.dtype != dtype:
        return f"{name} is {got.dtype}, wanted {np.dtype(dtype)}"
    allowed = _allowed_error(operation, named, arguments)
    with np.errstate(invalid="ignore"):
        wrong = ~((got == truth) | (np.abs(got - truth) <= allowed))
    if not wrong.any():
        return None
    first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = f"{name}[{', '.join(map(str, first))}]" if first else name
    value = f"{got[first]:.7g}"
    if np.isnan(got[first]) or got[first] == SENTINEL:
        value += " (never set, added to before it was set, or computed from inf − inf, 0 / 0 or such)"
    margin = float(np.broadcast_to(allowed, truth.shape)[first])
    expected = f"{truth[first]:.7g} ± {margin:.1g}"
    more = f"; {operation.advice(first, *arguments)}" if operation.advice else ""
    return f"{int(wrong.sum())} of {wrong.size} wrong, first {place}: got {value}, expected {expected}{more}"


def _allowed_error(operation, named: Argument, arguments: tuple) -> np.ndarray | float:
    """The allowed error of one result: tolerance × eps × the operation's magnitude; 0 for integers and infinities."""
    if named.kind == "int":
        return 0
    magnitude = _by_result(operation, operation.magnitude(*map(_float64, arguments)))[named.name]
    allowed = operation.tolerance * EPS * np.abs(magnitude) + TINY
    return np.where(np.isfinite(allowed), allowed, 0)


def _float64(value):
    """Float32 arrays converted to float64; other values unchanged."""
    return value.astype(np.float64) if _is_array(value) and value.dtype == np.float32 else value


def _guarded(guards: list, values: np.ndarray, bits: int):
    """A GPU copy of `values` between guard elements, which are added to `guards`.

    The guards are compared with `bits` as 4-byte integers, so that a different NaN is detected too.
    """
    import cupy

    cells = cupy.full(values.size + 2 * GUARD, bits, np.uint32)
    inner = cells[GUARD : GUARD + values.size].view(values.dtype)
    inner[...] = cupy.asarray(values.reshape(-1))
    guards += [(cells[:GUARD], bits), (cells[GUARD + values.size :], bits)]
    return inner.reshape(values.shape)
