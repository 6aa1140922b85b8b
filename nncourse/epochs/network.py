"""A fused epoch of any chain of dense layers, convolutions and max-pools, by any optimizer, as one operation.

As in dense.py, the kernels make no calls between steps, and work on one flat vector of all parameters: W and b of each
layer in turn.

    one_kernel    dense layers in one launch; the weights never leave the chip: dense_one_kernel.py
    streamed      one launch; weights and activations stay in the L2 cache: streamed.py
"""

from collections.abc import Iterator

import numpy as np

from nncourse.architecture import ChainArchitecture, Filters, Neurons, Rule, Windows
from nncourse.epochs.convolutional import (
    KINKED,
    UNDECIDED,
    convolution_gradients,
    convolved,
    random_parameters,
    windows,
)
from nncourse.epochs.dense import CROSS_ENTROPIES, activated, batches, cost_gradient, delta_of, random_targets
from nncourse.kernels import update
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

# ---- the reference, in float64, sample by sample


def forward(parameters, architecture: ChainArchitecture, x) -> tuple[list, list]:
    """z of each layer, None behind a pool, and a of each layer, that of the sample first; all flat."""
    z, a, pairs = [], [x], iter(architecture.views(parameters))
    for layer, name, below in zip(architecture.layers, architecture.activations, architecture.maps, strict=False):
        if isinstance(layer, Windows):
            z.append(None)
            a.append(a[-1][windows(layer.size, below)].max(axis=1))
            continue
        W, b = next(pairs)
        made = convolved(W, b, layer, below, a[-1]) if isinstance(layer, Filters) else W @ a[-1] + b
        z.append(made)
        a.append(activated(name, made))
    return z, a


def gradient_of_one(parameters, architecture: ChainArchitecture, x, y):
    """The gradient of one sample's cost, flat."""
    z, a = forward(parameters, architecture, x)
    gradient = np.zeros_like(parameters)
    pairs = list(zip(architecture.views(parameters), architecture.views(gradient), strict=True))
    G = cost_gradient(architecture.cost, a[-1], y)
    for number in reversed(range(len(architecture.layers))):
        layer, below, A = architecture.layers[number], architecture.maps[number], a[number]
        if isinstance(layer, Windows):
            pixels = windows(layer.size, below)
            largest = pixels[np.arange(len(pixels)), A[pixels].argmax(axis=1)]  # the first one of equals
            G, G_above = np.zeros_like(A), G
            G[largest] = G_above
            continue
        (W, _), (dW, db) = pairs.pop()
        is_last = number == len(architecture.layers) - 1
        delta = G if is_last and architecture.cost in CROSS_ENTROPIES else None
        if delta is None:
            delta = delta_of(architecture.activations[number], G, z[number], a[number + 1])
        if isinstance(layer, Filters):
            dW[:], db[:], G = convolution_gradients(W, layer, below, A, delta)
        else:
            dW[:], db[:], G = np.outer(delta, A), delta, W.T @ delta
    return gradient


def moved(rule: Rule, W, G, M, V, rate, step):
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


def _steps(parameters, M, V, architecture, rule, X, Y, batch, rate, steps) -> Iterator[tuple]:
    """Parameters, M and V before each step, and after the last."""
    yield parameters, M, V
    for number, rows in enumerate(batches(len(X), batch), steps + 1):
        gradient = np.zeros_like(parameters)
        for x, y in zip(X[rows], Y[rows], strict=True):
            gradient += gradient_of_one(parameters, architecture, x, y) / len(X[rows])
        parameters, M, V = moved(rule, parameters, gradient, M, V, rate, number)
        yield parameters, M, V


def _well_posed(*arguments) -> bool:
    """Whether no step comes near a kink of an activation, of the cost or of a pool, where rounding alone decides."""
    _, _, _, architecture, _, X, Y, batch, *_ = arguments
    return not any(
        _near_a_kink(parameters, architecture, x, y)
        for (parameters, _, _), rows in zip(_steps(*arguments), batches(len(X), batch), strict=False)
        for x, y in zip(X[rows], Y[rows], strict=True)
    )


def _near_a_kink(parameters, architecture: ChainArchitecture, x, y) -> bool:
    z, a = forward(parameters, architecture, x)
    distances = [values for name, values in zip(architecture.activations, z, strict=True) if name in KINKED]
    if architecture.cost == "mae":
        distances.append(a[-1] - y)
    for layer, below, A in zip(architecture.layers, architecture.maps, a, strict=False):
        if isinstance(layer, Windows) and layer.size > 1:
            pixels = np.sort(A[windows(layer.size, below)])
            distances.append(pixels[:, -1] - pixels[:, -2])
    return any(((values != 0) & (abs(values) < UNDECIDED)).any() for values in distances)


# ---- the contract


PLAIN = Rule("sgd", (("momentum", 0.0), ("l2", 0.0)))
MOMENTUM = Rule("sgd", (("momentum", 0.9), ("l2", 0.01)))
ADAM = Rule("adam", (("beta1", 0.9), ("beta2", 0.999), ("epsilon", 1e-8), ("l2", 0.0)))
OTHER_ADAM = Rule("adam", (("beta1", 0.5), ("beta2", 0.99), ("epsilon", 1e-3), ("l2", 0.1)))
RMSPROP = Rule("rmsprop", (("beta", 0.9), ("epsilon", 1e-8), ("l2", 0.0)))
ADAGRAD = Rule("adagrad", (("epsilon", 1e-8), ("l2", 0.0)))


def sizes(shape, layers, activation_names, cost="mse", rule=PLAIN, n=7, batch=3, steps=0):
    """Sizes for check(). A layer is a number of neurons, ("pool", size), or the numbers of Filters."""
    made = tuple(_layer(each) for each in layers)
    names = iter(activation_names.split())
    activations = tuple("" if isinstance(layer, Windows) else next(names) for layer in made)
    architecture = ChainArchitecture(shape, made, activations, cost)
    p = architecture.contract_sizes["p"]
    memory = {"m": p * ("M" in rule.memory), "v": p * ("V" in rule.memory)}
    more = {"n": n, "batch": batch, "steps": steps}
    return {"architecture": architecture, "rule": rule, **architecture.contract_sizes, **memory, **more}


def _layer(numbers):
    if isinstance(numbers, int):
        return Neurons(numbers)
    return Windows(numbers[1]) if numbers[0] == "pool" else Filters(*numbers)


SAME_3, SAME_5 = (1, 1, 1), (1, 2, 2)  # stride, before, after: filters that keep the image's size
CROSS, BINARY = "categorical_cross_entropy", "binary_cross_entropy"
POOL_2 = ("pool", 2)
NETWORKS = (
    sizes((5,), (4, 3), "tanh softmax", CROSS, n=7, batch=3),
    sizes((1,), (1,), "sigmoid", n=1, batch=1),
    sizes((9,), (7, 6, 5, 2), "tanh sigmoid softplus identity", rule=MOMENTUM, n=8, batch=5),
    sizes((30,), (20, 10, 1), "sigmoid sigmoid sigmoid", BINARY, ADAM, n=12, batch=10, steps=3),
    sizes((6,), (8, 40), "leaky_relu softmax", rule=OTHER_ADAM, n=5, batch=2),
    sizes((40,), (33, 70), "tanh tanh", "mae", RMSPROP, n=9, batch=9),
    sizes((1, 6, 7), ((3, 3, *SAME_3), POOL_2, 4), "tanh sigmoid", rule=ADAGRAD, n=4, batch=3),
    sizes((2, 8, 8), ((3, 5, *SAME_5), POOL_2, (4, 3), POOL_2, 6, 3), "relu tanh relu softmax", CROSS, ADAM, 5, 2),
    sizes((3, 7, 5), ((4, 2, 2, 1, 0), (5, 3, 1, 2, 0), 2), "tanh softplus tanh", rule=MOMENTUM, n=5, batch=4),
    sizes((1, 9, 9), (POOL_2, ("pool", 3), 2), "sigmoid", n=3, batch=2),
    sizes((1, 8, 9), ((2, 3), ("pool", 3), (3, 2), 3), "step identity tanh", "mae", n=2, batch=2),
    sizes((16, 5, 5), ((33, 3, *SAME_3), 12, 4), "tanh sigmoid softmax", CROSS, OTHER_ADAM, n=6, batch=4),
)  # fmt: skip


def _sizes_to_time(device: str):
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
            np.full(array.shape, size) for array, size in zip(state_first, (4.0, 2.0, 2.0), strict=False)
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
