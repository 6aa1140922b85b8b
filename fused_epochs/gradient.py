"""The gradient of a whole network as one operation, for any optimizer: one call per step.

As in dense_epoch.py, kernels work on one flat vector of all parameters: W and b of each layer with weights in turn.

    numpy    preallocated arrays; every layer is a product of matrices: gradient_cpu.py
    numba    the same, with compiled loops around the products, or loops alone if these are small: gradient_loops.py

ChainArchitecture describes the networks: convolutions and max-pools in any order, then dense layers. Others are
trained by one call for each operation.
"""

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from fused_epochs.architecture import ChainArchitecture, Filters, Neurons, Windows
from nncourse.kernels.contract import Sizes
from nncourse.kernels.dense_epoch import CROSS_ENTROPIES, activated, cost_gradient, delta_of, random_targets
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

Layers = Sequence[int | tuple[int, ...] | list[int]]  # as numbers: see sizes_of()
KINKED = ("step", "relu", "leaky_relu")
UNDECIDED = 1e-5  # this close to a kink, rounding alone may put a float32 kernel on the other side of it

# ---- the reference, in float64, sample by sample. A convolution is a dense layer in which most connections are missing
# and the rest share a few weights. So here it is a list of connections, and a pool is a list of windows.


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


def convolved(W: np.ndarray, b: np.ndarray, filters: Filters, image: tuple[int, ...], a: np.ndarray) -> np.ndarray:
    """z of one sample, flat: the sum over the connections of each output, plus the bias of its filter."""
    outputs, inputs, weights = connections(filters, image)
    count, *made = filters.shape_after(image)
    return np.bincount(outputs, W.ravel()[weights] * a[inputs], count * prod(made)) + np.repeat(b, prod(made))


def convolution_gradients(
    W: np.ndarray, filters: Filters, image: tuple[int, ...], a: np.ndarray, delta: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dC/dW, dC/db and dC/da of one sample, from delta = dC/dz."""
    outputs, inputs, weights = connections(filters, image)
    dW = np.bincount(weights, delta[outputs] * a[inputs], W.size).reshape(W.shape)
    G = np.bincount(inputs, delta[outputs] * W.ravel()[weights], prod(image))
    return dW, delta.reshape(filters.count, -1).sum(axis=1), G


def forward(
    parameters: np.ndarray, architecture: ChainArchitecture, x: np.ndarray
) -> tuple[list[np.ndarray], list[Any]]:
    """For one sample: the inputs of each layer, then the outputs; and z of each layer, None for a pool."""
    z: list[Any] = []
    given, pairs = [x.ravel()], iter(architecture.views(parameters))
    for layer, name, image in zip(architecture.layers, architecture.activations, architecture.maps, strict=False):
        if isinstance(layer, Windows):
            z.append(None)
            given.append(given[-1][windows(layer.size, image)].max(axis=1))
            continue
        W, b = next(pairs)
        a = given[-1]
        z.append(np.array([w @ a for w in W]) + b if isinstance(layer, Neurons) else convolved(W, b, layer, image, a))
        given.append(activated(name, z[-1]))
    return given, z


def gradient_of_one(
    parameters: np.ndarray, architecture: ChainArchitecture, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """The gradient of one sample's cost, flat."""
    given, z = forward(parameters, architecture, x)
    gradient = np.zeros_like(parameters)
    pairs, derivatives = architecture.views(parameters), architecture.views(gradient)
    cost = architecture.cost
    G = cost_gradient(cost, given[-1], y)
    for number in range(len(architecture.layers) - 1, -1, -1):
        layer, image, a = architecture.layers[number], architecture.maps[number], given[number]
        if isinstance(layer, Windows):
            pixels = windows(layer.size, image)
            largest = pixels[np.arange(len(pixels)), a[pixels].argmax(axis=1)]  # the first one of equals
            G_below = np.zeros_like(a)
            G_below[largest] = G
            G = G_below
            continue
        (W, _), (W_gradient, b_gradient), name = pairs.pop(), derivatives.pop(), architecture.activations[number]
        is_output = number == len(architecture.layers) - 1
        delta = G if is_output and cost in CROSS_ENTROPIES else delta_of(name, G, z[number], given[number + 1])
        if isinstance(layer, Neurons):
            W_gradient[:], b_gradient[:], G = np.outer(delta, a), delta, W.T @ delta
        else:
            W_gradient[:], b_gradient[:], G = convolution_gradients(W, layer, image, a, delta)
    return gradient


def gradient_of(parameters: np.ndarray, architecture: ChainArchitecture, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """The mean over the batch."""
    total = np.zeros_like(parameters)
    for x, y in zip(X, Y, strict=True):
        total += gradient_of_one(parameters, architecture, x, y)
    return total / len(X)


def near_a_kink(parameters: np.ndarray, architecture: ChainArchitecture, x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a sample comes near a kink of an activation, of the cost or of a pool, where rounding decides."""
    given, z = forward(parameters, architecture, x)
    distances = [values for name, values in zip(architecture.activations, z, strict=True) if name in KINKED]
    for layer, image, a in zip(architecture.layers, architecture.maps, given, strict=False):
        if isinstance(layer, Windows) and layer.size > 1:
            pixels = np.sort(a[windows(layer.size, image)])
            distances.append(pixels[:, -1] - pixels[:, -2])
    if architecture.cost == "mae":
        distances.append(given[-1] - y)
    # Exactly equal values come from the same numbers, so they are equal in every kernel.
    return any(((values != 0) & (abs(values) < UNDECIDED)).any() for values in distances)


def random_parameters(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Random parameters that keep the scale of numbers from layer to layer, so that rounding errors stay small."""
    parameters = np.empty(shape, np.float32)
    for W, b in sizes["architecture"].views(parameters):
        W[...], b[...] = rng.normal(0, (2 / prod(W.shape[1:])) ** 0.5, W.shape), rng.normal(0, 0.3, b.shape)
    return parameters


# ---- the contract


def sizes_of(shape: tuple[int, ...], layers: Layers, activation_names: str, cost: str = "mse") -> Sizes:
    """A network, and its sizes. Layers as numbers: a dense layer's neurons, a tuple for filters, a list for a pool."""
    kinds: dict[type, Callable[[Any], Filters | Windows | Neurons]] = {
        int: Neurons,
        list: lambda numbers: Windows(*numbers),
        tuple: lambda numbers: Filters(*numbers),
    }
    made = tuple(kinds[type(layer)](layer) for layer in layers)
    names = iter(activation_names.split())
    activations = tuple("" if isinstance(layer, Windows) else next(names) for layer in made)
    architecture = ChainArchitecture(shape, made, activations, cost)
    return {"architecture": architecture, **architecture.contract_sizes}


def _sizes(shape: tuple[int, ...], layers: Layers, activation_names: str, cost: str = "mse", batch: int = 3) -> Sizes:
    return {**sizes_of(shape, layers, activation_names, cost), "batch": batch}


SAME_2, SAME_3, SAME_5 = (1, 0, 1), (1, 1, 1), (1, 2, 2)  # stride, before, after: filters that keep the image's size
CROSS, BINARY = "categorical_cross_entropy", "binary_cross_entropy"

network_gradient = Operation(
    "network_gradient",
    "G = dC/dW, dC/db of all layers, the mean over the batch",
    contract="parameters (p,), architecture () object, X (batch, n_in), Y (batch, n_out) -> G (p,)",
    reference=gradient_of,
    flops=lambda architecture, batch, **_: batch * architecture.flops_a_sample,
    trial=Trial(
        error_scale=lambda parameters, *_: np.full(parameters.shape, 8.0),
        well_posed=lambda parameters, architecture, X, Y: (
            not any(near_a_kink(parameters, architecture, x, y) for x, y in zip(X, Y, strict=True))
        ),
        values={"parameters": random_parameters, "Y": random_targets},
        edge_cases=("zeros",),
        sizes_to_check=(
            _sizes((1, 8, 8), [(4, 3, *SAME_3), [2], (5, 3, *SAME_3), [2], 6, 3], "relu tanh relu softmax", CROSS, 4),
            _sizes((1,), [1], "sigmoid", batch=1),
            _sizes((30,), [60, 10, 1], "sigmoid sigmoid sigmoid", batch=10),
            _sizes((30,), [60, 20, 3], "sigmoid relu softmax", CROSS, 33),  # not small: by products
            _sizes((5,), [7, 6, 3], "relu tanh softmax", CROSS, 9),
            _sizes((6,), [5, 3], "leaky_relu softmax", batch=6),
            _sizes((3,), [9, 2], "softplus identity", "mae", 5),
            _sizes((1, 14, 12), [(6, 5, *SAME_5), [2], (4, 3), [2], 7, 5, 2], "relu relu relu tanh sigmoid"),
            _sizes((3, 7, 9), [(2, 4, 2, 1, 2), (5, 3, 1, 2, 0), [2], 1], "tanh leaky_relu sigmoid", BINARY, 6),
            _sizes((2, 9, 7), [[2], (3, 2, *SAME_2), [3], [1], 3], "softplus identity", "mae", 2),
            _sizes((2, 11, 10), [(3, 3, 3, 2, 1), (4, 2, 2, 0, 0), 2], "sigmoid tanh identity"),
            _sizes((3, 6, 5), [[2], 4, 2], "tanh sigmoid", batch=5),
            _sizes((1, 20, 19), [[17], [1], 2], "sigmoid", batch=2),  # more than 255 pixels in a window
            _sizes((1, 8, 8), [(4, 2, *SAME_2), (4, 2, *SAME_2), [4], 6, 3], "relu relu relu softmax", CROSS, 4),
            _sizes((3, 13, 12), [(8, 3, *SAME_3), (3, 3), [5], 2], "tanh leaky_relu sigmoid"),
            _sizes((4, 9, 12), [(17, 2, 2), [2], 5, 2], "tanh relu sigmoid", batch=2),
            _sizes((3, 12, 11), [(2, 5, *SAME_5), [2], 2], "tanh identity", batch=20),  # more than a block
            _sizes((1, 30, 12), [(4, 3, *SAME_3), (2, 5, 2, 2, 2), 2], "tanh sigmoid identity", batch=16),  # the same
        ),
        sizes_to_time=lambda device: _sizes(
            (1, 28, 28), [(6, 5, *SAME_5), [2], (16, 5), [2], 120, 84, 10], "relu relu relu relu softmax", CROSS, 64
        ),
    ),
)
