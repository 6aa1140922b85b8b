"""Every operation of the networks, by topic: the table of contents of kernels/ and epochs/."""

from collections.abc import Iterable
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


def epoch_topics(gpu: bool = True) -> tuple[ModuleType, ...]:
    """The modules of epochs/, imported when training first asks for them, or a user by name.

    Without `gpu` those alone with which the backends numpy and numba train.
    """
    from nncourse.epochs import convolutional, convolutional_cpu, dense, dense_cpu

    usual = (dense, dense_cpu, convolutional, convolutional_cpu)
    if not gpu:
        return usual
    from nncourse.epochs import (
        convolutional_graph,
        convolutional_loops,
        convolutional_one_kernel,
        dense_graph,
        dense_one_kernel,
        dense_plain,
    )

    images = (convolutional_loops, convolutional_graph, convolutional_one_kernel)
    return (*usual, dense_plain, dense_graph, dense_one_kernel, *images)


def defined_in(modules: Iterable[ModuleType]) -> dict[str, Operation]:
    """The operations that these modules define, by name."""
    found = [item for module in modules for item in vars(module).values() if isinstance(item, Operation)]
    return {operation.name: operation for operation in found}


def operations() -> dict[str, Operation]:
    """The operations that networks call, by name: each backend has a kernel for each."""
    return defined_in(TOPICS)


def epochs(gpu: bool = True) -> dict[str, Operation]:
    """The operations that compute a whole epoch of training at once, by name. A backend may do without.

    Without `gpu` they have at least the kernels numpy and numba.
    """
    return defined_in(epoch_topics(gpu))


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
