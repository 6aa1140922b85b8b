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

Description = dict[str, Any]
EXAMPLE = "30,60,10,1 or image1x28x28,conv4x2same,pool4,128,10"


class Word(NamedTuple):
    """One word: its kind, and all of its numbers, defaults included."""

    kind: str
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        """The shortest spelling."""
        spelling = FORMS[self.kind].spelling if self.kind in FORMS else None
        return spelling(*self.numbers) if spelling else self.kind + "x".join(map(str, self.numbers))


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
    """The words of one kind: how they are spelt, and which layer they mean.

    pattern, numbers: what a word looks like, and the numbers from the pattern's groups.
    wanted: the same in an error message.
    layer: the class of the layer; its `takes_activation` says whether the word is given an activation.
    described: a sample's shape before the layer and the word's numbers -> the layer's description, for rebuilt(),
        without an activation; a list if the word means several layers.
    numbers_of: the layer -> the word's numbers.
    spelling: the word's numbers -> the shortest spelling; by default the kind and its numbers with an x between them.
    bare: what the description has in place of an activation if a batch normalisation follows, which takes it over;
        None if the layer keeps its own.
    images: whether the layer needs images.
    """

    pattern: str
    numbers: Callable[[Any], tuple[float, ...]]
    wanted: str
    layer: type | None = None
    described: Callable[[Shape, tuple[float, ...]], Description | list[Description]] = lambda shape, numbers: []
    numbers_of: Callable[[Any], tuple[float, ...]] = lambda layer: ()
    spelling: Callable[..., str] | None = None
    bare: Description | None = None
    images: bool = False

    @property
    def takes_activation(self) -> bool:
        return getattr(self.layer, "takes_activation", False)


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


def _conv_spelling(filters: int, k: int, stride: int, before: int, after: int) -> str:
    around = f"p{before}" if before == after else f"p{before}+{after}"
    padding = "" if before == after == 0 else "same" if (before, after) == _same(k) else around
    return f"conv{filters}x{k}{padding}" + f"s{stride}" * (stride != 1)


def _same(k: int) -> tuple[int, int]:
    """Zeros before and after the image with which filters of k x k and stride 1 keep its size."""
    return (k - 1) // 2, k // 2


N = r"(\d{1,9})"
S, P = r"s\d{1,9}", r"p\d{1,9}"
CONV, POOL, AVERAGEPOOL = ("c_out", "k", "stride", "before", "after"), ("size", "stride", "padding"), ("size", "stride")
FORMS = {
    "image": Form(rf"image{N}x{N}x{N}", _all, "image, channels, height and width, such as image1x28x28"),
    "conv": Form(
        rf"conv{N}x{N}((?:same|{S}|{P}(?:\+\d{{1,9}})?)*)",
        _of_conv,
        "conv, filters and their side, such as conv4x3, conv4x3same or conv4x3p1s2",
        Convolution,
        lambda shape, numbers: {"kind": "convolution", "c_in": shape[0]} | dict(zip(CONV, numbers, strict=True)),
        lambda layer: (*layer.W.shape[::2], layer.stride, layer.before, layer.after),
        _conv_spelling,
        bare={"activation": "", "bias": False},
        images=True,
    ),
    "pool": Form(
        rf"pool{N}((?:{S}|{P})*)",
        _of_pool,
        "pool and its side, such as pool2, pool3s2 or pool3s2p1",
        MaxPool,
        lambda shape, numbers: {"kind": "maxpool"} | dict(zip(POOL, numbers, strict=True)),
        lambda layer: (layer.size, layer.stride, layer.padding),
        lambda size, stride, padding: f"pool{size}" + f"s{stride}" * (stride != size) + f"p{padding}" * (padding != 0),
        images=True,
    ),
    "averagepool": Form(
        rf"averagepool{N}((?:{S})*)",
        lambda found: _of_pool(found)[:2],
        "averagepool and its side, such as averagepool2",
        AveragePool,
        lambda shape, numbers: {"kind": "averagepool"} | dict(zip(AVERAGEPOOL, numbers, strict=True)),
        lambda layer: (layer.size, layer.stride),
        lambda size, stride: f"averagepool{size}" + f"s{stride}" * (stride != size),
        images=True,
    ),
    "dropout": Form(
        r"dropout(\d{0,9}\.?\d{1,9})",
        lambda found: (float(found[1]),),
        "dropout and its rate, such as dropout0.5",
        Dropout,
        lambda shape, numbers: {"kind": "dropout", "rate": numbers[0]},
        lambda layer: (layer.rate,),
        lambda rate: f"dropout{rate:g}",
    ),
    "globalpool": Form(
        "globalpool",
        _all,
        "globalpool, without numbers",
        GlobalAveragePool,
        lambda shape, numbers: {"kind": "globalpool"},
        images=True,
    ),
    "batchnorm": Form(
        "batchnorm",
        _all,
        "batchnorm, without numbers",
        BatchNorm,
        lambda shape, numbers: {"kind": "batchnorm", "channels": shape[0]},
    ),
    "resnet": Form(
        rf"resnet({'|'.join(map(str, BLOCKS))})",
        _all,
        f"resnet and its depth, {' or '.join(map(str, BLOCKS))}",
        described=lambda shape, numbers: resnet_layers(int(numbers[0]), shape[0]),
        images=True,
    ),
    "dense": Form(
        N,
        _all,
        "sizes of at least 1, such as 128",
        Dense,
        lambda shape, numbers: {"kind": "dense", "n_in": shape[0], "n_out": numbers[0]},
        lambda layer: (layer.W.shape[0],),
        lambda *sizes: "x".join(map(str, sizes)),
        bare={"activation": "identity"},
    ),
}


def _form_of(layer: Layer) -> tuple[str, Form]:
    """The kind and the form of a layer's word. One without a word has the name of its class, and an empty form."""
    named = (type(layer).__name__, Form("", _all, ""))
    return next(((kind, form) for kind, form in FORMS.items() if type(layer) is form.layer), named)


def _word(part: object) -> Word:
    text = str(int(part)) if isinstance(part, float) and part.is_integer() else str(part).strip()
    alike = [kind for kind, form in FORMS.items() if re.fullmatch(form.pattern, text, re.ASCII)]
    kind = alike[0] if alike else "".join(re.findall("^[a-z]+", text)) or "dense"
    if kind not in FORMS:
        wanted = f"layers in words, such as {EXAMPLE}"
        raise CourseError(
            f"wanted {wanted}; got {text[:60]!r}{nearest(kind, [name for name in FORMS if name != 'dense'])}"
        )
    found = re.fullmatch(FORMS[kind].pattern, text, re.ASCII)
    try:
        word = found and Word(kind, FORMS[kind].numbers(found))
    except CourseError as error:
        raise CourseError(f"{text[:60]}: {error}") from None
    if word is None or (kind in ("dense", "image") and min(word.numbers) < 1):
        raise CourseError(f"wanted {FORMS[kind].wanted}; got {text[:60]!r}")
    return word


def _shown(parts: Sequence[object]) -> str:
    """The words as they were given, for an error message."""
    return repr(",".join(map(str, parts))[:60])


def input_shape(words: Sequence[Word]) -> Shape:
    """The shape of a sample: what the first word says."""
    return tuple(int(number) for number in words[0].numbers)


def layers_of(words: Sequence[Word], activations: Sequence[str]) -> list[Layer]:
    """The layers, with parameters that take no memory yet; `activations` has one for each word that takes one.

    Raises a CourseError that begins with the word if a layer does not fit the one before it.
    """
    shape, names = input_shape(words), iter(activations)
    layers: list[Layer] = []
    for word, is_bare in _in_order(words):
        form = FORMS[word.kind]
        if word.kind == "dense" and len(shape) > 1:
            layers.append(Flatten())
            shape = (prod(shape),)
        try:
            if form.images and len(shape) == 1:
                raise CourseError(
                    f"wanted images before it, such as image1x28x28,{word}; got rows of {shape[0]} numbers"
                )
            found = form.described(shape, word.numbers)
            own = (form.bare if is_bare else {"activation": next(names)} if form.takes_activation else None) or {}
            for about in found if isinstance(found, list) else [found]:
                layers.append(rebuilt(about | own))
                shape = layers[-1].shape_after(shape)
        except CourseError as error:
            raise CourseError(f"{word}: {error}") from None
    return layers


def _in_order(words: Sequence[Word]) -> Iterator[tuple[Word, bool]]:
    """The words of layers, each with whether a batch normalisation after it takes its activation over."""
    for word, above in zip(words[1:], [*words[2:], None], strict=True):
        yield word, above is not None and above.kind == "batchnorm" and FORMS[word.kind].bare is not None


def taking_activations(words: Sequence[Word]) -> int:
    """The number of words that take an activation. A batch normalisation takes that of the layer before it."""
    return sum(FORMS[word.kind].takes_activation and not is_bare for word, is_bare in _in_order(words))


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
    first = _resnet_in(layers)[1]
    found = []
    for layer, above in zip(layers[first:], [*layers[first + 1 :], None], strict=True):
        _, form = _form_of(layer)
        if form.takes_activation and not (form.bare is not None and isinstance(above, BatchNorm)):
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
        kind, form = _form_of(layer)
        if not isinstance(layer, Flatten):
            words.append(Word(kind, form.numbers_of(layer)))
    return words
