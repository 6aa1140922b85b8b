"""Initial weights. An initialiser is a function (random generator, shape of W, fan_in, fan_out) -> W, b.

fan_in is the number of inputs of a neuron, fan_out the number of neurons that an input goes to; for a convolution,
c_in·k·k and c_out·k·k.
"""

import numpy as np

from nncourse.errors import refuse_unknown
from nncourse.model.layers import Initialiser, Layer, Shape, begun

Arrays = tuple[np.ndarray, np.ndarray]


def xavier(rng: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Arrays:
    """Uniform within ±√(6 / (fan_in + fan_out)), biases 0: signals keep their size (Glorot and Bengio, 2010)."""
    bound = np.sqrt(6 / (fan_in + fan_out))
    return rng.uniform(-bound, bound, shape), np.zeros(shape[0])


def he(rng: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Arrays:
    """Normal with variance 2 / fan_in, biases 0: for ReLU, which drops half of its input (He and others, 2015)."""
    return rng.normal(0, np.sqrt(2 / fan_in), shape), np.zeros(shape[0])


def normal(rng: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Arrays:
    """Weights and biases from the standard normal distribution, as at first in Nielsen's book."""
    return rng.normal(size=shape), rng.normal(size=shape[0])


def uniform(rng: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Arrays:
    """Weights and biases from [0, 1], as in the C program: sums grow with fan_in, sigmoids saturate, nothing learns."""
    return rng.uniform(size=shape), rng.uniform(size=shape[0])


INITIALISERS: dict[str, Initialiser] = {"xavier": xavier, "he": he, "normal": normal, "uniform": uniform}


def initialised(layer: Layer, name: str, rng: np.random.Generator) -> Layer:
    """The layer with its first parameters, as the layer itself chooses them: begun() in layers.py.

    layer: the arrays of a dense layer or a convolution give the shapes only; they begin with W and b from the
        initialiser. A batch normalisation begins with gamma 1 and beta 0. The layers of a block begin one by one.
    name: "xavier", "he", "normal" or "uniform".
    rng: NumPy's generator, which is drawn from.

    Raises CourseError for an unknown name.

    >>> empty = Dense(np.zeros((3, 2)), np.zeros(3), "relu")
    >>> bool(initialised(empty, "he", np.random.default_rng(0)).W.all())
    True
    """
    refuse_unknown("an initialiser", name, INITIALISERS)
    return begun(layer, rng, INITIALISERS[name])
