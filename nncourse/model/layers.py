"""Layers, the parts of a network. A layer knows no kernels: it calls those of the backend that it is given.

In the forward pass a layer computes activations A from inputs A_below. In the backward pass it computes the gradients
of its parameters, and the deltas below, from its own deltas D = dC/dZ. Arrays have one sample per row: (batch, …).
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from nncourse.calls import ACTIVATIONS, Array, Calls
from nncourse.errors import CourseError, refuse_unknown
from nncourse.group import Group
from nncourse.model import registry
from nncourse.model.registry import N, Shape, rebuilt, words_of, zeros


class Forward(NamedTuple):
    """A layer's results of the forward pass, which its backward pass needs.

    A are the activations, Z the weighted sums (None in a layer without an activation). `kept` is anything else that the
    layer needs: the positions of the maxima, a mask, batch statistics.
    """

    A: Array
    Z: Array | None = None
    kept: Any = None


class StepPosition(NamedTuple):
    """How far training is: its seed, the epoch, and the index, within the epoch, of the batch's first sample.

    `layer` is the number of the layer that gets the position. Random numbers in a layer depend only on these numbers
    and on the sample's row in the batch. So they stay the same if training is resumed, or uses smaller batches.

    `group` is given if this member has only some rows of the batch, and layers with statistics of the batch, such as
    batch normalisation, should compute them over the group. All members then call the same layers in the same order.
    """

    seed: int = 0
    epoch: int = 1
    first: int = 0
    layer: int = 0
    group: Group | None = None


class Layer(Protocol):
    """The interface of a layer. Dense is an example.

    A class may have more members. begun() calls `initial`. `sizes` names the numbers of the layer's word as describe()
    does. `takes_activation = True` says that make_network gives the layer an activation, `takes_over_activation` that
    it is that of the layer below, and `draws` that the layer draws random numbers in training. `brief` is a short name
    for tables.
    """

    @property
    def activation(self) -> str:
        """The name of the activation; "" for none: then Z is A, and D is dC/dA.

        If slope() is None, D is dC/dA too, and backward() applies the slope itself.
        """

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The arrays that training changes. In a network they are views into its flat vector."""

    def with_parameters(self, parameters: Sequence[Array]) -> "Layer":
        """The same layer with other arrays of the same shapes."""

    @property
    def statistics(self) -> tuple[Array, ...]:
        """The arrays that the layer itself changes in training, without a gradient; () in most layers."""

    def with_statistics(self, statistics: Sequence[Array]) -> "Layer":
        """The same layer with other arrays of statistics."""

    def shape_after(self, shape: Shape) -> Shape:
        """The shape of one sample after the layer. Raises CourseError if the layer does not fit samples of `shape`."""

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """The layer's results. Outside training `training` is None; dropout, for instance, then does nothing."""

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        """S = σ'(Z); None in a layer without an activation."""

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """The deltas of the layer below, dC/dA_below ⊙ S_below, and each parameter's gradient, a mean over the batch.

        `here` is what forward() returned. S_below is None if the layer below has no activation. `below` is False for
        the first layer of a network: then the deltas are not needed, and are None.
        """

    def describe(self) -> dict[str, Any]:
        """`kind`, and the sizes and names that rebuild the layer."""

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "Layer":
        """The layer that describe() described, with parameters of the right shapes; registry.py calls it."""


# (random generator, shape of W, fan_in, fan_out) -> W, b
Initialiser = Callable[[np.random.Generator, Shape, int, int], tuple[np.ndarray, np.ndarray]]


def begun(layer: Layer, rng: np.random.Generator, initialiser: Initialiser) -> Layer:
    """The layer with initial parameters: from its `initial(rng, initialiser)` if it has that, otherwise its own.

    They are converted to float32, which kernels need. Raises CourseError if initial() changes their shapes.
    """
    begins: Layer = layer.initial(rng, initialiser) if hasattr(layer, "initial") else layer
    arrays = [np.asarray(array, np.float32) for array in begins.parameters]
    wanted, given = [array.shape for array in layer.parameters], [array.shape for array in arrays]
    if given != wanted:
        raise CourseError(
            f"initial() of {type(layer).__name__}: expected parameters of the shapes {wanted}; got {given}"
        )
    return begins.with_parameters(arrays) if arrays else begins


class WithoutStatistics:
    """What layers without statistics have in common."""

    kind: str  # set by @layer
    sizes: tuple[str, ...] = ()
    statistics: tuple[Array, ...] = ()

    def with_statistics(self, statistics: Sequence[Array]) -> Any:
        return self

    def describe(self) -> dict[str, Any]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self.describe()["kind"])


class WithWeights(WithoutStatistics):
    """What layers with weights W and perhaps biases b have in common. Assigning W or b copies the numbers."""

    parameters: tuple[Array, ...]

    def with_parameters(self, parameters: Sequence[Array]) -> Any:
        raise NotImplementedError

    def initial(self, rng: np.random.Generator, initialiser: Initialiser) -> Any:
        """W (n_out, n_in, …) and b (n_out,) from the initialiser; `…` are the rows and columns of a filter.

        A layer without n_in, such as one with a factor for each number, keeps its values, and so do parameters after b.
        """
        if self.W.ndim < 2:
            return self
        n_out, n_in, *field = self.W.shape
        arrays = initialiser(rng, self.W.shape, n_in * prod(field), n_out * prod(field))
        return self.with_parameters([*arrays, *self.parameters[2:]][: len(self.parameters)])

    @property
    def W(self) -> Array:  # noqa: N802
        return self.parameters[0]

    @W.setter
    def W(self, values: Array) -> None:  # noqa: N802
        self.parameters[0][...] = values

    @property
    def b(self) -> Array | None:
        return self.parameters[1] if len(self.parameters) > 1 else None

    @b.setter
    def b(self, values: Array) -> None:
        self.parameters[1][...] = values


@registry.layer(
    "dense",
    label="dense",
    word="dense",
    pattern=N,
    wanted="sizes of at least 1, such as 128",
    below=lambda shape: {"n_in": shape[-1]},
    spelling=lambda *sizes: "x".join(map(str, sizes)),
    bare={"activation": "identity"},
)
class Dense(WithWeights):
    """A layer in which every neuron sees every input, equation (1): Z = A Wᵀ + b. W (n_out, n_in), b (n_out,), float32.

    For sequences, samples (t, n_in), it computes each position by itself: the batch then has t rows per sample.
    """

    sizes = ("n_out",)
    takes_activation = True
    brief = property(words_of)

    def __init__(self, W: Array, b: Array, activation: str):
        refuse_unknown("an activation", activation, ACTIVATIONS)
        self.parameters = (W, b)
        self.activation = activation

    def with_parameters(self, parameters: Sequence[Array]) -> "Dense":
        W, b = parameters
        return Dense(W, b, self.activation)

    def shape_after(self, shape: Shape) -> Shape:
        n_out, n_in = self.W.shape
        if shape[-1:] != (n_in,) or len(shape) > 2:
            raise CourseError(f"expected samples of shape ({n_in},) for a dense layer {n_in} to {n_out}; got {shape}")
        return (*shape[:-1], n_out)

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """Weighted sums Z = A Wᵀ + b and activations σ(Z): equation (1)."""
        W, b = self.parameters
        Z = backend.dense_forward(rows_of(A_below), W, b)
        A = Z if self.activation == "identity" else getattr(backend, self.activation)(Z)
        shape = (*A_below.shape[:-1], len(W))
        return Forward(A.reshape(shape), Z.reshape(shape))

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        """S = σ'(Z); None for the identity, whose slope is 1."""
        return None if self.activation == "identity" else getattr(backend, f"{self.activation}_derivative")(Z)

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """Gradients of W and b by equations (4d) and (4c), the deltas below by (4b)."""
        deltas = rows_of(D)
        # (4c) and (4d) divide by the rows of all positions.
        of_gradients = deltas if D.ndim == 2 else deltas * np.float32(D.shape[1])
        gradients = backend.weight_gradient(of_gradients, rows_of(A_below)), backend.bias_gradient(of_gradients)
        if not below:
            return None, gradients
        S = None if S_below is None else rows_of(S_below)
        return delta_of_rows(deltas, self.W, S, backend).reshape(A_below.shape), gradients

    def describe(self) -> dict[str, Any]:
        n_out, n_in = self.W.shape
        return {"kind": "dense", "n_in": n_in, "n_out": n_out, "activation": self.activation}

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "Dense":
        n_in, n_out = int(about["n_in"]), int(about["n_out"])
        if min(n_in, n_out) < 1:
            raise CourseError(f"expected a dense layer with inputs and neurons, got {n_in} and {n_out}")
        return cls(zeros(n_out, n_in), zeros(n_out), str(about["activation"]))

    def __repr__(self) -> str:
        n_out, n_in = self.W.shape
        return f"dense layer {n_in} to {n_out}, {self.activation}"


@registry.layer("sequence", label="sequence")
class LayerSequence:
    """Layers one after the other, which together are a layer again.

    `draws` is True if one of them draws random numbers in training. Each layer is then given the position with its own
    number.
    """

    def __init__(self, layers: Sequence[Layer]):
        if not layers:
            raise CourseError("expected at least one layer of neurons, got none")
        self.layers = list(layers)
        counts = [getattr(each, "count", 1) for each in layers]
        self.count: int = sum(counts)  # layers, including those within sequences
        self._before = [0, *accumulate(counts[:-1])]  # how many precede each
        self.draws: bool = any(getattr(each, "draws", False) for each in layers)

    @property
    def activation(self) -> str:
        return self.layers[-1].activation

    @property
    def parameters(self) -> tuple[Array, ...]:
        return tuple(array for layer in self.layers for array in layer.parameters)

    def of_layers(self, layers: Sequence[Layer]) -> "LayerSequence":
        """The same sequence of other layers."""
        return LayerSequence(layers)

    def with_parameters(self, parameters: Sequence[Array]) -> "LayerSequence":
        return self.of_layers(distributed(self.layers, parameters))

    def initial(self, rng: np.random.Generator, initialiser: Initialiser) -> "LayerSequence":
        """Each layer gets its own initial parameters, from the first to the last."""
        return self.of_layers([begun(layer, rng, initialiser) for layer in self.layers])

    @property
    def statistics(self) -> tuple[Array, ...]:
        return tuple(array for layer in self.layers for array in layer.statistics)

    def with_statistics(self, statistics: Sequence[Array]) -> "LayerSequence":
        return self.of_layers(filled(self.layers, statistics))

    def shape_after(self, shape: Shape) -> Shape:
        for layer in self.layers:
            shape = layer.shape_after(shape)
        return shape

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """The last layer's A and Z; `kept` is a list of the results of each layer's forward()."""
        passes, A, Z = [], A_below, None
        for layer, before in zip(self.layers, self._before, strict=True):
            own = training._replace(layer=training.layer + before) if training and self.draws else training
            here = layer.forward(A, backend, own)
            passes.append(here)
            A, Z, _ = here
        return Forward(A, Z, passes)

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        return self.layers[-1].slope(Z, backend)

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """From the last layer to the first."""
        layers, passes = self.layers, here.kept
        gradients: list[Array] = []
        for number in range(len(layers) - 1, 0, -1):
            A, Z, _ = passes[number - 1]
            S = layers[number - 1].slope(Z, backend)
            D, found = layers[number].backward(D, passes[number], A, S, backend)
            gradients[:0] = found  # before those of the layers above
        D, found = layers[0].backward(D, passes[0], A_below, S_below, backend, below)
        return D, (*found, *gradients)

    def describe(self) -> dict[str, Any]:
        return {"kind": "sequence", "layers": [layer.describe() for layer in self.layers]}

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "LayerSequence":
        return cls([rebuilt(each) for each in about["layers"]])


def refuse_bad_activation(activation: str, what: str) -> None:
    """Raise CourseError for an unknown activation, and for one that only the outputs of a network can have."""
    if activation:
        refuse_unknown("an activation", activation, ACTIVATIONS)
    if ACTIVATIONS.get(activation) == "row":
        raise CourseError(f"{activation} is for a dense output layer; give {what} another activation")


def delta_of_rows(D: Array, W: Array, S: Array | None, backend: Calls) -> Array:
    """(D W) ⊙ S, equation (4b). S may be None for slopes of 1, which some kernels can leave out."""
    if S is None and "S" not in backend.kernels["hidden_delta"].optional:
        S = backend.identity_derivative(np.empty_like(D, shape=(len(D), W.shape[1])))
    return backend.hidden_delta(D, W, S)


def delta_below(G: Array, S_below: Array | None, backend: Calls) -> Array:
    """The deltas of the layer below from G = dC/dA_below, by equation (4a); G itself if it has no activation."""
    return G if S_below is None else backend.output_delta(G, S_below)


def rows_of(A: Array) -> Array:
    """Samples (batch, n) as they are; sequences (batch, t, n) as batch · t rows, one for each position."""
    return A if A.ndim == 2 else A.reshape(-1, A.shape[-1])


def distributed(layers: Sequence[Layer], parameters: Sequence[Array]) -> list[Layer]:
    """The layers with these arrays as parameters, in order."""
    left = iter(parameters)
    return [layer.with_parameters([next(left) for _ in layer.parameters]) for layer in layers]


def filled(layers: Sequence[Layer], statistics: Sequence[Array]) -> list[Layer]:
    """The layers with these arrays as statistics, in order."""
    left = iter(statistics)
    return [layer.with_statistics([next(left) for _ in layer.statistics]) for layer in layers]


def views(vector: Array, shapes: Sequence[Shape]) -> list[Array]:
    """Consecutive arrays of these shapes, as views into a flat vector."""
    found, start = [], 0
    for shape in shapes:
        end = start + prod(shape)
        found.append(vector[start:end].reshape(shape))
        start = end
    return found
