"""Synchronous data-parallel training: several processes learn what one device learns, except for rounding."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from processes import in_processes
from trainings import by_steps

from nncourse import datasets
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.group import ALONE
from nncourse.model import metrics
from nncourse.model.data_parallel import Together, data_parallel_epoch, shared_gradient
from nncourse.model.image_layers import WithoutParameters
from nncourse.model.layers import Dense, Forward, StepPosition
from nncourse.model.network import OF_TOKENS, Network, backpropagation, make_network
from nncourse.model.optimizers import SGD, Adam
from nncourse.model.training import evaluate, train
from nncourse.parallel.simulation import simulate

ROWS, BATCH, EPOCHS = 53, 10, 4  # 24 steps; of four members one has no row of the last batch of each epoch
NETWORKS = {
    "dense": "12,9,7,3",
    "dropout": "12,16,dropout0.5,9,dropout0.2,3",
    "images": "image1x6x6,conv3x3same,pool2,dropout0.3,8,3",
    "sequences": "tokens5x4,embed8,block2x12,layernorm,4",
    "statistics": "image1x6x6,conv3x3same,batchnorm,conv2x2same,batchnorm,8,3",  # biases before a batchnorm do nothing
}
OPTIMIZERS = {
    "SGD": (functools.partial(SGD, l2=0.01), 0.5),
    "momentum": (functools.partial(SGD, momentum=0.9), 0.1),
    "Adam": (Adam, 0.01),
}
# Four processes on two cores take long: the dense network meets all optimizers, the others one or two.
TRAININGS = [("dense", kind) for kind in OPTIMIZERS]
TRAININGS += [("dropout", "momentum"), ("images", "Adam"), ("sequences", "momentum")]
TRAININGS += [("statistics", "SGD"), ("statistics", "Adam")]
SHARES = {1: (2.0,), 2: (0.7, 0.3), 4: (0.1, 0.5, 0.0, 0.4)}
# The largest difference of a parameter that rounding makes in so many steps: 5·10⁻⁷ here; wrong weights make 2·10⁻².
ROUNDING = 1e-5
NUMPY = choose("numpy")


def data(words: str, rows: int = ROWS, seed: int = 3):
    rng = np.random.default_rng(seed)
    if "tokens" in words:
        return rng.integers(0, 4, (rows, 5)).astype("f"), rng.integers(-1, 4, (rows, 5)).astype("f")
    X = rng.standard_normal((rows, *make_network(words).input_shape), dtype=np.float32)
    return X, np.eye(3, dtype=np.float32)[rng.integers(0, 3, rows)]


def network_of(words: str, seed: int = 0) -> Network:
    cost = OF_TOKENS if "tokens" in words else "categorical_cross_entropy"
    return make_network(words, "tanh", cost, seed=seed)


def trained(group, backend, words: str, kind: str, shares=None, **options) -> dict:
    """The result of a training. Statistics, if any, are synchronised.

    Each member begins with other parameters: those of the first are taken.
    """
    make, rate = OPTIMIZERS[kind]
    network, optimizer = network_of(words, seed=group.rank), make()
    X, Y = data(words)
    held = X[:5], Y[:5]
    options = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": rate, "validation": held, "seed": 7} | options
    together = Together(group, shares, options.pop("synchronise", "batchnorm" in words))
    history = train(network, X, Y, backend, optimizer=optimizer, together=together, **options)
    return {
        "parameters": network.flat_parameters,
        "statistics": network.flat_statistics,
        "state": optimizer.state,
        "steps": optimizer.steps,
        "costs": history.costs,
        "validation_costs": history.validation_costs,
        "stopped": history.stopped,
        "plan": history.plan,
        "confusion": measured(network, X, Y, backend, group),
        "few": measured(network, X[:3], Y[:3], backend, group),
        "cost": evaluate(network.on(backend), *map(backend.to_device, held), backend, group),
    }


def measured(network, X, Y, backend, group) -> Sequence:
    """The confusion matrix; of sequences what shares of the tokens, and of the samples, are right."""
    return (metrics.tokens_right if network.cost == OF_TOKENS else metrics.confusion)(network, X, Y, backend, group)


def everything(group) -> dict:
    """In each process: all trainings, with equal and with given shares."""
    backend = choose("numpy" if group.device == "cpu" else "cuda")
    found = {
        (name, kind, shares): trained(group, backend, NETWORKS[name], kind, shares)
        for name, kind in TRAININGS
        for shares in (None, SHARES.get(group.size, tuple(range(1, group.size + 1))))
        if shares or name in ("dense", "statistics")
    }
    found["apart"] = trained(group, backend, NETWORKS["statistics"], "SGD", synchronise=False)
    found["not finite"] = trained(group, backend, NETWORKS["dense"], "SGD", learning_rate=1e30)
    return found


def everything_and_accuracy(group) -> tuple[dict, float]:
    return everything(group), accuracy_on_digits(group)


@pytest.fixture(scope="module")
def one_device():
    backend = by_steps("numpy")
    found = {(name, kind): trained(ALONE, backend, NETWORKS[name], kind) for name, kind in TRAININGS}
    return found | {"not finite": trained(ALONE, backend, NETWORKS["dense"], "SGD", learning_rate=1e30)}


def compare(results: Sequence[dict], one_device: dict, rounding: float = ROUNDING) -> None:
    for key, first in results[0].items():
        alone = one_device["statistics", "SGD"] if key == "apart" else one_device[key[:2] if len(key) == 3 else key]
        for other in results:
            same_bits(other[key], first, key)
        assert first["plan"] in ("operations", "recorded") or len(results) == 1
        assert first["steps"] == alone["steps"] and first["stopped"] == alone["stopped"]
        if key == "not finite":
            np.testing.assert_array_equal(first["parameters"], alone["parameters"])  # those of the beginning
            assert not math.isfinite(first["costs"][-1]) and len(first["costs"]) == len(alone["costs"])
            continue
        about = str(key)
        for name in ("parameters", "statistics"):
            difference = np.abs(first[name] - alone[name]).max(initial=0)
            if key == "apart":  # every member took the statistics of its own rows
                assert len(results) == 1 or difference > 1e-3
            else:
                assert difference <= rounding, f"{about}, {name}: {difference}"
        if key == "apart":
            continue
        for name, array in alone["state"].items():
            np.testing.assert_allclose(first["state"][name], array, 0, rounding, err_msg=about)
        for name in ("costs", "validation_costs", "cost"):
            np.testing.assert_allclose(first[name], alone[name], rounding, err_msg=about)
        np.testing.assert_array_equal(first["confusion"], alone["confusion"])
        np.testing.assert_array_equal(first["few"], alone["few"])


def same_bits(found: dict, first: dict, about) -> None:
    for name in ("parameters", "statistics"):
        assert found[name].tobytes() == first[name].tobytes(), about
    bits = [{name: array.tobytes() for name, array in each["state"].items()} for each in (found, first)]
    assert bits[0] == bits[1], about
    for name in ("steps", "stopped", "plan"):
        assert found[name] == first[name]
    for name in ("costs", "validation_costs", "cost", "confusion", "few"):
        np.testing.assert_array_equal(found[name], first[name])


@pytest.mark.parametrize("processes", [1, 2, pytest.param(4, marks=pytest.mark.full)])
def test_processes_learn_what_one_device_learns(processes, one_device):
    """The same parameters, except for rounding, after a few steps; the same accuracy at the end."""
    results, accuracies = zip(*in_processes(everything_and_accuracy, processes), strict=True)
    compare(results, one_device)
    alone = accuracy_on_digits(ALONE)
    assert alone > 0.88
    assert len(set(accuracies)) == 1 and abs(accuracies[0] - alone) < 0.01


def accuracy_on_digits(group) -> float:
    """In each process: the accuracy on held-out digits after six epochs with momentum and dropout."""
    digits = datasets.load("digits")
    X = digits.X / np.float32(16)
    network = make_network("64,30,dropout0.1,10", "relu", "categorical_cross_entropy")
    options = {"epochs": 6, "batch_size": 100, "learning_rate": 0.2, "optimizer": SGD(momentum=0.9)}
    train(network, X[:1400], digits.Y[:1400], NUMPY, together=Together(group), **options)
    return metrics.accuracy(metrics.confusion(network, X[1400:], digits.Y[1400:], NUMPY, group))


def test_gpus_learn_what_one_gpu_learns(gpus):
    backend = by_steps("cuda")
    alone = {(name, kind): trained(ALONE, backend, NETWORKS[name], kind) for name, kind in TRAININGS}
    alone["not finite"] = trained(ALONE, backend, NETWORKS["dense"], "SGD", learning_rate=1e30)
    compare(in_processes(everything, gpus, kind="nccl", limit=250), alone)


# ---- one member at a time, without processes


class Recorded:
    """A group with one member, which records the vectors that it adds."""

    device = "cpu"

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self.added: list[np.ndarray] = []

    def all_reduce(self, vector):
        self.added.append(vector.copy())

    def broadcast(self, vector, root=0):
        pass

    def barrier(self):
        pass


@pytest.mark.parametrize("counts", [(6, 4), (9, 1), (10, 0), (5, 3, 2, 0)])
def test_weighted_gradients_of_shards_add_up_to_that_of_the_batch(counts):
    network, (X, Y) = network_of(NETWORKS["dropout"]), data(NETWORKS["dropout"], 10)
    wanted = flat(backpropagation(network, X, Y, NUMPY, StepPosition(seed=1, first=30)))
    parts, plain, start = [], [], 0
    for rank, count in enumerate(counts):
        rows, group = slice(start, start + count), Recorded(rank, len(counts))
        position = StepPosition(seed=1, first=30 + start)
        shared_gradient(network, X[rows], Y[rows], count / len(X), NUMPY, group, position)
        parts += group.added
        shared_gradient(network, X[rows], Y[rows], 1 / len(counts), NUMPY, group, position)
        plain.append(group.added[-1])
        start += count
    np.testing.assert_allclose(sum(parts), wanted, 0, 1e-7)
    assert np.abs(sum(plain) - wanted).max() > 1e-3, "the plain mean of unequal shards is another gradient"


@pytest.mark.parametrize(("words", "synchronise"), [("dense", False), ("images", False), ("statistics", True)])
def test_unequal_shards_learn_what_one_device_does_if_weighted_by_rows_and_not_if_counted_alike(words, synchronise):
    X, Y = data(NETWORKS[words])

    def learnt(group, shares=None, alike=False):
        network, optimizer = network_of(NETWORKS[words]), SGD()
        for epoch in range(3):
            order, position = np.random.default_rng(epoch).permutation(len(X)), StepPosition(0, epoch)
            together = Together(group, shares, synchronise)
            data_parallel_epoch(network, X, Y, order, BATCH, 0.3, NUMPY, optimizer, position, together, alike)
        return np.concatenate([network.flat_parameters, network.flat_statistics])

    alone = learnt(ALONE)
    for shares in ((0.1, 0.9), (0.6, 0.1, 0.3)):
        for each in simulate(functools.partial(learnt, shares=shares), len(shares)).results:
            np.testing.assert_allclose(each, alone, 0, ROUNDING)
        alike = simulate(functools.partial(learnt, shares=shares, alike=True), len(shares)).results
        assert all(np.abs(each - alone).max() > 0.01 for each in alike)


def test_running_statistics_of_unequal_shards_are_weighted_too():
    X, Y = data(NETWORKS["statistics"])
    X[5:10] += 3  # the last half of each batch of 10 that is used here

    def statistics(group, shares):
        network = network_of(NETWORKS["statistics"])
        together = Together(group, shares)
        data_parallel_epoch(network, X, Y, np.arange(10), 10, 0.0, NUMPY, SGD(), StepPosition(), together)
        return network.flat_statistics

    first, second = (simulate(lambda group, n=n: statistics(group, (1 - n, n)), 2).results[0] for n in (0, 1))
    np.testing.assert_allclose(first, second, 0, 1e-6)  # one member has all rows, and the other does not count
    np.testing.assert_allclose(first, statistics(ALONE, None), 0, 1e-6)


def flat(gradients):
    return np.concatenate([each.ravel() for of_layer in gradients for each in of_layer])


class Counting(WithoutParameters):
    """A layer that records how many rows the batch has, in the whole group if it is given one."""

    def __init__(self):
        self.rows: list[int] = []

    def shape_after(self, shape):
        return shape

    def forward(self, A_below, backend, training=None):
        if training:
            count = np.array([float(len(A_below))])
            if training.group:
                training.group.all_reduce(count)
            self.rows.append(int(count[0]))
        return Forward(A_below)

    def backward(self, D, here, A_below, S_below, backend, below=True):
        return D, ()

    def describe(self):
        return {"kind": "counting"}


def counted(group) -> list[list[int]]:
    """For each member: the rows that the layer has seen in each step of an epoch, synchronised and not."""
    found = []
    for synchronise in (True, False):
        counting, (dense,) = Counting(), network_of("12,3").layers
        network = Network([counting, Dense(dense.W, dense.b, "softmax")], "categorical_cross_entropy", (12,))
        train(
            network, *data("12,3"), NUMPY, epochs=1, batch_size=BATCH, together=Together(group, synchronise=synchronise)
        )
        found.append(counting.rows[1:])  # the first is a trial, before the clock starts
    return found


def test_layers_are_handed_the_group_where_statistics_are_synchronised():
    """The last batch has 3 rows, of which one of four members has none: then all of them see the whole of it.

    Without statistics to add, who has no rows computes nothing.
    """
    results = simulate(counted, 4).results
    assert [synchronised for synchronised, _ in results] == [[10, 10, 10, 10, 10, 3]] * 4
    assert [each for _, each in results] == [[3] * 5 + [1], [3] * 5 + [1], [2] * 5 + [1], [2] * 5]


def test_a_member_says_how_many_rows_it_computes_with_next():
    """The rows of each step, then those whose cost it computes: so its guard tells a hung process from a slow one."""

    def said_by(group) -> list[int]:
        said: list[int] = []
        together = Together(group, on_rows=said.append)
        train(network_of("12,3"), *data("12,3"), NUMPY, epochs=1, batch_size=20, together=together)
        return said

    assert simulate(said_by, 2).results == [[10, 10, 7, 27], [10, 10, 6, 26]]


def test_a_group_of_one_is_trained_by_whole_epochs_as_ever():
    (X, Y), rate = data("12,9,3"), 0.1
    networks = [network_of("12,9,3") for _ in range(2)]
    plans = [
        train(network, X, Y, NUMPY, epochs=2, learning_rate=rate, together=together).plan
        for network, together in zip(networks, (Together(), Together(ALONE, (1,), True)), strict=True)
    ]
    assert plans == ["numpy", "numpy"]
    np.testing.assert_array_equal(networks[0].flat_parameters, networks[1].flat_parameters)


def test_several_are_trained_step_by_step():
    """The note says why; a plan for fused epochs that was asked for is refused."""
    together = Together(Recorded(0, 2))
    history = train(network_of("12,3"), *data("12,3"), NUMPY, epochs=1, together=together)
    assert history.plan == "operations" and "2 processes add their gradients" in history.note
    with pytest.raises(CourseError, match="the plan numba does not fit: a fused epoch needs a single process"):
        train(network_of("12,3"), *data("12,3"), NUMPY, epochs=1, together=together, plan="numba")


def test_a_member_that_is_interrupted_keeps_the_best_and_exchanges_nothing_more():
    """The other members do not know of the interruption and would never answer."""
    group = Recorded(0, 2)
    exchanged = []

    def press(epoch):
        if epoch.number == 2:
            group.all_reduce = group.broadcast = group.barrier = lambda *arguments: exchanged.append(arguments)
            raise KeyboardInterrupt

    network, expected = network_of("12,3"), network_of("12,3")
    history = train(network, *data("12,3"), NUMPY, epochs=3, together=Together(group), on_epoch=press)
    assert history.stopped.startswith("interrupted after epoch 2") and not exchanged
    best = int(np.argmin(history.costs)) + 1
    train(expected, *data("12,3"), NUMPY, epochs=best, together=Together(Recorded(0, 2)))
    np.testing.assert_array_equal(network.flat_parameters, expected.flat_parameters)


def test_what_does_not_fit_the_group_is_refused():
    network, (X, Y), group = network_of("12,3"), data("12,3"), Recorded(0, 2)
    with pytest.raises(CourseError, match="a share of at least 0 for each of 2 members"):
        train(network, X, Y, NUMPY, epochs=1, together=Together(group, (1, 2, 3)))
    group.device = "gpu"
    with pytest.raises(CourseError, match="on the same device; got gpu and cpu"):
        train(network, X, Y, NUMPY, epochs=1, together=Together(group))
