"""Layers from their descriptions, the dictionaries of describe(), which model files hold."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from nncourse.errors import CourseError, refuse_unknown
from nncourse.model.image_layers import AveragePool, Convolution, Dropout, Flatten, GlobalAveragePool, MaxPool
from nncourse.model.layers import Dense, Layer, LayerSequence
from nncourse.model.residual import BatchNorm, Residual

KIND_WORDS = {
    "dense": "dense",
    "convolution": "convolution",
    "maxpool": "maxpool",
    "averagepool": "averagepool",
    "globalpool": "globalpool",
    "batchnorm": "batchnorm",
    "residual": "residual",
    "flatten": "flatten",
    "dropout": "dropout",
    "sequence": "sequence",
}
MOST_WEIGHTS = 1 << 28  # 1 GiB of float32: more is a slip of the keyboard


def rebuilt(about: dict[str, Any]) -> Layer:
    """The layer of a description, with parameters of the right shapes that take no memory yet."""
    kind = str(about["kind"])
    refuse_unknown("a layer", kind, KINDS)
    return KINDS[kind](about)


def words_of(layer: Layer) -> str:
    """What a layer is, in a word: its kind, unless KIND_WORDS has another.

    >>> words_of(make_network([4, 2]).layers[0])
    'dense'
    """
    kind: str = layer.describe()["kind"]
    return KIND_WORDS.get(kind, kind)


def _dense(about: dict[str, Any]) -> Dense:
    n_in, n_out = int(about["n_in"]), int(about["n_out"])
    if min(n_in, n_out) < 1:
        raise CourseError(f"wanted a dense layer with inputs and neurons, got {n_in} and {n_out}")
    return Dense(_zeros(n_out, n_in), _zeros(n_out), str(about["activation"]))


def _convolution(about: dict[str, Any]) -> Convolution:
    c_out, c_in, k = (_whole(about, name, 1) for name in ("c_out", "c_in", "k"))
    steps = {name: _whole(about, name) for name in ("stride", "before", "after")}
    b = _zeros(c_out) if about.get("bias", True) else None
    return Convolution(_zeros(c_out, c_in, k, k), b, str(about["activation"]), **steps)


def _batchnorm(about: dict[str, Any]) -> BatchNorm:
    zeros = _zeros(_whole(about, "channels", 1))
    return BatchNorm(zeros, zeros, str(about["activation"]))


def _residual(about: dict[str, Any]) -> Residual:
    body, shortcut = ([rebuilt(each) for each in about[part]] for part in ("body", "shortcut"))
    return Residual(body, shortcut, str(about["activation"]))


KINDS: dict[str, Callable[[dict[str, Any]], Layer]] = {
    "dense": _dense,
    "convolution": _convolution,
    "maxpool": lambda about: MaxPool(*(_whole(about, name) for name in ("size", "stride", "padding"))),
    "averagepool": lambda about: AveragePool(*(_whole(about, name) for name in ("size", "stride"))),
    "globalpool": lambda about: GlobalAveragePool(),
    "batchnorm": _batchnorm,
    "residual": _residual,
    "flatten": lambda about: Flatten(),
    "dropout": lambda about: Dropout(float(about["rate"])),
    "sequence": lambda about: LayerSequence([rebuilt(each) for each in about["layers"]]),
}


def _zeros(*shape: int) -> np.ndarray:
    """Zeros of that shape that take no memory. Raises CourseError for more than a network may have."""
    if prod(shape) > MOST_WEIGHTS:
        raise CourseError(f"wanted at most {MOST_WEIGHTS} weights in a layer; got {' x '.join(map(str, shape))}")
    return np.broadcast_to(np.float32(0), shape)


def _whole(about: dict[str, Any], name: str, least: int = 0) -> int:
    number = about[name]
    if type(number) is not int or number < least:
        raise CourseError(
            f"wanted a whole number of at least {least} for the {name} of a {about['kind']}; got {number!r}"
        )
    return number
