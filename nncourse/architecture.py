"""A network without its weights: what both kernels and models need to know about it."""

import functools
from dataclasses import dataclass
from itertools import pairwise
from math import prod


@dataclass(frozen=True)
class DenseArchitecture:
    """Neurons of each layer, the inputs first; the activation of each layer after the inputs; the cost."""

    sizes: tuple[int, ...]
    activations: tuple[str, ...]
    cost: str

    @functools.cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(neurons, inputs) of each layer after the inputs: the shapes of the weights."""
        return tuple((n_out, n_in) for n_in, n_out in pairwise(self.sizes))

    @functools.cached_property
    def contract_sizes(self) -> dict[str, int]:
        """The sizes that the contract of dense_sgd_epoch calls p, n_in and n_out: parameters, inputs, outputs."""
        p = sum(n_out * (n_in + 1) for n_out, n_in in self.shapes)
        return {"p": p, "n_in": self.sizes[0], "n_out": self.sizes[-1]}

    @property
    def flops_a_sample(self) -> int:
        """FLOPs of Algorithm 1: per weight 2 forward, 2 for its gradient, 2 for the deltas of a layer below."""
        weights = [n_out * n_in for n_out, n_in in self.shapes]
        return 6 * sum(weights) - 2 * weights[0]

    @functools.cached_property
    def sequential(self) -> "SequentialArchitecture":
        """The same network."""
        layers = tuple(map(Neurons, self.sizes[1:]))
        return SequentialArchitecture(self.sizes[:1], layers, self.activations, self.cost)

    def views(self, parameters) -> list[tuple]:
        """(W, b) of each layer, as views into the flat vector."""
        return _views(parameters, self.shapes)

    def __str__(self) -> str:
        return f"{'-'.join(map(str, self.sizes))} {' '.join(self.activations)} {self.cost}"


@dataclass(frozen=True)
class Filters:
    """`count` filters of k × k pixels and all channels, moved by `stride` pixels at a time.

    The image is padded with `before` rows and columns of zeros in front, and `after` behind.
    """

    count: int
    k: int
    stride: int = 1
    before: int = 0
    after: int = 0

    def shape_after(self, image: tuple[int, int, int]) -> tuple[int, int, int]:
        """(channels, height, width) of the result for an image of this shape."""
        height, width = ((n + self.before + self.after - self.k) // self.stride + 1 for n in image[1:])
        return self.count, height, width


@dataclass(frozen=True)
class Windows:
    """A max-pool: windows of size × size pixels, side by side. Rows and columns that fill none are ignored."""

    size: int

    def shape_after(self, image: tuple[int, ...]) -> tuple[int, ...]:
        """(channels, height, width) of the result for an image of this shape."""
        channels, height, width = image
        return channels, height // self.size, width // self.size


@dataclass(frozen=True)
class Neurons:
    """A dense layer with `count` neurons. Images below it are flattened."""

    count: int

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(count,), whatever is below."""
        return (self.count,)


@dataclass(frozen=True)
class SequentialArchitecture:
    """Convolutions and max-pools in any order, then dense layers.

    shape: of a sample, (channels, height, width) or (numbers,).
    activations: of each convolution and each dense layer.
    """

    shape: tuple[int, ...]
    layers: tuple[Filters | Windows | Neurons, ...]
    activations: tuple[str, ...]
    cost: str

    @functools.cached_property
    def maps(self) -> tuple[tuple[int, ...], ...]:
        """The shape of a sample, and behind each layer."""
        shapes = [self.shape]
        for layer in self.layers:
            shapes.append(layer.shape_after(shapes[-1]))
        return tuple(shapes)

    @functools.cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the weights: (filters, channels, k, k) of a convolution, (neurons, inputs) of a dense layer."""
        found: list[tuple[int, ...]] = []
        for layer, below in zip(self.layers, self.maps, strict=False):
            if isinstance(layer, Filters):
                found.append((layer.count, below[0], layer.k, layer.k))
            elif isinstance(layer, Neurons):
                found.append((layer.count, prod(below)))
        return tuple(found)

    @functools.cached_property
    def contract_sizes(self) -> dict[str, int]:
        """The sizes that the contract of network_gradient calls p, n_in and n_out: parameters, inputs, outputs."""
        p = sum(prod(shape) + shape[0] for shape in self.shapes)
        return {"p": p, "n_in": prod(self.shape), "n_out": prod(self.maps[-1])}

    @functools.cached_property
    def dense(self) -> DenseArchitecture | None:
        """The same network, if all of its layers are dense."""
        if not all(isinstance(layer, Neurons) for layer in self.layers):
            return None
        sizes = prod(self.shape), *(layer.count for layer in self.layers if isinstance(layer, Neurons))
        return DenseArchitecture(sizes, self.activations, self.cost)

    @functools.cached_property
    def convolutional(self) -> "ConvolutionalArchitecture | None":
        """The same network, if its samples are images and it has at most one max-pool, right below the dense layers."""
        filters = tuple(layer for layer in self.layers if isinstance(layer, Filters))
        pools = tuple(layer for layer in self.layers if isinstance(layer, Windows))
        neurons = tuple(layer for layer in self.layers if isinstance(layer, Neurons))
        if len(pools) > 1 or self.layers != (*filters, *pools, *neurons) or len(self.shape) != 3:
            return None
        sizes, pool = tuple(layer.count for layer in neurons), pools[0].size if pools else 0
        return ConvolutionalArchitecture(self.shape, filters, pool, sizes, self.activations, self.cost)

    @property
    def flops_a_sample(self) -> int:
        """FLOPs of the gradient: per product 2 forward, 2 for the weights' gradient, 2 for the deltas below."""
        made = [made for layer, made in zip(self.layers, self.maps[1:], strict=True) if not isinstance(layer, Windows)]
        products = [prod(W) * prod(shape[1:]) for W, shape in zip(self.shapes, made, strict=True)]
        return 6 * sum(products) - 2 * products[0]

    def views(self, parameters) -> list[tuple]:
        """(W, b) of each convolution and each dense layer, as views into the flat vector."""
        return _views(parameters, self.shapes)

    def __str__(self) -> str:
        sample = "x".join(map(str, self.shape))
        words = [f"image{sample}" if len(self.shape) > 1 else sample, *map(_word, self.layers)]
        return f"{','.join(words)} {' '.join(self.activations)} {self.cost}"


@dataclass(frozen=True)
class ConvolutionalArchitecture:
    """Convolutions, an optional max-pool, then dense layers.

    image: (channels, height, width) of a sample.
    pool: the side of the max-pool's windows, which are adjacent and without padding; 0 for no pool. Rows and columns at
        the end that fill no window are ignored.
    sizes: the neurons of each dense layer; its input is flattened.
    activations: of each convolution, then of each dense layer.
    """

    image: tuple[int, int, int]
    convolutions: tuple[Filters, ...]
    pool: int
    sizes: tuple[int, ...]
    activations: tuple[str, ...]
    cost: str

    @functools.cached_property
    def maps(self) -> tuple[tuple[int, int, int], ...]:
        """(channels, height, width) of the image, and behind each convolution."""
        shapes = [self.image]
        for filters in self.convolutions:
            shapes.append(filters.shape_after(shapes[-1]))
        return tuple(shapes)

    @functools.cached_property
    def pooled(self) -> tuple[int, int, int]:
        """(channels, height, width) of the array that is flattened: behind the pool, if there is one."""
        channels, height, width = self.maps[-1]
        return (channels, height // self.pool, width // self.pool) if self.pool else self.maps[-1]

    @functools.cached_property
    def dense(self) -> DenseArchitecture:
        """The dense layers, whose inputs are the flattened images."""
        activations = self.activations[len(self.convolutions) :]
        return DenseArchitecture((prod(self.pooled), *self.sizes), activations, self.cost)

    @functools.cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the weights: (filters, channels, k, k) of each convolution, (neurons, inputs) of each layer."""
        filters = ((f.count, shape[0], f.k, f.k) for f, shape in zip(self.convolutions, self.maps, strict=False))
        return (*filters, *self.dense.shapes)

    @functools.cached_property
    def contract_sizes(self) -> dict[str, int]:
        """The sizes that the contract of convolutional_sgd_epoch calls p, channels, height, width and n_out."""
        p = sum(prod(shape) + shape[0] for shape in self.shapes)
        channels, height, width = self.image
        return {"p": p, "channels": channels, "height": height, "width": width, "n_out": self.sizes[-1]}

    @property
    def flops_a_sample(self) -> int:
        """FLOPs of a training step: per product 2 forward, 2 for the weights' gradient, 2 for the deltas below."""
        filters = self.shapes[: len(self.convolutions)]
        products = [prod(W) * prod(shape[1:]) for W, shape in zip(filters, self.maps[1:], strict=True)]
        products += [n_out * n_in for n_out, n_in in self.dense.shapes]
        return 6 * sum(products) - 2 * products[0]

    def views(self, parameters) -> list[tuple]:
        """(W, b) of each convolution, then of each dense layer, as views into the flat vector."""
        return _views(parameters, self.shapes)

    @functools.cached_property
    def sequential(self) -> SequentialArchitecture:
        """The same network."""
        pool = (Windows(self.pool),) if self.pool else ()
        layers = (*self.convolutions, *pool, *map(Neurons, self.sizes))
        return SequentialArchitecture(self.image, layers, self.activations, self.cost)

    def __str__(self) -> str:
        return str(self.sequential)


def _word(layer: Filters | Windows | Neurons) -> str:
    """The layer as for make_network: conv8x3same, pool2, 10."""
    if isinstance(layer, Neurons):
        return str(layer.count)
    if isinstance(layer, Windows):
        return f"pool{layer.size}"
    same = layer.stride == 1 and (layer.before, layer.after) == ((layer.k - 1) // 2, layer.k // 2)
    around = f"p{layer.before}" if layer.before == layer.after else f"p{layer.before}+{layer.after}"
    around = "same" if same else around
    stride = f"s{layer.stride}" * (layer.stride > 1)
    return f"conv{layer.count}x{layer.k}{around if layer.before or layer.after else ''}{stride}"


def _views(parameters, shapes) -> list[tuple]:
    """(W, b) for each of these shapes of W, in a vector in which every W is followed by its b."""
    pairs, at = [], 0
    for shape in shapes:
        end = at + prod(shape)
        pairs.append((parameters[at:end].reshape(shape), parameters[end : end + shape[0]]))
        at = end + shape[0]
    return pairs
