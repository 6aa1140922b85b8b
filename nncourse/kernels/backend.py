"""choose(): one kernel for every operation. A Backend is handed to networks; there is no default hidden anywhere."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nncourse import device as devices
from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels import (
    activations,
    backpropagation,
    confusion,
    cost,
    dense,
    epoch,
    epoch_cpu,
    epoch_graph,
    epoch_one_kernel,
    machine,
    neuron,
    update,
)
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

EPOCH_TOPICS = (epoch, epoch_cpu, epoch_graph, epoch_one_kernel)
TOPICS = (neuron, activations, dense, cost, backpropagation, update, *EPOCH_TOPICS, confusion)
# The kernel of train_epoch that goes with a backend. `steps` is the one that calls the backend's other kernels.
EPOCHS = {"loops": "steps", "numpy": "numpy", "numba": "numba", "cupy": "steps", "cuda": "one_kernel"}
DEVICES = {"loops": "cpu", "numpy": "cpu", "numba": "cpu", "cupy": "gpu", "cuda": "gpu"}


def operations() -> dict[str, Operation]:
    """Every operation of networks by name, in the order of the course: each backend has a kernel for it."""
    found = [item for topic in TOPICS for item in vars(topic).values() if isinstance(item, Operation)]
    return {operation.name: operation for operation in found}


def find(name: str) -> Operation:
    """The operation of that name, those about the machine included; CourseError lists those there are."""
    known = operations() | {operation.name: operation for operation in machine.OPERATIONS}
    refuse_unknown("an operation", name, known)
    return known[name]


@dataclass(frozen=True)
class Backend:
    """One kernel for each operation, all on one device: backend.dense_forward(A, W, b) computes.

    `device` says where the arrays lie. `notes` say which kernels are not of the family that was asked for, and why.
    """

    name: str
    device: str
    kernels: Mapping[str, Kernel]
    notes: Mapping[str, str]

    def __post_init__(self):
        for name, kernel in self.kernels.items():
            call = kernel if isinstance(kernel, CudaKernel) else kernel.function  # saves a Python call
            if kernel.with_backend:
                call = functools.partial(call, backend=self)
            object.__setattr__(self, name, call)

    def to_device(self, array):
        """`array` where this backend's kernels want it."""
        return devices.to_device(array, self.device)

    def __str__(self) -> str:
        lines = [f"backend {self.name} on the {self.device.upper()}"]
        for name, kernel in self.kernels.items():
            lines.append(f"  {name:<26}{kernel.name:<8} {kernel.where}  {self.notes.get(name, '')}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__


def choose(name: str, mine: bool = False, emulate: bool = False, **overrides: str) -> Backend:
    """The backend `name`: "loops", "numpy" or "numba" on the CPU, "cupy" or "cuda" on the GPU.

    Whole epochs are trained by one fused kernel, train_epoch, where there is one; but by `steps`, so by the other
    kernels, where you choose some of them, or your own.

    `overrides` name a kernel for an operation: choose("cuda", dense_forward="tiled"). `mine` takes, for each operation,
    your own fastest kept kernel of that device. `emulate` runs CUDA kernels on the CPU, thread by thread: very slow,
    for seeing that they are right where there is no GPU. Raises CourseError for unknown names and mixed devices.
    """
    refuse_unknown("a backend", name, DEVICES)
    device = DEVICES[name]
    if emulate and name != "cuda":
        raise CourseError(f"only the backend cuda can be emulated; got {name!r}")
    if device == "gpu" and not emulate and not devices.gpu_available():
        raise CourseError(f"the backend {name} needs a GPU: {devices.why_no_gpu()}; wanted loops, numpy or numba here")
    known = operations()
    for operation_name in overrides:
        refuse_unknown("an operation", operation_name, known)
    kernels, notes = {}, {}
    for operation in known.values():
        kernels[operation.name] = _of_family(operation, name)
        if kernels[operation.name] is None:
            kernels[operation.name] = _of_family(operation, "numpy" if device == "cpu" else "cupy")
            notes[operation.name] = f"borrowed: there is no {name} kernel"
    if mine:
        from nncourse.kernels import mine as own

        kept, refused = own.fastest(known, device)
        kernels |= kept
        notes |= dict.fromkeys(kept, "yours") | refused
    if emulate or mine or overrides:
        kernels["train_epoch"] = known["train_epoch"]["steps"]
    for operation_name, kernel_name in overrides.items():
        kernels[operation_name] = known[operation_name][kernel_name]
        notes[operation_name] = "asked for"
    _refuse_mixed(kernels, name, device, emulate)
    place = "cpu" if emulate else device
    return Backend(f"{name} (emulated)" if emulate else name, place, MappingProxyType(kernels), MappingProxyType(notes))


def _of_family(operation: Operation, name: str) -> Kernel | None:
    """The kernel of that name; for "cuda" the default or last of those that give the same result every time."""
    if operation.name == "train_epoch":
        return operation[EPOCHS[name]]
    if name != "cuda":
        return operation.kernels.get(name)
    cuda = [kernel for kernel in operation.kernels.values() if isinstance(kernel, CudaKernel) and kernel.deterministic]
    return next((kernel for kernel in cuda if kernel.default), cuda[-1] if cuda else None)


def _refuse_mixed(kernels: dict[str, Kernel], name: str, device: str, emulate: bool) -> None:
    """Arrays lie on one device, so all kernels must."""
    for operation_name, kernel in kernels.items():
        if kernel.device not in (device, "any"):
            there = [other.name for other in kernel.operation.kernels.values() if other.device == device]
            raise CourseError(
                f"the backend {name} works on the {device.upper()}: for {operation_name} wanted one of "
                f"{', '.join(there)}; got {kernel.name}, a kernel for the {kernel.device.upper()}"
            )
        if emulate and kernel.device != "any" and not kernel.cuda:
            raise CourseError(f"only CUDA kernels can be emulated; {operation_name} ({kernel.name}) is not one")
