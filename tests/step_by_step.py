"""An epoch by a backend's separate operations, called like a kernel of dense_sgd_epoch: what these must agree with."""

from nncourse import device
from nncourse.backend import choose
from nncourse.model.layers import StepPosition
from nncourse.model.network import with_parameters
from nncourse.model.optimizers import SGD
from nncourse.model.training import train_step_by_step


def steps(parameters, architecture, X, Y, batch, rate, backend=None):
    """The parameters after a training step for each batch, in place."""
    backend = backend or choose("cuda" if device.on_gpu(parameters) else "numpy", dense_sgd_epoch="steps")
    train_step_by_step(with_parameters(architecture, parameters), X, Y, batch, rate, backend, SGD(), StepPosition())
    return parameters
