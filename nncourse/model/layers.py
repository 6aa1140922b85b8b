"""What a network is made of. A layer knows no kernels: it is handed a backend.

A layer goes forward from inputs A_below to activations A, and backward from its deltas D = dC/dZ to the gradients of
its parameters and to the deltas of the layer below. Arrays hold one sample per row: (batch, …).

Layers for images are in image_layers.py, how weights begin in initialisers.py.
"""

from collections.abc import Sequence
from itertools import accumulate, repeat
from math import prod
from typing import Any, NamedTuple, Protocol

from nncourse.calls import ACTIVATIONS, Array, Calls
from nncourse.errors import CourseError, refuse_unknown
from nncourse.group import Group

Shape = tuple[int, ...]


class Forward(NamedTuple):
    """What a layer computed on the way forward, for the way back.

    A are its activations, Z the weighted sums (None in a layer without an activation); `kept` is whatever else the
    layer needs: the places of the maxima, a mask, batch statistics.
    """

    A: Array
    Z: Array | None = None
    kept: Any = None


class StepPosition(NamedTuple):
    """Where training stands: its seed, the epoch, and the number, within the epoch, of the batch's first sample.

    `layer` is the number of the layer that gets the position. What a layer draws at random depends on these numbers
    and the sample's row in the batch alone, so training can be resumed, or use smaller batches, with the same draws.

    `group` is given where this member has only some rows of the batch, and layers that compute statistics of the batch,
    such as batch normalisation, should add them over the group. All members then come to the same layers in turn.
    """

    seed: int = 0
    epoch: int = 1
    first: int = 0
    layer: int = 0
    group: Group | None = None


class Layer(Protocol):
    """What a network asks of a layer. Dense is one."""

    @property
    def activation(self) -> str:
        """The name of its activation, "" if it has none: then Z is A, and D is dC/dA.

        Where slope() is None, D is dC/dA too: the layer goes back through its activation itself.
        """

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The arrays that training changes; views into the network's flat vector once the layer is in a network."""

    def with_parameters(self, parameters: Sequence[Array]) -> "Layer":
        """The same layer with other arrays of the same shapes."""

    @property
    def statistics(self) -> tuple[Array, ...]:
        """Arrays that a layer changes in training by itself, without a gradient; () in most layers."""

    def with_statistics(self, statistics: Sequence[Array]) -> "Layer":
        """The same layer with other arrays of statistics."""

    def shape_after(self, shape: Shape) -> Shape:
        """The shape of one sample behind the layer; CourseError where the layer does not fit samples of `shape`."""

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """`training` is None where the network is only used; dropout, for instance, then does nothing."""

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        """S = σ'(Z); None in a layer without an activation."""

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """The deltas of the layer below, dC/dA_below ⊙ S_below, and the gradient of each parameter, the batch's mean.

        `here` is what forward() returned. S_below is None where the layer below has no activation. `below` is False for
        the first layer of a network: then the deltas are not needed, and are None.
        """

    def describe(self) -> dict[str, Any]:
        """`kind`, and the sizes and names that rebuild the layer: see descriptions.py."""


class WithoutStatistics:
    """What layers without statistics have in common."""

    statistics: tuple[Array, ...] = ()

    def with_statistics(self, statistics: Sequence[Array]) -> Any:
        return self


class Dense(WithoutStatistics):
    """A layer in which every neuron sees every input. W (n_out, n_in), b (n_out,), float32."""

    def __init__(self, W: Array, b: Array, activation: str):
        refuse_unknown("an activation", activation, ACTIVATIONS)
        self.parameters: tuple[Array, ...] = (W, b)
        self.activation = activation

    @property
    def W(self) -> Array:  # noqa: N802
        return self.parameters[0]

    @W.setter
    def W(self, values: Array) -> None:  # noqa: N802
        self.parameters[0][...] = values  # into the array that is there, since a network owns it

    @property
    def b(self) -> Array:
        return self.parameters[1]

    @b.setter
    def b(self, values: Array) -> None:
        self.parameters[1][...] = values

    def with_parameters(self, parameters: Sequence[Array]) -> "Dense":
        W, b = parameters
        return Dense(W, b, self.activation)

    def shape_after(self, shape: Shape) -> Shape:
        n_out, n_in = self.W.shape
        if shape != (n_in,):
            raise CourseError(f"wanted samples of shape ({n_in},) for a dense layer {n_in} to {n_out}; got {shape}")
        return (n_out,)

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """Weighted sums Z = A Wᵀ + b and activations σ(Z): equation (1)."""
        W, b = self.parameters
        Z = backend.dense_forward(A_below, W, b)
        return Forward(getattr(backend, self.activation)(Z), Z)

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        """S = σ'(Z)."""
        return getattr(backend, f"{self.activation}_derivative")(Z)

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """Gradients of W and b by equations (4d) and (4c), the deltas below by (4b)."""
        gradients = backend.weight_gradient(D, A_below), backend.bias_gradient(D)
        if not below:
            return None, gradients
        if S_below is None:
            S_below = backend.identity_derivative(A_below)
        return backend.hidden_delta(D, self.W, S_below), gradients

    def describe(self) -> dict[str, Any]:
        n_out, n_in = self.W.shape
        return {"kind": "dense", "n_in": n_in, "n_out": n_out, "activation": self.activation}

    def __repr__(self) -> str:
        n_out, n_in = self.W.shape
        return f"dense layer {n_in} to {n_out}, {self.activation}"


class LayerSequence:
    """Layers one behind the other, which together are a layer again.

    `draws` is True where one of them draws random numbers in training: a layer that does says so by its own `draws`.
    Each layer is then handed the position with its own number.
    """

    def __init__(self, layers: Sequence[Layer]):
        if not layers:
            raise CourseError("wanted at least one layer of neurons, got none")
        self.layers = list(layers)
        counts = [getattr(each, "count", 1) for each in layers]
        self.count: int = sum(counts)  # of layers, those within sequences each for itself
        self._before = [0, *accumulate(counts[:-1])]  # how many stand before each
        self.draws: bool = any(getattr(each, "draws", False) for each in layers)

    @property
    def activation(self) -> str:
        return self.layers[-1].activation

    @property
    def parameters(self) -> tuple[Array, ...]:
        return tuple(array for layer in self.layers for array in layer.parameters)

    def with_parameters(self, parameters: Sequence[Array]) -> "LayerSequence":
        return LayerSequence(distributed(self.layers, parameters))

    @property
    def statistics(self) -> tuple[Array, ...]:
        return tuple(array for layer in self.layers for array in layer.statistics)

    def with_statistics(self, statistics: Sequence[Array]) -> "LayerSequence":
        return LayerSequence(filled(self.layers, statistics))

    def shape_after(self, shape: Shape) -> Shape:
        for layer in self.layers:
            shape = layer.shape_after(shape)
        return shape

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """The last layer's A and Z; `kept` are the passes of all layers."""
        passes, A, Z = [], A_below, None
        positions = self._positions(training) if training and self.draws else repeat(training)
        for layer, position in zip(self.layers, positions, strict=False):
            here = layer.forward(A, backend, position)
            passes.append(here)
            A, Z, _ = here
        return Forward(A, Z, passes)

    def _positions(self, training: StepPosition) -> list[StepPosition]:
        """The position with each layer's own number."""
        return [training._replace(layer=training.layer + before) for before in self._before]

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        return self.layers[-1].slope(Z, backend)

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """Layer by layer, from the last to the first."""
        layers, passes = self.layers, here.kept
        gradients: list[Array] = []
        for number in range(len(layers) - 1, 0, -1):
            A, Z, _ = passes[number - 1]
            S = layers[number - 1].slope(Z, backend)
            D, found = layers[number].backward(D, passes[number], A, S, backend)
            gradients[:0] = found  # in front of those of the layers above
        D, found = layers[0].backward(D, passes[0], A_below, S_below, backend, below)
        return D, (*found, *gradients)

    def describe(self) -> dict[str, Any]:
        return {"kind": "sequence", "layers": [layer.describe() for layer in self.layers]}


def refuse_bad_activation(activation: str, what: str) -> None:
    """CourseError for an activation that there is not, and for one that only the outputs of a network can have."""
    if activation:
        refuse_unknown("an activation", activation, ACTIVATIONS)
    if ACTIVATIONS.get(activation) == "row":
        raise CourseError(f"{activation} is for a dense output layer; give {what} another activation")


def delta_below(G: Array, S_below: Array | None, backend: Calls) -> Array:
    """The deltas of the layer below from G = dC/dA_below, by equation (4a); G itself if it has no activation."""
    return G if S_below is None else backend.output_delta(G, S_below)


def distributed(layers: Sequence[Layer], parameters: Sequence[Array]) -> list[Layer]:
    """The layers with these arrays as parameters, in order."""
    left = iter(parameters)
    return [layer.with_parameters([next(left) for _ in layer.parameters]) for layer in layers]


def filled(layers: Sequence[Layer], statistics: Sequence[Array]) -> list[Layer]:
    """The layers with these arrays as statistics, in order."""
    left = iter(statistics)
    return [layer.with_statistics([next(left) for _ in layer.statistics]) for layer in layers]


def views(vector: Array, shapes: Sequence[Shape]) -> list[Array]:
    """Arrays of these shapes, one behind the other, as views into a flat vector."""
    found, start = [], 0
    for shape in shapes:
        end = start + prod(shape)
        found.append(vector[start:end].reshape(shape))
        start = end
    return found
