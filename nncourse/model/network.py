"""A network: dense layers one after the other, a cost, and the handout's Algorithm 1 in matrix form."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nncourse.architecture import Architecture
from nncourse.errors import CourseError, refuse_unknown
from nncourse.model.layers import ACTIVATIONS, Dense, initialise

# Costs, and the output activation that each needs. Those that need one are computed from Z, the others from A = σ(Z).
COSTS = {"mse": None, "mae": None, "binary_cross_entropy": "sigmoid", "categorical_cross_entropy": "softmax"}
MOST_WEIGHTS = 1 << 28  # 1 GiB of float32: more is a slip of the keyboard


@dataclass(repr=False)
class Network:
    """Layers from input to output, and the name of the cost. The parameters are NumPy arrays, or CuPy ones on a GPU."""

    layers: list[Dense]
    cost: str = "mse"

    def __post_init__(self):
        if not self.layers:
            raise CourseError("wanted at least one layer of neurons, got none")
        refuse_unknown("a cost", self.cost, COSTS)
        for name in self.activations:
            refuse_unknown("an activation", name, ACTIVATIONS)
        if "softmax" in self.activations[:-1]:
            raise CourseError("softmax is for the output layer; give the hidden layers another activation")
        if self.layers[-1].activation == "softmax" and self.sizes[-1] < 2:
            raise CourseError("softmax wants two outputs or more; for one output take sigmoid and binary_cross_entropy")
        needed, output = COSTS[self.cost], self.layers[-1].activation
        if needed and output != needed:
            raise CourseError(f"the cost {self.cost} wants {needed} as the output's activation; got {output}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Neurons of each layer, the inputs first."""
        return (self.layers[0].W.shape[1], *(layer.W.shape[0] for layer in self.layers))

    @property
    def activations(self) -> tuple[str, ...]:
        """The activation of each layer after the inputs."""
        return tuple(layer.activation for layer in self.layers)

    @property
    def parameters(self) -> list:
        """W and b of each layer, in order."""
        return [array for layer in self.layers for array in (layer.W, layer.b)]

    @property
    def flat_parameters(self):
        """All parameters in one new vector, in that order: what train_epoch takes."""
        return np.concatenate([array.ravel() for array in self.parameters])

    @property
    def architecture(self) -> Architecture:
        """The network without its parameters."""
        return Architecture(self.sizes, self.activations, self.cost)

    def __repr__(self) -> str:
        sizes, count = "-".join(map(str, self.sizes)), sum(array.size for array in self.parameters)
        return f"network {sizes}, {', '.join(self.activations)}, cost {self.cost}, {count:,} parameters"

    def on(self, backend) -> "Network":
        """A copy whose parameters lie on the backend's device."""
        return Network([layer.on(backend) for layer in self.layers], self.cost)

    def predict(self, X, backend):
        """The outputs for samples X (batch, n_in), where the backend keeps them; the parameters are taken there."""
        there, A = self.on(backend), backend.to_device(X)
        if A.ndim != 2 or A.shape[1] != self.sizes[0]:
            raise CourseError(f"wanted samples of {self.sizes[0]} numbers, a row each; got an array of shape {A.shape}")
        return forward(there, A, backend)[1][-1]


def make_network(
    sizes: Sequence[int],
    activation: str | Sequence[str] = "sigmoid",
    cost: str = "mse",
    initialiser: str = "xavier",
    seed: int = 0,
) -> Network:
    """A new network: make_network([30, 60, 10, 1]) has 30 inputs, two hidden layers and one output.

    One `activation` is for the hidden layers; the output then has sigmoid, or softmax with categorical_cross_entropy.
    A list names one for each layer after the inputs. Raises CourseError for what does not fit together.
    """
    if len(sizes) < 2 or any(int(size) != size or size < 1 for size in sizes):
        raise CourseError(f"wanted two or more layer sizes of at least 1, such as 30,60,10,1; got {list(sizes)}")
    if (weights := sum(map(operator.mul, sizes[:-1], sizes[1:]))) > MOST_WEIGHTS:
        raise CourseError(f"wanted at most {MOST_WEIGHTS} weights; the layers {list(sizes)} have {weights}")
    count = len(sizes) - 1
    output = COSTS.get(cost) or "sigmoid"
    names = [activation] * (count - 1) + [output] if isinstance(activation, str) else list(activation)
    if len(names) != count:
        raise CourseError(f"wanted an activation for each of the {count} layers after the inputs; got {len(names)}")
    rng = np.random.default_rng(seed)
    pairs = zip(sizes[:-1], sizes[1:], names, strict=True)
    return Network([initialise(initialiser, rng, n_in, n_out, name) for n_in, n_out, name in pairs], cost)


def with_parameters(architecture: Architecture, parameters) -> Network:
    """A network whose weights and biases are views into one flat vector: changing these changes that."""
    pairs = zip(architecture.views(parameters), architecture.activations, strict=True)
    return Network([Dense(W, b, name) for (W, b), name in pairs], architecture.cost)


def forward(network: Network, X, backend) -> tuple[list, list]:
    """Z and A of every layer for samples X; A[0] is X itself, and Z[l], A[l + 1] belong to layers[l]."""
    Z, A = [], [X]
    for layer in network.layers:
        z, a = layer.forward(A[-1], backend)
        Z.append(z)
        A.append(a)
    return Z, A


def cost_of(network: Network, Z: list, A: list, Y, backend) -> float:
    """The cost of a batch that went forward: one number, fetched from the device."""
    outputs = Z[-1] if COSTS[network.cost] else A[-1]
    return float(getattr(backend, network.cost)(outputs, Y))


def first_delta(network: Network, Z: list, A: list, Y, backend):
    """The output layer's deltas, dC/dZ of each sample: equation (4a)."""
    if COSTS[network.cost]:
        return backend.cross_entropy_delta(A[-1], Y)
    G = getattr(backend, f"{network.cost}_gradient")(A[-1], Y)
    if network.layers[-1].activation == "softmax":
        return backend.softmax_delta(G, A[-1])
    return backend.output_delta(G, network.layers[-1].slope(Z[-1], backend))


def backpropagation(network: Network, X, Y, backend) -> list[tuple]:
    """(dW, db) of every layer: the means over the batch of the cost's gradient. Algorithm 1, lines 1 to 14."""
    Z, A = forward(network, X, backend)
    D = first_delta(network, Z, A, Y, backend)
    gradients: list[tuple] = [()] * len(network.layers)
    for number in reversed(range(len(network.layers))):
        layer = network.layers[number]
        gradients[number] = layer.gradients(D, A[number], backend)
        if number > 0:
            S_below = network.layers[number - 1].slope(Z[number - 1], backend)
            D = layer.delta_below(D, S_below, backend)
    return gradients


def training_step(network: Network, X, Y, learning_rate: float, backend) -> None:
    """Move every parameter against its gradient on one batch: Algorithm 1. The network changes."""
    gradients = backpropagation(network, X, Y, backend)
    for layer, gradient in zip(network.layers, gradients, strict=True):
        layer.update(gradient, learning_rate, backend)
