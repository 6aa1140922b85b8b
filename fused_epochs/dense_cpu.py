"""dense_sgd_epoch on the CPU: Algorithm 1 with NumPy, and with functions that Numba compiles.

All arrays are preallocated. A overwrites Z, so slopes are computed from A. The learning rate and the mean over the
batch are applied to the deltas of the outputs, which are few: all gradients are proportional to these.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from fused_epochs.architecture import chain_of_dense
from fused_epochs.dense import refuse_not_known
from fused_epochs.gradient_compiled import by_loops
from fused_epochs.gradient_cpu import BY_ARRAYS, Functions, gradient_function
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch


def in_whole_batches(
    steps: Callable[..., None], parameters: np.ndarray, architecture: DenseArchitecture, X: np.ndarray, Y: np.ndarray,
    batch: int, rate: float,
) -> np.ndarray:  # fmt: skip
    """Call `steps` for all full batches, then for the smaller last one: it allocates arrays for one size of batch."""
    refuse_not_known(architecture.activations)
    whole = len(X) - len(X) % batch
    for rows, size in (slice(whole), batch), (slice(whole, None), len(X) - whole):
        if len(X[rows]) > 0:
            steps(parameters, architecture, X[rows], Y[rows], size, np.float32(rate / size))
    return parameters


@dense_sgd_epoch.kernel("numpy", device="cpu")
def array(
    parameters: np.ndarray, architecture: DenseArchitecture, X: np.ndarray, Y: np.ndarray, batch: int, rate: float
) -> np.ndarray:
    """Each batch with the function of gradient_cpu.py: only array operations."""
    return in_whole_batches(partial(_steps_by, BY_ARRAYS), parameters, architecture, X, Y, batch, rate)


def _steps_by(
    functions: Functions, parameters: np.ndarray, architecture: DenseArchitecture, X: np.ndarray, Y: np.ndarray,
    batch: int, step: np.float32,
) -> None:  # fmt: skip
    gradients = np.empty_like(parameters)
    gradient = gradient_function(parameters, gradients, chain_of_dense(architecture), batch, step, functions)
    for start in range(0, len(X), batch):
        rows = slice(start, start + batch)
        gradient(X[rows], Y[rows])
        parameters -= gradients  # of all layers at once


@dense_sgd_epoch.kernel("numba", device="cpu")
def products(
    parameters: np.ndarray, architecture: DenseArchitecture, X: np.ndarray, Y: np.ndarray, batch: int, rate: float
) -> np.ndarray:
    """The same with loops that Numba compiles between the products, which are those of BLAS."""
    return in_whole_batches(partial(_steps_by, by_loops()), parameters, architecture, X, Y, batch, rate)
