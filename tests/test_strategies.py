"""Averaging, asynchronous training and pipelines, on the simulated group and on real processes."""

import functools

import numpy as np
import pytest
from processes import in_processes

from nncourse.errors import CourseError
from nncourse.group import ALONE, shard
from nncourse.kernels.backend import choose
from nncourse.model.network import make_network
from nncourse.model.training import train
from nncourse.model.updates import SGD, Adam
from nncourse.parallel.averaging import train_by_averaging
from nncourse.parallel.simulated import Link, simulate

NUMPY = choose("numpy")
ROWS = 43
ROUNDING = 1e-5
SIZES = (6, 8, 7, 5, 3)


def data(rows: int = ROWS):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, SIZES[0]), dtype=np.float32)
    return X, np.eye(SIZES[-1], dtype=np.float32)[rng.integers(0, SIZES[-1], rows)]


def network_of(words=SIZES, seed: int = 0):
    return make_network(words, "tanh", "categorical_cross_entropy", seed=seed)


# ---- averaging


def averaged(group, make=SGD, rate: float = 0.3, rounds: int = 1):
    network, update = network_of(seed=group.rank), make()
    options = {"epochs": 2, "batch_size": 10, "learning_rate": rate, "update": update, "batches_a_round": rounds}
    history = train_by_averaging(network, *data(), NUMPY, group, **options)
    return network.flat_parameters, history.costs, update


def synchronous(make=SGD, rate: float = 0.3):
    network = network_of()
    options = {"epochs": 2, "batch_size": 10, "learning_rate": rate, "update": make()}
    return network, train(network, *data(), NUMPY, **options).costs


MOMENTUM = functools.partial(SGD, momentum=0.9, l2=0.01)


@pytest.mark.parametrize("make", [SGD, MOMENTUM])
@pytest.mark.parametrize("members", [1, 2, 4])  # 10 rows for 4 members: unequal; of the last batch, 3 rows, one has none
def test_averaging_after_every_batch_is_synchronous_training(members, make):
    run = simulate(functools.partial(averaged, make=make), members)
    network, costs = synchronous(make)
    for parameters, own_costs, update in run.results:
        np.testing.assert_allclose(parameters, network.flat_parameters, atol=ROUNDING)
        np.testing.assert_allclose(own_costs, costs, atol=ROUNDING)
        assert update.steps == 10


@pytest.mark.parametrize(("make", "rounds"), [(Adam, 1), (SGD, 2), (MOMENTUM, 5)])
def test_averaging_is_not_synchronous_training_for_adam_or_with_more_batches_a_round(make, rounds):
    rate = 0.01 if make is Adam else 0.3
    run = simulate(functools.partial(averaged, make=make, rate=rate, rounds=rounds), 2)
    network, costs = synchronous(make, rate)
    parameters, own_costs, update = run.results[0]
    assert abs(parameters - network.flat_parameters).max() > 1e-3
    assert own_costs == pytest.approx(costs, rel=0.1)  # but it learns as well
    assert (run.results[1][0] == parameters).all()
    for name in update.remembers:
        assert (run.results[1][2].state[name] == update.state[name]).all()
