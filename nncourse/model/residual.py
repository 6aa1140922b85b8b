"""Layers of deep networks for images: batch normalisation and blocks with a shortcut; the layers of a ResNet.

Images are (batch, channels, height, width). Batch normalisation also takes rows of numbers, as images of one pixel.
"""

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from nncourse.calls import Array, Calls
from nncourse.errors import CourseError, refuse_unknown
from nncourse.group import Group
from nncourse.model import registry
from nncourse.model.layers import (
    Forward,
    Initialiser,
    Layer,
    LayerSequence,
    StepPosition,
    WithWeights,
    delta_below,
    refuse_bad_activation,
)
from nncourse.model.registry import Shape, rebuilt, whole, zeros

EPSILON = 1e-5  # added to a variance
MOMENTUM = 0.1  # the weight of a batch in the running statistics
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # of each stage of a ResNet, by depth
WIDTHS = 64, 128, 256, 512  # channels of each stage


@registry.layer(
    "batchnorm",
    label="batchnorm",
    word="batchnorm",
    wanted="batchnorm, without numbers",
    below=lambda shape: {"channels": shape[0]},
)
class BatchNorm:
    """Batch normalisation (Ioffe and Szegedy, 2015): each channel gets mean beta, deviation gamma (c,) over a batch.

    An activation follows. `statistics` are the running mean and variance of each channel over the training batches.
    Outside training they replace the batch's. ReLU is part of the layer: backward() applies its slope.
    """

    takes_activation = takes_over_activation = True
    brief = "batch normalisation"

    def __init__(self, gamma: Array, beta: Array, activation: str = "", statistics: Sequence[Array] = ()):
        refuse_bad_activation(activation, "a batch normalisation")
        self.parameters: tuple[Array, ...] = (gamma, beta)
        self.activation = activation
        self.statistics: tuple[Array, ...] = tuple(statistics) or (np.zeros_like(gamma), np.ones_like(gamma))

    def with_parameters(self, parameters: Sequence[Array]) -> "BatchNorm":
        gamma, beta = parameters
        return BatchNorm(gamma, beta, self.activation, self.statistics)

    def initial(self, rng: np.random.Generator, initialiser: Initialiser) -> "BatchNorm":
        """gamma 1 and beta 0: each channel gets mean 0 and standard deviation 1."""
        channels = self.parameters[0].size
        return self.with_parameters((np.ones(channels, np.float32), np.zeros(channels, np.float32)))

    def with_statistics(self, statistics: Sequence[Array]) -> "BatchNorm":
        gamma, beta = self.parameters
        return BatchNorm(gamma, beta, self.activation, statistics)

    def shape_after(self, shape: Shape) -> Shape:
        channels = self.parameters[0].size
        if len(shape) not in (1, 3) or shape[0] != channels:
            wanted = f"{channels} numbers, or images of {channels} channels"
            raise CourseError(f"expected samples of {wanted}, for a batch normalisation; got {shape}")
        return shape

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """`kept`: each channel's mean and variance, and the group they were computed over; None outside training."""
        images = _as_images(A_below)
        numbers, kept = self._numbers(images, backend, training)
        if self.activation == "relu" and "batchnorm_relu" in backend.kernels:
            return Forward(backend.batchnorm_relu(images, *numbers, EPSILON).reshape(A_below.shape), kept=kept)
        Z = backend.batchnorm_forward(images, *numbers, EPSILON).reshape(A_below.shape)
        if not self.activation:
            return Forward(Z, kept=kept)
        A = getattr(backend, self.activation)(Z)
        return Forward(A, None if self.activation == "relu" else Z, kept)

    def forward_onto(
        self, A_below: Array, shortcut: Array, backend: Calls, training: StepPosition | None = None
    ) -> Forward:
        """max(0, forward() + shortcut), in one pass over memory."""
        images = _as_images(A_below)
        numbers, kept = self._numbers(images, backend, training)
        A = backend.batchnorm_shortcut_relu(images, *numbers, EPSILON, _as_images(shortcut))
        return Forward(A.reshape(A_below.shape), kept=kept)

    def _numbers(
        self, images: Array, backend: Calls, training: StepPosition | None
    ) -> tuple[tuple[Array, Array, Array, Array], Any]:
        """mean, variance, gamma and beta; and `kept` of forward()."""
        gamma, beta = self.parameters
        running_mean, running_variance = self.statistics
        if training is None:
            return (running_mean, running_variance, gamma, beta), None
        group = training.group
        mean, variance = backend.batchnorm_statistics(images)
        count = images.size // mean.size
        if group is None:
            unbiased, correction = variance, count / max(count - 1, 1)
        else:
            mean, variance, unbiased = _over_group(group, mean, variance, count)
            correction = 1.0
        backend.batchnorm_running(running_mean, running_variance, mean, unbiased, MOMENTUM, correction)
        return (mean, variance, gamma, beta), (mean, variance, group)

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        """σ'(Z); None for ReLU, whose slope backward() applies."""
        return None if Z is None else getattr(backend, f"{self.activation}_derivative")(Z)

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """D is dC/dZ, or dC/dA with ReLU or without an activation."""
        if here.kept is None:
            raise CourseError("expected a forward pass with a position, for the backward pass of a batch normalisation")
        mean, variance, group = here.kept
        if self.activation == "relu":
            D = backend.relu_delta(D, here.A)
        deltas, images = _as_images(D), _as_images(A_below)
        gradients = backend.batchnorm_gradients(deltas, images, mean, variance, EPSILON)
        if not below:
            return None, gradients
        of_all = gradients if group is None else _mean_over_group(group, gradients, len(D))
        G = backend.batchnorm_backward(deltas, images, mean, variance, self.parameters[0], *of_all, EPSILON)
        return delta_below(G.reshape(A_below.shape), S_below, backend), gradients

    def describe(self) -> dict[str, Any]:
        return {"kind": "batchnorm", "channels": self.parameters[0].size, "activation": self.activation}

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "BatchNorm":
        empty = zeros(whole(about, "channels", 1))
        return cls(empty, empty, str(about["activation"]))

    def __repr__(self) -> str:
        activation = f", {self.activation}" if self.activation else ""
        return f"batch normalisation of {self.parameters[0].size} channels{activation}"


def _as_images(A: Array) -> Array:
    return A.reshape(*A.shape, 1, 1) if A.ndim == 2 else A


def _over_group(group: Group, mean: Array, variance: Array, count: int) -> tuple[Array, Array, Array]:
    """Mean, variance and unbiased variance over all members' numbers; this member has `count` of each channel.

    The mean is computed first, then the squared distances from it, so that no large sums are subtracted.
    """
    sums = np.empty_like(mean, shape=(mean.size + 1,))
    sums[:-1] = mean * count
    sums[-1] = count
    group.all_reduce(sums)
    counts = sums[-1:]  # an array, so that the CPU need not wait for a GPU
    of_all = sums[:-1] / counts
    squares = (variance + (mean - of_all) ** 2) * count
    group.all_reduce(squares)
    return of_all, squares / counts, squares / np.maximum(counts - 1, 1)


def _mean_over_group(group: Group, gradients: tuple[Array, Array], rows: int) -> tuple[Array, Array]:
    """Gradients of gamma and beta as means over all members' rows."""
    c = gradients[0].size
    sums = np.empty_like(gradients[0], shape=(2 * c + 1,))
    sums[:c], sums[c:-1] = gradients[0] * rows, gradients[1] * rows
    sums[-1] = rows
    group.all_reduce(sums)
    means = sums[:-1] / sums[-1:]
    return means[:c], means[c:]


@registry.layer("residual", label="residual")
class Residual(LayerSequence):
    """A block with a shortcut (He and others, 2016): A = σ(body(A_below) + shortcut(A_below)); σ is ReLU or nothing.

    `layers` are those of the body, then those of the shortcut. A shortcut without layers is A_below itself. ReLU is
    part of the block: backward() applies its slope.
    """

    def __init__(self, body: Sequence[Layer], shortcut: Sequence[Layer] = (), activation: str = "relu"):
        if activation not in ("", "relu"):
            raise CourseError(f'expected relu, or "", as the activation after a shortcut; got {activation!r}')
        self.body = LayerSequence(body)
        self.shortcut = LayerSequence(shortcut) if shortcut else None
        super().__init__([*body, *shortcut])
        self._activation = activation

    @property
    def activation(self) -> str:
        return self._activation

    def of_layers(self, layers: Sequence[Layer]) -> "Residual":
        first = len(self.body.layers)
        return Residual(layers[:first], layers[first:], self.activation)

    def shape_after(self, shape: Shape) -> Shape:
        of_body = self.body.shape_after(shape)
        of_shortcut = self.shortcut.shape_after(shape) if self.shortcut else shape
        if of_body != of_shortcut:
            raise CourseError(f"expected a shortcut that gives the body's shape, {of_body}; it gives {of_shortcut}")
        return of_body

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """`kept`: the body's `kept`, and the Forward of the shortcut."""
        beside, B = None, A_below
        if self.shortcut:
            position = training and training._replace(layer=training.layer + self.body.count)
            beside = self.shortcut.forward(A_below, backend, position)
            B = beside.A
            if _is_plain_norm(self.shortcut.layers[-1]):  # its backward() does not need its output
                beside = Forward(None, kept=[*beside.kept[:-1], beside.kept[-1]._replace(A=None)])
        *front, last = self.body.layers
        if self.activation and _is_plain_norm(last) and "batchnorm_shortcut_relu" in backend.kernels:
            before = LayerSequence(front).forward(A_below, backend, training) if front else Forward(A_below, kept=[])
            end = last.forward_onto(before.A, B, backend, training)
            return Forward(end.A, kept=([*before.kept, end], beside))
        through = self.body.forward(A_below, backend, training)
        A = backend.shortcut_sum(through.A, B)
        return Forward(backend.relu(A) if self.activation else A, kept=(through.kept, beside))

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        """None: backward() applies it."""
        return None

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """dC/dA_below is the sum of two parts: through the body and through the shortcut."""
        passes, beside = here.kept
        if self.activation:
            D = backend.relu_delta(D, here.A)
        G, gradients = self._through(self.body, D, Forward(passes[-1].A, passes[-1].Z, passes), A_below, backend, below)
        of_shortcut: Array | None = D
        if self.shortcut:
            of_shortcut, more = self._through(self.shortcut, D, beside, A_below, backend, below)
            gradients = (*gradients, *more)
        if not below:
            return None, gradients
        return delta_below(backend.shortcut_sum(G, of_shortcut), S_below, backend), gradients

    @staticmethod
    def _through(
        part: LayerSequence, G: Array, here: Forward, A_below: Array, backend: Calls, below: bool
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """part.backward() from G = dC/dA of its last layer."""
        D = delta_below(G, part.slope(here.Z, backend), backend)
        return part.backward(D, here, A_below, None, backend, below)

    def describe(self) -> dict[str, Any]:
        parts = {"body": self.body.layers, "shortcut": self.shortcut.layers if self.shortcut else []}
        described = {name: [layer.describe() for layer in layers] for name, layers in parts.items()}
        return {"kind": "residual", **described, "activation": self.activation}

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "Residual":
        body, shortcut = ([rebuilt(each) for each in about[part]] for part in ("body", "shortcut"))
        return cls(body, shortcut, str(about["activation"]))

    @property
    def brief(self) -> str:
        return f"block of {sum(isinstance(each, WithWeights) for each in self.body.layers)} layers"

    def __repr__(self) -> str:
        shortcut = f"shortcut of {len(self.shortcut.layers)} layers" if self.shortcut else "shortcut"
        return f"residual block of {len(self.body.layers)} layers with a {shortcut}"


def _is_plain_norm(layer: Layer) -> TypeGuard[BatchNorm]:
    return type(layer) is BatchNorm and not layer.activation


# ---- the layers of a ResNet (He and others, 2016), without its dense layer, as model files describe them


def resnet_layers(depth: int, channels: int) -> list[dict[str, Any]]:
    """A convolution of 7 x 7, a max-pool, four stages of blocks with two convolutions of 3 x 3 each, a global mean."""
    refuse_unknown("a depth of a ResNet", str(depth), [str(known) for known in BLOCKS])
    found = [_convolution(channels, 64, 7, 2, 3), _normalisation(64, "relu")]
    found.append({"kind": "maxpool", "size": 3, "stride": 2, "padding": 1})
    below = 64
    for stage, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS[depth], strict=True)):
        for number in range(blocks):
            found.append(_block(below, width, 2 if stage and not number else 1))
            below = width
    return [*found, {"kind": "globalpool"}]


def _block(below: int, width: int, stride: int) -> dict[str, Any]:
    """Two convolutions; if they change the shape, the shortcut has one of 1 x 1."""
    body = [_convolution(below, width, 3, stride, 1), _normalisation(width, "relu")]
    body += [_convolution(width, width, 3, 1, 1), _normalisation(width, "")]
    changed = stride > 1 or below != width
    shortcut = [_convolution(below, width, 1, stride, 0), _normalisation(width, "")] if changed else []
    return {"kind": "residual", "body": body, "shortcut": shortcut, "activation": "relu"}


def _convolution(c_in: int, c_out: int, k: int, stride: int, padding: int) -> dict[str, Any]:
    steps = {"stride": stride, "before": padding, "after": padding}
    return {"kind": "convolution", "c_in": c_in, "c_out": c_out, "k": k, **steps, "activation": "", "bias": False}


def _normalisation(channels: int, activation: str) -> dict[str, Any]:
    return {"kind": "batchnorm", "channels": channels, "activation": activation}
