"""The C kernel of network_epoch, and its products: mistakes in its text show, and train() takes it where it is fast.

That it is right for each kind of optimizer and activation is tested with all kernels, in test_operations.py.
"""

from functools import partial

import numpy as np
import pytest
from epoch_networks import mistakes, planted
from refusals import refused

from cuda_on_cpu import host_compiler
from fused_epochs import network_tiles
from fused_epochs.architecture import chain_of
from fused_epochs.dense import KNOWN
from fused_epochs.network import PLAIN, network_epoch
from nnclassroom.judge.check import check
from nncourse import threads
from nncourse.backend import choose
from nncourse.model.network import make_network
from nncourse.model.optimizers import SGD, AdaGrad, Adam, RMSProp
from nncourse.model.training import train

pytestmark = pytest.mark.skipif(bool(host_compiler.why_no_c_compiler()), reason="no C compiler here")
MISTAKES = mistakes("epochs/network_tiles")
OPTIMIZERS = {
    "sgd": SGD,
    "decay": partial(SGD, l2=0.1),
    "momentum": partial(SGD, momentum=0.9, l2=0.01),
    "adam": Adam,
    "rmsprop": RMSProp,
    "adagrad": AdaGrad,
}


@pytest.fixture
def fresh():
    """The test sees no program of another, and leaves none."""
    yield network_tiles.program.cache_clear()
    network_tiles.program.cache_clear()
    network_tiles.why_not.cache_clear()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_check_rejects_a_wrong_program(mistake, tmp_path, monkeypatch, fresh):
    monkeypatch.setattr(network_tiles, "FILES", planted(network_tiles.FILES, *MISTAKES[mistake], tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    verdict = check(network_epoch, "tiles")
    assert not verdict and "wrong" in verdict.line


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (7, 5, 3), (8, 16, 4), (13, 33, 20), (31, 49, 1), (64, 48, 27), (2, 100, 9)]
)
@pytest.mark.parametrize("layout", ["as it is", "turned", "A turned", "not aligned"])
def test_products_of_any_size_are_those_of_numpy(sizes, layout):
    rows, columns, terms = sizes
    rng = np.random.default_rng(rows)
    A, B = rng.standard_normal((rows, terms), np.float32), rng.standard_normal((terms, columns), np.float32)
    C = np.full((rows, columns), 7, np.float32)
    if layout == "turned":
        B = np.ascontiguousarray(B.T).T
    elif layout == "A turned":
        A = np.ascontiguousarray(A.T).T
    elif layout == "not aligned":
        memory = np.zeros(terms * columns + 1, np.float32)
        memory[1:] = B.reshape(-1)
        B = memory[1:].reshape(terms, columns)
    before = A.copy(), B.copy()
    network_tiles.prepared_product(A, B, C)()
    np.testing.assert_allclose(C, A.astype(float) @ B, atol=1e-4)
    np.testing.assert_array_equal(A, before[0])
    np.testing.assert_array_equal(B, before[1])


def trained(optimizer, plan, backend="numba", words=(9, 21, 12, 3), **options):
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((50, words[0]), np.float32), np.eye(3, dtype=np.float32)[rng.integers(0, 3, 50)]
    network = make_network(words, "tanh")
    learning = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01, "seed": 5, "plan": plan}
    return network, train(network, X, Y, choose(backend), optimizer=optimizer, **learning | options)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_trains_as_operations_do(name):
    changes = [OPTIMIZERS[name]() for _ in range(2)]
    plain, _ = trained(changes[0], "operations", "numpy")
    fused, history = trained(changes[1], None)
    assert history.plan == "tiles" and not history.note and changes[1].steps == changes[0].steps == 12
    np.testing.assert_allclose(fused.flat_parameters, plain.flat_parameters, rtol=1e-3, atol=2e-5)
    for state, array in changes[0].state.items():
        np.testing.assert_allclose(changes[1].state[state], array, rtol=1e-3, atol=2e-5)


def test_it_takes_rows_in_any_order():
    rng = np.random.default_rng(0)
    network = make_network((6, 5, 2))
    X, Y, order = rng.random((20, 6), np.float32), rng.random((20, 2), np.float32), rng.permutation(20)[:17]
    found = []
    for rows, options in ((slice(None), {"order": order}), (order, {})):
        parameters, none = network.flat_parameters.copy(), np.empty(0, np.float32)
        network_epoch["tiles"](parameters, none, none, chain_of(network), PLAIN, X[rows], Y[rows], 5, 0.5, 0, **options)
        found.append(parameters)
    np.testing.assert_array_equal(*found)
    assert not np.array_equal(found[0], network.flat_parameters)


@pytest.mark.parametrize("name", KNOWN[:-1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_saturated_neurons_stay_finite(name, sign):
    network = make_network((1, 3, 2), name, "categorical_cross_entropy")
    parameters, none = np.full_like(network.flat_parameters, 1000), np.empty(0, np.float32)
    X, Y = sign * np.ones((6, 1), np.float32), np.eye(2, dtype=np.float32)[[0, 1, 1, 0, 1, 0]]
    network_epoch["tiles"](parameters, none, none, chain_of(network), PLAIN, X, Y, 4, 1e-3, 0)
    assert np.isfinite(parameters).all()


def test_no_samples_change_nothing_and_what_is_not_a_number_stays_visible():
    network, none = make_network((2, 3, 1), "relu"), np.empty(0, np.float32)
    X, Y = np.zeros((4, 2), np.float32), np.zeros((4, 1), np.float32)
    for rows, value, finite in ((0, 0.0, True), (4, np.nan, False)):
        parameters = network.flat_parameters.copy()
        X[0] = value
        network_epoch["tiles"](parameters, none, none, chain_of(network), PLAIN, X[:rows], Y[:rows], 2, 0.1, 0)
        assert np.isfinite(parameters).all() == finite
    np.testing.assert_array_equal(X[1:], 0)


def test_calls_are_divided_where_they_would_be_long(monkeypatch):
    from fused_epochs import planner

    whole = trained(Adam(), None, batch_size=2)[0].flat_parameters
    monkeypatch.setattr(planner, "MOST_IN_A_CALL", 1.0)
    monkeypatch.setattr(planner, "LEAST_BATCHES", 3)
    np.testing.assert_array_equal(trained(Adam(), None, batch_size=2)[0].flat_parameters, whole)


def test_blas_has_large_products_where_it_may_take_several_threads(monkeypatch):
    from fused_epochs import planner

    monkeypatch.setattr(planner, "MOST_BY_ONE", 1e3)
    with threads.asked(1):
        assert trained(SGD(), None)[1].plan == "tiles"
    with threads.asked(2):
        assert trained(SGD(), None)[1].plan == "numba"


def test_without_a_compiler_numba_trains(monkeypatch, fresh):
    monkeypatch.setenv("CC", "no-such-compiler")
    network_tiles.why_not.cache_clear()
    history = trained(SGD(), None)[1]
    assert (history.plan, history.note) == ("numba", "")
    assert "cannot be used here: there is no C compiler" in refused(trained, SGD(), "tiles")
