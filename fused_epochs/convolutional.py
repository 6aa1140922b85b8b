"""An epoch of a convolutional network as one operation: every sample once, in order; with SGD or with Adam.

As in nncourse/kernels/dense_epoch.py, the kernels make no calls between steps. They work on one flat vector of all
parameters: W and b of each convolution in turn, then of each dense layer.

    numpy, numba    the gradient from network_gradient's kernel, then a step: convolutional_cpu.py, gradient_loops.py
    one_kernel      one launch for the epoch: convolutional_one_kernel.py

ConvolutionalArchitecture describes the networks: convolutions, at most one max-pool, dense layers.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fused_epochs.architecture import ConvolutionalArchitecture, Filters, State
from fused_epochs.gradient import gradient_of, near_a_kink, random_parameters
from nncourse.kernels import update
from nncourse.kernels.contract import Sizes
from nncourse.kernels.dense_epoch import batches, random_targets
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial


def _sgd_steps(
    parameters: np.ndarray, architecture: ConvolutionalArchitecture, X: np.ndarray, Y: np.ndarray, batch: int,
    rate: float,
) -> Iterator[np.ndarray]:  # fmt: skip
    """The parameters before each step, and after the last."""
    yield parameters
    for rows in batches(len(X), batch):
        parameters = parameters - rate * gradient_of(parameters, architecture.chain, X[rows], Y[rows])
        yield parameters


def _adam_steps(
    parameters: np.ndarray, M: np.ndarray, V: np.ndarray, architecture: ConvolutionalArchitecture, X: np.ndarray,
    Y: np.ndarray, batch: int, rate: float, steps: int, beta1: float, beta2: float, epsilon: float,
) -> Iterator[State]:  # fmt: skip
    """Parameters, M and V before each step, and after the last."""
    yield parameters, M, V
    for t, rows in enumerate(batches(len(X), batch), steps + 1):
        G = gradient_of(parameters, architecture.chain, X[rows], Y[rows])
        numbers = rate, 1 - beta1**t, 1 - beta2**t, beta1, beta2, epsilon
        parameters, M, V = update.adam_update.reference(parameters, G, M, V, *numbers)
        yield parameters, M, V


# ---- the reference means nothing if rounding alone decides which pixel of a window is the largest


def _sgd_decided(
    parameters: np.ndarray, architecture: ConvolutionalArchitecture, X: np.ndarray, Y: np.ndarray, batch: int,
    rate: float,
) -> bool:  # fmt: skip
    return _decided(_sgd_steps(parameters, architecture, X, Y, batch, rate), architecture, X, Y, batch)


def _adam_decided(*arguments: Any) -> bool:
    _, _, _, architecture, X, Y, batch, *_ = arguments
    made = _adam_steps(*arguments)
    return _decided((parameters for parameters, M, V in made), architecture, X, Y, batch)


def _decided(
    parameters_of_steps: Iterable[np.ndarray], architecture: ConvolutionalArchitecture, X: np.ndarray, Y: np.ndarray,
    batch: int,
) -> bool:  # fmt: skip
    """Whether no step comes near a kink of an activation, of the cost or of the pool."""
    return not any(
        near_a_kink(parameters, architecture.chain, x, y)
        for parameters, rows in zip(parameters_of_steps, batches(len(X), batch), strict=False)
        for x, y in zip(X[rows], Y[rows], strict=True)
    )


# ---- the contracts


def _sizes(
    image: tuple[int, int, int], convolutions: Sequence[tuple[int, ...]], pool: int, sizes: tuple[int, ...],
    activation_names: str, cost: str = "mse", n: int = 7, batch: int = 3, steps: int = 0,
) -> Sizes:  # fmt: skip
    """Sizes for both operations; convolutions as numbers: filters, k, and if not 1, 0, 0 stride, before and after."""
    filters = tuple(Filters(*numbers) for numbers in convolutions)
    architecture = ConvolutionalArchitecture(image, filters, pool, sizes, tuple(activation_names.split()), cost)
    return {"architecture": architecture, **architecture.contract_sizes, "n": n, "batch": batch, "steps": steps}


SGD_RATE, ADAM_RATE = 0.03, 0.05
SAME_2, SAME_3 = (1, 0, 1), (1, 1, 1)  # stride, before, after: filters of 2 × 2, of 3 × 3 that keep the image's size
CROSS, BINARY = "categorical_cross_entropy", "binary_cross_entropy"
NETWORKS = (
    _sizes((1, 8, 8), [(4, 2, *SAME_2), (4, 2, *SAME_2)], 4, (6, 3), "relu relu relu softmax", CROSS, n=7, batch=4),
    _sizes((1, 1, 1), [(1, 1)], 0, (1,), "tanh sigmoid", n=1, batch=1),
    _sizes((2, 3, 2), [], 0, (4, 2), "tanh softmax", CROSS, n=5, batch=2, steps=7),
    _sizes((3, 5, 4), [], 2, (2,), "sigmoid", n=4, batch=4),
    _sizes((1, 6, 5), [(3, 3, *SAME_3)], 0, (4,), "sigmoid tanh", n=4, batch=9, steps=1),
    _sizes((3, 7, 9), [(2, 4, 2, 1, 2), (5, 3, 1, 2, 0)], 2, (1,), "tanh leaky_relu sigmoid", BINARY, n=6),
    _sizes((2, 9, 7), [(3, 5, 1, 2, 2)], 3, (4, 3), "softplus relu identity", "mae", n=5, batch=2, steps=100),
    _sizes((1, 10, 11), [(2, 3, 3), (3, 2, *SAME_2), (2, 1)], 1, (5, 2), "step identity tanh relu sigmoid", n=4),
    _sizes((1, 9, 10), [(2, 3, *SAME_3), (3, 3, 2, 1, 1), (5, 2, 2)], 0, (2,), "tanh sigmoid relu identity", n=3),
    _sizes((2, 4, 4), [(6, 4)], 0, (3, 2), "leaky_relu softplus softmax", n=11, batch=4, steps=2),
    _sizes((1, 12, 12), [(8, 3, *SAME_3), (4, 3)], 5, (33, 10), "relu leaky_relu tanh softmax", CROSS, n=6, batch=4),
    _sizes((4, 9, 12), [(17, 2, 2)], 2, (5, 2), "tanh relu sigmoid", n=3, batch=2, steps=20),
)  # fmt: skip


def _sizes_to_time(device: str) -> Sizes:
    """The digits CNN, with samples for an epoch of some milliseconds."""
    layers = [(4, 2, *SAME_2), (4, 2, *SAME_2)], 4, (128, 10), "relu relu relu softmax", CROSS
    return _sizes((1, 28, 28), *layers, n=20_000 if device == "gpu" else 640, batch=32)


def _without(name: str, sizes: Sizes) -> Sizes:
    return {key: value for key, value in sizes.items() if key != name}


VALUES = {"parameters": random_parameters, "Y": random_targets}

convolutional_sgd_epoch = Operation(
    "convolutional_sgd_epoch",
    "for each batch: W ← W − η dC/dW, b ← b − η dC/db",
    contract="parameters (p,), architecture () object, X (n, channels, height, width), Y (n, n_out), batch () int,"
    " rate () -> parameters (p,)",
    reference=lambda *arguments: list(_sgd_steps(*arguments))[-1],
    flops=lambda architecture, n, **_: n * architecture.flops_a_sample,
    trial=Trial(
        error_scale=lambda parameters, *_: np.full(parameters.shape, 4.0),
        well_posed=_sgd_decided,
        values=VALUES | {"rate": lambda rng, shape, sizes: SGD_RATE},
        edge_cases=("zeros",),
        # Adam is tried on all networks; its kernels differ from these only in the update.
        sizes_to_check=tuple(_without("steps", sizes) for sizes in (*NETWORKS[:2], *NETWORKS[5::2])),
        sizes_to_time=lambda device: _without("steps", _sizes_to_time(device)),
        iterates=True,
    ),
)

convolutional_adam_epoch = Operation(
    "convolutional_adam_epoch",
    "for each batch: M ← β₁ M + (1 − β₁) G, V ← β₂ V + (1 − β₂) G², W ← W − η (M / c₁) / (√(V / c₂) + ε)",
    contract="parameters (p,), M (p,), V (p,), architecture () object, X (n, channels, height, width), Y (n, n_out),"
    " batch () int, rate (), steps () int, beta1 (), beta2 (), epsilon () -> parameters (p,), M (p,), V (p,)",
    reference=lambda *arguments: list(_adam_steps(*arguments))[-1],
    flops=lambda architecture, n, **_: n * architecture.flops_a_sample,
    trial=Trial(
        error_scale=lambda parameters, *_: tuple(np.full(parameters.shape, size) for size in (4.0, 8.0, 8.0)),
        well_posed=_adam_decided,
        values=VALUES
        | {
            # Where V is almost 0, the rounding of a small gradient decides the direction of Adam's step.
            "M": lambda rng, shape, sizes: (0.3 * rng.standard_normal(shape)).astype(np.float32),
            "V": lambda rng, shape, sizes: rng.uniform(0.01, 1, shape).astype(np.float32),
            "rate": lambda rng, shape, sizes: ADAM_RATE,
            "beta1": update.one_of(0.5, 0.9),
            "beta2": update.one_of(0.99, 0.999),
            "epsilon": update.one_of(1e-8, 1e-3),
        },
        edge_cases=("zeros",),
        sizes_to_check=NETWORKS,
        sizes_to_time=_sizes_to_time,
        iterates=True,
    ),
)
