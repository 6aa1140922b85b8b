"""network_gradient with Numba, and with it the fused epochs of convolutional networks: the fastest way for a network.

Below a large max-pool most pixels have no delta; the loops of convolutional_loops.py make use of that. All other
networks are computed with products of matrices and compiled loops in between: gradient_compiled.py.
"""

from typing import Any

import numpy as np

from fused_epochs import convolutional_loops, gradient_cpu
from fused_epochs.architecture import ChainArchitecture, ConvolutionalArchitecture, State
from fused_epochs.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch
from fused_epochs.convolutional_cpu import adam_epoch, sgd_epoch
from fused_epochs.gradient import network_gradient
from fused_epochs.gradient_compiled import by_loops
from fused_epochs.gradient_cpu import Gradient, mean_gradient

FEW = 8  # samples: with so few, products are slow


def prepare(parameters: np.ndarray, gradients: np.ndarray, architecture: ChainArchitecture) -> Gradient:
    """A function of X and Y that writes their mean gradient."""

    def make(vector: np.ndarray, batch: int, step: float) -> Gradient:
        images = architecture.convolutional
        if images and has_few_deltas(images, batch):
            return convolutional_loops.gradient_function(parameters, vector, images, batch, step)
        return gradient_cpu.gradient_function(parameters, vector, architecture, batch, step, by_loops())

    return mean_gradient(gradients, architecture, make)


def has_few_deltas(architecture: ConvolutionalArchitecture, batch: int) -> bool:
    """Whether so few pixels of the last convolution have a delta that loops over these are faster than a product."""
    return architecture.pool > 2 or (architecture.pool == 2 and batch <= FEW)


@network_gradient.kernel("numba", device="cpu", prepare=prepare)
def loops(parameters: np.ndarray, architecture: ChainArchitecture, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    gradients = np.empty_like(parameters)
    prepare(parameters, gradients, architecture)(X, Y)
    return gradients


@convolutional_sgd_epoch.kernel("numba", device="cpu")
def sgd(
    parameters: np.ndarray, architecture: ConvolutionalArchitecture, X: np.ndarray, Y: np.ndarray, batch: int,
    rate: float,
) -> np.ndarray:  # fmt: skip
    return sgd_epoch("numba", prepare, parameters, architecture, X, Y, batch, rate)


@convolutional_adam_epoch.kernel("numba", device="cpu")
def adam(
    parameters: np.ndarray, M: np.ndarray, V: np.ndarray, architecture: ConvolutionalArchitecture, X: np.ndarray,
    Y: np.ndarray, batch: int, *numbers: Any,
) -> State:  # fmt: skip
    return adam_epoch("numba", prepare, parameters, M, V, architecture, X, Y, batch, *numbers)
