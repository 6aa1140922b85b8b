"""Networks in words: image1x28x28,conv4x2same,pool4,128,10 is an image, a convolution, a pool and two dense layers.

The first word describes a sample: an image of channels x rows x columns, a number of inputs, or tokens12x10, a sequence
of 12 tokens of 10 kinds. The other words are layers:

    conv4x3         4 filters of 3 x 3; conv4x3same with zeros around the image that keep its size, conv4x3p2 with 2
                    rows and columns of zeros on each side, conv4x3p1+0 with 1 before the image and none after it,
                    conv4x3s2 with a stride of 2
    pool2           the maxima of adjacent windows of 2 x 2; pool3s2p1 with stride and padding
    averagepool2    their means; averagepool3s2 with a stride
    globalpool      the mean of each channel, for any size of image
    batchnorm       batch normalisation, which takes over the activation of the convolution or dense layer before it; a
                    convolution then has no biases either, since they would have no effect
    layernorm       layer normalisation, over the last axis: the numbers of a row
    resnet34        all layers of a ResNet-34 except the dense layer at its end; also resnet18
    dropout0.5      drops half of the numbers in training
    embed64         a row of 64 numbers for each token, by its kind and its position; embed64unordered by its kind alone
    attention4      causal self-attention with 4 heads: each position of a sequence looks at itself and those before it;
                    with attention4all it looks at all of them
    block4x256      a block of a transformer: attention4, then dense layers of 256 neurons (gelu) and back, each after a
                    layer normalisation and with a shortcut
    128             a dense layer of 128 neurons; images are flattened before it, positions of a sequence are its rows
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

from nncourse.errors import CourseError, nearest
from nncourse.model.image_layers import Convolution, Flatten
from nncourse.model.layers import Layer
from nncourse.model.registry import IMAGE, SEQUENCE, TOKENS, Form, N, Registered, Shape, Tokens, rebuilt, registered
from nncourse.model.residual import BLOCKS, Residual, resnet_layers
from nncourse.model.sequence_layers import Embedding, block_layers

Description = dict[str, Any]
EXAMPLE = "30,60,10,1 or image1x28x28,conv4x2same,pool4,128,10"


class Word(NamedTuple):
    """One word: its kind and all its numbers, including defaults."""

    kind: str
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        """The shortest spelling."""
        spelling = forms().get(self.kind, (NAMELESS,))[0].spelling
        return spelling(*self.numbers) if spelling else self.kind + "x".join(map(str, self.numbers))


def parsed(layers: str | Sequence[int | str | Word]) -> list[Word]:
    """The words of a text with commas or of a list, the sample first. Raises CourseError for bad words."""
    parts = layers.split(",") if isinstance(layers, str) else list(layers)
    words = [part if isinstance(part, Word) else _word(part) for part in parts]
    if len(words) < 2 or words[0].kind not in SAMPLES:
        raise CourseError(
            f"expected two words or more, the sample's size first, such as {EXAMPLE}; got {_shown(parts)}"
        )
    if words[-1].kind != "dense":
        raise CourseError(f"expected a number of outputs as the last word, such as {EXAMPLE}; got {words[-1]}")
    for word in words[1:]:
        if word.kind in ("image", "tokens"):
            raise CourseError(f"expected {word.kind} as the first word only, such as {EXAMPLE}; got {_shown(parts)}")
    return words


# The words that mean no layer, or several.
DEPTHS = list(map(str, BLOCKS))
OF_IMAGES = Form("image", rf"image{N}x{N}x{N}", "image, channels, height and width, such as image1x28x28")
OF_TOKENS = Form("tokens", rf"tokens{N}x{N}", "tokens, their number in a sample and that of kinds, such as tokens12x10")
BLOCK = Form(
    "block", rf"block{N}x{N}", "block, heads of attention and hidden neurons, such as block4x256", after=SEQUENCE
)
RESNET = Form("resnet", rf"resnet({'|'.join(DEPTHS)})", f"resnet and its depth, {' or '.join(DEPTHS)}", after=IMAGE)
NAMELESS = Form("", "", "")
AFTER_WORDS = {IMAGE: "images", TOKENS: "tokens", SEQUENCE: "sequences"}
SAMPLES = "image", "tokens", "dense"  # the first word


def forms() -> dict[str, tuple[Form, Registered]]:
    """The forms of the words and their meanings, by the letters that the words begin with."""
    known = [*registered().values(), *map(Registered, (OF_IMAGES, OF_TOKENS, RESNET, BLOCK))]
    return {each.form.word: (each.form, each) for each in known if each.form}


def _of(layer: Layer) -> tuple[Form, Registered]:
    """The form of a layer's word. One without a word has the name of its class."""
    nameless = NAMELESS._replace(word=type(layer).__name__)
    return next((each for each in forms().values() if each[1].layer is type(layer)), (nameless, Registered(nameless)))


def _word(part: object) -> Word:
    text = str(int(part)) if isinstance(part, float) and part.is_integer() else str(part).strip()
    known = {word: form for word, (form, _) in forms().items()}
    alike = [word for word, form in known.items() if re.fullmatch(form.pattern, text, re.ASCII)]
    kind = alike[0] if alike else "".join(re.findall("^[a-z]+", text)) or "dense"
    if kind not in known:
        wanted = f"layers in words, such as {EXAMPLE}"
        raise CourseError(
            f"expected {wanted}; got {text[:60]!r}{nearest(kind, [name for name in known if name != 'dense'])}"
        )
    found = re.fullmatch(known[kind].pattern, text, re.ASCII)
    try:
        word = found and Word(kind, known[kind].numbers(found))
    except CourseError as error:
        raise CourseError(f"{text[:60]}: {error}") from None
    if word is None or (kind in SAMPLES and min(word.numbers) < 1):
        raise CourseError(f"expected {known[kind].wanted}; got {text[:60]!r}")
    return word


def _shown(parts: Sequence[object]) -> str:
    """The words as they were given, for an error message."""
    return repr(",".join(map(str, parts))[:60])


def input_shape(words: Sequence[Word]) -> Shape:
    """The shape of a sample: what the first word says."""
    numbers = tuple(int(number) for number in words[0].numbers)
    return Tokens.of(*numbers) if words[0].kind == "tokens" else numbers


def layers_of(words: Sequence[Word], activations: Sequence[str]) -> list[Layer]:
    """The layers, with parameters that take no memory yet. `activations` has one for each word that takes one.

    Raises CourseError, whose message begins with the word, if a layer does not fit the one before it.
    """
    shape, names = input_shape(words), iter(activations)
    layers: list[Layer] = []
    for word, form, meaning, is_bare in _in_order(words):
        if word.kind == "dense" and len(shape) > 2:
            layers.append(Flatten())
            shape = (prod(shape),)
        try:
            if isinstance(shape, Tokens) and meaning.layer is not Embedding:
                raise CourseError(f"expected embed between tokens and other layers: {words[0]},embed64,{word}")
            if form.after and len(shape) == 1 and not isinstance(shape, Tokens):
                wanted = f"{AFTER_WORDS[form.after]} before it, such as {form.after},{word}"
                raise CourseError(f"expected {wanted}; got rows of {shape[0]} numbers")
            own = form.bare if is_bare else {"activation": next(names)} if meaning.says("takes_activation") else None
            for about in _described(form, meaning, shape, word.numbers):
                layers.append(rebuilt(about | (own or {})))
                shape = layers[-1].shape_after(shape)
        except CourseError as error:
            raise CourseError(f"{word}: {error}") from None
    return layers


def _described(form: Form, meaning: Registered, shape: Shape, numbers: tuple[float, ...]) -> list[Description]:
    """The layers that a word means for samples of that shape, without an activation."""
    if form is RESNET:
        return resnet_layers(int(numbers[0]), shape[0])
    if form is BLOCK:
        return block_layers(shape[-1], int(numbers[0]), int(numbers[1]))
    sizes = zip(meaning.says("sizes") or (), numbers, strict=True)
    return [{"kind": meaning.layer.kind} | form.below(shape) | dict(sizes)]


def _in_order(words: Sequence[Word]) -> Iterator[tuple[Word, Form, Registered, bool]]:
    """The words of layers, what each means, and whether the next one takes its activation over."""
    known = forms()
    for word, above in zip(words[1:], [*words[2:], None], strict=True):
        form, meaning = known[word.kind]
        yield word, form, meaning, above is not None and meaning.is_bare_below(known[above.kind][1])


def taking_activations(words: Sequence[Word]) -> int:
    """The number of words that take an activation. A batch normalisation takes that of the layer before it."""
    return sum(bool(meaning.says("takes_activation")) and not bare for _, _, meaning, bare in _in_order(words))


def with_dropout(words: Sequence[Word], rate: float) -> list[Word]:
    """The words with a dropout after each hidden dense layer, or after its batch normalisation."""
    hidden = [number for number, word in enumerate(words[:-1]) if number and word.kind == "dense"]
    if not hidden:
        raise CourseError(f"expected a hidden dense layer, to put a dropout after; got {','.join(map(str, words))}")
    known = forms()
    places = [number + bool(known[words[number + 1].kind][1].says("takes_over_activation")) for number in hidden]
    found: list[Word] = []
    for number, word in enumerate(words):
        found += [word, Word("dropout", (rate,))] if number in places else [word]
    return found


def activations_of(layers: Sequence[Layer]) -> list[str]:
    """The activations that make_network takes for such layers, one for each word that takes one."""
    parts = [part for _, part in _in_words(layers)]
    found = []
    for part, above in zip(parts, [*parts[1:], None], strict=True):
        meaning = _of(part[0])[1]
        if (
            len(part) == 1
            and meaning.says("takes_activation")
            and not (above and meaning.is_bare_below(_of(above[0])[1]))
        ):
            found.append(part[0].activation)
    return found


def words_of(layers: Sequence[Layer], shape: Shape) -> list[Word]:
    """The words of a network for samples of that shape. A layer without a word has the name of its class."""
    sample = Word("image" if len(shape) == 3 else "dense", shape)
    if isinstance(first := layers[0], Embedding):
        sample = Word("tokens", (first.t, len(first.parameters[0])))
    return [sample, *(word for word, part in _in_words(layers) if not isinstance(part[0], Flatten))]


def _in_words(layers: Sequence[Layer]) -> Iterator[tuple[Word, Sequence[Layer]]]:
    """Each word with its layers."""
    while layers:
        word, count = _of_several(layers) or (_of_one(layers[0]), 1)
        yield word, layers[:count]
        layers = layers[count:]


def _of_one(layer: Layer) -> Word:
    form, meaning = _of(layer)
    return Word(form.word, tuple(layer.describe()[size] for size in meaning.says("sizes") or ()))


def _of_several(layers: Sequence[Layer]) -> tuple[Word, int] | None:
    """The word that means several layers, if these begin with such ones, and their number."""
    if isinstance(first := layers[0], Convolution):
        for depth in BLOCKS:
            wanted = resnet_layers(depth, first.W.shape[1])
            if [layer.describe() for layer in layers[: len(wanted)]] == wanted:
                return Word("resnet", (depth,)), len(wanted)
    if isinstance(first, Residual):
        about = [layer.describe() for layer in layers[:2]]
        with suppress(LookupError):  # blocks of other layers
            attention, dense = (each["body"][1] for each in about)
            if about == block_layers(attention["n"], attention["heads"], dense["n_out"]):
                return Word("block", (attention["heads"], dense["n_out"])), 2
    return None
