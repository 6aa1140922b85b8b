"""The operation of an exercise of notebook 04: no network calls it, and no backend has kernels for it.

descent_step    one step downhill for a layer whose activation and cost match, so that its delta is A − Y
"""

import numpy as np

from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

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
        tolerance=64.0,  # adding one sample after the other rounds W a thousand times
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
