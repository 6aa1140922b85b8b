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
    """Weights and biases from the standard normal distribution, as Nielsen's book begins."""
    return rng.normal(size=shape), rng.normal(size=shape[0])


def uniform(rng: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Arrays:
    """Weights and biases from [0, 1], as in the C program: sums grow with fan_in, sigmoids saturate, nothing learns."""
    return rng.uniform(size=shape), rng.uniform(size=shape[0])


INITIALISERS: dict[str, Initialiser] = {"xavier": xavier, "he": he, "normal": normal, "uniform": uniform}


def initialised(layer: Layer, name: str, rng: np.random.Generator) -> Layer:
    """The layer with initial parameters, which the layer itself chooses: see begun() in layers.py.

    layer: a dense layer or a convolution gives only the shapes; W and b come from the initialiser. A batch
        normalisation begins with gamma 1 and beta 0, a block with the initial parameters of each of its layers.
    name: "xavier", "he", "normal" or "uniform".
    rng: NumPy's random generator; drawing from it changes it.

    Raises CourseError for an unknown name.

    >>> empty = Dense(np.zeros((3, 2)), np.zeros(3), "relu")
    >>> bool(initialised(empty, "he", np.random.default_rng(0)).W.all())
    True
    """
    refuse_unknown("an initialiser", name, INITIALISERS)
    return begun(layer, rng, INITIALISERS[name])
