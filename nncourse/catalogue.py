"""Every operation of the networks, by topic: the table of contents of kernels/ and epochs/."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType

from nncourse.calls import OPERATIONS
from nncourse.errors import refuse_unknown
from nncourse.kernels.operation import Operation

# In the order of the course. A module that only adds kernels to another module's operations follows it.
IMAGES = ("convolution", "convolution_backpropagation", "libraries.cudnn", "pooling", "dropout", "normalisation")
OTHERS = ("layernorm", "residual", "update", "confusion")
TOPICS = ("neuron", "activations", "dense", "cost", "backpropagation", *IMAGES, *OTHERS)


# The modules of epochs/ by kind of network: those for the backends numpy and numba, and the others.
EPOCHS = {
    "dense": (("dense", "dense_cpu"), ("dense_plain", "dense_one_kernel")),
    "convolutional": (
        ("convolutional", "convolutional_cpu", "gradient_loops"),
        ("convolutional_one_kernel",),
    ),
    "network": (("gradient", "gradient_cpu", "gradient_loops"), ("network", "dense_one_kernel", "streamed")),
}


def epoch_topics(kinds: Iterable[str] = EPOCHS, gpu: bool = True) -> tuple[ModuleType, ...]:
    """The modules of epochs/, imported at first use. Without `gpu` only those for the backends numpy and numba."""
    names = [name for kind in kinds for part in EPOCHS[kind][: 1 + gpu] for name in part]
    return tuple(import_module(f"nncourse.epochs.{name}") for name in dict.fromkeys(names))


def defined_in(modules: Iterable[ModuleType]) -> dict[str, Operation]:
    """The operations that these modules define, by name."""
    found = [item for module in modules for item in vars(module).values() if isinstance(item, Operation)]
    return {operation.name: operation for operation in found}


def imported(name: str, index: Mapping[str, Iterable[str]]) -> Operation | None:
    """The operation of that name, from those modules alone that an index lists it under; None if it lists none."""
    modules = [import_module(module) for module, names in index.items() if name in names]
    return defined_in(modules).get(name)


def topics() -> tuple[ModuleType, ...]:
    """The modules of the operations that networks call."""
    return tuple(import_module(f"nncourse.kernels.{name}") for name in TOPICS)


def operations() -> dict[str, Operation]:
    """The operations that networks call, by name: every backend has a kernel for each."""
    return defined_in(topics())


def epochs(kinds: Iterable[str] = EPOCHS, gpu: bool = True) -> dict[str, Operation]:
    """The operations that compute an epoch, or the gradient of a network, in one call. A backend need not have kernels.

    kinds: of networks: the first words of the operations' names.
    gpu: False for the kernels numpy and numba alone, which import faster.
    """
    found, wanted = defined_in(epoch_topics(kinds, gpu)), set(kinds)
    return {name: operation for name, operation in found.items() if name.partition("_")[0] in wanted}


def find(name: str) -> Operation:
    """The operation of that name. Raises CourseError, which lists the names, for an unknown one.

    >>> nncourse.find("dense_forward").size_names
    ('batch', 'n_in', 'n_out')
    """
    if found := imported(name, OPERATIONS):
        return found
    known = operations() | epochs()
    refuse_unknown("an operation", name, known)
    return known[name]
