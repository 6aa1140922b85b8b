"""Synchronous data-parallel training: several processes learn what one device learns, to rounding."""

import functools
import math

import numpy as np
import pytest
from processes import in_processes

from nncourse.errors import CourseError
from nncourse.group import ALONE, shard
from nncourse.kernels.backend import choose
from nncourse.model import metrics
from nncourse.model.data_parallel import shared_gradient
from nncourse.model.image_layers import WithoutParameters
from nncourse.model.layers import Dense, Pass, Turn
from nncourse.model.network import Network, backpropagation, make_network
from nncourse.model.training import evaluate, train
from nncourse.model.updates import SGD, Adam

ROWS, BATCH, EPOCHS = 53, 10, 4  # 24 steps; of four members one has no row of the last batch of each epoch
NETWORKS = {
    "dense": "12,9,7,3",
    "dropout": "12,16,dropout0.5,9,dropout0.2,3",
    "images": "image1x6x6,conv3x3same,pool2,dropout0.3,8,3",
}
UPDATES = {
    "SGD": (functools.partial(SGD, l2=0.01), 0.5),
    "momentum": (functools.partial(SGD, momentum=0.9), 0.1),
    "Adam": (Adam, 0.01),
}
SHARES = {1: (2.0,), 2: (0.7, 0.3), 4: (0.1, 0.5, 0.0, 0.4)}
# The largest difference of a parameter that rounding makes in so many steps; a wrong weight makes one of some 10⁻³.
ROUNDING = 1e-5


def data(words: str, rows: int = ROWS, seed: int = 3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, *make_network(words).input_shape), dtype=np.float32)
    return X, np.eye(3, dtype=np.float32)[rng.integers(0, 3, rows)]


def network_of(words: str, seed: int = 0) -> Network:
    return make_network(words, "tanh", "categorical_cross_entropy", seed=seed)


def trained(group, backend, words: str, kind: str, shares=None, **options) -> dict:
    """What a training comes to. Each member begins with other parameters: those of the first are taken."""
    make, rate = UPDATES[kind]
    network, update = network_of(words, seed=group.rank), make()
    X, Y = data(words)
    held = X[:5], Y[:5]
    options = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": rate, "validation": held, "seed": 7} | options
    history = train(network, X, Y, backend, update=update, group=group, shares=shares, **options)
    return {
        "parameters": network.flat_parameters,
        "state": update.state,
        "steps": update.steps,
        "costs": history.costs,
        "validation_costs": history.validation_costs,
        "stopped": history.stopped,
        "kernel": history.kernel,
        "confusion": metrics.confusion(network, X, Y, backend, group),
        "few": metrics.confusion(network, X[:3], Y[:3], backend, group),
        "cost": evaluate(network.on(backend), *map(backend.to_device, held), backend, group),
    }


def everything(group) -> dict:
    """In each process: all trainings, with equal and with given shares."""
    backend = choose("numpy" if group.device == "cpu" else "cuda")
    found = {
        (name, kind, shares): trained(group, backend, words, kind, shares)
        for name, words in NETWORKS.items()
        for kind in UPDATES
        for shares in (None, SHARES.get(group.size, tuple(range(1, group.size + 1))))
    }
    found["not finite"] = trained(group, backend, NETWORKS["dense"], "SGD", learning_rate=1e30)
    return found


@pytest.fixture(scope="module")
def one_device():
    """The same trainings without a group."""
    backend = choose("numpy", **dict.fromkeys(EPOCHS_OF, "steps"))
    found = {
        (name, kind): trained(ALONE, backend, words, kind) for name, words in NETWORKS.items() for kind in UPDATES
    }
    return found | {"not finite": trained(ALONE, backend, NETWORKS["dense"], "SGD", learning_rate=1e30)}


EPOCHS_OF = ("dense_sgd_epoch", "convolutional_sgd_epoch", "convolutional_adam_epoch")


def compare(results: list[dict], one_device: dict, rounding: float = ROUNDING) -> None:
    for key, first in results[0].items():
        alone = one_device[key if isinstance(key, str) else key[:2]]
        for other in results:
            same_bits(other[key], first, key)
        assert first["kernel"] == ("steps" if len(results) > 1 else first["kernel"])
        assert first["steps"] == alone["steps"] and first["stopped"] == alone["stopped"]
        if key == "not finite":
            np.testing.assert_array_equal(first["parameters"], alone["parameters"])  # those of the beginning
            assert not math.isfinite(first["costs"][-1]) and len(first["costs"]) == len(alone["costs"])
            continue
        about = str(key)
        np.testing.assert_allclose(first["parameters"], alone["parameters"], 0, rounding, err_msg=about)
        for name, array in alone["state"].items():
            np.testing.assert_allclose(first["state"][name], array, 0, rounding, err_msg=about)
        for name in ("costs", "validation_costs", "cost"):
            np.testing.assert_allclose(first[name], alone[name], rounding, err_msg=about)
        np.testing.assert_array_equal(first["confusion"], alone["confusion"])
        np.testing.assert_array_equal(first["few"], alone["few"])


def same_bits(found: dict, first: dict, about) -> None:
    """Two members have come to the same."""
    assert found["parameters"].tobytes() == first["parameters"].tobytes(), about
    assert {name: array.tobytes() for name, array in found["state"].items()} == {
        name: array.tobytes() for name, array in first["state"].items()
    }
    for name in ("steps", "stopped", "kernel"):
        assert found[name] == first[name]
    for name in ("costs", "validation_costs", "cost", "confusion", "few"):
        np.testing.assert_array_equal(found[name], first[name])


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_processes_learn_what_one_device_learns(processes, one_device):
    compare(in_processes(everything, processes), one_device)
