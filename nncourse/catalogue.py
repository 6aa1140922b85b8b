"""Every operation of the networks, by topic: the table of contents of kernels/."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType

from nncourse.calls import OPERATIONS
from nncourse.errors import refuse_unknown
from nncourse.kernels.operation import Operation

# In the order of the course. A module that only adds kernels to the operations of another module follows that module.
IMAGES = ("convolution", "convolution_backpropagation", "libraries.cudnn", "pooling", "dropout", "normalisation")
OTHERS = ("embedding", "layernorm", "attention", "attention_step", "residual", "update", "confusion")
TOPICS = ("neuron", "activations", "dense", "dense_wgmma", "cost", "backpropagation", *IMAGES, *OTHERS)


GROUP, FUSED = "nncourse.operations", "fused_epochs"  # the group of entry points; the package whose topics are added


def epoch_topics() -> tuple[ModuleType, ...]:
    """The modules of the operations that compute a whole epoch or gradient. No backend has kernels for these."""
    from nncourse.entry_points import added
    from nncourse.kernels import dense_epoch

    fused = added(GROUP, FUSED)
    return (dense_epoch, *(() if isinstance(fused, str) else fused.topics()))


def defined_in(modules: Iterable[ModuleType]) -> dict[str, Operation]:
    """The operations that these modules define, by name."""
    found = [item for module in modules for item in vars(module).values() if isinstance(item, Operation)]
    return {operation.name: operation for operation in found}


def imported(name: str, index: Mapping[str, Iterable[str]]) -> Operation | None:
    """The operation of that name; None if the index does not list it. Imports only the modules listed for it."""
    modules = [import_module(module) for module, names in index.items() if name in names]
    return defined_in(modules).get(name)


def topics() -> tuple[ModuleType, ...]:
    """The modules of the operations that networks call."""
    return tuple(import_module(f"nncourse.kernels.{name}") for name in TOPICS)


def operations() -> dict[str, Operation]:
    """The operations that networks call, by name: every backend has a kernel for each."""
    return defined_in(topics())


def epochs() -> dict[str, Operation]:
    """The operations that compute a whole epoch or gradient, by name: no backend has kernels for them."""
    return defined_in(epoch_topics())


def find(name: str) -> Operation:
    """The operation of that name. Raises CourseError for an unknown name, and lists the known ones.

    >>> nncourse.find("dense_forward").size_names
    ('batch', 'n_in', 'n_out')
    """
    if found := imported(name, OPERATIONS):
        return found
    known = operations() | epochs()
    refuse_unknown("an operation", name, known)
    return known[name]
