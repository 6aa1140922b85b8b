"""Layers for images, (batch, channels, height, width), and layers between them and dense layers."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nncourse.architecture import Filters
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.model.layers import (
    Forward,
    Shape,
    StepPosition,
    WithoutStatistics,
    WithWeights,
    delta_below,
    refuse_bad_activation,
)

MOST_COUNTED = 1 << 31  # seeds and epochs of dropout are taken modulo this: its counters have 32 bits


class Convolution(WithWeights):
    """Filters that move over an image, each over all of its channels. W (c_out, c_in, k, k), b (c_out,), float32.

    `before` and `after` are rows and columns of zeros before and after the image. If a batch normalisation follows,
    biases have no effect: then b may be None, and the activation "".
    """

    takes_activation = True

    def __init__(self, W: Array, b: Array | None, activation: str, stride: int = 1, before: int = 0, after: int = 0):
        refuse_bad_activation(activation, "a convolution")
        k = W.shape[-1]
        if not (stride >= 1 and 0 <= before < k and 0 <= after < k):
            wanted = f"a stride of at least 1, and before and after from 0 to {k - 1}, for filters of {k}x{k}"
            raise CourseError(f"wanted {wanted}; got stride {stride}, before {before}, after {after}")
        self.parameters = (W,) if b is None else (W, b)
        self.activation = activation
        self.stride, self.before, self.after = stride, before, after

    @property
    def filters(self) -> Filters:
        """The layer without its parameters and activation, for kernels of fused epochs."""
        c_out, _, k, _ = self.W.shape
        return Filters(c_out, k, self.stride, self.before, self.after)

    def with_parameters(self, parameters: Sequence[Array]) -> "Convolution":
        W, *b = parameters
        return Convolution(W, b[0] if b else None, self.activation, self.stride, self.before, self.after)

    def shape_after(self, shape: Shape) -> Shape:
        c_out, c_in, k, _ = self.W.shape
        if len(shape) != 3 or shape[0] != c_in:
            raise CourseError(f"wanted images of shape ({c_in}, height, width) for filters of {k}x{k}; got {shape}")
        return (c_out, *_places(shape, k, self.stride, self.before + self.after, "filters"))

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """Each filter's weighted sum at each position in the image, and activations σ(Z)."""
        W, b = self.W, self.b
        if b is None and "b" not in backend.kernels["convolution_forward"].optional:
            b = np.zeros_like(W, shape=len(W))
        Z = backend.convolution_forward(A_below, W, b, self.stride, self.before, self.after)
        return Forward(getattr(backend, self.activation)(Z), Z) if self.activation else Forward(Z)

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        """S = σ'(Z)."""
        return getattr(backend, f"{self.activation}_derivative")(Z) if self.activation else None

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        steps = self.stride, self.before, self.after
        gradients: tuple[Array, ...] = (backend.convolution_weight_gradient(D, A_below, self.W.shape[-1], *steps),)
        if self.b is not None:
            gradients = (*gradients, backend.convolution_bias_gradient(D))
        if not below:
            return None, gradients
        height, width = A_below.shape[2:]
        G = backend.convolution_input_gradient(D, self.W, height, width, *steps)
        return delta_below(G, S_below, backend), gradients

    def describe(self) -> dict[str, Any]:
        c_out, c_in, k, _ = self.W.shape
        steps = {"stride": self.stride, "before": self.before, "after": self.after}
        bias = {} if self.b is not None else {"bias": False}
        sizes = {"c_in": c_in, "c_out": c_out, "k": k, **steps}
        return {"kind": "convolution", **sizes, "activation": self.activation, **bias}

    def __repr__(self) -> str:
        c_out, c_in, k, _ = self.W.shape
        padding = f", zeros {self.before} before and {self.after} after" if self.before + self.after else ""
        activation = f", {self.activation}" if self.activation else ""
        return f"convolution of {c_in} to {c_out} channels, {k}x{k}, stride {self.stride}{padding}{activation}"


class WithoutParameters(WithoutStatistics):
    """What layers without parameters and activation have in common. Each adds gradient_below()."""

    activation = ""
    parameters: tuple[Array, ...] = ()

    def with_parameters(self, parameters: Sequence[Array]) -> Any:
        return self

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        return None

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        return (delta_below(self.gradient_below(D, here, A_below, backend), S_below, backend) if below else None), ()

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        """dC/dA_below from D = dC/dA."""
        raise NotImplementedError


class MaxPool(WithoutParameters):
    """The largest number of each window, size x size, of each channel. The padding does not count."""

    def __init__(self, size: int, stride: int | None = None, padding: int = 0):
        self.size, self.stride, self.padding = size, size if stride is None else stride, padding
        if not (size >= 1 and self.stride >= 1 and 0 <= 2 * padding <= size):
            wanted = "a size and a stride of at least 1, and a padding from 0 to half of the size"
            raise CourseError(f"wanted {wanted}, for a max-pool; got {size}, {self.stride} and {padding}")

    @property
    def is_side_by_side(self) -> bool:
        """True where the windows neither overlap nor leave gaps, and there is no padding."""
        return self.stride == self.size and not self.padding

    def shape_after(self, shape: Shape) -> Shape:
        _refuse_other_than_images(shape, "a max-pool")
        return (shape[0], *_places(shape, self.size, self.stride, 2 * self.padding, "windows"))

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """The maxima; `kept`: their places in the image."""
        A, places = backend.maxpool_forward(A_below, self.size, self.stride, self.padding)
        return Forward(A, kept=places)

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        """D goes to the place of the maximum."""
        height, width = A_below.shape[2:]
        return backend.maxpool_backward(D, here.kept, height, width, self.size, self.stride, self.padding)

    def describe(self) -> dict[str, Any]:
        return {"kind": "maxpool", "size": self.size, "stride": self.stride, "padding": self.padding}

    def __repr__(self) -> str:
        padding = f", padding {self.padding}" if self.padding else ""
        return f"max-pool {self.size}x{self.size}, stride {self.stride}{padding}"


class AveragePool(WithoutParameters):
    """The mean of each window, size x size, of each channel."""

    def __init__(self, size: int, stride: int | None = None):
        self.size, self.stride = size, size if stride is None else stride
        if not (size >= 1 and self.stride >= 1):
            wanted = "a size and a stride of at least 1, for an average-pool"
            raise CourseError(f"wanted {wanted}; got {size} and {self.stride}")

    def shape_after(self, shape: Shape) -> Shape:
        _refuse_other_than_images(shape, "an average-pool")
        return (shape[0], *_places(shape, self.size, self.stride, 0, "windows"))

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        return Forward(backend.averagepool_forward(A_below, self.size, self.stride))

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        """D goes in equal parts to the window's numbers."""
        height, width = A_below.shape[2:]
        return backend.averagepool_backward(D, height, width, self.size, self.stride)

    def describe(self) -> dict[str, Any]:
        return {"kind": "averagepool", "size": self.size, "stride": self.stride}

    def __repr__(self) -> str:
        return f"average-pool {self.size}x{self.size}, stride {self.stride}"


class GlobalAveragePool(WithoutParameters):
    """The mean of each channel: an image of any size becomes a row of numbers, one a channel."""

    def shape_after(self, shape: Shape) -> Shape:
        _refuse_other_than_images(shape, "a global average-pool")
        return shape[:1]

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        return Forward(backend.globalpool_forward(A_below))

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        """D goes in equal parts to all pixels."""
        return backend.globalpool_backward(D, *A_below.shape[2:])

    def describe(self) -> dict[str, Any]:
        return {"kind": "globalpool"}

    def __repr__(self) -> str:
        return "global average-pool"


class Flatten(WithoutParameters):
    """Images as rows of numbers: channel by channel, row by row."""

    def shape_after(self, shape: Shape) -> Shape:
        return (prod(shape),)

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        return Forward(A_below.reshape(len(A_below), prod(A_below.shape[1:])))

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        return D.reshape(A_below.shape)

    def describe(self) -> dict[str, Any]:
        return {"kind": "flatten"}

    def __repr__(self) -> str:
        return "flatten"


class Dropout(WithoutParameters):
    """In training, drops each number with probability `rate`, and divides the others by 1 − rate.

    What is dropped depends only on the position and the sample's row. It is computed twice, not stored.
    """

    draws = True

    def __init__(self, rate: float):
        if not 0 <= rate < 1:
            raise CourseError(f"wanted a rate of dropout of at least 0 and below 1; got {rate}")
        self.rate = rate

    def shape_after(self, shape: Shape) -> Shape:
        return shape

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """`kept`: the position; None outside training."""
        return Forward(self._dropped(A_below, backend, training), kept=training)

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        return self._dropped(D, backend, here.kept)

    def _dropped(self, A: Array, backend: Calls, position: StepPosition | None) -> Array:
        if position is None:
            return A
        rows = A.reshape(len(A), prod(A.shape[1:]))
        seed, epoch = position.seed % MOST_COUNTED, position.epoch % MOST_COUNTED
        return backend.dropout(rows, self.rate, seed, epoch, position.first, position.layer).reshape(A.shape)

    def describe(self) -> dict[str, Any]:
        return {"kind": "dropout", "rate": self.rate}

    def __repr__(self) -> str:
        return f"dropout {self.rate:g}"


def _refuse_other_than_images(shape: Shape, what: str) -> None:
    if len(shape) != 3:
        raise CourseError(f"wanted images, (channels, height, width), for {what}; got samples of shape {shape}")


def _places(shape: Shape, size: int, stride: int, padding: int, what: str) -> Shape:
    """The number of positions of a window, down and across. Raises CourseError if it is larger than the image."""
    sides = [side + padding for side in shape[1:]]
    if min(sides) < size:
        padded = f", {sides[0]}x{sides[1]} with its padding" if padding else ""
        raise CourseError(f"wanted {what} no larger than the image, {shape[1]}x{shape[2]}{padded}; got {size}x{size}")
    return tuple((side - size) // stride + 1 for side in sides)
