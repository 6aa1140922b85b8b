"""An epoch of any chain of dense layers, convolutions and max-pools, with any optimizer, as one operation.

As in nncourse/kernels/dense_epoch.py, the kernels make no calls between steps, and work on one flat vector of all
parameters: W and b of each layer in turn.

    one_kernel    dense layers in one launch; the weights never leave the chip: dense_one_kernel.py
    streamed      one launch; weights and activations stay in the L2 cache: streamed.py
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fused_epochs.architecture import ChainArchitecture, Rule, State
from fused_epochs.gradient import (
    BINARY,
    CROSS,
    SAME_3,
    SAME_5,
    Layers,
    gradient_of,
    near_a_kink,
    random_parameters,
    sizes_of,
)
from nncourse.kernels import update
from nncourse.kernels.contract import Sizes
from nncourse.kernels.dense_epoch import batches, random_targets
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

# ---- the reference, in float64


def moved(rule: Rule, W: np.ndarray, G: np.ndarray, M: np.ndarray, V: np.ndarray, rate: float, step: int) -> State:
    """Parameters and memory after step number `step`, the first being 1."""
    G = update.l2_gradient.reference(G, W, rule["l2"])
    if rule.kind == "adam":
        beta1, beta2 = rule["beta1"], rule["beta2"]
        numbers = rate, 1 - beta1**step, 1 - beta2**step, beta1, beta2, rule["epsilon"]
        return update.general_adam_update.reference(W, G, M, V, *numbers)
    if rule.kind == "rmsprop":
        W, V = update.rmsprop_update.reference(W, G, V, rate, rule["beta"], rule["epsilon"])
    elif rule.kind == "adagrad":
        W, V = update.adagrad_update.reference(W, G, V, rate, rule["epsilon"])
    elif rule["momentum"]:
        W, V = update.momentum_update.reference(W, G, V, rate, rule["momentum"])
    else:
        W = update.sgd_update.reference(W, G, rate)
    return W, M, V


def _steps(
    parameters: np.ndarray, M: np.ndarray, V: np.ndarray, architecture: ChainArchitecture, rule: Rule, X: np.ndarray,
    Y: np.ndarray, batch: int, rate: float, steps: int,
) -> Iterator[State]:  # fmt: skip
    """Parameters, M and V before each step, and after the last."""
    yield parameters, M, V
    for number, rows in enumerate(batches(len(X), batch), steps + 1):
        gradient = gradient_of(parameters, architecture, X[rows], Y[rows])
        parameters, M, V = moved(rule, parameters, gradient, M, V, rate, number)
        yield parameters, M, V


def _well_posed(*arguments: Any) -> bool:
    """Whether no step comes near a kink of an activation, of the cost or of a pool, where rounding alone decides."""
    _, _, _, architecture, _, X, Y, batch, *_ = arguments
    return not any(
        near_a_kink(parameters, architecture, x, y)
        for (parameters, _, _), rows in zip(_steps(*arguments), batches(len(X), batch), strict=False)
        for x, y in zip(X[rows], Y[rows], strict=True)
    )


# ---- the contract


PLAIN = Rule("sgd", (("momentum", 0.0), ("l2", 0.0)))
DECAY = Rule("sgd", (("momentum", 0.0), ("l2", 0.01)))
MOMENTUM = Rule("sgd", (("momentum", 0.9), ("l2", 0.01)))
ADAM = Rule("adam", (("beta1", 0.9), ("beta2", 0.999), ("epsilon", 1e-8), ("l2", 0.0)))
OTHER_ADAM = Rule("adam", (("beta1", 0.5), ("beta2", 0.99), ("epsilon", 1e-3), ("l2", 0.1)))
RMSPROP = Rule("rmsprop", (("beta", 0.9), ("epsilon", 1e-8), ("l2", 0.0)))
ADAGRAD = Rule("adagrad", (("epsilon", 1e-8), ("l2", 0.0)))


def sizes(
    shape: tuple[int, ...], layers: Layers, activation_names: str, cost: str = "mse", rule: Rule = PLAIN, n: int = 7,
    batch: int = 3, steps: int = 0,
) -> Sizes:  # fmt: skip
    """Sizes for check(), with layers as in sizes_of()."""
    found = sizes_of(shape, layers, activation_names, cost)
    p = found["p"]
    memory = {"m": p * ("M" in rule.memory), "v": p * ("V" in rule.memory)}
    more = {"n": n, "batch": batch, "steps": steps}
    return {**found, "rule": rule, **memory, **more}


POOL_2 = [2]
NETWORKS = (
    sizes((5,), (4, 3), "tanh softmax", CROSS, DECAY, n=7, batch=3),
    sizes((1,), (1,), "sigmoid", rule=ADAGRAD, n=1, batch=1),
    sizes((9,), (7, 6, 5, 2), "tanh sigmoid softplus identity", rule=MOMENTUM, n=8, batch=5),
    sizes((30,), (20, 10, 1), "sigmoid sigmoid sigmoid", BINARY, ADAM, n=12, batch=10, steps=3),
    sizes((6,), (32, 40), "leaky_relu softmax", rule=OTHER_ADAM, n=5, batch=2),
    sizes((40,), (33, 70), "tanh tanh", "mae", RMSPROP, n=9, batch=9),
    sizes((1, 6, 7), ((3, 3, *SAME_3), POOL_2, 4), "tanh sigmoid", rule=ADAGRAD, n=4, batch=3),
    sizes((2, 8, 8), ((3, 5, *SAME_5), POOL_2, (4, 3), POOL_2, 6, 3), "relu tanh relu softmax", CROSS, ADAM, 5, 2),
    sizes((3, 7, 5), ((5, 3, 1, 2, 0), (4, 2, 2, 1, 0), 2), "tanh softplus tanh", rule=MOMENTUM, n=5, batch=4),
    sizes((1, 9, 9), (POOL_2, [3], 2), "sigmoid", n=3, batch=2),
    sizes((1, 8, 9), ((2, 3), [3], (3, 2), 3), "step identity tanh", "mae", n=2, batch=2),
    sizes((16, 5, 5), ((33, 3, *SAME_3), 12, 4), "tanh sigmoid softmax", CROSS, OTHER_ADAM, n=6, batch=4),
)  # fmt: skip


def _sizes_to_time(device: str) -> Sizes:
    """784-512-512-10 by Adam, with samples for an epoch of some milliseconds."""
    return sizes(
        (784,), (512, 512, 10), "relu relu softmax", CROSS, ADAM, n=12_800 if device == "gpu" else 640, batch=128
    )


network_epoch = Operation(
    "network_epoch",
    "for each batch: a step of an optimizer along dC/dW and dC/db",
    contract="parameters (p,), M (m,), V (v,), architecture () object, rule () object, X (n, n_in), Y (n, n_out),"
    " batch () int, rate (), steps () int -> parameters (p,), M (m,), V (v,)",
    reference=lambda *arguments: list(_steps(*arguments))[-1],
    flops=lambda architecture, n, **_: n * architecture.flops_a_sample,
    trial=Trial(
        error_scale=lambda *state_first: tuple(
            np.full(array.shape, size) for array, size in zip(state_first, (4.0, 8.0, 8.0), strict=False)
        ),
        well_posed=_well_posed,
        values={
            "parameters": random_parameters,
            "Y": random_targets,
            # Where V is almost 0, the rounding of a small gradient decides the direction of Adam's step.
            "M": lambda rng, shape, sizes: (0.3 * rng.standard_normal(shape)).astype(np.float32),
            "V": lambda rng, shape, sizes: rng.uniform(0.01, 1, shape).astype(np.float32),
            "rate": lambda rng, shape, sizes: 0.03,
        },
        edge_cases=("zeros",),
        sizes_to_check=NETWORKS,
        sizes_to_time=_sizes_to_time,
        iterates=True,
    ),
)
