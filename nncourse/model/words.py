"""Networks in words: image1x28x28,conv4x2same,pool4,128,10 is an image, a convolution, a pool and two dense layers.

The first word is a sample: an image of channels x rows x columns, or a number of inputs. The others are layers:

    conv4x3         4 filters of 3 x 3; conv4x3same with zeros around the image that keep its size, conv4x3p2 with 2
                    rows and columns of zeros on each side, conv4x3p1+0 with 1 before the image and none after it,
                    conv4x3s2 with a stride of 2
    pool2           the maxima of adjacent windows of 2 x 2; pool3s2p1 with stride and padding
    averagepool2    their means; averagepool3s2 with a stride
    globalpool      the mean of each channel, for any size of image
    batchnorm       batch normalisation, then the activation of the convolution or dense layer before it; that has no
                    activation, and a convolution has no biases, which would have no effect
    resnet34        all layers of a ResNet-34 except the last, dense one; or resnet18
    dropout0.5      drops half of the numbers in training
    128             a dense layer of 128 neurons; images are flattened before it
"""

import re
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from nncourse.errors import CourseError, nearest
from nncourse.model.descriptions import rebuilt
from nncourse.model.image_layers import AveragePool, Convolution, Dropout, Flatten, GlobalAveragePool, MaxPool
from nncourse.model.layers import Dense, Layer, Shape
from nncourse.model.residual import BLOCKS, BatchNorm, resnet_layers

EXAMPLE = "30,60,10,1 or image1x28x28,conv4x2same,pool4,128,10"


class Word(NamedTuple):
    """One word: its kind, and all of its numbers, defaults included."""

    kind: str
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        """The shortest spelling."""
        match self.kind, self.numbers:
            case "dense", (neurons,):
                return str(neurons)
            case "image", numbers:
                return "image" + "x".join(map(str, numbers))
            case "conv", (filters, k, stride, before, after):
                around = f"p{before}" if before == after else f"p{before}+{after}"
                padding = "" if before == after == 0 else "same" if (before, after) == _same(int(k)) else around
                return f"conv{filters}x{k}{padding}" + f"s{stride}" * (stride != 1)
            case "pool", (size, stride, padding):
                return f"pool{size}" + f"s{stride}" * (stride != size) + f"p{padding}" * (padding != 0)
            case "averagepool", (size, stride):
                return f"averagepool{size}" + f"s{stride}" * (stride != size)
            case "dropout", (rate,):
                return f"dropout{rate:g}"
            case "resnet", (depth,):
                return f"resnet{depth}"
        return self.kind


def parsed(layers: str | Sequence[int | str | Word]) -> list[Word]:
    """The words of a text with commas or of a list, the sample first. Raises CourseError for bad words."""
    parts = layers.split(",") if isinstance(layers, str) else list(layers)
    words = [part if isinstance(part, Word) else _word(part) for part in parts]
    if len(words) < 2 or words[0].kind not in ("image", "dense"):
        raise CourseError(f"wanted two words or more, the sample's size first, such as {EXAMPLE}; got {_shown(parts)}")
    if words[-1].kind != "dense":
        raise CourseError(f"wanted a number of outputs as the last word, such as {EXAMPLE}; got {words[-1]}")
    if "image" in [word.kind for word in words[1:]]:
        raise CourseError(f"wanted an image as the first word only, such as {EXAMPLE}; got {_shown(parts)}")
    return words


class Form(NamedTuple):
    """The spelling of words of one kind: the pattern, the numbers from its groups, and a text for error messages."""

    pattern: str
    numbers: Callable[[Any], tuple[float, ...]]
    wanted: str


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
            raise CourseError("wanted each of s and p once at most, and same or p")
        options[name] = (int(first or 0), int(second or first or 0))
    return options


def _all(found: re.Match[str]) -> tuple[float, ...]:
    return tuple(map(int, found.groups()))


N = r"(\d{1,9})"
S, P = r"s\d{1,9}", r"p\d{1,9}"
FORMS = {
    "image": Form(rf"image{N}x{N}x{N}", _all, "image, channels, height and width, such as image1x28x28"),
    "conv": Form(
        rf"conv{N}x{N}((?:same|{S}|{P}(?:\+\d{{1,9}})?)*)",
        _of_conv,
        "conv, filters and their side, such as conv4x3, conv4x3same or conv4x3p1s2",
    ),
    "pool": Form(rf"pool{N}((?:{S}|{P})*)", _of_pool, "pool and its side, such as pool2, pool3s2 or pool3s2p1"),
    "averagepool": Form(
        rf"averagepool{N}((?:{S})*)",
        lambda found: _of_pool(found)[:2],
        "averagepool and its side, such as averagepool2",
    ),
    "dropout": Form(
        r"dropout(\d{0,9}\.?\d{1,9})", lambda found: (float(found[1]),), "dropout and its rate, such as dropout0.5"
    ),
    "globalpool": Form("globalpool", _all, "globalpool, without numbers"),
    "batchnorm": Form("batchnorm", _all, "batchnorm, without numbers"),
    "resnet": Form(
        rf"resnet({'|'.join(map(str, BLOCKS))})", _all, f"resnet and its depth, {' or '.join(map(str, BLOCKS))}"
    ),
    "": Form(N, _all, "sizes of at least 1, such as 128"),
}


def _word(part: object) -> Word:
    text = str(int(part)) if isinstance(part, float) and part.is_integer() else str(part).strip()
    kind = "".join(re.findall("^[a-z]+", text))
    if kind not in FORMS:
        wanted = f"layers in words, such as {EXAMPLE}"
        raise CourseError(f"wanted {wanted}; got {text[:60]!r}{nearest(kind, filter(None, FORMS))}")
    found = re.fullmatch(FORMS[kind].pattern, text, re.ASCII)
    try:
        word = found and Word(kind or "dense", FORMS[kind].numbers(found))
    except CourseError as error:
        raise CourseError(f"{text[:60]}: {error}") from None
    if word is None or (kind in ("", "image") and min(word.numbers) < 1):
        raise CourseError(f"wanted {FORMS[kind].wanted}; got {text[:60]!r}")
    return word


def _same(k: int) -> tuple[int, int]:
    """Zeros before and after the image with which filters of k x k and stride 1 keep its size."""
    return (k - 1) // 2, k // 2


def _shown(parts: Sequence[object]) -> str:
    """The words as they were given, for an error message."""
    return repr(",".join(map(str, parts))[:60])


def input_shape(words: Sequence[Word]) -> Shape:
    """The shape of a sample: what the first word says."""
    return tuple(int(number) for number in words[0].numbers)


def layers_of(words: Sequence[Word], activations: Sequence[str]) -> list[Layer]:
    """The layers, with parameters that take no memory yet; `activations` has one for each layer with parameters.

    Raises a CourseError that begins with the word if a layer does not fit the one before it.
    """
    shape, names = input_shape(words), iter(activations)
    layers: list[Layer] = []
    for word, above in zip(words[1:], [*words[2:], None], strict=True):
        if word.kind == "dense" and len(shape) > 1:
            layers.append(Flatten())
            shape = (prod(shape),)
        try:
            if word.kind not in ("dense", "dropout", "batchnorm") and len(shape) == 1:
                raise CourseError(
                    f"wanted images before it, such as image1x28x28,{word}; got rows of {shape[0]} numbers"
                )
            for about in _descriptions(word, shape, names, above):
                layers.append(rebuilt(about))
                shape = layers[-1].shape_after(shape)
        except CourseError as error:
            raise CourseError(f"{word}: {error}") from None
    return layers


def _descriptions(word: Word, shape: Shape, activations: Iterator[str], above: Word | None) -> list[dict[str, Any]]:
    """The descriptions of a word's layers, for samples of that shape. `above` is the next word."""
    bare = above is not None and above.kind == "batchnorm"  # then the activation follows that
    match word.kind:
        case "dense":
            name = "identity" if bare else next(activations)
            return [{"kind": "dense", "n_in": shape[0], "n_out": word.numbers[0], "activation": name}]
        case "conv":
            sizes = dict(zip(("c_out", "k", "stride", "before", "after"), word.numbers, strict=True))
            rest = {"activation": "", "bias": False} if bare else {"activation": next(activations)}
            return [{"kind": "convolution", "c_in": shape[0], **sizes, **rest}]
        case "pool":
            return [{"kind": "maxpool", **dict(zip(("size", "stride", "padding"), word.numbers, strict=True))}]
        case "averagepool":
            return [{"kind": "averagepool", **dict(zip(("size", "stride"), word.numbers, strict=True))}]
        case "globalpool":
            return [{"kind": "globalpool"}]
        case "batchnorm":
            return [{"kind": "batchnorm", "channels": shape[0], "activation": next(activations)}]
        case "resnet":
            return resnet_layers(int(word.numbers[0]), shape[0])
    return [{"kind": "dropout", "rate": word.numbers[0]}]


def with_parameters(words: Sequence[Word]) -> int:
    """The number of words that take an activation: those of layers with parameters.

    A batch normalisation takes that of the layer before it; a ResNet has its own.
    """
    pairs = zip(words[1:], [*words[2:], None], strict=True)
    return sum(
        word.kind == "batchnorm" or (word.kind in ("dense", "conv") and not (above and above.kind == "batchnorm"))
        for word, above in pairs
    )


def with_dropout(words: Sequence[Word], rate: float) -> list[Word]:
    """The words with a dropout after each hidden dense layer, or after its batch normalisation."""
    hidden = [number for number, word in enumerate(words[:-1]) if number and word.kind == "dense"]
    if not hidden:
        raise CourseError(f"wanted a hidden dense layer to put a dropout behind; got {','.join(map(str, words))}")
    places = [number + (words[number + 1].kind == "batchnorm") for number in hidden]
    found: list[Word] = []
    for number, word in enumerate(words):
        found += [word, Word("dropout", (rate,))] if number in places else [word]
    return found


def activations_of(layers: Sequence[Layer]) -> list[str]:
    """The activations that make_network takes for such layers, one for each word that takes one."""
    found, first = [], _resnet_in(layers)[1]
    for layer, above in zip(layers[first:], [*layers[first + 1 :], None], strict=True):
        bare = isinstance(above, BatchNorm) and not isinstance(layer, BatchNorm)
        if isinstance(layer, BatchNorm) or (layer.parameters and not bare):
            found.append(layer.activation)
    return found


def _resnet_in(layers: Sequence[Layer]) -> tuple[int, int]:
    """The depth of the ResNet at the beginning of the layers, and the number of its layers; zeros if there is none."""
    first = layers[0]
    if not isinstance(first, Convolution):
        return 0, 0
    for depth in BLOCKS:
        wanted = resnet_layers(depth, first.W.shape[1])
        if [layer.describe() for layer in layers[: len(wanted)]] == wanted:
            return depth, len(wanted)
    return 0, 0


def words_of(layers: Sequence[Layer], shape: Shape) -> list[Word]:
    """The words of a network for samples of that shape. A layer without a word has the name of its class."""
    words = [Word("image" if len(shape) == 3 else "dense", shape)]
    depth, first = _resnet_in(layers)
    if depth:
        words.append(Word("resnet", (depth,)))
    for layer in layers[first:]:
        match layer:
            case Dense():
                words.append(Word("dense", (layer.W.shape[0],)))
            case Convolution():
                c_out, _, k, _ = layer.W.shape
                words.append(Word("conv", (c_out, k, layer.stride, layer.before, layer.after)))
            case MaxPool():
                words.append(Word("pool", (layer.size, layer.stride, layer.padding)))
            case AveragePool():
                words.append(Word("averagepool", (layer.size, layer.stride)))
            case Dropout():
                words.append(Word("dropout", (layer.rate,)))
            case GlobalAveragePool():
                words.append(Word("globalpool"))
            case BatchNorm():
                words.append(Word("batchnorm"))
            case Flatten():
                continue
            case _:
                words.append(Word(type(layer).__name__))
    return words
