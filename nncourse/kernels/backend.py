"""choose(): one kernel for every operation. A Backend is handed to networks; there is no default hidden anywhere."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from nncourse import device as devices
from nncourse.calls import Calls
from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels import kept_kernels
from nncourse.kernels.catalogue import RENAMED, WHOLE_STEP, epochs, find, operations
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

DEVICES = {"loops": "cpu", "numpy": "cpu", "numba": "cpu", "cupy": "gpu", "cuda": "gpu"}
# The kernel of a whole epoch that goes with a backend. The others train step by step.
EPOCH_KERNELS = {"numpy": "numpy", "numba": "numba", "cuda": "one_kernel"}
YOURS = "yours"  # the note of a kernel that you kept: words, which nothing compares
STEPS = "steps"  # asked for in a whole epoch's place: step by step, by the backend's other kernels


@dataclass(frozen=True)
class Backend(Calls):
    """One kernel for each operation, all on one device: backend.dense_forward(A, W, b) computes.

    `device` says where the arrays lie. `notes` say in words which kernels are not of the family that was asked for, and
    why. `yours` are the operations whose kernel is one that you kept, `asked` those whose kernel was asked for, and
    `unused` those for which you kept one that is not in use.
    An operation for a whole epoch has no kernel where training goes step by step. `algorithm_1` has one only if you
    have kept yours: then it is called for each step, and calls the others.
    """

    name: str
    device: str
    kernels: Mapping[str, Kernel]
    notes: Mapping[str, str]
    yours: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name, kernel in self.kernels.items():
            call = kernel if isinstance(kernel, CudaKernel) else kernel.function  # saves a Python call
            object.__setattr__(self, name, call)
        for old, new in RENAMED.items():
            object.__setattr__(self, old, getattr(self, new))

    def to_device(self, array: Any) -> Any:
        """`array` where this backend's kernels want it."""
        return devices.to_device(array, self.device)

    def __str__(self) -> str:
        lines = [f"backend {self.name} on the {self.device.upper()}"]
        rows = [(name, kernel.name, kernel.where) for name, kernel in self.kernels.items()]
        rows += [(name, STEPS, "by the kernels above") for name in epochs() if name not in self.kernels]
        width = max(len(name) for name, _, _ in rows)
        for name, kernel, where in rows:
            lines.append(f"  {name:<{width}} {kernel:<8} {where}  {self.notes.get(name, '')}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__


class _ByOperation(dict[str, Kernel]):
    """Kernels by the names of their operations; operations are found by the names of before, too."""

    def __missing__(self, name: str) -> Kernel:
        if name in RENAMED:
            return self[RENAMED[name]]
        raise KeyError(name)


def choose(name: str, mine: bool = False, emulate: bool = False, **overrides: str | Kernel) -> Backend:
    """The backend `name`: "loops", "numpy" or "numba" on the CPU, "cupy" or "cuda" on the GPU.

    `overrides` name a kernel for an operation, or are one: choose("cuda", dense_forward="tiled"). `mine` takes, for
    each operation, the fastest of your own kept kernels for that device. `emulate` runs CUDA kernels on the CPU, thread
    by thread: very slow, for seeing that they are right where there is no GPU.

    Whole epochs are computed by one fused kernel where there is one; but step by step, by the other kernels, where you
    choose some of these or your own, or ask for it: choose("numpy", dense_sgd_epoch="steps").

    Raises CourseError for unknown names and mixed devices.
    """
    refuse_unknown("a backend", name, DEVICES)
    device = DEVICES[name]
    if emulate and name != "cuda":
        raise CourseError(f"only the backend cuda can be emulated; got {name!r}")
    if device == "gpu" and not emulate and not devices.gpu_available():
        raise CourseError(f"the backend {name} needs a GPU: {devices.why_no_gpu()}; wanted loops, numpy or numba here")
    known, wholes = operations(), epochs()
    asked = {RENAMED.get(operation, operation): kernel for operation, kernel in overrides.items()}
    for operation_name in asked:
        refuse_unknown("an operation", operation_name, known | wholes)
    kernels, notes = _ByOperation(), {}
    own: set[str] = set()
    unused: set[str] = set()
    for operation in known.values():
        kernels[operation.name], borrowed = _of_family(operation, name, emulate)
        if borrowed:
            notes[operation.name] = f"borrowed: there is no {name} kernel"
    if mine:
        kept, refused = kept_kernels.fastest(known, device)
        kernels |= kept
        notes |= dict.fromkeys(kept, YOURS) | refused
        own, unused = {*kept}, {*refused}
        # It calls the kernels of this backend, on whatever device these are.
        steps, refused = kept_kernels.fastest({WHOLE_STEP: find(WHOLE_STEP)}, "cpu")
        kernels |= {operation: replace(kernel, device=device) for operation, kernel in steps.items()}
        notes |= dict.fromkeys(steps, YOURS) | refused
        own, unused = own | steps.keys(), unused | refused.keys()
    if not (emulate or mine or asked.keys() & known.keys()):
        fused = EPOCH_KERNELS.get(name, STEPS)
        kernels |= {epoch.name: epoch[fused] for epoch in wholes.values() if fused in epoch.kernels}
    chosen_by_you = asked.keys() | own
    for operation in known.values():  # they would run in the place of what you chose
        if operation.name not in chosen_by_you and not chosen_by_you.isdisjoint(operation.fuses):
            del kernels[operation.name]
    for operation_name, chosen in asked.items():
        notes[operation_name] = "asked for"
        if operation_name in wholes and chosen == STEPS:
            kernels.pop(operation_name, None)
        else:
            kernel = chosen if isinstance(chosen, Kernel) else find(operation_name)[chosen]
            if kernel.operation.name != operation_name:
                got = f"{kernel.name}, one of {kernel.operation.name}"
                raise CourseError(f"wanted a kernel of {operation_name}, such as {operation_name}={name}; got {got}")
            _refuse_unusable(kernel, name, device, emulate)
            kernels[operation_name] = kernel
    place = "cpu" if emulate else device
    title = f"{name} (emulated)" if emulate else name
    here = frozenset(own - asked.keys()), frozenset(asked), frozenset(unused - asked.keys())
    return Backend(title, place, MappingProxyType(kernels), MappingProxyType(notes), *here)


def _of_family(operation: Operation, name: str, emulate: bool) -> tuple[Kernel, bool]:
    """The operation's kernel for that backend, and whether it is borrowed from `numpy` or `cupy`.

    For "cuda" it is the default, or the last, of those that give the same result every time.
    """
    kernels = operation.kernels
    kernel = kernels.get(name)
    if name == "cuda":
        cuda = [each for each in kernels.values() if isinstance(each, CudaKernel) and each.deterministic]
        kernel = next((each for each in cuda if each.default), cuda[-1] if cuda else None)
    if kernel:
        return kernel, False
    return operation["cupy" if DEVICES[name] == "gpu" and not emulate else "numpy"], True


def _refuse_unusable(kernel: Kernel, name: str, device: str, emulate: bool) -> None:
    """A kernel that was asked for must be one for the backend's device, where all arrays lie, and must run here."""
    operation = kernel.operation
    if kernel.device != device:
        there = [other.name for other in operation.kernels.values() if other.device == device]
        raise CourseError(
            f"the backend {name} works on the {device.upper()}: for {operation.name} wanted one of "
            f"{', '.join(there)}; got {kernel.name}, a kernel for the {kernel.device.upper()}"
        )
    if not emulate and (said := kernel.missing()):
        raise CourseError(f"{operation.name} ({kernel.name}) cannot be used here: {said}")
    if emulate and not kernel.cuda:
        raise CourseError(f"only CUDA kernels can be emulated; {operation.name} ({kernel.name}) is not one")
