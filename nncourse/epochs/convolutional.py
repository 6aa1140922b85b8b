"""A fused epoch of a convolutional network as one operation: every sample once, in order; by SGD or by Adam.

As in dense.py, the kernels make no calls between steps and work on one flat vector of all parameters: W and b of each
convolution in turn, then of each dense layer.

    numpy           preallocated arrays; a convolution is a product of matrices: convolutional_cpu.py
    numba           loops over whole images, four filters at once: convolutional_loops.py
    fused, graph    a few CUDA kernels a step, launched one by one, or recorded and replayed: convolutional_graph.py
    one_kernel      one launch for the epoch: convolutional_one_kernel.py

ConvolutionalArchitecture describes the networks: convolutions, at most one max-pool, dense layers.
"""

import functools
from math import prod

import numpy as np

from nncourse.architecture import ConvolutionalArchitecture, Filters
from nncourse.epochs.dense import CROSS_ENTROPIES, activated, batches, cost_gradient, delta_of, random_targets
from nncourse.kernels import update
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

KINKED = ("step", "relu", "leaky_relu")
UNDECIDED = 1e-5  # this close to a kink, rounding alone may put a float32 kernel on the other side of it

# ---- the reference, in float64, sample by sample. A convolution is a dense layer in which most connections are missing
# and the others share a few weights. So here it is a list of connections, and a pool is a list of windows.


@functools.lru_cache(maxsize=64)
def connections(filters: Filters, image: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The output, the input and the weight of each connection of a convolution, as indices into flat arrays."""
    channels, height, width = image
    made = filters.shape_after(image)
    o, y, x, c, i, j = np.indices((*made, channels, filters.k, filters.k)).reshape(6, -1)
    row, column = y * filters.stride + i - filters.before, x * filters.stride + j - filters.before
    there = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    outputs = (o * made[1] + y) * made[2] + x
    inputs = (c * height + row) * width + column
    weights = ((o * channels + c) * filters.k + i) * filters.k + j
    return outputs[there], inputs[there], weights[there]


@functools.lru_cache(maxsize=64)
def windows(pool: int, image: tuple[int, int, int]) -> np.ndarray:
    """The indices of the pixels of each window, (windows, pool²), row by row."""
    channels, height, width = image
    c, y, x, i, j = np.indices((channels, height // pool, width // pool, pool, pool)).reshape(5, -1, pool * pool)
    return (c * height + y * pool + i) * width + x * pool + j


def convolved(W, b, filters: Filters, image, a):
    """z of one sample, flat: the sum over the connections of each output, plus the bias of its filter."""
    outputs, inputs, weights = connections(filters, image)
    count, *made = filters.shape_after(image)
    return np.bincount(outputs, W.ravel()[weights] * a[inputs], count * prod(made)) + np.repeat(b, prod(made))


def convolution_gradients(W, filters: Filters, image, a, delta):
    """dC/dW, dC/db and dC/da of one sample, from delta = dC/dz."""
    outputs, inputs, weights = connections(filters, image)
    dW = np.bincount(weights, delta[outputs] * a[inputs], W.size).reshape(W.shape)
    G = np.bincount(inputs, delta[outputs] * W.ravel()[weights], prod(image))
    return dW, delta.reshape(filters.count, -1).sum(axis=1), G


def forward(parameters, architecture: ConvolutionalArchitecture, x):
    """z, a and the inputs of each layer with parameters, for one sample."""
    z, a, given = [], [], [x.ravel()]
    pairs, count = architecture.views(parameters), len(architecture.convolutions)
    for layer, ((W, b), name) in enumerate(zip(pairs, architecture.activations, strict=True)):
        if layer == count and architecture.pool:
            given[-1] = given[-1][windows(architecture.pool, architecture.maps[-1])].max(axis=1)
        if layer < count:
            z.append(convolved(W, b, architecture.convolutions[layer], architecture.maps[layer], given[-1]))
        else:
            z.append(np.array([w @ given[-1] for w in W]) + b)
        a.append(activated(name, z[-1]))
        given.append(a[-1])
    return z, a, given[:-1]


def gradient_of_one(parameters, architecture: ConvolutionalArchitecture, x, y):
    """The gradient of one sample's cost, flat."""
    pairs, count, names = architecture.views(parameters), len(architecture.convolutions), architecture.activations
    z, a, given = forward(parameters, architecture, x)
    gradient = np.zeros_like(parameters)
    G = cost_gradient(architecture.cost, a[-1], y)
    for layer, (W_gradient, b_gradient) in reversed(list(enumerate(architecture.views(gradient)))):
        delta = delta_of(names[layer], G, z[layer], a[layer])
        if layer == len(pairs) - 1 and architecture.cost in CROSS_ENTROPIES:
            delta = G
        W = pairs[layer][0]
        if layer < count:
            filters, image = architecture.convolutions[layer], architecture.maps[layer]
            W_gradient[:], b_gradient[:], G = convolution_gradients(W, filters, image, given[layer], delta)
        else:
            W_gradient[:], b_gradient[:], G = np.outer(delta, given[layer]), delta, W.T @ delta
        if layer == count > 0 and architecture.pool:
            below, pixels = a[layer - 1], windows(architecture.pool, architecture.maps[-1])
            largest = pixels[np.arange(len(pixels)), below[pixels].argmax(axis=1)]  # the first one of equals
            G_below = np.zeros_like(below)
            G_below[largest] = G
            G = G_below
    return gradient


def _gradient(parameters, architecture: ConvolutionalArchitecture, X, Y):
    """The mean over the batch."""
    total = np.zeros_like(parameters)
    for x, y in zip(X, Y, strict=True):
        total += gradient_of_one(parameters, architecture, x, y)
    return total / len(X)


def _sgd_steps(parameters, architecture, X, Y, batch, rate):
    """The parameters before each step, and after the last."""
    yield parameters
    for rows in batches(len(X), batch):
        parameters = parameters - rate * _gradient(parameters, architecture, X[rows], Y[rows])
        yield parameters


def _adam_steps(parameters, M, V, architecture, X, Y, batch, rate, steps, beta1, beta2, epsilon):
    """Parameters, M and V before each step, and after the last."""
    yield parameters, M, V
    for t, rows in enumerate(batches(len(X), batch), steps + 1):
        G = _gradient(parameters, architecture, X[rows], Y[rows])
        numbers = rate, 1 - beta1**t, 1 - beta2**t, beta1, beta2, epsilon
        parameters, M, V = update.adam_update.reference(parameters, G, M, V, *numbers)
        yield parameters, M, V


# ---- the reference has no meaning where rounding alone decides which pixel of a window is the largest


def _sgd_decided(parameters, architecture, X, Y, batch, rate):
    return _decided(_sgd_steps(parameters, architecture, X, Y, batch, rate), architecture, X, Y, batch)


def _adam_decided(*arguments):
    _, _, _, architecture, X, Y, batch, *_ = arguments
    made = _adam_steps(*arguments)
    return _decided((parameters for parameters, M, V in made), architecture, X, Y, batch)


def _decided(parameters_of_steps, architecture, X, Y, batch) -> bool:
    """Whether no step comes near a kink of an activation, of the cost or of the pool."""
    return not any(
        _near_a_kink(parameters, architecture, x, y)
        for parameters, rows in zip(parameters_of_steps, batches(len(X), batch), strict=False)
        for x, y in zip(X[rows], Y[rows], strict=True)
    )


def _near_a_kink(parameters, architecture: ConvolutionalArchitecture, x, y) -> bool:
    z, a, _ = forward(parameters, architecture, x)
    distances = [values for name, values in zip(architecture.activations, z, strict=True) if name in KINKED]
    if architecture.cost == "mae":
        distances.append(a[-1] - y)
    if architecture.pool > 1 and architecture.convolutions:
        pixels = np.sort(a[len(architecture.convolutions) - 1][windows(architecture.pool, architecture.maps[-1])])
        distances.append(pixels[:, -1] - pixels[:, -2])
    # Exactly equal values come from the same numbers, so they are equal in every kernel.
    return any(((values != 0) & (abs(values) < UNDECIDED)).any() for values in distances)


# ---- the contracts


def _sizes(image, convolutions, pool, sizes, activation_names, cost="mse", n=7, batch=3, steps=0):
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


def _sizes_to_time(device: str):
    """The digits CNN, with samples for an epoch of some milliseconds."""
    layers = [(4, 2, *SAME_2), (4, 2, *SAME_2)], 4, (128, 10), "relu relu relu softmax", CROSS
    return _sizes((1, 28, 28), *layers, n=20_000 if device == "gpu" else 640, batch=32)


def _without(name: str, sizes):
    return {key: value for key, value in sizes.items() if key != name}


def random_parameters(rng, shape, sizes):
    """Random parameters that keep the scale of numbers from layer to layer, so that rounding errors stay small."""
    parameters = np.empty(shape, np.float32)
    for W, b in sizes["architecture"].views(parameters):
        W[...], b[...] = rng.normal(0, (2 / prod(W.shape[1:])) ** 0.5, W.shape), rng.normal(0, 0.3, b.shape)
    return parameters


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
        # Adam is tried on all networks; its kernels differ from these in the update only.
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
        error_scale=lambda parameters, *_: tuple(np.full(parameters.shape, size) for size in (4.0, 2.0, 1.0)),
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
