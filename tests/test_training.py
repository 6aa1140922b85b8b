"""Training: reproducible, resumable, interruptible; it stops where it must, and learns what it should."""

import itertools
import math
import warnings
from functools import partial

import numpy as np
import pytest
from trainings import by_steps, stop_after

from fused_epochs import planner
from nncourse import datasets
from nncourse.backend import choose
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.kernels.dense_epoch import dense_sgd_epoch
from nncourse.model import metrics
from nncourse.model.network import MOST_ROWS, make_network, training_step
from nncourse.model.training import History, evaluate, train

NUMPY = choose("numpy")
STEPS = by_steps("numpy")


def scaled(data):
    return datasets.fit_scaling(data.X, "standardization").apply(data.X), data.Y


def trained(network, X, Y, backend=NUMPY, **options):
    """The network, and its history, after a short training with NumPy's warnings as errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return network, train(network, X, Y, backend, **({"epochs": 3, "learning_rate": 0.5} | options))


def same(one, other) -> bool:
    return all(map(np.array_equal, one.parameters, other.parameters))


@pytest.fixture
def moons():
    return scaled(datasets.moons(53, seed=2))


@pytest.mark.parametrize("backend", ("loops", "numpy", "numba"))
def test_same_seed_same_result(moons, backend):
    one, again, other = (trained(make_network([2, 4, 1]), *moons, choose(backend), seed=seed) for seed in (7, 7, 8))
    assert same(one[0], again[0])
    assert one[1].costs == again[1].costs
    assert not same(one[0], other[0])


def test_a_training_may_be_without_end_until_it_is_stopped(moons):
    _, history = trained(make_network([2, 4, 1]), *moons, epochs=10**19, on_epoch=stop_after(2))
    assert history.stopped.startswith("interrupted after epoch 2")


@pytest.mark.parametrize("batch_size", (1, 10, 53, 1000))
def test_an_epoch_uses_every_sample_once_the_last_small_batch_too(moons, batch_size):
    X, Y = moons
    network, _ = trained(make_network([2, 4, 1]), X, Y, STEPS, epochs=2, batch_size=batch_size, seed=5)
    by_hand = make_network([2, 4, 1])
    for epoch in (1, 2):
        order = np.random.default_rng([5, epoch]).permutation(53)
        for start in range(0, 53, batch_size):
            rows = order[start : start + batch_size]
            training_step(by_hand, X[rows], Y[rows], 0.5, NUMPY)
    assert same(network, by_hand)


def test_resume_goes_on_as_if_it_had_never_stopped(moons):
    at_once, history = trained(make_network([2, 4, 1]), *moons, epochs=10, seed=3)
    in_two, first = trained(make_network([2, 4, 1]), *moons, epochs=5, seed=3)
    assert not same(at_once, in_two)
    _, second = trained(in_two, *moons, epochs=5, seed=3, after=History(before=5))
    assert same(at_once, in_two)
    assert first.costs + second.costs == history.costs
    assert [epoch.number for epoch in second.epochs] == [6, 7, 8, 9, 10]


def test_the_history_holds_the_costs_after_each_epoch(moons):
    X, Y = moons
    held = X[:9], Y[:9]
    network, history = trained(make_network([2, 4, 1]), X, Y, validation=held)
    assert [epoch.number for epoch in history.epochs] == [1, 2, 3]
    assert history.costs[-1] == evaluate(network, X, Y, NUMPY)
    assert history.validation_costs[-1] == evaluate(network, *held, NUMPY)
    assert history.seconds > 0 and history.stopped == ""
    assert trained(make_network([2, 4, 1]), X, Y)[1].validation_costs == [None] * 3


def test_evaluate_averages_over_all_pieces(rng):
    network = make_network([2, 3, 1])
    X = rng.normal(size=(2 * MOST_ROWS + 77, 2)).astype(np.float32)
    Y = rng.random((len(X), 1)).astype(np.float32)
    wanted = np.mean((network.predict(X, NUMPY).astype(np.float64) - Y) ** 2) / 2
    assert evaluate(network, X, Y, NUMPY) == pytest.approx(wanted, rel=1e-5)


def best_epoch(X, Y, validation, epochs):
    """The parameters after each epoch, and the number of the epoch that should be kept."""
    networks = [trained(make_network([2, 4, 1]), X, Y, epochs=n, learning_rate=9.0)[0] for n in range(1, epochs + 1)]
    costs = [evaluate(network, *(validation or (X, Y)), NUMPY) for network in networks]
    return networks, int(np.argmin(costs))


def test_the_best_is_that_of_the_validation_set(moons):
    X, Y = moons
    held = X[:8], 1 - Y[:8]  # the wrong labels: the better the training, the higher this cost
    networks, best = best_epoch(X, Y, held, 8)
    assert best != best_epoch(X, Y, None, 8)[1]
    options = {"epochs": 8, "learning_rate": 9.0, "validation": held, "on_epoch": stop_after(8)}
    network, _ = trained(make_network([2, 4, 1]), X, Y, **options)
    assert same(network, networks[best])


def test_ctrl_c_in_the_first_epoch_leaves_the_network_as_it_was(moons):
    X, Y = moons
    calls = itertools.count()

    class Impatient:
        device = "cpu"
        to_device = staticmethod(STEPS.to_device)
        kernels = STEPS.kernels

        def __getattr__(self, name):
            if next(calls) == 40:
                raise KeyboardInterrupt
            return getattr(STEPS, name)

    network, history = trained(make_network([2, 4, 1]), X, Y, Impatient())
    assert same(network, make_network([2, 4, 1]))
    assert history.epochs == [] and history.stopped.startswith("interrupted")


def test_a_cost_that_is_not_finite_stops_with_advice_and_keeps_the_network_as_it_was(moons):
    sizes, options = [2, 4, 1], {"activation": ["relu", "identity"], "cost": "mse"}
    network, history = trained(make_network(sizes, **options), *moons, epochs=9, learning_rate=1e30)
    assert same(network, make_network(sizes, **options))
    assert len(history.epochs) == 1 and not math.isfinite(history.costs[-1])
    assert "learning rate" in history.stopped and "\n" not in history.stopped
    assert all(np.isfinite(array).all() for array in network.parameters)


@pytest.mark.parametrize("cost", ("mse", "mae", "binary_cross_entropy"))
@pytest.mark.parametrize("rate", (1e10, 1e30, 1e38, 1e300))
def test_no_learning_rate_leaves_weights_that_are_not_finite(moons, cost, rate):
    network, _ = trained(make_network([2, 4, 1], "relu", cost), *moons, learning_rate=rate, on_epoch=stop_after(3))
    assert all(np.isfinite(array).all() for array in network.parameters)


@pytest.mark.parametrize("name", ("numpy", "numba"))
def test_an_epoch_is_one_call_of_the_backend_s_kernel(moons, name):
    network, history = trained(make_network([2, 4, 1]), *moons, choose(name), batch_size=7, plan=name)
    by_steps, other = trained(make_network([2, 4, 1]), *moons, choose(name), batch_size=7, plan="operations")
    assert (history.plan, other.plan, history.note) == (name, "operations", "")
    assert agree(network, by_steps) and history.costs == pytest.approx(other.costs, rel=1e-5)


@pytest.fixture
def narrow(monkeypatch):
    """A kernel of dense_sgd_epoch that fits only networks with one layer; for others `numpy` takes over."""
    monkeypatch.setattr(dense_sgd_epoch, "kernels", dict(dense_sgd_epoch.kernels))

    @dense_sgd_epoch.kernel("narrow", device="cpu", otherwise="numpy")
    def narrow(parameters, architecture, *arguments):
        if len(architecture.shapes) > 1:
            raise DoesNotFitError("narrow expected one layer; take the plan numpy")
        return dense_sgd_epoch["numpy"](parameters, architecture, *arguments)

    monkeypatch.setitem(planner.KERNELS, "numpy", "narrow")
    monkeypatch.setitem(planner.ASKED, "narrow", partial(planner.by_kernel, "narrow"))


def test_where_a_kernel_does_not_fit_the_next_takes_over_and_it_is_said(moons, narrow):
    network, history = trained(make_network([2, 4, 1]), *moons, choose("numpy"))
    assert history.plan == "numpy"
    assert history.note == "trained by numpy: narrow expected one layer; take the plan numpy"
    assert same(network, trained(make_network([2, 4, 1]), *moons, NUMPY)[0])
    fits = trained(make_network([2, 1]), *moons, choose("numpy"))[1]
    assert (fits.plan, fits.note) == ("narrow", "")


def test_a_kernel_that_was_asked_for_and_does_not_fit_is_an_error(moons, narrow):
    network = make_network([2, 4, 1])
    with pytest.raises(DoesNotFitError, match="expected one layer"):
        train(network, *moons, choose("numpy"), epochs=1, plan="narrow")
    assert same(network, make_network([2, 4, 1]))


def test_moons_and_blobs_are_learnt():
    X, Y = scaled(datasets.moons(200))
    network, history = trained(make_network([2, 8, 1], "tanh"), X, Y, epochs=100)
    assert metrics.accuracy(metrics.confusion(network, X, Y, NUMPY)) > 0.9
    assert history.costs[-1] < history.costs[0] / 2
    X, Y = scaled(datasets.blobs(150))
    network, _ = trained(make_network([2, 6, 3], "relu", "categorical_cross_entropy"), X, Y, epochs=30)
    assert metrics.accuracy(metrics.confusion(network, X, Y, NUMPY)) > 0.9


def test_the_c_program_s_initialiser_learns_nothing_where_xavier_does():
    """Weights and biases from [0, 1] saturate 60 sigmoids on 30 scaled features: the slopes vanish."""
    X, Y = scaled(datasets.load("breast_cancer"))
    found = {}
    for name in ("uniform", "xavier"):
        network = make_network([30, 60, 10, 1], initialiser=name, seed=1)
        trained(network, X, Y, epochs=10, learning_rate=0.1)
        found[name] = metrics.accuracy(metrics.confusion(network, X, Y, NUMPY))
    assert found["uniform"] < 0.7 < 0.9 < found["xavier"]  # 63 % of the samples are benign


def agree(one, other, tolerance=1e-4) -> bool:
    pairs = zip(one.parameters, other.parameters, strict=True)
    return all(np.allclose(a, b, rtol=tolerance, atol=tolerance / 10) for a, b in pairs)


SETTINGS = [("sigmoid", "mse"), ("tanh", "binary_cross_entropy"), ("relu", "mae"), ("softplus", "mse")]


@pytest.mark.parametrize(("activation", "cost"), SETTINGS)
@pytest.mark.parametrize("name", ("cupy", "cuda"))
def test_the_backends_of_the_gpu_agree_and_repeat_themselves(gpu, moons, name, activation, cost):
    sizes = [2, 40, 20, 1]
    wanted, _ = trained(make_network(sizes, activation, cost), *moons)
    one, again, other = (
        trained(make_network(sizes, activation, cost), *moons, choose(name), seed=seed)[0] for seed in (0, 0, 1)
    )
    assert isinstance(one.layers[0].W, np.ndarray)
    assert agree(one, wanted, 1e-3)
    assert same(one, again)
    assert not same(one, other)


@pytest.mark.parametrize("name", ("cupy", "cuda"))
def test_classes_are_learnt_on_the_gpu(gpu, name):
    data = datasets.load("digits")
    X, Y = scaled(data)
    network = make_network([64, 30, 10], "relu", "categorical_cross_entropy")
    trained(network, X, Y, choose(name), epochs=3, batch_size=20, learning_rate=0.1)
    assert metrics.accuracy(metrics.confusion(network, X, Y, choose(name))) > 0.9


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"epochs": -3},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": -0.1},
        {"learning_rate": math.nan},
        {"learning_rate": math.inf},
        {"X": np.zeros((5, 3), np.float32)},
        {"X": np.zeros((0, 2), np.float32), "Y": np.zeros((0, 1), np.float32)},
        {"X": np.zeros(5, np.float32)},
        {"X": np.zeros((5, 2))},
        {"Y": np.zeros(5, np.float32)},
        {"Y": np.zeros((4, 1), np.float32)},
        {"Y": np.zeros((5, 2), np.float32)},
        {"Y": np.zeros((5, 1), np.int32)},
        {"validation": (np.zeros((5, 3), np.float32), np.zeros((5, 1), np.float32))},
        {"validation": (np.zeros((5, 2), np.float32), np.zeros((5, 2), np.float32))},
        {"validation": (np.zeros((0, 2), np.float32), np.zeros((0, 1), np.float32))},
    ],
    ids=lambda wrong: ", ".join(f"{k} {getattr(v, 'shape', '' if k == 'validation' else v)}" for k, v in wrong.items()),
)
def test_what_cannot_be_trained_is_refused(wrong):
    network = make_network([2, 3, 1])
    good = {"X": np.zeros((5, 2), np.float32), "Y": np.zeros((5, 1), np.float32), "epochs": 1}
    with pytest.raises(CourseError):
        train(network, backend=NUMPY, **(good | wrong))
    assert same(network, make_network([2, 3, 1]))
