"""check(): compare a kernel with a float64 reference, on the random and edge cases of cases.py.

* A kernel must return new arrays of the contract's shape and type, which share no memory with its arguments or with an
  earlier result; a result in place must be the argument itself. It must not change its other arguments.
* The result array of a CUDA kernel is filled with NaN, to detect elements that are never written. On a GPU all arrays
  have guard elements on both sides, to detect out-of-bounds writes. On the emulator the threads of a case run in
  forward, reverse or shuffled order, to detect missing barriers, and once more with race detection, because a race may
  have no effect where threads run one after the other.
* Errors of a few float32 roundings are allowed (the operation's `tolerance`).
* NaN and infinities in the arguments are to go through as the equation says. Wrong values in such a case alone do not
  make a kernel wrong: the verdict on a right kernel names them.

run_here() runs a kernel in this process, answer.py a student's text in one that holds no reference. Both return a
Returned; whether it is right is decided here.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, singledispatch
from itertools import combinations, islice
from math import prod
from typing import Any

import numpy as np

from cuda_on_cpu.errors import CudaCompileError
from cuda_on_cpu.faults import UNSET, EmulationError
from nnclassroom.judge.answer_process.results import SENTINEL, UNWRITTEN, described, is_locked, said_of
from nnclassroom.judge.cases import cases, random_case  # noqa: F401  (notebooks take random_case from here)
from nnclassroom.judge.clues import kind_of_nan, mistake_in, not_reached, numbers_of
from nnclassroom.judge.time_limit import never_ends
from nnclassroom.judge.tolerance import TINY, allowed_error, references_of, rounded_as
from nnclassroom.judge.verdict import OPEN, RIGHT, UNCHECKED, Case, Fault, Verdict
from nncourse import device as devices
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.kernels.contract import Argument
from nncourse.kernels.kernel import MANTISSA, CudaKernel, Kernel
from nncourse.kernels.operation import Operation

OTHER_CASES = 3  # that show whether a factor is a size, or as large by chance
MOST_COUNTED = 10**7  # an integer nearer to SENTINEL was never set, or only added to
MOST_FACTOR = 1000  # that is named without a size
HUGE = -3.21e33  # fills every third result in place of NaN, for a kernel that tests whether its result is NaN
GUARD = 1 << 14  # guard elements on each side of a GPU array: as many as 16 rows of the longest array
# Contents of the guard elements: different NaNs for outputs and inputs, so that copying one to the other is detected;
# 0 for integers, because a kernel may use what it reads past the end as an index, and a huge index would make the
# process's CUDA context unusable.
OUTPUT_GUARD, INPUT_GUARDS = 0x7FC0DEAD, {"f": 0x7FC0BEEF, "i": 0}
# Limits of one launch on the emulator, which runs some millions of threads a second. A kernel that is slow in a large
# case, but not endless, is not wrong: that case is left out. So is one with more threads, with barriers or without.
LAUNCH_SECONDS = 5.0
UNSET_AT_LEAST, USUAL = 1e30, 100  # what unset memory of the emulator gives; numbers that it is made of
MOST_FIXED = 1 << 20  # threads of a launch of fixed size; more elements than that are tried
MOST_THREADS = {True: 1_200_000, False: 2_500_000}
RACES: Mapping[str, Any] = {"races": True}
LOOKING = "looking for races"
IN_ORDER = {
    "forward": "threads in forward order",
    "reverse": "threads in reverse order",
    "shuffled": "threads in shuffled order",
}

NOT_FOR_IT = "not for it"  # the kind of a fault: the kernel leaves this network to another one
BROKEN_OFF = Fault("crash", {"status": "?", "reason": "broke off"})  # the text wrote into the conversation itself

Run = tuple[str, Mapping[str, Any]]  # a label, and options of the emulator
Runner = Callable[[Case, Mapping[str, Any]], "Returned | Fault"]


@dataclass
class Returned:
    """What one call of a kernel gave back.

    `results` are descriptions made by answer_process/results.py, `arrays` their elements. `several` is the length of
    the returned tuple, None for one value. `in_place` holds the arguments that may change, as they are after the call,
    and `changed` the names of all arguments that did change. `arguments` are those of the call: an object among them
    knows what was asked of it.
    """

    results: list[dict[str, Any]]
    several: int | None
    arrays: list[np.ndarray | None]
    in_place: dict[str, np.ndarray]
    changed: list[str]
    arguments: tuple[Any, ...]
    outside: bool = False  # whether it wrote to the guard elements
    otherwise: Fault | None = None  # what is wrong although the values are right
    # Of a CUDA kernel: how many elements its launch covers in x, y, z, and how many threads its block has.
    covers: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclass
class Memory:
    """What run_here() remembers between the calls of one check: later results must not share memory with `earlier`."""

    earlier: list[Any] = field(default_factory=list)
    calls: int = 0


def check(
    operation: Operation,
    kernel: str | Kernel | Callable[..., Any],
    device: str | None = None,
    seed: int | None = None,
    sandbox: tuple[str, ...] = (),
) -> Verdict:
    """Compare a kernel with the operation's float64 reference, on every case until one fails.

    kernel: its name, a Kernel, or any Python function of the operation's arguments, which is judged as the kernel of
        its own name. Unlike an exercise's, it is called in this process and may use all that there is: the verdict
        says so.
    device: "cpu", "gpu" or "emulator". By default CUDA kernels run on the GPU where there is one, else under the
        emulator, which finds races too.
    seed: the same seed gives the same numbers; without one they are new each time. cases.py says what is tried.
    sandbox: a command that starts the emulator's programs.

    Returns a verdict, which is true if the kernel is right, and prints as one line.
    Raises CourseError for an unknown kernel, and for a device that it cannot run on.

    >>> check(find("relu"), "numpy")
    ✓ relu (numpy): right in 39 cases on the CPU
    """
    kernel = operation.kernel_of(kernel, device)
    device = _place(operation, kernel, device)
    if device == "emulator":
        from cuda_on_cpu.program import why_no_compiler  # most checks never need the emulator

        if reason := why_no_compiler():
            return Verdict(operation.name, kernel.name, UNCHECKED, {"said": reason})
    run = runner(operation, kernel, device)
    launched = isinstance(kernel, CudaKernel)
    too_many = {"too_many": partial(_too_many, kernel)} if launched and device == "emulator" else {}
    fixed = kernel.fixed_threads if launched else 0
    if fixed > MOST_FIXED:
        said = f"a launch of {fixed:,} threads along an axis, whatever the sizes: wanted at most {MOST_FIXED:,}"
        said += ", in a loop over the elements, or a --grid by names of sizes"
        return Verdict(operation.name, kernel.name, "launch", {"said": said})
    verdict = judge(rounded_as(operation, kernel), kernel.name, run, device, seed, sandbox, fixed=fixed, **too_many)
    rounded = {"mantissa": kernel.mantissa} if kernel.mantissa != MANTISSA else {}
    return replace(verdict, facts={**verdict.facts, **rounded, "here": _is_plain(kernel)}) if verdict else verdict


def _is_plain(kernel: Kernel) -> bool:
    """Whether it is a plain function, which no file and no exercise holds."""
    return not kernel.where


@singledispatch
def runner(operation: Operation, kernel: Kernel, device: str) -> Runner:
    """The function that runs a kernel in this process; kinds of operations that call kernels in other ways register."""
    return partial(run_here, operation, kernel, device, Memory())


@singledispatch
def place_of(operation: Operation, named: Argument, index: tuple[int, ...], arguments: tuple[Any, ...]) -> str:
    """An element of a result in words, as verdicts name it: Z[0, 2]."""
    return f"{named.name}[{', '.join(map(str, index))}]" if index else named.name


def judge(
    operation: Operation,
    name: str,
    run: Runner,
    device: str,
    seed: int | None = None,
    sandbox: tuple[str, ...] = (),
    only: Case | None = None,
    too_many: Callable[[Case], bool] = lambda case: False,
    fixed: int = 0,
) -> Verdict:
    """Run a kernel by run(case, options) on every case, or on one only, until one fails.

    Large cases for which too_many(case) is true are left out, and on the emulator those in which the kernel is slow.
    Whether it is slow or endless is examined until it is found to be slow once. `fixed`: see cases().
    """
    say = partial(Verdict, operation.name, name)
    count, slow, not_finite = 0, False, ""
    left_out: Fault | None = None
    more = {"sandbox": sandbox} if sandbox and device == "emulator" else {}
    tried = iter((only,) if only else cases(operation, seed, fixed))
    for case in tried:
        try:
            if case.large and too_many(case):
                continue
        except CourseError as error:
            return say("launch", {"said": str(error)}, case)
        for label, options in _runs(case, count, device):
            try:
                fault = _fault(operation, case, run(case, options | more))
                wrong = fault and fault.kind in ("wrong value", "not in place")
                if wrong and device == "emulator" and label != LOOKING:
                    # A missing barrier can cause wrong values; a report of the race is more helpful.
                    race = run(case, RACES | more)
                    if isinstance(race, Fault) and race.kind == "race":
                        fault, label = race, LOOKING
            except CudaCompileError as error:
                return say(getattr(error, "kind", "compile"), {"said": str(error)})
            if fault and fault.kind == "time limit" and case.large and device == "emulator":
                limited = partial(_late, run, options | more)
                found = None if slow else never_ends(operation, case, fault, limited, LAUNCH_SECONDS)
                if found:
                    return say(found[1].kind, found[1].facts, found[0], label)
                slow = True
                break
            if fault and fault.kind in ("wrong value", "not in place", "raised") and case.not_finite:
                not_finite = not_finite or say(fault.kind, fault.facts, case, label).line.partition(": ")[2]
                break
            if fault and fault.kind == NOT_FOR_IT:
                left_out = fault
                break
            if fault and fault.kind == OPEN:
                return say(OPEN) if count == 0 else say("raised", fault.facts, case, label)
            if fault and fault.facts.get("alike"):
                fault = _in_others(operation, fault, lambda other, given=options | more: run(other, given), tried)
            if fault:
                of_launch = {"fixed": fixed} if fixed and case.large else {}
                return say(fault.kind, {**fault.facts, **of_launch}, case, label)
        else:  # a case that was not tried to its end is not counted
            count += 1
    if left_out and count == 0:
        return say("launch", left_out.facts)
    if device == "emulator":
        from nnclassroom.judge import budget  # it reads what the emulator records

        if over := budget.exceeded(operation, name, run, more):
            return say(over[1].kind, over[1].facts, over[0])
    return say(RIGHT, {"count": count, "device": device, "not finite": not_finite})


def _in_others(
    operation: Operation, fault: Fault, run: Callable[[Case], "Returned | Fault"], tried: Iterator[Case]
) -> Fault:
    """The fault, with those sizes alone by which the next cases are wrong too: another is as large by chance."""
    alike = list(fault.facts["alike"])
    for case in islice((other for other in tried if not other.not_finite), OTHER_CASES):
        found = _fault(operation, case, run(case))
        if found is None or found.kind == fault.kind:
            sizes, whole = operation.sizes(*case.arguments), float(found.facts.get("whole", "nan")) if found else 1.0
            counts = {name: prod(sizes[part] for part in name.split(" · ")) for name in alike}
            alike = [name for name, count in counts.items() if abs(whole - count) < 1e-3 * count]
    few = not alike and fault.facts["few"]
    return replace(fault, facts={**fault.facts, "alike": alike} | ({"factor": ""} if few else {}))


def _runs(case: Case, number: int, device: str) -> Iterator[Run]:
    """The runs of a case: one; on the emulator one or two orders of threads, and another run that looks for races.

    Which threads meet depends on sizes, seldom on values. So cases with edge values, drawn sizes or large sizes are
    run in one order, a different one each time, and not for races.
    """
    if device != "emulator":
        yield "", {}
        return
    orders = tuple(IN_ORDER)
    orders = (orders[0], orders[1 + number % 2]) if case.plain else (orders[number % len(orders)],)
    for order in orders:
        yield IN_ORDER[order], {"order": order, "seed": 1 + number, "time_limit": LAUNCH_SECONDS}
    if case.plain:
        yield LOOKING, RACES


def _late(run: Runner, options: Mapping[str, Any], case: Case, seconds: float) -> Fault | None:
    """The fault if the kernel does not end within `seconds` of computing on the emulator."""
    found = run(case, {**options, "time_limit": seconds})
    return found if isinstance(found, Fault) and found.kind == "time limit" else None


def _too_many(kernel: CudaKernel, case: Case) -> bool:
    """Whether the emulator would take too long for a launch. CourseError for a launch that no GPU accepts."""
    return kernel.threads(*case.arguments) > MOST_THREADS["__sync" in kernel.source.text]


def _place(operation: Operation, kernel: Kernel, device: str | None) -> str:
    """Where to run: `device` if given, else the kernel's device, or the emulator for CUDA C without a GPU."""
    gpu = devices.gpu_available()
    device = device or ("emulator" if kernel.cuda and not gpu else kernel.device)
    python = sorted({"cpu", *operation.python_devices.values()})
    possible = ["gpu", "emulator"] if kernel.cuda else python
    if device not in possible:
        raise CourseError(f"{kernel.name}: wanted {' or '.join(possible)} to check it on, got {device!r}")
    if device == "gpu" and not gpu:
        raise CourseError(f"{kernel.name} cannot be checked here: {devices.why_no_gpu()}")
    if device != "emulator" and (said := kernel.missing()):
        raise CourseError(f"{kernel.name} cannot be checked here: {said}")
    return device


# ---- running a kernel in this process


def run_here(
    operation: Operation, kernel: Kernel, device: str, memory: Memory, case: Case, options: Mapping[str, Any]
) -> Returned | Fault:
    """Call the kernel once: what came back, or the Fault that ended it."""
    guards: list[Any] = []
    copied = partial(_guarded, guards) if device == "gpu" else lambda values, bits: values.copy()
    given = tuple(
        copied(value, INPUT_GUARDS[value.dtype.kind]) if isinstance(value, np.ndarray) else copy.deepcopy(value)
        for value in case.arguments
    )
    if kernel.cuda and not operation.in_place:
        references = references_of(operation, case.arguments)
        memory.calls += 1
        nan = any(np.isnan(reference).any() for reference in references.values())
        fill = HUGE if nan or memory.calls % 3 == 0 else UNWRITTEN
        options = {**options, "out": out_of(operation, references, lambda values: copied(values, OUTPUT_GUARD), fill)}
    plain = _is_plain(kernel) and all(isinstance(value, np.ndarray | int | float) for value in case.arguments)
    again = case.again if plain else 0
    try:
        with np.errstate(all="ignore"):  # intermediate overflow is allowed if the result is right
            for _ in range(again):
                kernel(*(_there(value, device) for value in case.arguments))
            result = kernel(*given, **options)
        devices.synchronise(device)
    except CudaCompileError:
        raise
    except EmulationError as error:
        return Fault(getattr(error, "kind", "crash"), {"said": str(error)})
    except DoesNotFitError as error:
        return Fault(NOT_FOR_IT if kernel.otherwise else "launch", {"said": str(error)})
    except CourseError as error:
        return Fault("launch", {"said": str(error)})
    except (Exception, SystemExit) as error:  # a student's function may raise anything
        said = said_of(error)
        if type(error).__module__.startswith("cupy"):  # after most of these the process's CUDA context is lost
            kind = "bounds" if "Address" in said["text"] else "crash" if kernel.cuda else "raised"
            words = f"raised {said['type']}: {said['text']}"
            return Fault(kind, {**said, "said": words, "status": words, "context": "lost"})
        return raised(said, ())
    found = returned(operation, result, given, case.arguments, memory.earlier if not kernel.cuda else [])
    values = result if found.several is not None else (result,)
    memory.earlier = [*memory.earlier, *(value for value in values if not any(value is each for each in given))][-6:]
    found.outside = any((cells != bits).any() for cells, bits in guards)
    if isinstance(kernel, CudaKernel):
        found.covers, found.block = kernel.covers(*case.arguments), kernel.block
    return found


def _there(value: Any, device: str) -> Any:
    return devices.to_device(value.copy(), device) if isinstance(value, np.ndarray) else value


def returned(
    operation: Operation, result: Any, given: tuple[Any, ...], before: tuple[Any, ...], earlier: Sequence[Any] = ()
) -> Returned:
    """What a call in this process gave back. `given` are its arguments, `before` the same as they were before it."""
    array_type = type(next((value for value in given if hasattr(value, "dtype")), np.empty(0)))
    arrays = {name: value for name, value in zip(operation.names, given, strict=True) if isinstance(value, array_type)}
    values = result if len(operation.results) > 1 and type(result) is tuple else (result,)
    on_host = {name: devices.to_device(value, "cpu") for name, value in arrays.items()}
    unchanged = dict(zip(operation.names, before, strict=True))
    return Returned(
        [described(value, arrays, earlier, array_type) for value in values],
        None if values is not result else len(values),
        [devices.to_device(value, "cpu") if isinstance(value, array_type) else None for value in values],
        {named.name: on_host[named.name] for named in operation.shapes.in_place if named.name in on_host},
        [
            name
            for name, value in on_host.items()
            if not np.array_equal(value, unchanged[name], equal_nan=True) or is_locked(arrays[name])
        ],
        given,
    )


def out_of(
    operation: Operation,
    references: dict[str, np.ndarray],
    copied: Callable[[np.ndarray], Any] = lambda values: values,
    fill: float = UNWRITTEN,
) -> Any:
    """The `out` of a CUDA kernel: an unwritten array for each new result, passed through `copied`."""
    arrays = tuple(copied(unwritten(named, references[named.name].shape, fill)) for named in operation.shapes.new)
    return arrays[0] if len(arrays) == 1 else arrays


def unwritten(result: Argument, shape: tuple[int, ...], fill: float = UNWRITTEN) -> np.ndarray:
    """A result array of `fill`, or SENTINEL for integers, so that an element that is never written is detected."""
    return np.full(shape, fill if result.kind == "float" else SENTINEL, result.dtype)


def _guarded(guards: list[Any], values: np.ndarray, bits: int) -> Any:
    """A GPU copy of `values` between guard elements, which are added to `guards`.

    The guards are compared with `bits` as 4-byte integers, so that a different NaN is detected too.
    """
    import cupy

    cells = cupy.full(values.size + 2 * GUARD, bits, np.uint32)
    inner = cells[GUARD : GUARD + values.size].view(values.dtype)
    inner[...] = cupy.asarray(values.reshape(-1))
    guards += [(cells[:GUARD], bits), (cells[GUARD + values.size :], bits)]
    return inner.reshape(values.shape)


def raised(said: Mapping[str, Any], hints: tuple[str, ...]) -> Fault:
    """The fault for an exception: its kind follows from the exception's type, never from its text."""
    kind = said["type"]
    facts = {**said, "hints": hints, "names": "np and xp"}
    if kind == "NotImplementedError":
        return Fault(OPEN, facts)
    if kind == "RefusedError":
        return Fault("forbidden", {"said": said["text"]})
    if kind in ("NameError", "UnboundLocalError"):
        return Fault("name" if kind == "NameError" else "raised", facts)
    return Fault("raised", facts)


# ---- deciding


def compare(
    operation: Operation, result: Any, references: dict[str, np.ndarray], arguments: tuple[Any, ...]
) -> str | None:
    """None if what a kernel returned in this process is right up to rounding; else what is wrong, in words."""
    values = result if len(operation.results) > 1 and type(result) is tuple else (result,)
    shown = [devices.to_device(value, "cpu") if hasattr(value, "dtype") else value for value in values]
    arrays = [value if hasattr(value, "dtype") else None for value in shown]
    about = [described(value, {}, []) for value in shown]
    found = Returned(about, len(values) if len(values) > 1 else None, arrays, {}, [], arguments)
    fault = _results_fault(operation, found, references)
    return str(fault) if fault else None


def _fault(operation: Operation, case: Case, returned: "Returned | Fault") -> Fault | None:
    """What is wrong with what a call returned; None if nothing is. In a tiny case it comes with all numbers."""
    if isinstance(returned, Fault):
        return returned
    if returned.outside:
        return Fault("outside")
    references = references_of(operation, case.arguments)
    before = dict(zip(operation.names, case.arguments, strict=True))
    fault = _first_fault(operation, case, returned, references, before)
    if fault is None or "expected" not in fault.facts:
        return fault
    arrays = dict(zip((named.name for named in operation.results), returned.arrays, strict=False))
    got = {name: value for name, value in (arrays | returned.in_place).items() if value is not None}
    return replace(fault, facts={**fault.facts, **numbers_of(before, got, references)})


def _first_fault(
    operation: Operation,
    case: Case,
    returned: Returned,
    references: dict[str, np.ndarray],
    before: Mapping[str, Any],
) -> Fault | None:
    in_place = {named.name: named for named in operation.shapes.in_place}
    if returned.in_place.keys() != in_place.keys():
        return BROKEN_OFF

    def fault_of(name: str, value: np.ndarray) -> Fault | None:
        return _values_fault(operation, in_place[name], value, references[name], returned, case)

    for name, value in returned.in_place.items():
        fault = fault_of(name, value)
        if fault and name not in returned.changed:
            return Fault("not in place", {**fault.facts, "name": name})
        if fault:
            sign = _has_wrong_sign(before[name], value, references[name])
            others = {other: array for other, array in returned.in_place.items() if other in returned.changed}
            right = [other for other, array in others.items() if not fault_of(other, array)]
            alone = right and len(right) == len(in_place) - 1 and not fault.facts.get("mistaken")
            plain = {"advice": ""} if alone else {}  # it tells of the others
            about = {"name": name, "in place": True, "sign": sign, "right": right}
            return Fault(fault.kind, {**fault.facts, **about, **plain})
    for name in returned.changed:
        if name not in in_place:
            return Fault("changes an argument", {"name": name})
    return _results_fault(operation, returned, references, case) or returned.otherwise


def _has_wrong_sign(before: np.ndarray, after: np.ndarray, reference: np.ndarray) -> bool:
    """Whether the change went just the other way."""
    if after.shape != before.shape:
        return False
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        wanted, got = reference - before, after.astype(np.float64) - before
    return bool(np.any(wanted) and np.allclose(got, -wanted, rtol=1e-3, atol=1e-6))


def _results_fault(
    operation: Operation, returned: Returned, references: dict[str, np.ndarray], case: Case | None = None
) -> Fault | None:
    """What is wrong with the returned values: their number, their kinds, their elements."""
    results = operation.results
    if fault := count_fault(results, returned):
        return fault
    for named, about, array in zip(results, returned.results, returned.arrays, strict=True):
        in_place = named.name in operation.names
        fault = form_fault(named, about, references[named.name].shape, in_place and case is not None)
        if fault and fault.facts.get("instead"):
            return Fault(fault.kind, fault.facts | {"order": ", ".join(each.name for each in results)})
        if fault and array is not None:
            compared = partial(_values_fault, operation, named, reference=references[named.name], returned=returned)
            if fault.kind == "shape" and array.shape == fault.facts["wanted"][::-1]:
                return replace(fault, facts={**fault.facts, "turned": not compared(got=array.T, case=case)})
            if fault.kind == "dtype" and array.dtype.kind == np.dtype(named.dtype).kind:
                other = compared(got=array.astype(named.dtype), case=case)
                return replace(fault, facts={**fault.facts, "other": other and str(other)})
            if fault.kind == "shares memory" and about.get("same"):
                wrong = compared(got=array, case=case)
                fault = Fault(wrong.kind, {**wrong.facts, "itself": about["same"]}) if wrong else fault
        if fault:
            return fault
        if in_place and case is not None:
            continue  # its elements were compared as the argument's
        got = np.asarray(about["number"], np.float32) if about["what"] == "number" else array
        assert got is not None
        if fault := _values_fault(operation, named, got, references[named.name], returned, case):
            return Fault(fault.kind, {**fault.facts, "twin": _twin(operation, named, got, returned.arrays, references)})
    return None


def _twin(
    operation: Operation,
    named: Argument,
    got: np.ndarray,
    arrays: Sequence[np.ndarray | None],
    references: Mapping[str, np.ndarray],
) -> str:
    """The name of another result that was returned with the same numbers, though others were wanted; or nothing."""
    for other, array in zip(operation.results, arrays, strict=True):
        same = other is not named and array is not None and np.array_equal(array, got)
        if same and not np.array_equal(references[other.name], references[named.name]):
            return other.name
    return ""


def _type_fault(about: Mapping[str, Any], wanted: str, dtype: str) -> Fault:
    """The fault for a value that is no array; one that np.array() would take gets that advice."""
    facts = {"type": about["type"], "length": about.get("length"), "wanted": wanted, "dtype": dtype}
    if facts["type"] != "tuple":
        facts["length"] = None
    listed = about["type"] in ("list", "matrix", "MaskedArray", "tuple") or about["what"] == "number"
    return Fault("type", facts | ({"from": "other"} if listed and dtype else {}))


def count_fault(results: Sequence[Argument], returned: Returned) -> Fault | None:
    """What is wrong with the number of values that a call returned."""
    if len(results) == 1 or returned.several == len(results):
        return None
    about, wanted = returned.results[0], f"a tuple of {', '.join(map(str, results))}"
    if returned.several is not None:
        return Fault("type", {"length": returned.several, "type": "tuple", "wanted": wanted})
    if about["what"] == "nothing":
        return Fault("nothing", {"wanted": wanted})
    kind = "ndarray" if about["what"] == "array" else about.get("type", "")
    return Fault("type", {"type": kind, "one": True, "wanted": wanted})


def form_fault(named: Argument, about: Mapping[str, Any], shape: tuple[int, ...], in_place: bool) -> Fault | None:
    """What is wrong with one value apart from its elements."""
    name, dtype = named.name, np.dtype(named.dtype)
    what, wanted = about["what"], str(named)
    if what == "nothing":
        return Fault("nothing", {"wanted": wanted})
    if what == "number" and shape:
        return Fault("shape", {"name": name, "got": (), "wanted": shape})
    if what == "other" or (what == "number" and named.kind != "float"):
        return _type_fault(about, wanted, dtype.name if shape else "")
    if what == "number":
        return None
    if in_place and about.get("same") != name:
        return Fault("not in place", {"name": name, "another": True, "instead": about.get("same")})
    if tuple(about["shape"]) != shape:
        return Fault("shape", {"name": name, "got": tuple(about["shape"]), "wanted": shape})
    if about["dtype"] != dtype.str:
        got = np.dtype(about["dtype"])
        facts = {"name": name, "got": got.name, "wanted": dtype.name, "from": "array", "dtype": dtype.name}
        if got.name == dtype.name:  # the same type with the other order of bytes
            facts["got"] = about["dtype"]
        return Fault("dtype", facts)
    if not in_place and (shared := about.get("same") or about.get("shares")):
        return Fault("shares memory", {"name": name, "shares": shared})
    if not about["writable"]:
        return Fault("type", {"read-only": True, "wanted": wanted, "type": "ndarray"})
    return None


def _as_given(known: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """The arguments of a call and whatever follows them, with the arrays as they were before the call."""
    pairs = zip(known, arguments, strict=False)
    given = [before if isinstance(before, np.ndarray) else after for before, after in pairs]
    return [*given, *arguments[len(given) :]]


def _values_fault(
    operation: Operation,
    named: Argument,
    got: np.ndarray,
    reference: np.ndarray,
    returned: Returned,
    case: Case | None,
) -> Fault | None:
    """None if one result is right up to rounding; else the number of wrong elements, and the first of them."""
    if got.shape != reference.shape:
        return Fault("shape", {"name": named.name, "got": got.shape, "wanted": reference.shape})
    known = case.arguments if case else returned.arguments
    allowed = allowed_error(operation, named, known, bool(case and case.large))
    with np.errstate(invalid="ignore"):
        wrong = ~((got == reference) | (np.abs(got - reference) <= allowed))
    if "nan" in operation.trial.edge_cases:
        wrong &= ~(np.isnan(reference) & np.isnan(got))
    elif operation.shapes.reduces(named):
        wrong &= ~(np.isinf(reference) & np.isnan(got))  # ∞ − ∞ on the way, as in a compensated sum
    if not wrong.any():
        return None
    first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    margin = float(np.broadcast_to(allowed, reference.shape)[first])
    around, digits = f" ± {margin:.1g}" if margin > 2 * TINY else "", ".7g" if named.kind == "float" else ".0f"
    floats = [value for value in known if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    unset = named.kind == "float" and bool(
        abs(got[first]) == np.float32(abs(UNSET)) or (returned.covers and _comes_from_unset(got[first], floats))
    )
    nan = kind_of_nan(got[first])
    if got[first] == np.float32(HUGE) or (got.dtype.kind in "iu" and abs(int(got[first]) - SENTINEL) < MOST_COUNTED):
        nan = "unwritten"
    before = dict(zip(operation.names, known, strict=False)).get(named.name)
    untouched = np.isnan(got) | (got == HUGE) | (got == SENTINEL) if before is None else got == before
    missed = bool(returned.covers) and not_reached(wrong, untouched, returned.covers)
    given = _as_given(known, returned.arguments)
    advice = operation.trial.advice(first, *given) if operation.trial.advice else ""
    facts = {
        "name": named.name,
        "wrong": int(wrong.sum()),
        "size": wrong.size,
        "place": place_of(operation, named, first, known),
        "got": f"{got[first]:{digits}}",
        "expected": "NaN" if np.isnan(reference[first]) else f"{reference[first]:{digits}}{around}",
        "nan": nan,
        "block": " × ".join(map(str, returned.block)),
        "unset": unset,
        "nans": "nan" in operation.trial.edge_cases and any(np.isnan(value).any() for value in floats),
        "infinities": bool(nan and any(np.isinf(value).any() for value in floats)),
        "advice": advice,
    }
    mistake = mistake_in(operation, named, got, reference, wrong, allowed, given)
    new = named.kind == "float" and before is None  # what is changed in place may have changed by little
    if mistake or (new and _right_to_three_digits(got, reference)):
        facts |= {"advice": mistake, "half": not mistake, "mistaken": True}
    if missed:
        facts |= {"nan": "", "advice": "", "covers": returned.covers, "shape": got.shape}
    if named.kind == "float" and named.name not in operation.names:
        steps, sizes = operation.shapes.whole_in_formulas, dict(operation.sizes(*known))
        sizes |= _products(operation, named, sizes)
        facts |= _factor(got, reference, allowed, {name: sizes[name] for name in sizes if name not in steps})
    return Fault("wrong value", facts)


def _comes_from_unset(got: Any, floats: Sequence[np.ndarray]) -> bool:
    """Whether a number is so large, made of usual ones, that it must come from memory that was never set."""
    return UNSET_AT_LEAST <= abs(got) < np.inf and all((abs(value) < USUAL).all() for value in floats)


def _right_to_three_digits(got: np.ndarray, reference: np.ndarray) -> bool:
    """Whether all elements are right to about the 11 bits that float16 has, but not to many more."""
    with np.errstate(all="ignore"):
        errors = np.abs(got - reference) / np.abs(reference)
    return got.size >= 8 and bool((errors < 4e-3).all() and np.median(errors) > 3e-5)


def _products(operation: Operation, named: Argument, sizes: Mapping[str, Any]) -> dict[str, int]:
    """The products of sizes of the first argument that a result lacks, so that it is a sum or a mean over them."""
    lacking = [name for name in operation.arguments[0].size_names if name not in named.size_names and sizes[name] != 1]
    several = (names for count in range(2, len(lacking) + 1) for names in combinations(lacking, count))
    return {" · ".join(names): prod(sizes[name] for name in names) for names in several}


def _factor(got: np.ndarray, reference: np.ndarray, allowed: Any, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The number by which all elements are wrong, if there is one, and the names of the sizes that it may stand for.

    allowed: the error that a right element may have; it grows with the factor.
    """
    counted = np.isfinite(reference) & (reference != 0)
    if not counted.any() or not np.isfinite(got[counted]).all():
        return {}
    with np.errstate(over="ignore"):
        factor = float(np.median(got[counted].astype(np.float64) / reference[counted]))
    right, error = factor * reference[counted], abs(factor) * np.broadcast_to(allowed, got.shape)[counted]
    if not factor or (np.abs(got[counted] - right) > error + 1e-4 * np.abs(right)).any():
        return {}
    whole = max(abs(factor), 1 / abs(factor))
    alike = [name for name, size in sizes.items() if isinstance(size, int) and abs(whole - size) < 1e-4 * size]
    if factor < 0 or whole < 1.01 or not (alike or counted.sum() > 3):
        return {}
    if not alike and (whole > MOST_FACTOR or abs(2 * whole - round(2 * whole)) > 1e-3):
        return {}  # no number that somebody forgot, or has once too often
    said = f"{factor:.4g}" if factor >= 1 else f"1/{whole:.4g}"
    return {"factor": said, "whole": f"{whole:.4g}", "alike": alike, "few": counted.sum() <= 3}
