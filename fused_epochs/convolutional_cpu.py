"""convolutional_sgd_epoch and convolutional_adam_epoch with NumPy: gradients from gradient_cpu.py, then a step."""

from typing import Any

import numpy as np

from fused_epochs import gradient_cpu
from fused_epochs.architecture import ConvolutionalArchitecture, State
from fused_epochs.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch
from fused_epochs.gradient_cpu import Prepare
from nncourse.kernels.dense_epoch import batches
from nncourse.kernels.update import general_adam_update, sgd_update


@convolutional_sgd_epoch.kernel("numpy", device="cpu")
def sgd(
    parameters: np.ndarray, architecture: ConvolutionalArchitecture, X: np.ndarray, Y: np.ndarray, batch: int,
    rate: float,
) -> np.ndarray:  # fmt: skip
    return sgd_epoch("numpy", gradient_cpu.prepare, parameters, architecture, X, Y, batch, rate)


@convolutional_adam_epoch.kernel("numpy", device="cpu")
def adam(
    parameters: np.ndarray, M: np.ndarray, V: np.ndarray, architecture: ConvolutionalArchitecture, X: np.ndarray,
    Y: np.ndarray, batch: int, *numbers: Any,
) -> State:  # fmt: skip
    return adam_epoch("numpy", gradient_cpu.prepare, parameters, M, V, architecture, X, Y, batch, *numbers)


def sgd_epoch(
    kernel: str, prepare: Prepare, parameters: np.ndarray, architecture: ConvolutionalArchitecture, X: np.ndarray,
    Y: np.ndarray, batch: int, rate: float,
) -> np.ndarray:  # fmt: skip
    """W ← W − η G on the flat vectors, for each batch."""
    gradients, move = np.empty_like(parameters), sgd_update[kernel]
    gradient = prepare(parameters, gradients, architecture.chain)
    for rows in batches(len(X), batch):
        gradient(X[rows], Y[rows])
        move(parameters, gradients, rate)
    return parameters


def adam_epoch(
    kernel: str, prepare: Prepare, parameters: np.ndarray, M: np.ndarray, V: np.ndarray,
    architecture: ConvolutionalArchitecture, X: np.ndarray, Y: np.ndarray, batch: int, rate: float, steps: int,
    beta1: float, beta2: float, epsilon: float,
) -> State:  # fmt: skip
    """Adam in place on the flat vectors, for each batch."""
    gradients, move = np.empty_like(parameters), general_adam_update[kernel]
    gradient = prepare(parameters, gradients, architecture.chain)
    for step, rows in enumerate(batches(len(X), batch), steps + 1):
        gradient(X[rows], Y[rows])
        move(parameters, gradients, M, V, rate, 1 - beta1**step, 1 - beta2**step, beta1, beta2, epsilon)
    return parameters, M, V
