"""ResNets (He and others, 2016) as networks, whose weights can be copied to and from torchvision's models.

torchvision's names say where an array belongs: layer2.0.conv1.weight has the weights of the first convolution in the
first block of the second stage. Only names and arrays are exchanged; PyTorch is not needed.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array
from nncourse.errors import CourseError
from nncourse.model.image_layers import Convolution
from nncourse.model.initialisers import initialised
from nncourse.model.layers import Dense, Layer
from nncourse.model.network import Network
from nncourse.model.registry import rebuilt
from nncourse.model.residual import BLOCKS, BatchNorm, Residual, resnet_layers

IMAGE = 148, 197  # rows and columns
FEATURES = 512  # channels after the last stage
COST = "categorical_cross_entropy"


def resnet(
    depth: int = 34, classes: int = 9, channels: int = 1, seed: int = 0, height: int = IMAGE[0], width: int = IMAGE[1]
) -> Network:
    """A new ResNet for images, with softmax outputs.

    depth: 34 or 18.
    classes, channels: outputs, and channels of an image.
    seed: the same seed gives the same weights. As in torchvision, those of convolutions are normal with variance
        2 / (c_out k²) (He and others, 2015), those of the dense layer uniform within ±1/√512.
    height, width: size of an image, in pixels.

    Raises CourseError for any other depth, and for fewer than 2 classes.

    >>> resnet(18, classes=3, height=32, width=32).flat_parameters.size
    11171779
    """
    if classes < 2:
        raise CourseError(f"expected at least 2 classes; got {classes}")
    rng = np.random.default_rng(seed)
    layers = [_initialised(rebuilt(about), rng) for about in resnet_layers(depth, channels)]
    bound = FEATURES**-0.5
    W, b = (rng.uniform(-bound, bound, shape).astype(np.float32) for shape in ((classes, FEATURES), classes))
    return Network([*layers, Dense(W, b, "softmax")], COST, (channels, height, width))


def _initialised(layer: Layer, rng: np.random.Generator) -> Layer:
    if isinstance(layer, Residual):
        return layer.of_layers([_initialised(each, rng) for each in layer.layers])
    if isinstance(layer, Convolution):
        c_out, _, k, _ = layer.W.shape
        W = rng.normal(0, np.sqrt(2 / (c_out * k * k)), layer.W.shape)
        return layer.with_parameters((W.astype(np.float32),))
    return initialised(layer, "he", rng)


# ---- torchvision's names


def to_torchvision(network: Network) -> dict[str, np.ndarray]:
    """The network's arrays by torchvision's names, in its order, copied to the CPU: a state for load_state_dict().

    network: one that resnet() or from_torchvision() made. Raises CourseError for any other.

    >>> to_torchvision(resnet(18, classes=3, height=32, width=32))["fc.weight"].shape
    (3, 512)
    """
    found = {name: devices.to_device(array, "cpu").copy() for name, array in _named(network)}
    state: dict[str, np.ndarray] = {}
    for name, array in found.items():
        state[name] = array
        if name.endswith("running_var"):  # PyTorch counts batches here, but does not use the number with a momentum
            state[name.replace("running_var", "num_batches_tracked")] = np.array(0)
    return state


def from_torchvision(state: Mapping[str, Array], height: int = IMAGE[0], width: int = IMAGE[1]) -> Network:
    """The network of a torchvision state: {name: tensor.numpy() for name, tensor in model.state_dict().items()}.

    height, width: size of an image, in pixels. Depth, classes and channels follow from the arrays.

    Raises CourseError for the state of any other model.

    >>> network = resnet(18, classes=3, height=32, width=32)
    >>> again = from_torchvision(to_torchvision(network), height=32, width=32)
    >>> bool((again.flat_parameters == network.flat_parameters).all())
    True
    """
    blocks = tuple(
        len({name.split(".")[1] for name in state if name.startswith(f"layer{stage}.")}) for stage in range(1, 5)
    )
    depth = next((depth for depth, there in BLOCKS.items() if there == blocks), None)
    if depth is None or not {"fc.weight", "conv1.weight"} <= state.keys():
        raise CourseError(f"expected the state of torchvision's resnet18 or resnet34; got stages of {blocks} blocks")
    sizes = len(state["fc.weight"]), np.shape(state["conv1.weight"])[1]
    network = resnet(depth, *sizes, height=height, width=width)
    places = dict(_named(network))
    given = {name for name in state if not name.endswith("num_batches_tracked")}
    if missing := places.keys() ^ given:
        raise CourseError(f"expected the names of torchvision's resnet{depth}; {sorted(missing)[0]} does not agree")
    for name, place in places.items():
        array = np.asarray(state[name])
        if array.shape != place.shape:
            raise CourseError(f"expected {name} of shape {place.shape}; got {array.shape}")
        place[...] = array
    return network


def _named(network: Network) -> Iterator[tuple[str, Array]]:
    """Each array of a ResNet with torchvision's name for it. Raises CourseError for any other network."""
    layers = network.layers
    described = [layer.describe() for layer in layers[:-1]]
    depths = [depth for depth in BLOCKS if described == resnet_layers(depth, network.input_shape[0])]
    if not depths or not isinstance(layers[-1], Dense):
        raise CourseError(f"expected a ResNet of 18 or 34 layers; got {network.in_words}")
    yield from _of_layers(layers[:2], [("conv1", "bn1")])
    blocks = iter(layer for layer in layers if isinstance(layer, Residual))
    for stage, count in enumerate(BLOCKS[depths[0]], 1):
        for number in range(count):
            block, name = next(blocks), f"layer{stage}.{number}."
            yield from _of_layers(block.body.layers, [(f"{name}conv{n}", f"{name}bn{n}") for n in (1, 2)])
            if block.shortcut:
                yield from _of_layers(block.shortcut.layers, [(f"{name}downsample.0", f"{name}downsample.1")])
    yield "fc.weight", layers[-1].W
    yield "fc.bias", layers[-1].b


def _of_layers(layers: list[Layer], names: list[tuple[str, str]]) -> Iterator[tuple[str, Array]]:
    """The arrays of convolutions and of the batch normalisations after them."""
    for (of_filters, of_channels), convolution, normalisation in zip(names, layers[::2], layers[1::2], strict=True):
        assert isinstance(convolution, Convolution) and isinstance(normalisation, BatchNorm)
        yield f"{of_filters}.weight", convolution.W
        yield f"{of_channels}.weight", normalisation.parameters[0]
        yield f"{of_channels}.bias", normalisation.parameters[1]
        yield f"{of_channels}.running_mean", normalisation.statistics[0]
        yield f"{of_channels}.running_var", normalisation.statistics[1]
