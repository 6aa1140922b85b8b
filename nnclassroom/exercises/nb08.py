"""The operation of an exercise of notebook 08: no network calls it, and no backend has kernels for it.

one_block_epoch    an epoch of a small network by one block, whose parameters stay in shared memory

It is the idea of `one_kernel` in fused_epochs, for two layers, and as short as it can be.
"""

from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.kernels.activations import sigmoid
from nncourse.kernels.contract import Sizes
from nncourse.kernels.dense_epoch import DenseArchitecture, batches, dense_sgd_epoch, random_targets, rate_near_a_half
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Mistakes, Trial

MOST = "n_in <= 32, n_hidden <= 32, n_out <= 4, batch <= 16, batch >= 1"  # as in nb08.cu
Four = tuple[Array, Array, Array, Array]
READ_ONCE = Limit("reads", "n_hidden * n_in", "W1"), Limit("reads", "n_out * n_hidden", "W2")


def _by_dense_sgd_epoch(
    W1: Array, b1: Array, W2: Array, b2: Array, X: Array, Y: Array, batch: int, rate: float
) -> Four:
    network = DenseArchitecture((X.shape[1], len(b1), len(b2)), ("sigmoid", "sigmoid"), "mse")
    parameters = np.concatenate([each.ravel() for each in (W1, b1, W2, b2)])
    ((W1, b1), (W2, b2)) = network.views(dense_sgd_epoch.reference(parameters, network, X, Y, batch, rate))
    return W1, b1, W2, b2


def _epoch(
    W1: Array, b1: Array, W2: Array, b2: Array, X: Array, Y: Array, batch: int, rate: float, *, mistake: str = ""
) -> Four:
    """The parameters after an epoch, or what a usual mistake makes of them."""
    W1, b1, W2, b2 = (each.copy() for each in (W1, b1, W2, b2))
    for rows in batches(len(X), batch):
        x, y, m = X[rows], Y[rows], 1 if mistake == "sum" else batch if mistake == "batch" else len(X[rows])
        h = sigmoid.reference(x @ W1.T + b1)
        a = sigmoid.reference(h @ W2.T + b2)
        dz = (a - y) * (1 if mistake == "dz" else a * (1 - a))
        if mistake == "old":
            W2 -= rate * dz.T @ h / m
        dh = dz @ W2 * (1 if mistake == "dh" else h * (1 - h))
        if mistake != "old":
            W2 -= rate * dz.T @ h / m
        b2 -= rate * dz.sum(0) / m
        W1 -= rate * dh.T @ x / m
        b1 -= rate * dh.sum(0) / m
    return W1, b1, W2, b2


MISTAKES = {
    "sum": "the gradient is a sum here: divide it by the number of samples of the step, m",
    "batch": "the last step may have fewer samples: divide by m, not by batch",
    "dz": "the slope of the outputs, a (1 − a), is missing in dz",
    "dh": "the slope of the hidden layer, h (1 − h), is missing in dh",
    "old": "the hidden deltas are computed with the new w2 here: compute dh first, then change w2",
}


def _mistakes(place: tuple[int, ...], *arguments: Any) -> Mistakes:
    for mistake, words in MISTAKES.items():
        yield words, _epoch(*arguments, mistake=mistake)


def _weights(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def _sizes(n_in: int, n_hidden: int, n_out: int, n: int, batch: int) -> Sizes:
    return {"n_in": n_in, "n_hidden": n_hidden, "n_out": n_out, "n": n, "batch": batch}


def _draw(rng: np.random.Generator) -> Sizes:
    n_in, n_hidden, n_out, batch = rng.integers(1, (33, 33, 5, 17)).tolist()
    return _sizes(n_in, n_hidden, n_out, int(rng.integers(1, 8 * batch + 1)), batch)


one_block_epoch = Operation(
    "one_block_epoch",
    "for each batch: W ← W − η dC/dW, b ← b − η dC/db",
    equation="Algorithm 1",
    contract="W1 (n_hidden, n_in), b1 (n_hidden,), W2 (n_out, n_hidden), b2 (n_out,), X (n, n_in), Y (n, n_out),"
    " batch () int, rate () -> W1 (n_hidden, n_in), b1 (n_hidden,), W2 (n_out, n_hidden), b2 (n_out,)"
    f" where {MOST}",
    reference=_by_dense_sgd_epoch,
    flops=None,
    trial=Trial(
        error_scale=lambda W1, b1, W2, b2, *_: tuple(np.full(each.shape, 4.0) for each in (W1, b1, W2, b2)),
        values={
            **dict.fromkeys(("W1", "b1", "W2", "b2"), _weights),
            "Y": random_targets,
            "rate": rate_near_a_half,
        },
        edge_cases=("zeros",),
        mistakes=_mistakes,
        sizes_to_check=(
            _sizes(2, 3, 1, 8, 4),  # the network of notebook 05
            _sizes(1, 1, 1, 1, 1),
            _sizes(3, 4, 2, 7, 3),  # a last step with fewer samples
            _sizes(2, 5, 3, 3, 16),
            _sizes(32, 32, 4, 40, 16),  # more elements than threads
            _sizes(30, 17, 1, 25, 10),
            _sizes(5, 6, 2, 50, 7),  # more steps
        ),
        draw_sizes=_draw,
        budgets={"shared": Budget(_sizes(6, 8, 2, 12, 4), READ_ONCE, {"n": 60})},
        iterates=True,
    ),
)


@one_block_epoch.kernel("numpy", device="cpu")
def array(W1: Array, b1: Array, W2: Array, b2: Array, X: Array, Y: Array, batch: int, rate: float) -> Four:
    for mine, new in zip((W1, b1, W2, b2), _epoch(W1, b1, W2, b2, X, Y, batch, rate), strict=True):
        mine[...] = new
    return W1, b1, W2, b2


one_block_epoch.cuda_kernel("shared", cuda_beside(__file__), block=128, grid=(1,))
