"""Layers for images, (batch, channels, height, width), and layers that lead from images to dense layers."""

import re
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.model import registry
from nncourse.model.layers import (
    Forward,
    StepPosition,
    WithoutStatistics,
    WithWeights,
    delta_below,
    refuse_bad_activation,
)
from nncourse.model.registry import IMAGE, N, Shape, whole, zeros

MOST_COUNTED = 1 << 31  # seeds and epochs of dropout are taken modulo this: its counters have 32 bits


S, P = r"s\d{1,9}", r"p\d{1,9}"  # a stride and a padding, in a word


def _of_conv(found: re.Match[str]) -> tuple[float, ...]:
    k, options = int(found[2]), _options(found[3])
    before, after = _same(k) if "same" in options else options.get("p", (0, 0))
    return int(found[1]), k, options.get("s", (1,))[0], before, after


def _of_pool(found: re.Match[str]) -> tuple[float, ...]:
    size, options = int(found[1]), _options(found[2])
    return size, options.get("s", (size,))[0], options.get("p", (0,))[0]


def _options(text: str) -> dict[str, tuple[int, ...]]:
    """The numbers after s and p, and "same", in any order: p1+2 has two numbers, p1 the same one twice."""
    options: dict[str, tuple[int, ...]] = {}
    for name, first, second in re.findall(r"(same|s|p)(?:(\d+)(?:\+(\d+))?)?", text):
        if name in options or {name, *options} >= {"same", "p"}:
            raise CourseError("expected s and p at most once each, and not both same and p")
        options[name] = (int(first or 0), int(second or first or 0))
    return options


def _conv_spelling(filters: int, k: int, stride: int, before: int, after: int) -> str:
    around = f"p{before}" if before == after else f"p{before}+{after}"
    padding = "" if before == after == 0 else "same" if (before, after) == _same(k) else around
    return f"conv{filters}x{k}{padding}" + f"s{stride}" * (stride != 1)


def _pool_spelling(word: str, size: int, stride: int) -> str:
    return f"{word}{size}" + f"s{stride}" * (stride != size)


def _same(k: int) -> tuple[int, int]:
    """The zeros before and after the image with which filters of k x k and stride 1 keep its size."""
    return (k - 1) // 2, k // 2


@registry.layer(
    "convolution",
    label="convolution",
    word="conv",
    pattern=rf"conv{N}x{N}((?:same|{S}|{P}(?:\+\d{{1,9}})?)*)",
    wanted="conv, filters and their side, such as conv4x3, conv4x3same or conv4x3p1s2",
    below=lambda shape: {"c_in": shape[0]},
    numbers=_of_conv,
    spelling=_conv_spelling,
    bare={"activation": "", "bias": False},
    after=IMAGE,
)
class Convolution(WithWeights):
    """Filters that move over an image, each over all of its channels. W (c_out, c_in, k, k), b (c_out,), float32.

    `before` and `after` count the rows and columns of zeros before and after the image. If a batch normalisation
    follows, biases have no effect: b may be None, and the activation is "". The equation is in kernels/convolution.py.
    """

    sizes = "c_out", "k", "stride", "before", "after"
    takes_activation = True

    def __init__(self, W: Array, b: Array | None, activation: str, stride: int = 1, before: int = 0, after: int = 0):
        refuse_bad_activation(activation, "a convolution")
        k = W.shape[-1]
        if not (stride >= 1 and 0 <= before < k and 0 <= after < k):
            wanted = f"a stride of at least 1, and before and after from 0 to {k - 1}, for filters of {k}x{k}"
            raise CourseError(f"expected {wanted}; got stride {stride}, before {before}, after {after}")
        self.parameters = (W,) if b is None else (W, b)
        self.activation = activation
        self.stride, self.before, self.after = stride, before, after

    def with_parameters(self, parameters: Sequence[Array]) -> "Convolution":
        W, *b = parameters
        return Convolution(W, b[0] if b else None, self.activation, self.stride, self.before, self.after)

    def shape_after(self, shape: Shape) -> Shape:
        c_out, c_in, k, _ = self.W.shape
        if len(shape) != 3 or shape[0] != c_in:
            raise CourseError(f"expected images of shape ({c_in}, height, width) for filters of {k}x{k}; got {shape}")
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

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "Convolution":
        c_out, c_in, k = (whole(about, name, 1) for name in ("c_out", "c_in", "k"))
        steps = {name: whole(about, name) for name in ("stride", "before", "after")}
        b = zeros(c_out) if about.get("bias", True) else None
        return cls(zeros(c_out, c_in, k, k), b, str(about["activation"]), **steps)

    @property
    def brief(self) -> str:
        k = self.W.shape[-1]
        return f"convolution {k}×{k}, stride {self.stride}"

    def __repr__(self) -> str:
        c_out, c_in, k, _ = self.W.shape
        padding = f", zeros {self.before} before and {self.after} after" if self.before + self.after else ""
        activation = f", {self.activation}" if self.activation else ""
        return f"convolution of {c_in} to {c_out} channels, {k}x{k}, stride {self.stride}{padding}{activation}"


class WithoutParameters(WithoutStatistics):
    """What layers without parameters and activation have in common. Each adds gradient_below().

    `sizes` names whole numbers that describe the layer: arguments of the class, and attributes.
    """

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

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind} | {name: getattr(self, name) for name in self.sizes}

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> Any:
        return cls(*(whole(about, name) for name in cls.sizes))


@registry.layer(
    "maxpool",
    label="maxpool",
    word="pool",
    pattern=rf"pool{N}((?:{S}|{P})*)",
    wanted="pool and its side, such as pool2, pool3s2 or pool3s2p1",
    numbers=_of_pool,
    spelling=lambda size, stride, padding: _pool_spelling("pool", size, stride) + f"p{padding}" * (padding != 0),
    after=IMAGE,
)
class MaxPool(WithoutParameters):
    """The largest number of each window, size x size, of each channel. The padding does not count."""

    sizes = "size", "stride", "padding"

    def __init__(self, size: int, stride: int | None = None, padding: int = 0):
        self.size, self.stride, self.padding = size, size if stride is None else stride, padding
        if not (size >= 1 and self.stride >= 1 and 0 <= 2 * padding <= size):
            wanted = "a size and a stride of at least 1, and a padding from 0 to half of the size"
            raise CourseError(f"expected {wanted}, for a max-pool; got {size}, {self.stride} and {padding}")

    @property
    def is_side_by_side(self) -> bool:
        """True if the windows neither overlap nor leave gaps, and there is no padding."""
        return self.stride == self.size and not self.padding

    def shape_after(self, shape: Shape) -> Shape:
        _refuse_other_than_images(shape, "a max-pool")
        return (shape[0], *_places(shape, self.size, self.stride, 2 * self.padding, "windows"))

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """The maxima; `kept`: their positions in the image."""
        A, places = backend.maxpool_forward(A_below, self.size, self.stride, self.padding)
        return Forward(A, kept=places)

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        """D goes to the position of the maximum."""
        height, width = A_below.shape[2:]
        return backend.maxpool_backward(D, here.kept, height, width, self.size, self.stride, self.padding)

    @property
    def brief(self) -> str:
        return f"max-pool {self.size}×{self.size}, stride {self.stride}"

    def __repr__(self) -> str:
        padding = f", padding {self.padding}" if self.padding else ""
        return f"max-pool {self.size}x{self.size}, stride {self.stride}{padding}"


@registry.layer(
    "averagepool",
    label="averagepool",
    word="averagepool",
    pattern=rf"averagepool{N}((?:{S})*)",
    wanted="averagepool and its side, such as averagepool2",
    numbers=lambda found: _of_pool(found)[:2],
    spelling=partial(_pool_spelling, "averagepool"),
    after=IMAGE,
)
class AveragePool(WithoutParameters):
    """The mean of each window, size x size, of each channel."""

    sizes = "size", "stride"

    def __init__(self, size: int, stride: int | None = None):
        self.size, self.stride = size, size if stride is None else stride
        if not (size >= 1 and self.stride >= 1):
            wanted = "a size and a stride of at least 1, for an average-pool"
            raise CourseError(f"expected {wanted}; got {size} and {self.stride}")

    def shape_after(self, shape: Shape) -> Shape:
        _refuse_other_than_images(shape, "an average-pool")
        return (shape[0], *_places(shape, self.size, self.stride, 0, "windows"))

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        return Forward(backend.averagepool_forward(A_below, self.size, self.stride))

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        """D is shared equally by the window's numbers."""
        height, width = A_below.shape[2:]
        return backend.averagepool_backward(D, height, width, self.size, self.stride)

    def __repr__(self) -> str:
        return f"average-pool {self.size}x{self.size}, stride {self.stride}"


@registry.layer("globalpool", label="globalpool", word="globalpool", wanted="globalpool, without numbers", after=IMAGE)
class GlobalAveragePool(WithoutParameters):
    """The mean of each channel: an image of any size becomes a row of numbers, one per channel."""

    def shape_after(self, shape: Shape) -> Shape:
        _refuse_other_than_images(shape, "a global average-pool")
        return shape[:1]

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        return Forward(backend.globalpool_forward(A_below))

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        """D is shared equally by all pixels."""
        return backend.globalpool_backward(D, *A_below.shape[2:])

    def __repr__(self) -> str:
        return "global average-pool"


@registry.layer("flatten", label="flatten")
class Flatten(WithoutParameters):
    """Images as rows of numbers: channel by channel, row by row."""

    def shape_after(self, shape: Shape) -> Shape:
        return (prod(shape),)

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        return Forward(A_below.reshape(len(A_below), prod(A_below.shape[1:])))

    def gradient_below(self, D: Array, here: Forward, A_below: Array, backend: Calls) -> Array:
        return D.reshape(A_below.shape)


@registry.layer(
    "dropout",
    label="dropout",
    word="dropout",
    pattern=r"dropout(\d{0,9}\.?\d{1,9})",
    wanted="dropout and its rate, such as dropout0.5",
    numbers=lambda found: (float(found[1]),),
    spelling=lambda rate: f"dropout{rate:g}",
)
class Dropout(WithoutParameters):
    """In training, sets each number to 0 with probability `rate`, and divides the others by 1 − rate.

    The choice depends only on the position and the sample's row. It is computed twice, not stored.
    """

    sizes = ("rate",)
    draws = True

    def __init__(self, rate: float):
        if not 0 <= rate < 1:
            raise CourseError(f"expected a rate of dropout of at least 0 and below 1; got {rate}")
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

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "Dropout":
        return cls(float(about["rate"]))

    def __repr__(self) -> str:
        return f"dropout {self.rate:g}"


def _refuse_other_than_images(shape: Shape, what: str) -> None:
    if len(shape) != 3:
        raise CourseError(f"expected images, (channels, height, width), for {what}; got samples of shape {shape}")


def _places(shape: Shape, size: int, stride: int, padding: int, what: str) -> Shape:
    """The number of positions of a window, down and across. Raises CourseError if it is larger than the image."""
    sides = [side + padding for side in shape[1:]]
    if min(sides) < size:
        padded = f", {sides[0]}x{sides[1]} with its padding" if padding else ""
        raise CourseError(f"expected {what} no larger than the image, {shape[1]}x{shape[2]}{padded}; got {size}x{size}")
    return tuple((side - size) // stride + 1 for side in sides)
