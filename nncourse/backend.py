"""choose() makes a Backend: one kernel for every operation. Networks get it as an argument; there is no default."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from nncourse import device as devices
from nncourse.calls import Calls
from nncourse.catalogue import find, operations
from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

DEVICES = {"loops": "cpu", "numpy": "cpu", "numba": "cpu", "cupy": "gpu", "cuda": "gpu"}
YOURS = "yours"  # the note for a kept kernel: for readers, never compared
# Operations that could be chosen in earlier versions. Today they are plans of train().
OLD_OPERATIONS = (
    "dense_sgd_epoch",
    "convolutional_sgd_epoch",
    "convolutional_adam_epoch",
    "network_epoch",
    "network_gradient",
)
OLD_CHOICES = {"steps": "operations"}  # kernels of these whose plan has a different name


# kept(operations, device) returns, by operation, the kept kernels to use, and why other kept kernels are not used.
Kept = Callable[[Mapping[str, Operation], str], tuple[Mapping[str, Kernel], Mapping[str, str]]]


@dataclass(frozen=True)
class Backend(Calls):
    """One kernel for each operation, all on one device: backend.dense_forward(A, W, b).

    device: where the arrays are, "cpu" or "gpu".
    notes: for readers, by operation: why its kernel is not one of the chosen family.
    yours, asked, unused: operations with a kept kernel, with a kernel chosen by name, with a kept but unused kernel.
    fusable: whether a plan of train() may compute several operations in one call. It may if all kernels are the
        backend's own.

    `algorithm_1` has a kernel here only if a student kept one. It is called once per step and calls the other kernels.
    """

    name: str
    device: str
    kernels: Mapping[str, Kernel]
    notes: Mapping[str, str]
    yours: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()
    fusable: bool = False

    def __post_init__(self) -> None:
        for name, kernel in self.kernels.items():
            call = kernel if isinstance(kernel, CudaKernel) else kernel.function  # saves a Python call
            object.__setattr__(self, name, call)

    def to_device(self, array: Any) -> Any:
        """`array` on this backend's device."""
        return devices.to_device(array, self.device)

    def by_library(self) -> "Backend":
        """This backend with cuBLAS for dense layers; unchanged without cuBLAS, or with kernels that are not its own."""
        if not (self.fusable and self.name == "cuda"):
            return self
        from nncourse.kernels.libraries import cublas

        return self if cublas.missing() else replace(self, kernels=MappingProxyType({**self.kernels, **cublas.KERNELS}))

    def __str__(self) -> str:
        lines = [f"backend {self.name} on the {self.device.upper()}"]
        rows = [(name, kernel.name, kernel.where) for name, kernel in self.kernels.items()]
        width = max(len(name) for name, _, _ in rows)
        for name, kernel, where in rows:
            lines.append(f"  {name:<{width}} {kernel:<8} {where}  {self.notes.get(name, '')}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__


class Through(Calls):
    """A backend that makes each call through a function: call(kernel, *arguments) returns the result."""

    def __init__(self, backend: Calls, call: Callable[..., Any]) -> None:
        self.name, self.device, self.kernels = backend.name, backend.device, backend.kernels
        self.to_device = backend.to_device  # type: ignore[method-assign]
        for name, kernel in backend.kernels.items():
            setattr(self, name, partial(call, kernel))


def choose(name: str, emulate: bool = False, kept: Kept | None = None, **overrides: str | Kernel) -> Backend:
    """A backend: one kernel for every operation, all on one device.

    name: "loops", "numpy" or "numba" on the CPU, "cupy" or "cuda" on the GPU.
    emulate: run CUDA kernels on the CPU, thread by thread. This is very slow: use it to check kernels without a GPU.
    kept: a function that returns kernels to use instead; nnclassroom's choose() passes a student's.
    overrides: a kernel, or its name, for an operation: dense_forward="loops".

    If no kernel is overridden or kept, train() may compute several operations in one call: see model/plans.py.

    Raises CourseError for unknown names, for mixed devices, and for a missing GPU.

    >>> nncourse.choose("numpy", dense_forward="loops").kernels["dense_forward"].name
    'loops'
    """
    refuse_unknown("a backend", name, DEVICES)
    device = DEVICES[name]
    if emulate and name != "cuda":
        raise CourseError(f"only the backend cuda can be emulated; got {name!r}")
    if device == "gpu" and not emulate and not devices.gpu_available():
        raise CourseError(
            f"the backend {name} needs a GPU: {devices.why_no_gpu()}; expected loops, numpy or numba here"
        )
    known = operations()
    for operation_name, chosen in overrides.items():
        if operation_name in OLD_OPERATIONS:
            plan = chosen.name if isinstance(chosen, Kernel) else OLD_CHOICES.get(chosen, chosen)
            raise CourseError(
                f'{operation_name} is a plan of training now: write train(…, plan="{plan}"), or --plan {plan}'
            )
        refuse_unknown("an operation", operation_name, known)
    kernels: dict[str, Kernel] = {}
    notes: dict[str, str] = {}
    for operation in known.values():
        kernels[operation.name], borrowed = _of_family(operation, name, emulate)
        if borrowed:
            notes[operation.name] = f"borrowed: there is no {name} kernel"
    own, refused = kept(known, device) if kept else ({}, {})
    kernels |= own
    notes |= {**dict.fromkeys(own, YOURS), **refused}
    chosen_by_you = {*overrides, *own}
    for operation in known.values():  # a fused operation would run instead of the kernel that you chose
        if operation.name not in chosen_by_you and not chosen_by_you.isdisjoint(operation.fuses):
            del kernels[operation.name]
    for operation_name, chosen in overrides.items():
        notes[operation_name] = "asked for"
        kernel = chosen if isinstance(chosen, Kernel) else find(operation_name)[chosen]
        if kernel.operation.name != operation_name:
            got = f"{kernel.name}, one of {kernel.operation.name}"
            raise CourseError(f"expected a kernel of {operation_name}, such as {operation_name}={name}; got {got}")
        _refuse_unusable(kernel, name, device, emulate)
        kernels[operation_name] = kernel
    return Backend(
        f"{name} (emulated)" if emulate else name,
        "cpu" if emulate else device,
        MappingProxyType(kernels),
        MappingProxyType(notes),
        yours=frozenset(own.keys() - overrides.keys()),
        asked=frozenset(overrides),
        unused=frozenset(refused.keys() - overrides.keys()),
        fusable=not (emulate or kept or overrides),
    )


def _of_family(operation: Operation, name: str, emulate: bool) -> tuple[Kernel, bool]:
    """The operation's kernel for that backend, and whether it is borrowed from `numpy` or `cupy`.

    For "cuda" it is the default among the deterministic kernels, or otherwise the last of them.
    """
    kernels = operation.kernels
    kernel = kernels.get(name)
    if name == "cuda":
        cuda = [each for each in kernels.values() if each.cuda and each.deterministic]
        kernel = next((each for each in cuda if each.default), cuda[-1] if cuda else None)
    if kernel:
        return kernel, False
    return operation["cupy" if DEVICES[name] == "gpu" and not emulate else "numpy"], True


def _refuse_unusable(kernel: Kernel, name: str, device: str, emulate: bool) -> None:
    """CourseError unless a chosen kernel is for the backend's device and can run here."""
    operation = kernel.operation
    if kernel.device != device:
        there = [other.name for other in find(operation.name).kernels.values() if other.device == device]
        raise CourseError(
            f"the backend {name} works on the {device.upper()}: for {operation.name} expected one of "
            f"{', '.join(there)}; got {kernel.name}, a kernel for the {kernel.device.upper()}"
        )
    if not emulate and (said := kernel.missing()):
        raise CourseError(f"{operation.name} ({kernel.name}) cannot be used here: {said}")
    if emulate and not kernel.cuda:
        raise CourseError(f"only CUDA kernels can be emulated; {operation.name} ({kernel.name}) is not one")
