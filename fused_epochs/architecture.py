"""Networks without their weights, and optimizers without their memory, as the kernels of whole epochs know them."""

import functools
import re
from dataclasses import dataclass
from math import prod

from nncourse.device import Array
from nncourse.errors import CourseError
from nncourse.kernels.dense_epoch import DenseArchitecture, views
from nncourse.model.image_layers import Convolution, Flatten, MaxPool
from nncourse.model.layers import Dense, Layer
from nncourse.model.network import Network

State = tuple[Array, Array, Array]  # parameters and, of an optimizer's memory, M and V


@dataclass(frozen=True)
class Filters:
    """`count` filters of k × k pixels and all channels, moved by `stride` pixels at a time.

    The image is padded with zeros: `before` rows and columns before it, and `after` after it.
    """

    count: int
    k: int
    stride: int = 1
    before: int = 0
    after: int = 0

    def shape_after(self, image: tuple[int, ...]) -> tuple[int, int, int]:
        """(channels, height, width) of the result for an image of this shape."""
        height, width = ((n + self.before + self.after - self.k) // self.stride + 1 for n in image[1:])
        return self.count, height, width


@dataclass(frozen=True)
class Neurons:
    """A dense layer of `count` neurons, which sees every number below."""

    count: int

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.count,)


@dataclass(frozen=True)
class Windows:
    """A max-pool of size × size pixels. Windows are adjacent; pixels at the end that do not fill one are ignored."""

    size: int

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        channels, height, width = shape
        return channels, height // self.size, width // self.size


@dataclass(frozen=True)
class ChainArchitecture:
    """Convolutions, max-pools and dense layers, one after the other; dense layers see an image flattened.

    shape: of a sample, (numbers,) or (channels, height, width).
    activations: of each layer; "" for a pool.
    """

    shape: tuple[int, ...]
    layers: tuple[Filters | Windows | Neurons, ...]
    activations: tuple[str, ...]
    cost: str

    @functools.cached_property
    def maps(self) -> tuple[tuple[int, ...], ...]:
        """The shape of a sample, then the shape of each layer's output."""
        shapes = [self.shape]
        for layer in self.layers:
            shapes.append(layer.shape_after(shapes[-1]))
        return tuple(shapes)

    @functools.cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each layer's weights; () for a pool."""
        return tuple(map(_weights, self.layers, self.maps))

    @functools.cached_property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """`shapes` without those of pools."""
        return tuple(filter(None, self.shapes))

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """`activations` without those of pools."""
        return tuple(filter(None, self.activations))

    @functools.cached_property
    def contract_sizes(self) -> dict[str, int]:
        """The sizes that contracts call p, n_in and n_out: parameters, inputs, outputs."""
        p = sum(prod(shape) + shape[0] for shape in self.weights)
        return {"p": p, "n_in": prod(self.shape), "n_out": prod(self.maps[-1])}

    @functools.cached_property
    def dense(self) -> DenseArchitecture | None:
        """The same network, if all of its layers are dense."""
        neurons = tuple(layer.count for layer in self.layers if isinstance(layer, Neurons))
        if len(neurons) < len(self.layers):
            return None
        return DenseArchitecture((prod(self.shape), *neurons), self.names, self.cost)

    @functools.cached_property
    def convolutional(self) -> "ConvolutionalArchitecture | None":
        """The same network, if its samples are images and it has at most one max-pool, right below the dense layers."""
        filters = tuple(layer for layer in self.layers if isinstance(layer, Filters))
        pools = tuple(layer for layer in self.layers if isinstance(layer, Windows))
        neurons = tuple(layer for layer in self.layers if isinstance(layer, Neurons))
        if len(pools) > 1 or self.layers != (*filters, *pools, *neurons) or len(self.shape) != 3:
            return None
        sizes, pool = tuple(layer.count for layer in neurons), pools[0].size if pools else 0
        return ConvolutionalArchitecture(self.shape, filters, pool, sizes, self.names, self.cost)

    @property
    def flops_a_sample(self) -> int:
        """FLOPs of a training step: per product 2 forward, 2 for the weights' gradient, 2 for the deltas below."""
        made = zip(self.shapes, self.maps[1:], strict=True)
        products = [prod(shape) * prod(after[1:]) for shape, after in made if shape]
        return 6 * sum(products) - 2 * products[0]

    def views(self, parameters: Array) -> list[tuple[Array, Array]]:
        """(W, b) of each layer that has weights, as views into the flat vector."""
        return views(parameters, self.weights)

    def __str__(self) -> str:
        sample = "image" * (len(self.shape) == 3) + "x".join(map(str, self.shape))
        return f"{','.join([sample, *map(_word, self.layers)])} {' '.join(self.names)} {self.cost}"


def _weights(layer: Filters | Windows | Neurons, below: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a layer's weights for samples of the shape `below`."""
    if isinstance(layer, Filters):
        return layer.count, below[0], layer.k, layer.k
    return () if isinstance(layer, Windows) else (layer.count, prod(below))


def _word(layer: Filters | Windows | Neurons) -> str:
    """A layer as on the command line."""
    if isinstance(layer, Neurons):
        return str(layer.count)
    if isinstance(layer, Windows):
        return f"pool{layer.size}"
    same = layer.stride == 1 and (layer.before, layer.after) == ((layer.k - 1) // 2, layer.k // 2)
    around = "same" if same else f"p{layer.before}" if layer.before == layer.after else f"p{layer.before}+{layer.after}"
    around = around if layer.before or layer.after else ""
    return f"conv{layer.count}x{layer.k}{around}{f's{layer.stride}' if layer.stride > 1 else ''}"


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
        """(channels, height, width) of the image, and after each convolution."""
        shapes = [self.image]
        for filters in self.convolutions:
            shapes.append(filters.shape_after(shapes[-1]))
        return tuple(shapes)

    @functools.cached_property
    def pooled(self) -> tuple[int, int, int]:
        """(channels, height, width) of the array that is flattened: after the pool, if there is one."""
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

    def views(self, parameters: Array) -> list[tuple[Array, Array]]:
        """(W, b) of each convolution, then of each dense layer, as views into the flat vector."""
        return views(parameters, self.shapes)

    @functools.cached_property
    def chain(self) -> ChainArchitecture:
        """The same network."""
        count, pool = len(self.convolutions), (Windows(self.pool),) * (self.pool > 0)
        layers: tuple[Filters | Windows | Neurons, ...] = (*self.convolutions, *pool, *map(Neurons, self.sizes))
        activations = (*self.activations[:count], *("" for _ in pool), *self.activations[count:])
        return ChainArchitecture(self.image, layers, activations, self.cost)

    def __str__(self) -> str:
        return str(self.chain)


@dataclass(frozen=True)
class Rule:
    """An optimizer without its memory, for kernels of fused epochs: its kind and its options."""

    kind: str
    options: tuple[tuple[str, float], ...] = ()

    def __getitem__(self, name: str) -> float:
        return dict(self.options)[name]

    @property
    def memory(self) -> tuple[str, ...]:
        """Which of M and V it needs."""
        if self.kind == "sgd":
            return ("V",) if self["momentum"] else ()
        return ("M", "V") if self.kind == "adam" else ("V",)

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{name} {value:g}" for name, value in self.options if value)])


# ---- of a network


def architecture_of(network: Network) -> DenseArchitecture | ConvolutionalArchitecture:
    """The network without its parameters, for kernels of fused epochs. Raises CourseError for other networks."""
    if network.is_dense:
        return DenseArchitecture.of(network)
    found = chain_of(network).convolutional if is_chain(network) else None
    if not found:
        wanted = "dense layers, before them convolutions and at most one max-pool with adjacent windows"
        raise CourseError(f"expected {wanted}, for a fused epoch; got {network.in_words}")
    return found


def is_chain(network: Network) -> bool:
    """True if chain_of() knows the network."""
    return bool(re.fullmatch("[cpfd]*d", "".join(map(_letter, network.layers))))


def chain_of(network: Network) -> ChainArchitecture:
    """The same for network_epoch and network_gradient, which know more networks. Raises CourseError for others."""
    if not is_chain(network):
        wanted = "convolutions, max-pools with adjacent windows, and dense layers, with a dense one at the end"
        raise CourseError(f"expected {wanted}, for a fused epoch; got {network.in_words}")
    links = [(link, layer.activation) for layer in network.layers if (link := _link(layer))]
    layers, activations = zip(*links, strict=True)
    return ChainArchitecture(network.input_shape, layers, activations, network.cost)


@functools.lru_cache(64)  # a kernel asks in every epoch
def chain_of_dense(dense: DenseArchitecture) -> ChainArchitecture:
    """The same network as a chain."""
    return ChainArchitecture(dense.sizes[:1], tuple(map(Neurons, dense.sizes[1:])), dense.activations, dense.cost)


def _letter(layer: Layer) -> str:
    """The kind of a layer that an architecture may have, as a letter; "?" for others."""
    if isinstance(layer, MaxPool):
        return "p" if layer.is_side_by_side else "?"
    if isinstance(layer, Convolution) and (layer.b is None or not layer.activation):
        return "?"
    return {Convolution: "c", Flatten: "f", Dense: "d"}.get(type(layer), "?")


def _link(layer: Layer) -> Filters | Windows | Neurons | None:
    """A layer of a chain; None for Flatten."""
    if isinstance(layer, Convolution):
        c_out, _, k, _ = layer.W.shape
        return Filters(c_out, k, layer.stride, layer.before, layer.after)
    if isinstance(layer, MaxPool):
        return Windows(layer.size)
    return Neurons(layer.W.shape[0]) if isinstance(layer, Dense) else None
