"""A network: layers one after the other, a cost, and the handout's Algorithm 1 in matrix form."""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from nncourse import device as devices
from nncourse.calls import ACTIVATIONS, Array, Calls
from nncourse.errors import CourseError, refuse_unknown
from nncourse.model import words
from nncourse.model.initialisers import initialised
from nncourse.model.layers import (
    Dense,
    Forward,
    Layer,
    LayerSequence,
    Shape,
    StepPosition,
    delta_below,
    distributed,
    filled,
    views,
)
from nncourse.model.optimizers import SGD, Optimizer
from nncourse.model.registry import MOST_WEIGHTS
from nncourse.threads import MOST, Threads

OF_TOKENS = "token_cross_entropy"  # of sequences: targets (batch, t) are kinds of tokens; −1 does not count
# Costs, and the output activation that each needs. Those that need one are computed from Z, the others from A = σ(Z).
COSTS = {
    "mse": None,
    "mae": None,
    "binary_cross_entropy": "sigmoid",
    "categorical_cross_entropy": "softmax",
    OF_TOKENS: "softmax",
}
MOST_ROWS, MOST_NUMBERS = 8192, 1 << 24  # in one pass without training: samples; Z and A of all layers (64 MB)
MOST_NUMBERS_ON_GPU = 1 << 29  # 2 GB; a GPU needs many samples at once
MOST_NAMED = 8  # activations in a network's repr; if there are more, each name appears once


class Network(LayerSequence):
    """Layers from input to output, the shape of a sample, and the name of the cost.

    All parameters are views into one vector, `flat_parameters`: a NumPy array, or a CuPy array on a GPU. By default it
    holds copies of the layers' parameters. Likewise `flat_statistics` holds the layers' statistics, such as running
    means; it is empty in most networks. `input_shape` may be omitted if the first layer is dense. Raises CourseError
    for layers and costs that do not fit together.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        cost: str = "mse",
        input_shape: Shape | None = None,
        flat_parameters: Array | None = None,
        flat_statistics: Array | None = None,
    ):
        super().__init__(layers)
        arrays = self.parameters
        if not arrays:
            raise CourseError("expected at least one layer with parameters, got none")
        if flat_parameters is None:
            flat_parameters = np.concatenate([array.ravel() for array in arrays])
        self.flat_parameters: Array = flat_parameters
        self.layers = distributed(self.layers, views(flat_parameters, [array.shape for array in arrays]))
        kept = self.statistics
        if flat_statistics is None:
            empty = np.empty_like(flat_parameters, shape=0)
            flat_statistics = np.concatenate([array.ravel() for array in kept]) if kept else empty
        self.flat_statistics: Array = flat_statistics
        self.layers = filled(self.layers, views(flat_statistics, [array.shape for array in kept]))
        self.cost = cost
        self.input_shape = input_shape or _inputs_of(self.layers[0])
        self._refuse_what_does_not_fit()

    def _refuse_what_does_not_fit(self) -> None:
        refuse_unknown("a cost", self.cost, COSTS)
        for name in self.activations[:-1]:
            if ACTIVATIONS.get(name) == "row":
                raise CourseError(f"{name} is for the output layer; give the hidden layers another activation")
        if ACTIVATIONS.get(self.activation) == "row" and self.shapes[-1][-1] < 2:
            wanted = "two outputs or more; for one output take sigmoid and binary_cross_entropy"
            raise CourseError(f"{self.activation} needs {wanted}")
        needed = COSTS[self.cost]
        if needed and self.activation != needed:
            raise CourseError(f"the cost {self.cost} needs {needed} as the output's activation; got {self.activation}")
        outputs = self.shapes[-1]
        if self.cost == OF_TOKENS and len(outputs) != 2:
            raise CourseError(
                f"expected outputs (positions, kinds) for the cost {OF_TOKENS}; the last layer gives {outputs}"
            )
        if self.cost != OF_TOKENS and len(outputs) != 1:
            advice = f'; for sequences take cost="{OF_TOKENS}"' if len(outputs) == 2 else ""
            raise CourseError(f"expected one row of outputs per sample; the last layer gives shape {outputs}{advice}")

    @property
    def shapes(self) -> list[Shape]:
        """The shape of a sample, then the shape of each layer's output for it."""
        shapes = [self.input_shape]
        for layer in self.layers:
            shapes.append(layer.shape_after(shapes[-1]))
        return shapes

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers each of `shapes` has; in a dense network, the inputs and the neurons of each layer."""
        return tuple(map(prod, self.shapes))

    @property
    def target_shape(self) -> Shape:
        """The shape of a sample's targets: a number for each output, or for each position of a sequence."""
        return self.shapes[-1][:1]

    @property
    def activations(self) -> tuple[str, ...]:
        """The activation of each layer, "" for none."""
        return tuple(layer.activation for layer in self.layers)

    @property
    def is_dense(self) -> bool:
        """True if every layer is dense."""
        # A class derived from Dense may compute something else.
        return len(self.input_shape) == 1 and all(type(layer) is Dense for layer in self.layers)

    @cached_property
    def flat_gradient(self) -> Array:
        """A vector for the gradient of `flat_parameters`, which training steps and optimizers overwrite."""
        return np.empty_like(self.flat_parameters)

    @cached_property
    def gradient_views(self) -> list[Array]:
        """The gradient of each parameter array, as views into `flat_gradient`."""
        return views(self.flat_gradient, [array.shape for array in self.parameters])

    @property
    def rows_at_once(self) -> int:
        """How many samples to send through the network together if only the outputs are needed."""
        most = MOST_NUMBERS_ON_GPU if devices.on_gpu(self.flat_parameters) else MOST_NUMBERS
        return max(1, min(MOST_ROWS, most // (2 * sum(self.sizes))))

    @property
    def in_words(self) -> str:
        """784-30-10 for a dense network, otherwise as make_network takes it: image1x28x28,conv4x2same,pool4,128,10."""
        if self.is_dense:
            return "-".join(map(str, self.sizes))
        return ",".join(map(str, words.words_of(self.layers, self.input_shape)))

    def __repr__(self) -> str:
        given = [name for name in self.activations if name]
        names = ", ".join(dict.fromkeys(given) if len(given) > MOST_NAMED else given)
        return f"network {self.in_words}, {names}, cost {self.cost}, {self.flat_parameters.size:,} parameters"

    def with_flat_parameters(self, vector: Array) -> "Network":
        """The same layers with their parameters as views into another vector; their statistics are copied."""
        return Network(self.layers, self.cost, self.input_shape, vector)

    def on(self, backend: Calls) -> "Network":
        """A copy on the backend's device."""
        vectors = (backend.to_device(vector.copy()) for vector in (self.flat_parameters, self.flat_statistics))
        return Network(self.layers, self.cost, self.input_shape, *vectors)

    def predict(self, X: Array, backend: Calls, threads: int | None = None) -> Array:
        """The outputs for samples X (batch, …), on the backend's device; parameters and X are copied there.

        threads: number of BLAS threads on the CPU; by default as many as are worthwhile. CourseError if X does not fit.
        """
        there, X, shape = self.on(backend), backend.to_device(X), self.input_shape
        if X.shape[1:] != shape:
            wanted = f"of {shape[0]} numbers, a row each" if len(shape) == 1 else f"of shape {shape}"
            raise CourseError(f"expected samples {wanted}; got an array of shape {X.shape}")
        there.refuse_samples(X)
        rows = there.rows_at_once
        parts = []
        with threads_for(there, min(len(X), rows), backend, threads) as blas:
            for start in range(0, len(X), rows):
                blas.choose(waits=False)
                parts.append(there.outputs(X[start : start + rows], backend).A)
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else there.outputs(X, backend).A

    def refuse_samples(self, X: Any) -> None:
        """Raise CourseError if the first layer refuses samples X of the right shape, an array or HostSamples."""
        if refuse := getattr(self.layers[0], "refuse_samples", None):
            refuse(X)

    def outputs(self, X: Array, backend: Calls) -> Forward:
        """A and Z of the last layer; memory of the layers below is freed as soon as possible."""
        A, here = X, Forward(X)
        for layer in self.layers:
            del here  # Z and `kept` of the layer below
            here = layer.forward(A, backend)
            A = here.A
        return Forward(A, here.Z)


def _inputs_of(first: Layer) -> Shape:
    if not isinstance(first, Dense):
        raise CourseError(
            "expected the input_shape of a sample, such as (1, 28, 28), since the first layer is not dense"
        )
    return (first.W.shape[1],)


def make_network(
    sizes: str | Sequence[int | str | words.Word],
    activation: str | Sequence[str] = "sigmoid",
    cost: str = "mse",
    initialiser: str = "xavier",
    seed: int = 0,
) -> Network:
    """A new network with random weights, on the CPU.

    sizes: neurons of each layer, inputs first: [30, 60, 10, 1] has 30 inputs, two hidden layers and one output.
        "image1x28x28,conv4x2same,pool4,128,10" begins with images; words.py lists all words.
    activation: one for all hidden layers; the output then gets sigmoid, or softmax if the cost needs that. A list has
        one for each layer that takes one, as dense layers and convolutions do.
    cost: "mse", "mae", "binary_cross_entropy", "categorical_cross_entropy", or "token_cross_entropy" for sequences.
    initialiser: "xavier" or "he", with biases of 0; "normal" or "uniform", with random biases.
    seed: the same seed gives the same weights.

    Raises CourseError for options that do not fit together.

    >>> make_network([30, 60, 10, 1]).flat_parameters.size
    2481
    """
    asked = words.parsed(sizes)
    count = words.taking_activations(asked)
    output = COSTS.get(cost) or "sigmoid"
    names = [activation] * (count - 1) + [output] if isinstance(activation, str) else list(activation)
    if len(names) != count:
        raise CourseError(f"expected an activation for each of the {count} layers that take one; got {len(names)}")
    planned = words.layers_of(asked, names)
    refuse_huge(planned, words.input_shape(asked))
    rng = np.random.default_rng(seed)
    return Network([initialised(layer, initialiser, rng) for layer in planned], cost, words.input_shape(asked))


def refuse_other_layers(network: Network, asked: str, what: str) -> None:
    """Raise CourseError(what …) unless the words `asked` mean the network's layers, whatever the activations."""
    wanted = words.parsed(asked)
    fits = list(map(str, wanted)) == list(map(str, words.words_of(network.layers, network.input_shape)))
    if fits:
        meant = words.layers_of(wanted, words.activations_of(network.layers))
        fits = [layer.describe() for layer in meant] == [layer.describe() for layer in network.layers]
    if not fits:
        raise CourseError(f"expected {what}, {network.in_words}; got {asked}")


def refuse_huge(layers: Sequence[Layer], shape: Shape) -> None:
    """Raise CourseError for layers with more weights, or more numbers per sample, than any network here needs."""
    weights = sum(prod(array.shape) for layer in layers for array in layer.parameters if array.ndim > 1)
    if weights > MOST_WEIGHTS:
        raise CourseError(f"expected at most {MOST_WEIGHTS} weights; these layers have {weights}")
    numbers = 0
    for layer in layers:
        shape = layer.shape_after(shape)
        numbers += prod(shape)
    if numbers > MOST_WEIGHTS:
        raise CourseError(f"expected layers with at most {MOST_WEIGHTS} numbers per sample; these have {numbers}")


def forward(network: Network, X: Array, backend: Calls) -> tuple[list[Array], list[Array]]:
    """The weighted sums Z, equation (1), and outputs A = σ(Z) of every layer.

    X: samples (batch, n_in), or images (batch, channels, height, width), on the backend's device.

    Returns two lists of arrays (batch, n_out): A[0] is X itself, and Z[l], A[l + 1] belong to layers[l].

    >>> Z, A = forward(make_network([4, 3, 2]), np.ones((5, 4), np.float32), choose("numpy"))
    >>> [array.shape for array in A]
    [(5, 4), (5, 3), (5, 2)]
    """
    passes = network.forward(X, backend).kept
    return [each.Z for each in passes], [X, *(each.A for each in passes)]


def cost_of(network: Network, Z: Sequence[Array], A: Sequence[Array], Y: Array, backend: Calls) -> float:
    """The cost of a batch, equation (3) for "mse": one number, fetched from the device.

    Z, A: as forward() returned them; only the last of each is used.
    Y: targets (batch, n_out).

    >>> network, X, backend = make_network([4, 2]), np.ones((5, 4), np.float32), choose("numpy")
    >>> Z, A = forward(network, X, backend)
    >>> cost_of(network, Z, A, A[-1] + 1, backend)  # two outputs that are off by 1: ½ (1² + 1²)
    1.0
    """
    outputs = Z[-1] if COSTS[network.cost] else A[-1]
    if network.cost == OF_TOKENS:
        Y = Y.astype(np.int32)
    return float(getattr(backend, network.cost)(outputs, Y))


def first_delta(network: Network, Z: Sequence[Array], A: Sequence[Array], Y: Array, backend: Calls) -> Array:
    """The output layer's deltas, dC/dZ of each sample: equation (4a)."""
    if network.cost == OF_TOKENS:
        return backend.token_delta(Z[-1], Y.astype(np.int32))
    if COSTS[network.cost]:
        return backend.cross_entropy_delta(A[-1], Y)
    G = getattr(backend, f"{network.cost}_gradient")(A[-1], Y)
    if ACTIVATIONS.get(network.activation) == "row":
        return getattr(backend, f"{network.activation}_delta")(G, A[-1])
    return delta_below(G, network.slope(Z[-1], backend), backend)


def flops(network: Network) -> list[int]:
    """The approximate FLOPs of each layer's forward pass for a sample: 2 per weight and output pixel, 1 per output.

    The positions of a sequence count as pixels.
    """
    costs = []
    for layer, shape in zip(network.layers, network.shapes[1:], strict=True):
        weights = sum(array.size for array in layer.parameters if array.ndim > 1)
        costs.append(2 * weights * (shape[0] if len(shape) == 2 else prod(shape[1:])) + prod(shape))
    return costs


def threads_for(network: Network, rows: float, backend: Calls, exactly: int | None = None, most: int = MOST) -> Threads:
    """The threads of BLAS for batches of `rows` rows: `exactly` this number, or up to `most`; one if a GPU computes."""
    return Threads(rows * max(flops(network), default=0) if backend.device == "cpu" else 0.0, exactly, most)


def backpropagation(
    network: Network, X: Array, Y: Array, backend: Calls, position: StepPosition | None = None
) -> list[tuple[Array, ...]]:
    """The gradients of every layer, (dW, db) for a dense layer: means over the batch. Algorithm 1, lines 1 to 14.

    X, Y: samples (batch, …) and targets (batch, n_out), on the backend's device.
    position: how far training is. A network with dropout needs it, otherwise CourseError.

    Returns a tuple for each layer, with an array for each of its parameters, of the same shape.

    >>> X, Y = np.ones((5, 4), np.float32), np.zeros((5, 2), np.float32)
    >>> [(dW, db)] = backpropagation(make_network([4, 2]), X, Y, choose("numpy"))
    >>> dW.shape, db.shape
    ((2, 4), (2,))
    """
    left = iter(_gradients(network, X, Y, backend, position))
    return [tuple(next(left) for _ in layer.parameters) for layer in network.layers]


def input_gradient(network: Network, X: Array, Y: Array, backend: Calls) -> Array:
    """dC/dX of each sample, with the shape of X: equation (4b) once more, without the slope. Dropout does nothing here.

    X, Y: samples (batch, …) and targets (batch, n_out), on the backend's device.

    Raises CourseError for a network with batch normalisation.

    >>> X, Y = np.ones((5, 4), np.float32), np.zeros((5, 2), np.float32)
    >>> input_gradient(make_network([4, 2]), X, Y, choose("numpy")).shape
    (5, 4)
    """
    here = network.forward(X, backend)
    D = first_delta(network, [here.Z], [here.A], Y, backend)
    return network.backward(D, here, X, None, backend)[0]


def _gradients(
    network: Network, X: Array, Y: Array, backend: Calls, position: StepPosition | None
) -> tuple[Array, ...]:
    """The gradient of each parameter array, in order."""
    if position is None and network.draws:
        raise CourseError(
            "expected position=StepPosition(seed, epoch, first) for a network with dropout, or train(); got none"
        )
    here = network.forward(X, backend, position or StepPosition())
    D = first_delta(network, [here.Z], [here.A], Y, backend)
    return network.backward(D, here, X, None, backend, below=False)[1]


def has_algorithm_1(network: Network, optimizer: Optimizer | None = None) -> bool:
    """Whether a step is the handout's Algorithm 1: dense layers, all sigmoid, the squared error and plain SGD."""
    plain = optimizer is None or (isinstance(optimizer, SGD) and optimizer.is_plain)
    return plain and network.cost == "mse" and network.is_dense and set(network.activations) == {"sigmoid"}


def own_algorithm_1(network: Network, optimizer: Optimizer | None, backend: Calls) -> Any:
    """The student's algorithm_1, if the backend has one and it fits the network and the optimizer; otherwise None."""
    return backend.kernels.get("algorithm_1") if has_algorithm_1(network, optimizer) else None


def training_step(
    network: Network,
    X: Array,
    Y: Array,
    learning_rate: float,
    backend: Calls,
    optimizer: Optimizer | None = None,
    position: StepPosition | None = None,
) -> None:
    """One training step on one batch, Algorithm 1: every parameter moves against its gradient, in place.

    X, Y: samples (batch, …) and targets (batch, n_out), on the backend's device, where the network is too.
    learning_rate: η.
    optimizer: SGD(), Adam() …; plain SGD unless one is given.
    position: StepPosition(seed, epoch, number of the batch's first sample); required with dropout.

    A student's algorithm_1 in the backend is used for the networks and optimizers that it fits.

    >>> network, before = make_network([4, 2]), make_network([4, 2])
    >>> training_step(network, np.ones((5, 4), np.float32), np.zeros((5, 2), np.float32), 0.5, choose("numpy"))
    >>> bool((network.flat_parameters != before.flat_parameters).all())
    True
    """
    if own := own_algorithm_1(network, optimizer, backend):
        W, b = zip(*(layer.parameters for layer in network.layers), strict=True)
        own(list(W), list(b), X, Y, learning_rate, backend)
        if optimizer:
            optimizer.steps += 1
        return
    for place, gradient in zip(network.gradient_views, _gradients(network, X, Y, backend, position), strict=True):
        if gradient is not place:  # a recorded step writes some of them there itself
            place[...] = gradient
    if optimizer:
        optimizer.step(network.flat_parameters, network.flat_gradient, learning_rate, backend)
    else:
        backend.sgd_update(network.flat_parameters, network.flat_gradient, learning_rate)
