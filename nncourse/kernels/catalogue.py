"""Every operation there is, by topic: the table of contents of this folder."""

from types import ModuleType

from nncourse.errors import refuse_unknown
from nncourse.kernels import (
    activations,
    backpropagation,
    confusion,
    convolution,
    convolution_backpropagation,
    cost,
    cost_exercises,
    cudnn,
    dense,
    dropout,
    exchange,
    gpu_exercises,
    measuring,
    neuron,
    normalisation,
    peer,
    pooling,
    residual,
    residual_exercises,
    training_exercises,
    update,
    update_exercises,
    warm_up,
)
from nncourse.kernels.epoch import convolutional as convolutional_epoch
from nncourse.kernels.epoch import (
    convolutional_cpu,
    convolutional_graph,
    convolutional_loops,
    convolutional_one_kernel,
    dense_cpu,
    dense_graph,
    dense_one_kernel,
    dense_plain,
)
from nncourse.kernels.epoch import dense as dense_epoch
from nncourse.kernels.operation import Operation

# In the order of the course. Modules that only add kernels to another module's operation stand behind it.
DENSE_EPOCHS = (dense_epoch, dense_cpu, dense_plain, dense_graph, dense_one_kernel)
CONVOLUTIONAL_EPOCHS = (
    convolutional_epoch,
    convolutional_cpu,
    convolutional_loops,
    convolutional_graph,
    convolutional_one_kernel,
)
EPOCHS = (*DENSE_EPOCHS, *CONVOLUTIONAL_EPOCHS)
IMAGES = (convolution, convolution_backpropagation, cudnn, pooling, dropout, normalisation, residual)
TOPICS = (neuron, activations, dense, cost, backpropagation, *IMAGES, update, *EPOCHS, confusion)
EXERCISES = (
    warm_up,
    cost_exercises,
    training_exercises,
    gpu_exercises,
    update_exercises,
    exchange,
    peer,
    measuring,
    residual_exercises,
)  # only exercises have these
WHOLE_STEP = "algorithm_1"  # of a student; where it is kept, training steps run it
RENAMED = {"train_epoch": "dense_sgd_epoch"}  # names of before version 0.2, which are still understood


def _defined_in(modules: tuple[ModuleType, ...]) -> list[Operation]:
    return [item for module in modules for item in vars(module).values() if isinstance(item, Operation)]


def operations() -> dict[str, Operation]:
    """The operations that networks call, by name: each backend has a kernel for each."""
    return {operation.name: operation for operation in _defined_in(TOPICS) if not operation.whole_epoch}


def epochs() -> dict[str, Operation]:
    """The operations that compute a whole epoch of training at once, by name. A backend may do without."""
    return {operation.name: operation for operation in _defined_in(TOPICS) if operation.whole_epoch}


def find(name: str) -> Operation:
    """The operation of that name, those that only exercises have included; CourseError lists those there are."""
    known = {operation.name: operation for operation in _defined_in((*TOPICS, *EXERCISES))}
    name = RENAMED.get(name, name)
    refuse_unknown("an operation", name, known)
    return known[name]
