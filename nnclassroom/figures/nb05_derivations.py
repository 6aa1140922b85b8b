"""By-hand tables for what lies between the steps of a network: paths of one weight, and a softmax with its cost.

paths = derivations.paths_of_weight(network, x, y, k=1, j=0)
paths.check(path_1=None, path_2=None, slope=None)

steps = derivations.softmax([1.0, 2.0, 0.5], [0.2, 0.0, 0.8])
steps.check(a=None, g=None)
"""

from collections.abc import Mapping, Sequence

import numpy as np

from nnclassroom.figures.nb05_by_hand import DOWN, Steps, intermediates
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.network import Network


class Derivation(Steps):
    """Named numbers in float64, each with the sign that the table shows for it, and a text beside it."""

    def __init__(
        self,
        truth: Mapping[str, np.ndarray],
        signs: Mapping[str, str],
        texts: Mapping[str, str],
        without_factors: Sequence[str] = (),
    ):
        """A factor 2 is not named for `without_factors`: there it has other causes, such as another weight."""
        self.batch = False
        # + 0 turns −0 into 0
        self.reference = {name: np.asarray(value, np.float64) + 0 for name, value in truth.items()}
        self.mistaken = {
            name: {"sign": -value, "twice": 2 * value, "half": value / 2} for name, value in self.reference.items()
        }
        for name in without_factors:
            self.mistaken[name] = {"sign": -self.reference[name]}
        self.signs, self.texts = dict(signs), dict(texts)

    def _quantity(self, name: str, place: tuple[int, ...] = ()) -> str:
        """∂a/∂z with the place (0, 1) becomes ∂a₁/∂z₂; a letter is followed by its index."""
        sign, indices = self.signs[name], [str(number + 1).translate(DOWN) for number in place]
        if len(indices) == 2:
            above, _, below = sign.partition("/")
            return f"{above}{indices[0]}/{below}{indices[1]}"
        return sign + "".join(indices)

    def _equation_shown(self, name: str, place: tuple[int, ...], found: bool) -> str:
        return self.texts[name]


def paths_of_weight(network: Network, x: Sequence[float], y: Sequence[float] | float, k: int, j: int) -> Derivation:
    """The products along each path from a weight of the first layer to the cost, and the slope of the cost.

    The weight leads from input k to hidden neuron j, both from 0. The network has two hidden layers and one output.
    """
    if len(network.layers) != 3 or network.sizes[-1] != 1:
        raise CourseError(f"wanted two hidden layers and one output; got the network {network.in_words}")
    X, Y = np.atleast_2d(np.float64(x)), np.atleast_2d(np.float64(y))
    found, backend = intermediates(network, X, Y), choose("numpy")
    slopes = [layer.slope(found[f"z{number}"], backend)[0] for number, layer in enumerate(network.layers, 2)]
    first, second, third = (np.float64(layer.W) for layer in network.layers)
    along = found["d4"][0, 0] * third[0] * slopes[1] * second[:, j] * slopes[0][j] * X[0, k]
    names = [f"path_{number}" for number in range(1, len(along) + 1)]
    signs = {name: f"path {name[5:]}" for name in names} | {"slope": "∂C/∂w"}
    texts = {name: f"the product through a³{name[5:].translate(DOWN)}" for name in names} | {"slope": "from the paths"}
    return Derivation(dict(zip(names, along, strict=True)) | {"slope": found["dw2"][j, k]}, signs, texts, names)


def softmax(z: Sequence[float], y: Sequence[float]) -> Derivation:
    """The steps from z to the deltas of softmax with categorical cross-entropy, for one sample with targets y."""
    scores, target = np.float64(z), np.float64(y)
    if scores.ndim != 1 or scores.shape != target.shape:
        raise CourseError(f"wanted one score and one target for each output; got shapes {scores.shape}, {target.shape}")
    if not np.isclose(target.sum(), 1):
        raise CourseError(f"wanted targets that add up to 1; got {target.sum():g}")
    a = np.exp(scores - scores.max())
    a /= a.sum()
    g, J = -target / a, np.diag(a) - np.outer(a, a)
    truth = {"a": a, "g": g, "J": J, "delta": g @ J, "short": a - target}
    signs = {"a": "a", "g": "∂C/∂a", "J": "∂a/∂z", "delta": "δ", "short": "δ"}
    texts = {"a": "softmax", "g": "slope of −Σ y log a", "J": "softmax's slope", "delta": "over all paths"}
    return Derivation(truth, signs, texts | {"short": "from a and y only"})
