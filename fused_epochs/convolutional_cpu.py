"""convolutional_sgd_epoch and convolutional_adam_epoch with NumPy: the gradients of gradient_cpu.py, and a step."""

from collections.abc import Callable

import numpy as np

from fused_epochs import gradient_cpu
from fused_epochs.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch
from nncourse.kernels.dense_epoch import batches
from nncourse.kernels.update import general_adam_update, sgd_update


@convolutional_sgd_epoch.kernel("numpy", device="cpu")
def sgd(parameters, architecture, X, Y, batch, rate):
    return sgd_epoch("numpy", gradient_cpu.prepare, parameters, architecture, X, Y, batch, rate)


@convolutional_adam_epoch.kernel("numpy", device="cpu")
def adam(parameters, M, V, architecture, X, Y, batch, *numbers):
    return adam_epoch("numpy", gradient_cpu.prepare, parameters, M, V, architecture, X, Y, batch, *numbers)


def sgd_epoch(kernel: str, prepare: Callable, parameters, architecture, X, Y, batch, rate):
    """W ← W − η G on the flat vectors, for each batch."""
    gradients, move = np.empty_like(parameters), sgd_update[kernel]
    gradient = prepare(parameters, gradients, architecture.chain)
    for rows in batches(len(X), batch):
        gradient(X[rows], Y[rows])
        move(parameters, gradients, rate)
    return parameters


def adam_epoch(
    kernel: str, prepare: Callable, parameters, M, V, architecture, X, Y, batch, rate, steps, beta1, beta2, epsilon
):
    """Adam in place on the flat vectors, for each batch."""
    gradients, move = np.empty_like(parameters), general_adam_update[kernel]
    gradient = prepare(parameters, gradients, architecture.chain)
    for step, rows in enumerate(batches(len(X), batch), steps + 1):
        gradient(X[rows], Y[rows])
        move(parameters, gradients, M, V, rate, 1 - beta1**step, 1 - beta2**step, beta1, beta2, epsilon)
    return parameters, M, V
