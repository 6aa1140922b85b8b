"""The playground's network, which is trained on points in the plane, one batch at a time."""

import math
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nnclassroom.exercises.own_backend import choose
from nncourse import datasets
from nncourse import device as devices
from nncourse.backend import Backend
from nncourse.calls import Calls
from nncourse.errors import CourseError, refuse_unknown
from nncourse.model.layers import Layer
from nncourse.model.network import COSTS, Network, forward, has_algorithm_1, make_network, training_step
from nncourse.model.optimizers import SGD
from nncourse.model.training import evaluate

HELD_OUT = 0.3  # share of the samples that training does not see
MOST_POINTS = 400  # of a cost curve; if there are more, every second one is dropped
MOST_LAYERS, MOST_NEURONS = 4, 16
NEW_LAYER = 4  # neurons in a layer that is added
DATA_WORDS = {"moons": "moons", "circles": "rings", "spirals": "spirals", "blobs": "blobs", "xor": "four corners"}
FEATURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "x1": lambda x1, x2: x1,
    "x2": lambda x1, x2: x2,
    "x1²": lambda x1, x2: x1 * x1,
    "x2²": lambda x1, x2: x2 * x2,
    "x1·x2": lambda x1, x2: x1 * x2,
    "sin πx1": lambda x1, x2: np.sin(np.pi * x1),  # without π the plane would show less than half a wave
    "sin πx2": lambda x1, x2: np.sin(np.pi * x2),
}


@dataclass(frozen=True)
class Settings:
    """What a playground trains, and how. A change of one in AT_ONCE affects the running training; others restart it."""

    data: str = "moons"
    noise: float = 0.15
    samples: int = 300
    features: tuple[str, ...] = ("x1", "x2")
    hidden: tuple[int, ...] = (8, 8)
    activation: str = "tanh"
    cost: str = "binary_cross_entropy"
    learning_rate: float = 0.1
    l2: float = 0.0
    batch_size: int = 10
    backend: str = "numpy"
    mine: bool = False
    seed: int = 0
    speed: float = 20  # most epochs a second; 0: no limit


AT_ONCE = {"learning_rate", "l2", "batch_size", "speed"}


class Level(NamedTuple):
    """The inputs (level 0) or the neurons of a layer after a change: the level and their numbers before it.

    None stands for new ones.
    """

    was: int | None
    numbers: Sequence[int | None]


class Watched:
    """A backend that records which operations are used."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(self.backend, name)


class Engine:
    """A network in training. `settings` in AT_ONCE may be changed at any time; neurons, layers and features by methods.

    The methods keep the weights of all neurons that stay. A new neuron or feature has weights of 0 to the next layer at
    first: the output of the network does not change until it is trained.
    """

    def __init__(self, settings: Settings):
        refuse_too_large(settings.hidden)
        self.settings = settings
        self.backend = choose(settings.backend, mine=settings.mine)
        points = datasets.generate(settings.data, samples=settings.samples, noise=settings.noise, seed=settings.seed)
        if COSTS[settings.cost] == "softmax" and points.Y.shape[1] == 1:  # softmax needs one output per class
            points = replace(points, Y=np.hstack([1 - points.Y, points.Y]))
        self.training, self.held_out = datasets.split(points, HELD_OUT, seed=settings.seed)
        self.low, self.high = points.X.min(axis=0) - 0.2, points.X.max(axis=0) + 0.2  # corners of the plane shown
        self.changes = 0  # number of changes of the shape; each draws other weights
        self.epoch, self.done = 0, 0  # completed epochs; samples used in the current one
        self.history: list[tuple[float, float, float]] = []  # epochs, training cost, cost on the held-out samples
        self.network = self._new_network(settings).on(self.backend)
        self._feed()
        self.measure()

    def _new_network(self, settings: Settings) -> Network:
        """On the CPU, with the weights of the seed."""
        sizes = (len(settings.features), *settings.hidden, self.training.Y.shape[1])
        return make_network(sizes, settings.activation, settings.cost, seed=settings.seed + 10_007 * self.changes)

    def _feed(self) -> None:
        """Send the samples, as the chosen features, to the device."""
        self.there = [
            (self.backend.to_device(features_of(data.X, self.settings.features)), self.backend.to_device(data.Y))
            for data in (self.training, self.held_out)
        ]
        if self.done:
            self._shuffle()

    def _shuffle(self) -> None:
        X, Y = self.there[0]
        rng = np.random.default_rng([self.settings.seed, self.epoch + 1])
        order = self.backend.to_device(rng.permutation(len(X)))
        self.shuffled = X[order], Y[order]

    @property
    def progress(self) -> float:
        """Epochs done, with the current one as a fraction."""
        return self.epoch + self.done / len(self.training.X)

    def step(self) -> None:
        """Train on the next batch. The samples are shuffled anew for each epoch, from the seed, as in `train`."""
        if self.done == 0:
            self._shuffle()
        rows = slice(self.done, self.done + self.settings.batch_size)
        X, Y = (array[rows] for array in self.shuffled)
        optimizer = SGD(l2=self.settings.l2)
        training_step(self.network, X, Y, self.settings.learning_rate, self.backend, optimizer)
        self.done += self.settings.batch_size
        if self.done >= len(self.training.X):
            self.epoch, self.done = self.epoch + 1, 0

    def train(self, seconds: float = math.inf, epochs: float = math.inf) -> None:
        """Train for `seconds` or for `epochs`, whichever ends first; one of them may be omitted."""
        end, last = time.perf_counter() + seconds, self.progress + epochs
        while self.progress < last - 1e-9 and time.perf_counter() < end:
            self.step()

    def measure(self) -> None:
        """Add the costs of both sets to the history."""
        training, held_out = (evaluate(self.network, *data, self.backend) for data in self.there)
        self.history.append((self.progress, training, held_out))
        if len(self.history) > MOST_POINTS:
            del self.history[1:-1:2]

    # ---- another shape

    def resize(self, layer: int, count: int) -> None:
        """Give hidden layer `layer` (from 0) `count` neurons: the last are removed, or new ones added."""
        _refuse_unknown_layer(layer, self.settings.hidden)
        size = self.settings.hidden[layer]
        self._resize(layer, [number if number < size else None for number in range(count)])

    def remove(self, layer: int, neuron: int) -> None:
        """Remove a neuron from hidden layer `layer`; both are counted from 0."""
        _refuse_unknown_layer(layer, self.settings.hidden)
        self._resize(layer, [number for number in range(self.settings.hidden[layer]) if number != neuron])

    def _resize(self, layer: int, numbers: Sequence[int | None]) -> None:
        hidden = list(self.settings.hidden)
        hidden[layer] = len(numbers)
        levels = self._levels()
        levels[layer + 1] = Level(layer + 1, numbers)
        self._rebuild(replace(self.settings, hidden=tuple(hidden)), levels)

    def add_layer(self) -> None:
        """Add a hidden layer before the output, which gets new weights."""
        hidden = (*self.settings.hidden, NEW_LAYER)
        *levels, output = self._levels()
        self._rebuild(replace(self.settings, hidden=hidden), [*levels, Level(None, [None] * NEW_LAYER), output])

    def remove_layer(self) -> None:
        """Remove the last hidden layer; the output gets new weights."""
        if not self.settings.hidden:
            raise CourseError("there is no hidden layer left to remove")
        *levels, _, output = self._levels()
        self._rebuild(replace(self.settings, hidden=self.settings.hidden[:-1]), [*levels, output])

    def choose_features(self, names: Sequence[str]) -> None:
        """Use these features as inputs."""
        features = tuple(name for name in FEATURES if name in names)
        before = self.settings.features
        numbers = [before.index(name) if name in before else None for name in features]
        settings = replace(self.settings, features=features)
        refuse_bad_features(features)
        self._rebuild(settings, [Level(0, numbers), *self._levels()[1:]])

    def _levels(self) -> list[Level]:
        """All levels, unchanged."""
        return [Level(number, range(size)) for number, size in enumerate(self.network.sizes)]

    def _rebuild(self, settings: Settings, levels: Sequence[Level]) -> None:
        """Make a network of another shape that keeps the weights of what stays; epochs and costs continue."""
        refuse_too_large(settings.hidden)
        self.changes += 1
        new = self._new_network(settings)
        for layer, (below, here) in zip(new.layers, pairwise(levels), strict=True):
            if below.was is not None and here.was == below.was + 1:
                W, b = (devices.to_device(array, "cpu") for array in self.network.layers[below.was].parameters)
                _inherit(layer, W, b, here, below)
        self.settings = settings
        self.network = new.on(self.backend)
        self._feed()
        self.measure()

    # ---- what it computes

    def activities(self, X: np.ndarray) -> list[np.ndarray]:
        """The activations of each layer for points X (n, 2): arrays (n, neurons), the output's last."""
        inputs = self.backend.to_device(features_of(X, self.settings.features))
        return [devices.to_device(A, "cpu") for A in forward(self.network, inputs, self.backend)[1][1:]]

    def shares(self, X: np.ndarray) -> np.ndarray:
        """The network's outputs as shares of each class, (n, classes); each row sums to 1."""
        return as_shares(self.activities(X)[-1])

    def right(self) -> float:
        """The share of the held-out points that are classified correctly."""
        return float((self.shares(self.held_out.X).argmax(axis=1) == self.held_out.labels).mean())

    def words(self) -> str:
        """The state of the training in words: epoch, costs, accuracy."""
        _, cost, held_out = self.history[-1]
        batch = f" and {self.done} samples" if self.done else ""
        return (
            f"epoch {self.epoch}{batch}, cost {cost:.4g} in training, {held_out:.4g} held out, "
            f"{self.right():.0%} of the held-out points right"
        )

    def used(self) -> Set[str]:
        """The operations that a training step and a measurement use."""
        watched: Calls = Watched(self.backend)  # type: ignore[assignment]
        X, Y = (array[:1] for array in self.there[0])
        copy = self.network.on(self.backend)
        optimizer = SGD(l2=self.settings.l2)
        training_step(copy, X, Y, self.settings.learning_rate, watched, optimizer)
        evaluate(copy, X, Y, watched)
        return watched.asked | ({"algorithm_1"} if has_algorithm_1(copy, optimizer) else set())

    def yours(self) -> str:
        """The operations of the training that use the student's own kernels, in words; "" unless `mine` is set."""
        if not self.settings.mine:
            return ""
        used = self.used()
        notes = {name: note for name, note in self.backend.notes.items() if name in used}
        own = ", ".join(name for name, note in notes.items() if name in self.backend.yours)
        device = self.backend.device.upper()
        words = f"Your own kernels: {own}." if own else f"No kernel of yours for the {device} is in use."
        for name, note in notes.items():
            if name in self.backend.unused:
                words += f" {name}: {note}."
        return words


def features_of(X: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Features of points X (n, 2), by name: (n, features) float32."""
    refuse_bad_features(names)
    return np.stack([FEATURES[name](*X.T) for name in names], axis=1).astype(np.float32)


def as_shares(outputs: np.ndarray) -> np.ndarray:
    """A network's outputs as shares of each class, (n, classes); each row sums to 1."""
    if outputs.shape[1] == 1:
        outputs = np.hstack([1 - outputs, outputs])
    outputs = np.nan_to_num(outputs.clip(0, 1)) + 1e-6
    return outputs / outputs.sum(axis=1, keepdims=True)


def refuse_bad_features(names: Sequence[str]) -> None:
    """Raise CourseError for an unknown feature, or for none at all."""
    if not names:
        raise CourseError("expected at least one input feature; got none")
    for name in names:
        refuse_unknown("an input feature", name, FEATURES)


def refuse_too_large(hidden: Sequence[int]) -> None:
    """Raise CourseError for more layers or neurons than a playground shows, or an empty layer."""
    if len(hidden) > MOST_LAYERS or not all(1 <= size <= MOST_NEURONS for size in hidden):
        limits = f"at most {MOST_LAYERS} hidden layers of 1 to {MOST_NEURONS} neurons"
        raise CourseError(f"a playground shows {limits}; got {tuple(hidden)}")


def _refuse_unknown_layer(layer: int, hidden: Sequence[int]) -> None:
    if not 0 <= layer < len(hidden):
        raise CourseError(f"expected one of {len(hidden)} hidden layers, counted from 0; got {layer}")


def _inherit(layer: Layer, W: np.ndarray, b: np.ndarray, here: Level, below: Level) -> None:
    """Restore the weights W and biases b of neurons that existed before; weights to new inputs are 0."""
    new_W, new_b = layer.parameters
    for row, old_row in enumerate(here.numbers):
        if old_row is not None:
            new_b[row] = b[old_row]
            new_W[row] = [0 if column is None else W[old_row, column] for column in below.numbers]
