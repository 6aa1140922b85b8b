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

run.py runs a kernel in this process, answer.py a student's text in another. compare.py decides what is wrong first with
what came back, and diagnosis/ looks for the cause.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from cuda_on_cpu.errors import CudaCompileError
from nnclassroom.judge.cases import cases, random_case  # noqa: F401  (others take random_case from here)
from nnclassroom.judge.compare import Call, Wrong, first_wrong, wrong_result
from nnclassroom.judge.run import NOT_FOR_IT, Returned, Runner, is_plain, returned, runner
from nnclassroom.judge.time_limit import never_ends
from nnclassroom.judge.tolerance import references_of, rounded_as
from nnclassroom.judge.verdict import OPEN, RIGHT, TINY_SECONDS, UNCHECKED, Case, Fault, Verdict
from nnclassroom.judge.words import IN_ORDER, LOOKING
from nncourse import device as devices
from nncourse.errors import CourseError
from nncourse.kernels.kernel import MANTISSA, CudaKernel, Kernel
from nncourse.kernels.operation import Operation

if TYPE_CHECKING:
    from cuda_on_cpu.trace import Trace

OTHER_CASES = 3  # that show whether a factor is a size, or as large by chance
# Limits of one launch on the emulator, which runs some millions of threads a second. A kernel that is slow in a large
# case, but not endless, is not wrong: that case is left out. So is one with more threads, with barriers or without.
LAUNCH_SECONDS = 5.0
MOST_FIXED = 1 << 20  # threads of a launch of fixed size; more elements than that are tried
MOST_THREADS = {True: 1_200_000, False: 2_500_000}
MANY_BLOCKS, FEW_THREADS = 16, 1 << 17  # of a large case: the first with more blocks, but no more threads than that
WRONG_VALUES = ("wrong value", "not in place")
IN_THE_TEXT = ("wrong value", "bounds")  # kinds of faults that the text of a kernel in CUDA C may explain

Run = tuple[str, dict[str, Any]]  # a label, and options of the emulator


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
    ✓ relu (numpy): right in 40 cases on the CPU
    """
    kernel = operation.kernel_of(kernel, device)
    device = _place(operation, kernel, device)
    if device == "emulator":
        from cuda_on_cpu.program import why_no_compiler  # most checks never need the emulator

        if reason := why_no_compiler():
            return Verdict(operation.name, kernel.name, UNCHECKED, {"said": reason})
    fixed, launch = 0, None
    if isinstance(kernel, CudaKernel):
        fixed, launch = kernel.fixed_threads, partial(_launch, kernel) if device == "emulator" else None
    if fixed > MOST_FIXED:
        said = f"the launch has {fixed:,} threads, whatever the sizes: expected at most {MOST_FIXED:,}"
        said += "; loop over the elements, or name sizes in --grid"
        return Verdict(operation.name, kernel.name, "launch", {"said": said})
    run, rounding = runner(operation, kernel, device), rounded_as(operation, kernel)
    verdict = judge(rounding, kernel.name, run, device, seed, sandbox, fixed=fixed, launch=launch)
    if isinstance(kernel, CudaKernel) and verdict.kind in IN_THE_TEXT and not verdict.facts.get("mistaken"):
        from nnclassroom.judge.diagnosis import in_the_text

        look = in_the_text.swapped_indices, *[in_the_text.whole_division] * (verdict.kind == "wrong value")
        found = next(filter(None, (each(operation, kernel.source.text) for each in look)), {})
        if not found and verdict.kind == "wrong value":
            found = in_the_text.not_shared(kernel.source.text)
        verdict = replace(verdict, facts={**verdict.facts, **found})
    if verdict and device == "emulator" and isinstance(kernel, CudaKernel):
        verdict = _looked_at(operation, kernel, run, verdict, {"sandbox": sandbox} if sandbox else {})
    if isinstance(kernel, CudaKernel) and verdict.facts.get("nan") == "shared":
        return replace(verdict, facts={**verdict.facts, "shuffles": "__shfl" in kernel.source.text})
    rounded = {"mantissa": kernel.mantissa} if kernel.mantissa != MANTISSA else {}
    return replace(verdict, facts={**verdict.facts, **rounded, "here": is_plain(kernel)}) if verdict else verdict


def _looked_at(
    operation: Operation, kernel: CudaKernel, run: Runner, verdict: Verdict, options: Mapping[str, Any]
) -> Verdict:
    """The verdict on a right kernel after a look at its accesses: refused without the idea it is named for; what it
    wastes is a fact.
    """
    from nnclassroom.judge import budget, waste  # they read what the emulator records

    def of_package() -> "Trace | Fault | None":
        own = operation.kernels.get(kernel.name)
        if own is kernel:
            return trace
        return budget.launched(runner(operation, own, "emulator"), case, {}) if own else None

    case = budget.case_of(operation, kernel.name)
    trace = budget.launched(run, case, options)
    if isinstance(trace, Fault):  # without a budget, more accesses than can be recorded are no fault
        named = kernel.name in operation.trial.budgets
        return Verdict(operation.name, kernel.name, trace.kind, trace.facts, case) if named else verdict
    if over := budget.exceeded(operation, kernel.name, case, trace):
        return Verdict(operation.name, kernel.name, over.kind, over.facts, case)
    if other := budget.case_with_more(operation, kernel.name):
        found = budget.launched(run, other, options)
        over = found if isinstance(found, Fault) else budget.exceeded(operation, kernel.name, other, found)
        if over:
            return Verdict(operation.name, kernel.name, over.kind, over.facts, other)
    return replace(verdict, facts={**verdict.facts, "waste": waste.wasted(operation, trace, of_package, kernel.source)})


def judge(
    operation: Operation,
    name: str,
    run: Runner,
    device: str,
    seed: int | None = None,
    sandbox: tuple[str, ...] = (),
    only: Case | None = None,
    launch: Callable[[Case], tuple[bool, bool]] | None = None,
    fixed: int = 0,
) -> Verdict:
    """Run a kernel by run(case, options) on every case, or on one only, until one fails.

    launch: what _launch() says of a case on the emulator. Large cases are left out there if the launch is too large, or
        if the kernel is slow. Whether it is slow or endless is examined until it is found to be slow once.
    fixed: see cases().
    """
    say = partial(Verdict, operation.name, name)
    count, slow, looked, not_finite = 0, False, False, ""
    left_out: Fault | None = None
    more = {"sandbox": sandbox} if sandbox and device == "emulator" else {}
    tried = iter((only,) if only else cases(operation, seed, fixed))
    for case in tried:
        runs = _runs(case, count, device, more)
        if case.large and launch:
            try:
                too_large, many_blocks = launch(case)
            except CourseError as error:
                return say("launch", {"said": str(error)}, case)
            if too_large:
                continue
            if many_blocks and not looked:  # for a race of blocks that meet only where there are many
                looking = {"races": True, "time_limit": LAUNCH_SECONDS, **more}
                runs, looked = chain(runs, [(LOOKING, looking)]), True
        for label, options in runs:
            try:
                fault = _fault(operation, case, run(case, options))
                if fault and fault.kind in WRONG_VALUES and device == "emulator" and label != LOOKING:
                    # A missing barrier can cause wrong values; a report of the race is more helpful.
                    race = run(case, {"races": True, **more})
                    if isinstance(race, Fault) and race.kind == "race":
                        fault, label = race, LOOKING
            except CudaCompileError as error:
                return say(getattr(error, "kind", "compile"), {"said": str(error)})
            if fault is None:
                continue
            if fault.kind == "time limit" and case.large and device == "emulator":
                limited = partial(_late, run, options)
                found = None if slow else never_ends(operation, case, fault, limited, LAUNCH_SECONDS)
                if found:
                    return say(found[1].kind, found[1].facts, found[0], label)
                slow = True
                break
            if fault.kind in (*WRONG_VALUES, "raised") and case.not_finite:
                not_finite = not_finite or say(fault.kind, fault.facts, case, label).line.partition(": ")[2]
                break
            if fault.kind == NOT_FOR_IT:
                left_out = fault
                break
            if fault.kind == OPEN:
                return say(OPEN) if count == 0 else say("raised", fault.facts, case, label)
            if fault.facts.get("alike"):
                from nnclassroom.judge.diagnosis.factor import confirmed

                finite = islice((other for other in tried if not other.not_finite), OTHER_CASES)
                sizes_and_faults = (
                    (operation.sizes(*other.arguments), _fault(operation, other, run(other, options)))
                    for other in finite
                )
                fault = confirmed(fault, sizes_and_faults)
            if fault.kind in WRONG_VALUES and "yours" not in fault.facts and not (case.large or only):
                from nnclassroom.judge.diagnosis.tiny import smaller

                briefly = {**options, "time_limit": TINY_SECONDS} if device == "emulator" else options
                fault = replace(fault, facts={**fault.facts, **smaller(operation, case, run, briefly)})
            of_launch = {"fixed": fixed} if fixed and case.large else {}
            return say(fault.kind, {**fault.facts, **of_launch}, case, label)
        else:  # a case that was not tried to its end is not counted
            count += 1
    if left_out and count == 0:
        return say("launch", left_out.facts)
    return say(RIGHT, {"count": count, "device": device, "not finite": not_finite})


def _fault(operation: Operation, case: Case, returned: Returned | Fault) -> Fault | None:
    """What is wrong with what a call returned, and why; None if nothing is."""
    if isinstance(returned, Fault):
        return returned
    if returned.outside:
        return Fault("outside")
    references = references_of(operation, case.arguments)
    call = Call(operation, case.arguments, returned, references, case.large)
    found = first_wrong(call)
    return _explained(call, found) if found else None


def _explained(call: Call, found: Wrong | Fault) -> Fault:
    from nnclassroom.judge.diagnosis import explained  # a right kernel needs none of it

    return explained(call, found)


def compare(
    operation: Operation, result: Any, references: dict[str, np.ndarray], arguments: tuple[Any, ...]
) -> str | None:
    """None if what a kernel returned in this process is right up to rounding; else what is wrong, in words."""
    found = replace(returned(operation, result, arguments, arguments), in_place={})
    call = Call(operation, arguments, found, references)
    wrong = wrong_result(call)
    return str(_explained(call, wrong)) if wrong else None


def _runs(case: Case, number: int, device: str, more: Mapping[str, Any]) -> Iterator[Run]:
    """The runs of a case: one; on the emulator one or two orders of threads, and another run that looks for races.

    Which threads meet depends on sizes, seldom on values. So cases with edge values, drawn sizes or large sizes are
    run in one order, a different one each time, and not for races; but see judge(). `more`: options of all runs.
    """
    if device != "emulator":
        yield "", {}
        return
    orders = tuple(IN_ORDER)
    orders = (orders[0], orders[1 + number % 2]) if case.plain else (orders[number % len(orders)],)
    for order in orders:
        yield IN_ORDER[order], {"order": order, "seed": 1 + number, "time_limit": LAUNCH_SECONDS, **more}
    if case.plain:
        yield LOOKING, {"races": True, **more}


def _late(run: Runner, options: Mapping[str, Any], case: Case, seconds: float) -> Fault | None:
    """The fault if the kernel does not end within `seconds` of computing on the emulator."""
    found = run(case, {**options, "time_limit": seconds})
    return found if isinstance(found, Fault) and found.kind == "time limit" else None


def _launch(kernel: CudaKernel, case: Case) -> tuple[bool, bool]:
    """Whether the emulator would take too long for a launch, and whether it has many blocks, but not too many threads.

    CourseError for a launch that no GPU accepts.
    """
    threads = kernel.threads(*case.arguments)
    many = threads > MANY_BLOCKS * prod(kernel.block) and threads <= FEW_THREADS
    return threads > MOST_THREADS["__sync" in kernel.source.text], many


def _place(operation: Operation, kernel: Kernel, device: str | None) -> str:
    """Where to run: `device` if given, else the kernel's device, or the emulator for CUDA C without a GPU."""
    gpu = devices.gpu_available()
    device = device or ("emulator" if kernel.cuda and not gpu else kernel.device)
    python = sorted({"cpu", *operation.python_devices.values()})
    possible = ["gpu", "emulator"] if kernel.cuda else python
    if device not in possible:
        raise CourseError(f"{kernel.name}: expected {' or '.join(possible)} to check it on, got {device!r}")
    if device == "gpu" and not gpu:
        raise CourseError(f"{kernel.name} cannot be checked here: {devices.why_no_gpu()}")
    if device != "emulator" and (said := kernel.missing()):
        raise CourseError(f"{kernel.name} cannot be checked here: {said}")
    return device
