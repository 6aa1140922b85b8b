"""The operation of an exercise of notebook 03: a layer's weights move by the error of each of its neurons."""

from collections.abc import Iterator

import numpy as np

from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial


def _other_updates(
    place: tuple[int, ...], W: np.ndarray, A: np.ndarray, E: np.ndarray, rate: float
) -> Iterator[tuple[str, np.ndarray]]:
    step = E.T @ A
    yield "this moves W the other way: add rate · Eᵀ A", W - rate * step
    yield "the learning rate is forgotten", W + step
    yield "this is only the correction: add it to W", rate * step
    if len(A) > 1:
        yield "this is divided by the batch size: only add up the corrections of all samples", W + rate * step / len(A)
        yield "only the last sample counts here: add up the corrections of all", W + rate * np.outer(E[-1], A[-1])
        yield "only the first sample counts here: add up the corrections of all", W + rate * np.outer(E[0], A[0])
    if E.shape == A.shape and len(E[0]) > 1:
        yield "this is Aᵀ E: its rows and columns are swapped", W + rate * (A.T @ E)


layer_update = Operation(
    "layer_update",
    "W ← W + η Eᵀ A",
    contract="W (n_out, n_in), A (batch, n_in), E (batch, n_out), rate () -> W (n_out, n_in)",
    reference=lambda W, A, E, rate: W + rate * np.einsum("ij,ik->jk", E, A),
    flops=lambda batch, n_in, n_out: 2 * batch * n_in * n_out,
    # W may move by one sample at a time, and each time it is rounded.
    trial=Trial(
        mistakes=_other_updates,
        error_scale=lambda W, A, E, rate: len(A) ** 0.5 * abs(W) + abs(rate) * (abs(E).T @ abs(A)),
    ),
)


@layer_update.kernel("numpy", device="cpu")
def by_product(W: np.ndarray, A: np.ndarray, E: np.ndarray, rate: float) -> np.ndarray:
    W += rate * E.T @ A
    return W
