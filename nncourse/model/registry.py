"""Registered layers: each class says what it is called in model files and in words.

@registry.layer("globalpool", word="globalpool", wanted="globalpool, without numbers", after=IMAGE)
class GlobalAveragePool: …
"""

import re
from collections.abc import Callable
from importlib import import_module
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nncourse.errors import CourseError, refuse_unknown

Shape = tuple[int, ...]
Class = TypeVar("Class", bound=type)

# The modules of nncourse.model whose layers are registered.
MODULES = ("layers", "image_layers", "residual", "layer_norm", "sequence_layers")
MOST_WEIGHTS = 1 << 28  # 1 GiB of float32: more is a slip of the keyboard
N = r"(\d{1,9})"  # a whole number in a word
IMAGE, TOKENS, SEQUENCE = "image1x28x28", "tokens12x12", "tokens12x12,embed64"  # for what must come before a word


class Tokens(tuple[int, ...]):
    """The shape (t,) of samples of tokens, which also says how many kinds of tokens there are."""

    kinds: int

    @classmethod
    def of(cls, t: int, kinds: int) -> "Tokens":
        made = cls((t,))
        made.kinds = kinds
        return made


def whole_numbers(found: re.Match[str]) -> tuple[float, ...]:
    return tuple(map(int, found.groups()))


class Form(NamedTuple):
    """The words of one kind, such as pool3s2: how they are spelt. The class's `sizes` names their numbers.

    word, pattern: the letters they begin with, and a regular expression for all their spellings.
    wanted: the same in words, for error messages.
    below: takes a sample's shape before the layer; returns the sizes of the layer's description that follow from it.
    numbers: takes a match of the pattern; returns the word's numbers.
    spelling: takes the word's numbers; returns the shortest spelling. By default, the numbers with an x between them.
    bare: replaces the activation in the description if the next layer takes it over, as batch normalisation does; None
        if the layer always keeps its own.
    after: an example of what must precede the word, such as IMAGE; "" if rows of numbers will do.
    """

    word: str
    pattern: str
    wanted: str
    below: Callable[[Shape], dict[str, Any]] = lambda shape: {}
    numbers: Callable[[re.Match[str]], tuple[float, ...]] = whole_numbers
    spelling: Callable[..., str] | None = None
    bare: dict[str, Any] | None = None
    after: str = ""


class Registered(NamedTuple):
    """A word, or a kind of layer: how it is spelt, its class (None for an image), and its name in words_of()."""

    form: Form | None
    layer: Any = None
    label: str = ""

    def says(self, what: str) -> Any:
        """A member of the class, such as `takes_activation`; None if it has no such member."""
        return getattr(self.layer, what, None)

    def is_bare_below(self, above: "Registered") -> bool:
        """Whether a layer above takes over the activation of this one."""
        return bool(self.form and self.form.bare is not None and above.says("takes_over_activation"))


KINDS: dict[str, Registered] = {}


def layer(kind: str, label: str = "", word: str = "", **form: Any) -> Callable[[Class], Class]:
    """Register a class of layers under its `kind` in model files; `label` is its name in words_of(), if different.

    word, form: its word and the other fields of Form; without a word, make_network does not know the layer.

    Raises CourseError for a kind or a word that another class has. A cell that runs again registers its class again.
    """

    def register(found: Class) -> Class:
        known = KINDS if found.__module__.startswith(__package__) else registered()
        for name, there in known.items():
            taken = f"kind {kind}" if name == kind else f"word {word}" if there.form and there.form.word == word else ""
            own, other = _name_of(found), _name_of(there.layer)
            if taken and own != other:
                raise CourseError(f"the {taken} of {own} is already used by {other}: choose a different one")
        found.kind = kind  # type: ignore[attr-defined]
        KINDS[kind] = Registered(Form(word, **{"pattern": word} | form) if word else None, found, label or kind)
        return found

    return register


def _name_of(layer: type) -> str:
    return f"{layer.__module__}.{layer.__qualname__}"


def registered() -> dict[str, Registered]:
    """All kinds of layers: the course's, and those registered elsewhere."""
    for name in MODULES:
        import_module(f"nncourse.model.{name}")
    return KINDS


def rebuilt(about: dict[str, Any]) -> Any:
    """The layer that a description describes, with parameters of the right shapes that take no memory yet."""
    kind, known = str(about["kind"]), registered()
    refuse_unknown("a layer", kind, sorted(known))
    return known[kind].layer.from_description(about)


def words_of(layer: Any) -> str:
    """A layer's name in words: the label that it is registered with, by default its kind.

    >>> words_of(make_network([4, 2]).layers[0])
    'dense'
    """
    kind: str = layer.describe()["kind"]
    return registered()[kind].label if kind in registered() else kind


# ---- for from_description()


def zeros(*shape: int) -> np.ndarray:
    """Zeros of that shape that take no memory. Raises CourseError for more than a network may have."""
    if prod(shape) > MOST_WEIGHTS:
        raise CourseError(f"expected at most {MOST_WEIGHTS} weights in a layer; got {' x '.join(map(str, shape))}")
    return np.broadcast_to(np.float32(0), shape)


def whole(about: dict[str, Any], name: str, least: int = 0) -> int:
    """A size in a description. Raises CourseError unless it is a whole number."""
    number = about[name]
    if type(number) is not int or number < least:
        raise CourseError(
            f"expected a whole number of at least {least} for the {name} of a {about['kind']}; got {number!r}"
        )
    return number
