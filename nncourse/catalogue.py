"""Every operation of the networks, by topic: the table of contents of kernels/ and epochs/."""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from nncourse.errors import refuse_unknown
from nncourse.kernels import (
    activations,
    backpropagation,
    confusion,
    convolution,
    convolution_backpropagation,
    cost,
    dense,
    dropout,
    neuron,
    normalisation,
    pooling,
    residual,
    update,
)
from nncourse.kernels.libraries import cudnn
from nncourse.kernels.operation import Operation

# In the order of the course. Modules that only add kernels to another module's operation stand behind it.
IMAGES = (convolution, convolution_backpropagation, cudnn, pooling, dropout, normalisation, residual)
TOPICS = (neuron, activations, dense, cost, backpropagation, *IMAGES, update, confusion)


# The modules of epochs/ by the kind of network; first those with which the backends numpy and numba train.
EPOCHS = {
    "dense": ("dense", "dense_cpu", "dense_plain", "dense_graph", "dense_one_kernel"),
    "convolutional": (
        "convolutional",
        "convolutional_cpu",
        "convolutional_loops",
        "convolutional_graph",
        "convolutional_one_kernel",
    ),
}


def epoch_topics(kinds: Iterable[str] = EPOCHS, gpu: bool = True) -> tuple[ModuleType, ...]:
    """The modules of epochs/, imported when training first asks for them, or a user by name.

    Without `gpu` those alone with which the backends numpy and numba train.
    """
    names = [name for kind in kinds for name in EPOCHS[kind][: None if gpu else 2]]
    return tuple(import_module(f"nncourse.epochs.{name}") for name in names)


def defined_in(modules: Iterable[ModuleType]) -> dict[str, Operation]:
    """The operations that these modules define, by name."""
    found = [item for module in modules for item in vars(module).values() if isinstance(item, Operation)]
    return {operation.name: operation for operation in found}


def operations() -> dict[str, Operation]:
    """The operations that networks call, by name: each backend has a kernel for each."""
    return defined_in(TOPICS)


def epochs(kinds: Iterable[str] = EPOCHS, gpu: bool = True) -> dict[str, Operation]:
    """The operations that compute an epoch in one call, by name. A backend may do without.

    Of all kinds of networks, or of some; without `gpu` they have at least the kernels numpy and numba.
    """
    found = defined_in(epoch_topics(kinds, gpu))
    return {name: operation for name, operation in found.items() if name.endswith("_epoch")}  # some import others


def find(name: str) -> Operation:
    """The operation of that name. Raises CourseError, with the names that there are, for another.

    >>> nncourse.find("dense_forward").size_names
    ('batch', 'n_in', 'n_out')
    """
    known = operations()
    if name not in known:
        known |= epochs()
    refuse_unknown("an operation", name, known)
    return known[name]
