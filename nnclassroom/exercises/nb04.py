"""The operation of an exercise of notebook 04: no network calls it, and no backend has kernels for it.

descent_step    one step downhill for a layer whose activation and cost match, so that its delta is A − Y
"""

import numpy as np

from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial


def _shares(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Outputs of a softmax."""
    raised = np.exp(rng.standard_normal(shape))
    return (raised / raised.sum(axis=1, keepdims=True)).astype(np.float32)


def _one_hot(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    rows = np.zeros(shape, np.float32)
    np.put_along_axis(rows, rng.integers(0, shape[1], (shape[0], 1)), 1, axis=1)
    return rows


def _rate(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    return float(10 ** rng.uniform(-2, 0))


descent_step = Operation(
    "descent_step",
    "W ← W − η (A − Y)ᵀ X / batch",
    contract="W (n_out, n_in), A (batch, n_out), Y (batch, n_out), X (batch, n_in), rate () -> W (n_out, n_in)",
    reference=lambda W, A, Y, X, rate: W - rate * np.einsum("ij,ik->jk", A - Y, X) / len(X),
    flops=None,
    trial=Trial(
        error_scale=lambda W, A, Y, X, rate: (
            abs(W) + abs(rate) * np.einsum("ij,ik->jk", abs(A) + abs(Y), abs(X)) / len(X)
        ),
        values={"A": _shares, "Y": _one_hot, "rate": _rate},
        tolerance=64.0,  # adding one sample after the other rounds W a thousand times
        sums=True,
        edge_cases=("zeros", "large"),
        advice=lambda place, *arguments: (
            f"the slope in W[{place[0]}, {place[1]}] is the mean of (a_{place[0]} − y_{place[0]}) x_{place[1]}"
        ),
    ),
)


@descent_step.kernel("numpy", device="cpu")
def array(W: np.ndarray, A: np.ndarray, Y: np.ndarray, X: np.ndarray, rate: float) -> np.ndarray:
    W -= rate * (A - Y).T @ X / len(X)
    return W
