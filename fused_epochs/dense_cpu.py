"""dense_sgd_epoch on the CPU: Algorithm 1 with NumPy, and with loops that Numba compiles.

All arrays are preallocated. A overwrites Z, so slopes are computed from A. The learning rate and the mean over the
batch scale the deltas of the outputs, which are few: all gradients are proportional to these.
"""

from collections.abc import Callable

import numpy as np

from fused_epochs.architecture import chain_of_dense
from fused_epochs.dense import codes, refuse_not_known
from fused_epochs.gradient_compiled import IDENTITY, _activate, _exp, _sigmoid, _to_delta, by_loops
from fused_epochs.gradient_cpu import BY_ARRAYS, Functions, gradient_function
from nncourse.kernels import jit
from nncourse.kernels.dense_epoch import CROSS_ENTROPIES, DenseArchitecture, dense_sgd_epoch

FEW, LITTLE = 2, 3e5  # blocks of samples, and FLOPs of a batch, for which loops are faster than BLAS


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
    """Each batch by the function of gradient_cpu.py, with array operations only."""
    return in_whole_batches(_array_steps, parameters, architecture, X, Y, batch, rate)


def _array_steps(
    parameters: np.ndarray, architecture: DenseArchitecture, X: np.ndarray, Y: np.ndarray, batch: int, step: np.float32
) -> None:
    _steps_by(BY_ARRAYS, parameters, architecture, X, Y, batch, step)


def _product_steps(
    parameters: np.ndarray, architecture: DenseArchitecture, X: np.ndarray, Y: np.ndarray, batch: int, step: np.float32
) -> None:
    _steps_by(by_loops(), parameters, architecture, X, Y, batch, step)


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


# ---- numba: loops over float32 elements, which the compiler vectorises (SIMD)

f32 = np.float32
BLOCK = 5  # samples that share each weight that is read; a batch is padded with samples whose deltas are 0


@dense_sgd_epoch.kernel("numba", device="cpu")
def loops(
    parameters: np.ndarray, architecture: DenseArchitecture, X: np.ndarray, Y: np.ndarray, batch: int, rate: float
) -> np.ndarray:
    """Compiled once for all networks. Large products are those of BLAS, which uses the caches better."""
    small = is_small(architecture, batch)
    return in_whole_batches(_loops_steps if small else _product_steps, parameters, architecture, X, Y, batch, rate)


def is_small(architecture: DenseArchitecture, batch: int) -> bool:
    """Whether the loops below are faster than BLAS, which is slow with few samples and with little to do."""
    return batch <= FEW * BLOCK or architecture.flops_a_sample * batch <= LITTLE


def _loops_steps(
    parameters: np.ndarray, architecture: DenseArchitecture, X: np.ndarray, Y: np.ndarray, batch: int, step: np.float32
) -> None:
    compiled_steps(parameters, parameters, *described(architecture), X, Y, batch, step)


def described(architecture: DenseArchitecture) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Sizes, numbers of the activations and of those whose slopes are needed, and whether the cost is mae."""
    activations = codes(architecture.activations)
    slopes = activations[:-1] + [IDENTITY if architecture.cost in CROSS_ENTROPIES else activations[-1]]
    return np.array(architecture.sizes), np.array(activations), np.array(slopes), architecture.cost == "mae"


def _forward(A: np.ndarray, W: np.ndarray, b: np.ndarray, Z: np.ndarray) -> None:
    """Z = A Wᵀ + b."""
    for j in range(W.shape[0]):
        for i in range(0, A.shape[0], BLOCK):
            z0 = z1 = z2 = z3 = z4 = b[j]
            for k in range(W.shape[1]):
                w = W[j, k]
                z0 += A[i, k] * w
                z1 += A[i + 1, k] * w
                z2 += A[i + 2, k] * w
                z3 += A[i + 3, k] * w
                z4 += A[i + 4, k] * w
            Z[i, j], Z[i + 1, j], Z[i + 2, j], Z[i + 3, j], Z[i + 4, j] = z0, z1, z2, z3, z4


def _backward(D: np.ndarray, W: np.ndarray, G: np.ndarray) -> None:
    """G = D W: dC/dA of the layer below."""
    G.fill(f32(0))
    for i in range(D.shape[0]):
        for j in range(W.shape[0]):
            d = D[i, j]
            for k in range(W.shape[1]):
                G[i, k] += d * W[j, k]


def _update(D: np.ndarray, A: np.ndarray, W: np.ndarray, b: np.ndarray) -> None:
    """W ← W − Dᵀ A, b ← b − Σ D."""
    for j in range(W.shape[0]):
        for i in range(0, D.shape[0], BLOCK):
            d0, d1, d2, d3, d4 = D[i, j], D[i + 1, j], D[i + 2, j], D[i + 3, j], D[i + 4, j]
            b[j] -= d0 + d1 + d2 + d3 + d4
            for k in range(W.shape[1]):
                g = d0 * A[i, k] + d1 * A[i + 1, k] + d2 * A[i + 2, k] + d3 * A[i + 3, k] + d4 * A[i + 4, k]
                W[j, k] -= g


def _steps(
    parameters: np.ndarray, moved: np.ndarray, sizes: np.ndarray, activations: np.ndarray, slopes: np.ndarray,
    mae: bool, X: np.ndarray, Y: np.ndarray, batch: int, step: f32,
) -> None:  # fmt: skip
    """For each batch: moved ← moved − step Σ dC/dparameters. Algorithm 1, if the parameters themselves are moved."""
    rows = -(-batch // BLOCK) * BLOCK
    A = [np.zeros((rows, n), np.float32) for n in sizes]
    D = [np.zeros((rows, n), np.float32) for n in sizes]
    W: list[np.ndarray] = []
    b: list[np.ndarray] = []
    W_moved: list[np.ndarray] = []
    b_moved: list[np.ndarray] = []
    at = 0
    for layer in range(len(sizes) - 1):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        end = at + n_out * n_in
        W.append(parameters[at:end].reshape(n_out, n_in))
        W_moved.append(moved[at:end].reshape(n_out, n_in))
        b.append(parameters[end : end + n_out])
        b_moved.append(moved[end : end + n_out])
        at = end + n_out
    inputs, outputs, first_delta = A[0], A[-1], D[-1]
    for start in range(0, len(X), batch):
        for i in range(batch):
            for k in range(X.shape[1]):
                inputs[i, k] = X[start + i, k]
        for layer in range(len(W)):
            _forward(A[layer], W[layer], b[layer], A[layer + 1])
            _activate(activations[layer], A[layer + 1])
        for i in range(batch):
            for j in range(Y.shape[1]):
                g = outputs[i, j] - Y[start + i, j]
                first_delta[i, j] = step * (np.sign(g) if mae else g)
        for layer in range(len(W) - 1, -1, -1):
            _to_delta(slopes[layer], D[layer + 1], A[layer + 1])
            if layer > 0:
                _backward(D[layer + 1], W[layer], D[layer])
            _update(D[layer + 1], A[layer], W_moved[layer], b_moved[layer])


compiled_steps = jit.at_first_call(
    lambda: jit.compiled_together(_exp, _sigmoid, _activate, _to_delta, _forward, _backward, _update, _steps)
)
