"""Run a kernel in this process, and describe what came back without judging it.

run_here() runs a kernel here, answer.py a student's text in a process that holds no reference. Both return a Returned,
or the Fault that ended the call.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, singledispatch
from typing import Any

import numpy as np

from cuda_on_cpu.errors import CudaCompileError
from cuda_on_cpu.faults import EmulationError
from nnclassroom.judge.answer_process.results import (
    SENTINEL,
    UNWRITTEN,
    Earlier,
    called_before,
    described,
    is_locked,
    said_of,
)
from nnclassroom.judge.tolerance import references_of
from nnclassroom.judge.verdict import OPEN, Case, Fault
from nncourse import device as devices
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

HUGE = -3.21e33  # fills every third result in place of NaN, for a kernel that tests whether its result is NaN
OFFSET = 2  # elements, 8 bytes, by which an argument that may begin anywhere misses a multiple of 16 bytes
GUARD = 1 << 14  # guard elements on each side of a GPU array: as many as 16 rows of the longest array
# Contents of the guard elements: different NaNs for outputs and inputs, so that copying one to the other is detected;
# 0 for integers, because a kernel may use what it reads past the end as an index, and a huge index would make the
# process's CUDA context unusable.
OUTPUT_GUARD, INPUT_GUARDS = 0x7FC0DEAD, {"f": 0x7FC0BEEF, "i": 0}
NOT_FOR_IT = "not for it"  # the kind of a fault: the kernel leaves this network to another one
BROKEN_OFF = Fault("crash", {"status": "?", "reason": "broke off"})  # the text wrote into the conversation itself

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
    """What run_here() remembers between the calls of one check."""

    earlier: Earlier = field(default_factory=Earlier)
    calls: int = 0


@singledispatch
def runner(operation: Operation, kernel: Kernel, device: str) -> Runner:
    """The function that runs a kernel in this process; kinds of operations that call kernels in other ways register."""
    return partial(run_here, operation, kernel, device, Memory())


def is_plain(kernel: Kernel) -> bool:
    """Whether it is a plain function, which no file and no exercise holds."""
    return not kernel.where


def run_here(
    operation: Operation, kernel: Kernel, device: str, memory: Memory, case: Case, options: Mapping[str, Any]
) -> Returned | Fault:
    """Call the kernel once: what came back, or the Fault that ended it."""
    guards: list[Any] = []
    moved = kernel.cuda and memory.calls % 2 and "record" not in options

    def copied(values: np.ndarray, bits: int, name: str = "") -> Any:
        offset = OFFSET if moved and name in operation.trial.anywhere else 0
        if device == "gpu":
            return _guarded(guards, values, bits, offset)
        whole = np.empty(offset + values.size, values.dtype)
        whole[offset:] = values.reshape(-1)
        return whole[offset:].reshape(values.shape)

    given = tuple(
        copied(value, INPUT_GUARDS[value.dtype.kind], name) if isinstance(value, np.ndarray) else copy.deepcopy(value)
        for name, value in zip(operation.names, case.arguments, strict=True)
    )
    if kernel.cuda and not operation.in_place:
        references = references_of(operation, case.arguments)
        memory.calls += 1
        nan = any(np.isnan(reference).any() for reference in references.values())
        fill = HUGE if nan or memory.calls % 3 == 0 else UNWRITTEN
        options = {**options, "out": out_of(operation, references, lambda values: copied(values, OUTPUT_GUARD), fill)}
    plain = is_plain(kernel) and all(isinstance(value, np.ndarray | int | float) for value in case.arguments)
    again = case.again if plain else 0
    array_type = _type_of_arrays(given)
    arrays = {name: value for name, value in zip(operation.names, given, strict=True) if isinstance(value, array_type)}
    try:
        with np.errstate(all="ignore"):  # intermediate overflow is allowed if the result is right
            for other in called_before(lambda: kernel(*given), [*arrays.values()], again) if again else ():
                memory.earlier.add(other, arrays, array_type, keep=False)
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
    found = returned(operation, result, given, case.arguments, [] if kernel.cuda else memory.earlier.results)
    if not kernel.cuda:
        found.otherwise = stale_fault(memory.earlier.changed())
        memory.earlier.add(result, arrays, array_type)
    found.outside = any((cells != bits).any() for cells, bits in guards)
    if isinstance(kernel, CudaKernel):
        found.covers, found.block = kernel.covers(*case.arguments), kernel.block
    return found


def stale_fault(name: str) -> Fault | None:
    """The fault of a call that has changed an array of an earlier call, which has this name; None for no name."""
    return Fault("changes what was", {"name": name}) if name else None


def _type_of_arrays(given: Sequence[Any]) -> type:
    """NumPy's arrays, or CuPy's."""
    return type(next((value for value in given if hasattr(value, "dtype")), np.empty(0)))


def returned(
    operation: Operation, result: Any, given: tuple[Any, ...], before: tuple[Any, ...], earlier: Sequence[Any] = ()
) -> Returned:
    """What a call in this process gave back. `given` are its arguments, `before` the same as they were before it."""
    array_type = _type_of_arrays(given)
    arrays = {name: value for name, value in zip(operation.names, given, strict=True) if isinstance(value, array_type)}
    values = result if len(operation.results) > 1 and type(result) is tuple else (result,)
    on_host = {name: devices.to_device(value, "cpu") for name, value in arrays.items()}
    unchanged = dict(zip(operation.names, before, strict=True))
    return Returned(
        [described(value, arrays, earlier, array_type, values[:at]) for at, value in enumerate(values)],
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
    fill: float | np.float32 = UNWRITTEN,
) -> Any:
    """The `out` of a CUDA kernel: for each new result an array that shows what is never written, by `copied`."""
    new = [(named, fill if named.kind == "float" else SENTINEL) for named in operation.shapes.new]
    arrays = [copied(np.full(references[named.name].shape, value, named.dtype)) for named, value in new]
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _guarded(guards: list[Any], values: np.ndarray, bits: int, offset: int = 0) -> Any:
    """A GPU copy of `values` between guard elements, which are added to `guards`; the first are `offset` more.

    The guards are compared with `bits` as 4-byte integers, so that a different NaN is detected too.
    """
    import cupy

    first, end = GUARD + offset, GUARD + offset + values.size
    cells = cupy.full(end + GUARD, bits, np.uint32)
    inner = cells[first:end].view(values.dtype)
    inner[...] = cupy.asarray(values.reshape(-1))
    guards += [(cells[:first], bits), (cells[end:], bits)]
    return inner.reshape(values.shape)


def raised(said: Mapping[str, Any], hints: tuple[str, ...]) -> Fault:
    """The fault for an exception: its kind follows from the exception's type, never from its text."""
    kind = said["type"]
    facts = {**said, "hints": hints, "names": "np"}
    if kind == "NotImplementedError":
        return Fault(OPEN, facts)
    if kind == "RefusedError":
        return Fault("forbidden", {"said": said["text"]})
    if kind in ("NameError", "UnboundLocalError"):
        return Fault("name" if kind == "NameError" else "raised", facts)
    return Fault("raised", facts)
