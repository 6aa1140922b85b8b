"""The evidence for notebook 14: trainings of its networks with the course's kernels, computations, recorded results."""

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from claims import Claim
from claims.cells import defined
from nnclassroom import choose, find
from nnclassroom.figures import nb14 as figures
from nnclassroom.figures import overheads
from nncourse import SGD, Adam, Kernel, backpropagation, metrics, train
from nncourse.model import Network, StepPosition, resnet
from nncourse.model.layers import LayerSequence

BACKEND = choose("numpy")
THESIS = "source: the Cantabria thesis (2021)"


@cache
def notebook() -> SimpleNamespace:
    """What the notebook's cells define."""
    names = defined("14_resnet_and_frameworks", "setup", "chain", "four-networks", "small-network", "data")
    return SimpleNamespace(**names)


# ---- chains of thirty blocks


def without_terms(D: Any, A: Any, mean: Any, variance: Any, gamma: Any, dgamma: Any, dbeta: Any, epsilon: Any) -> Any:
    return D * (gamma / np.sqrt(variance + np.float32(epsilon)))[:, None, None]


WRONG = Kernel(find("batchnorm_backward"), "broken", "cpu", "", without_terms)
BROKEN = choose("numpy", batchnorm_backward=WRONG)


@cache
def chain(shortcuts: bool, normalise: bool, seed: int, broken: bool = False, epochs: int = 6) -> tuple[float, ...]:
    """The last cost, the share of test digits that are right, and the length of the first block's weights."""
    n = notebook()
    network, backend = n.chain(shortcuts, normalise, seed=seed), BROKEN if broken else BACKEND
    options = {"epochs": epochs, "batch_size": 32, "learning_rate": 0.05, "seed": seed, "optimizer": SGD()}
    with np.errstate(all="ignore"):
        cost = train(network, n.read.X / 16, n.read.Y, backend, **options).costs[-1]
        right = metrics.accuracy(metrics.confusion(network, n.unread.X / 16, n.unread.Y, backend))
    return cost, right, float(np.linalg.norm(network.layers[1].parameters[0]))


def little_without_shortcuts(seed: int) -> bool:
    return max(chain(False, False, seed)[1], chain(False, True, seed)[1]) < 0.45


def both_read(seed: int) -> bool:
    return bool(chain(True, True, seed)[1] > 0.9 and np.isnan(chain(True, False, seed)[0]))


def broken_reads_less(seed: int) -> bool:
    return chain(True, True, seed)[1] - chain(True, True, seed, broken=True)[1] > 0.1


def broken_weights_grow(seed: int) -> bool:
    return chain(True, True, seed, broken=True, epochs=1)[2] > 1.1 * chain(True, True, seed, epochs=1)[2]


# ---- small residual networks


@cache
def small(seed: int, blocks: int = 3, shortcuts: bool = True, classes: int = 3, steps: bool = False) -> SimpleNamespace:
    """A trained network, its costs, and the shares that are right: used as it is, with statistics gathered anew …"""
    n = notebook()
    X, Y = (n.X[:1440], n.Y if classes == 3 else n.learn.Y)
    network = n.small_resnet(widths=tuple(np.repeat((8, 16, 32), blocks // 3)), classes=classes, seed=seed)
    if not shortcuts:
        layers = [_plain(each, n.norm) if isinstance(each, n.Residual) else each for each in network.layers]
        network = Network(layers, network.cost, network.input_shape)
    options = {"batch_size": 32, "learning_rate": 0.01, "seed": seed, "optimizer": Adam()}
    costs = train(network, X, Y, BACKEND, epochs=1 if steps else 4, **options).costs
    truth = n.tails(n.test) if classes == 3 else n.test.Y.argmax(axis=1)
    found = SimpleNamespace(network=network, costs=costs, truth=truth, used=network.predict(n.X_test, BACKEND))
    mixed, by_class = np.arange(len(truth)), np.argsort(truth, kind="stable")
    if classes == 3:
        found.mixed, found.by_class, found.single = (
            _in_training_mode(network, n.X_test, truth, *how) for how in ((mixed, 60), (by_class, 60), (mixed, 1))
        )
    for start in range(0, len(X), 32):
        network.forward(X[start : start + 32], BACKEND, StepPosition())
    found.said = network.predict(n.X_test, BACKEND).argmax(axis=1)
    found.as_trained, found.anew = (found.used.argmax(axis=1) == truth).mean(), (found.said == truth).mean()
    return found


def _plain(block: Any, norm: Any) -> LayerSequence:
    body = block.body.layers
    return LayerSequence([*body[:-1], norm(len(body[-1].parameters[0]), "relu")])


def _in_training_mode(network: Network, X: np.ndarray, truth: np.ndarray, order: np.ndarray, size: int) -> float:
    kept, right = network.flat_statistics.copy(), 0
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        A = network.forward(X[rows], BACKEND, StepPosition()).A
        right += int((A.argmax(axis=1) == truth[rows]).sum())
    network.flat_statistics[...] = kept
    return right / len(order)


def any_share(seed: int) -> bool:
    found = small(seed)
    return bool(0.7 <= found.as_trained <= 0.995 and found.costs[-1] < found.costs[0] / 2)


def several_below() -> bool:
    return sum(small(seed).as_trained < 0.92 for seed in range(1, 6)) > 1


def anew_is_right(seed: int) -> bool:
    return bool(small(seed).anew > 0.9)
