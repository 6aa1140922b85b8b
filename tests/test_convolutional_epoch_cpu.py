"""Fused epochs of convolutional networks: the reference against PyTorch, CPU kernels against the reference, mutants."""

import warnings
from functools import partial

import numpy as np
import pytest
from epoch_networks import (
    DIGITS,
    NETWORKS,
    architecture,
    example,
    gradient_by_pytorch,
    mistakes,
    mutant,
    takes_the_first_of_equals,
)
from trainings import by_steps

from fused_epochs import convolutional_cpu, gradient_loops  # noqa: F401  (it registers the kernels `numba`)
from fused_epochs.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch
from fused_epochs.gradient import UNDECIDED
from nnclassroom.judge import check
from nncourse.backend import choose
from nncourse.calls import ADAM
from nncourse.model.network import make_network
from nncourse.model.optimizers import SGD, Adam
from nncourse.model.training import train

BOTH = (convolutional_sgd_epoch, convolutional_adam_epoch)
HIDDEN = ("identity", "step", "sigmoid", "tanh", "relu", "leaky_relu", "softplus")
kernels = pytest.mark.parametrize("kernel", ["numpy", "numba"])
networks = pytest.mark.parametrize("network", NETWORKS, ids=str)


# ---- the architecture


def test_shapes_parameters_and_flops_of_the_digits_network():
    assert DIGITS.maps == ((1, 28, 28), (4, 28, 28), (4, 28, 28)) and DIGITS.pooled == (4, 7, 7)
    assert DIGITS.shapes == ((4, 1, 2, 2), (4, 4, 2, 2), (128, 196), (10, 128))
    assert DIGITS.contract_sizes == {"p": 26_594, "channels": 1, "height": 28, "width": 28, "n_out": 10}
    assert DIGITS.dense.sizes == (196, 128, 10) and DIGITS.dense.activations == ("relu", "softmax")
    products = [4 * 4 * 784, 4 * 16 * 784, 128 * 196, 10 * 128]
    assert DIGITS.flops_a_sample == 2 * sum(products) + 2 * sum(products) + 2 * sum(products[1:])
    assert str(DIGITS).startswith("image1x28x28,conv4x2same,conv4x2same,pool4,128,10 relu")


def test_filters_and_pools_that_do_not_fill_the_image():
    network = architecture((2, 11, 8), [(3, 4, 2, 1, 2)], 2, (2,), "relu identity")
    assert network.maps[1] == (3, (11 + 3 - 4) // 2 + 1, (8 + 3 - 4) // 2 + 1) and network.pooled == (3, 3, 2)
    assert "conv3x4p1+2s2" in str(network)
    again = architecture((2, 11, 8), [(3, 4, 2, 1, 2)], 2, (2,), "relu identity")
    assert network == again and len({network, DIGITS, again}) == 2


def test_parameters_of_all_layers_lie_one_behind_the_other():
    parameters = np.arange(DIGITS.contract_sizes["p"])
    views = DIGITS.views(parameters)
    np.testing.assert_array_equal(np.concatenate([part.ravel() for pair in views for part in pair]), parameters)
    assert all(np.shares_memory(part, parameters) for pair in views for part in pair)


# ---- the reference


@networks
def test_the_reference_is_pytorchs_gradient(network):
    torch = pytest.importorskip("torch")
    parameters, X, Y = (array.astype(np.float64) for array in example(network, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = gradient_by_pytorch(torch, network, parameters, X, Y)
    found = parameters - convolutional_sgd_epoch.reference(parameters, network, X, Y, 5, 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_adams_reference_is_pytorchs_optimiser():
    torch = pytest.importorskip("torch")
    network = NETWORKS[0]
    parameters, X, Y = (array.astype(np.float64) for array in example(network, 14))
    there = torch.tensor(parameters)
    optimiser = torch.optim.Adam([there], lr=0.01)
    for start in (0, 5, 10):
        rows = slice(start, start + 5)
        there.grad = torch.tensor(gradient_by_pytorch(torch, network, there.numpy(), X[rows], Y[rows]))
        optimiser.step()
    state = parameters, 0 * parameters, 0 * parameters
    found, _, _ = convolutional_adam_epoch.reference(*state, network, X, Y, 5, 0.01, 0, *ADAM.values())
    np.testing.assert_allclose(found, there.numpy(), rtol=1e-9, atol=1e-12)


# ---- rounding must not decide


@pytest.mark.parametrize("operation", BOTH, ids=["SGD", "Adam"])
def test_no_case_is_decided_by_rounding(operation):
    for seed in range(5):
        assert all(operation.trial.well_posed(*case.arguments) for case in check.cases(operation, seed))


def nearly(network, where):
    """Whether a step is decided with all weights 1, biases 0 and X as `where` makes it."""
    parameters = np.ones(network.contract_sizes["p"])
    for _, b in network.views(parameters):
        b[:] = 0
    X = np.arange(1.0, 17).reshape(1, 1, 4, 4)
    where(X[0, 0])
    return convolutional_sgd_epoch.trial.well_posed(parameters, network, X, np.ones((1, 1)), 1, 0.1)


def test_what_rounding_decides_is_noticed():
    def change(row, column, value):
        def changed(pixels):
            pixels[row, column] = value

        return changed

    pooled = architecture((1, 4, 4), [(1, 1)], 2, (1,), "identity identity")
    assert nearly(pooled, change(0, 0, 0)) and nearly(pooled, change(3, 3, 15))  # equal, but exactly
    assert not nearly(pooled, change(3, 3, 15 + UNDECIDED / 2))
    kink = architecture((1, 4, 4), [(1, 1)], 0, (1,), "relu identity")
    assert nearly(kink, change(0, 0, -1)) and not nearly(kink, change(0, 0, UNDECIDED / 2))
    smooth = architecture((1, 4, 4), [(1, 1)], 0, (1,), "tanh identity")
    assert nearly(smooth, change(0, 0, UNDECIDED / 2))
    far = architecture((1, 4, 4), [], 0, (1,), "identity", "mae")
    assert nearly(far, change(0, 0, 0)) and not nearly(far, change(0, 0, -134 + UNDECIDED / 2))


# ---- kernels agree with the reference, with the separate operations, and with themselves


def trained(kernel, network, arrays, batch, rate=0.05, state=None, steps=0):
    """Parameters (SGD), or parameters, M and V (Adam from `state` on), after an epoch; all in place."""
    parameters, X, Y = (array.copy() for array in arrays)
    if state is None:
        given = (parameters,)
        results = (convolutional_sgd_epoch[kernel](*given, network, X, Y, batch, rate),)
    else:
        given = (parameters, *(array.copy() for array in state))
        results = convolutional_adam_epoch[kernel](*given, network, X, Y, batch, rate, steps, *ADAM.values())
    assert all(result is array for result, array in zip(results, given, strict=True))
    np.testing.assert_array_equal(X, arrays[1])
    np.testing.assert_array_equal(Y, arrays[2])
    return results


@kernels
@pytest.mark.parametrize("optimizer", [SGD, Adam, partial(Adam, beta1=0.6, beta2=0.95, epsilon=1e-3)])
def test_epochs_are_those_of_the_separate_operations(kernel, optimizer, rng):
    words = "image2x8x8,conv3x3same,conv4x2s2p1,pool2,9,3"
    X = rng.standard_normal((50, 2, 8, 8), dtype=np.float32)
    Y = np.eye(3, dtype=np.float32)[rng.integers(0, 3, 50)]
    found = []
    for chosen in (kernel, "steps"):
        network, changes = make_network(words, "tanh", "categorical_cross_entropy", seed=3), optimizer()
        backend = by_steps("numpy") if chosen == "steps" else choose(kernel)
        options = {"epochs": 2, "batch_size": 8, "learning_rate": 0.02, "seed": 5}
        history = train(network, X, Y, backend, optimizer=changes, **options)
        assert history.plan == {"steps": "operations"}.get(chosen, chosen) and changes.steps == 14
        found.append([network.flat_parameters, *changes.state.values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-5)


@kernels
def test_bias_correction_goes_on_from_the_steps_before(kernel):
    network, arrays = NETWORKS[0], example(NETWORKS[0], 40)
    zeros = [np.zeros_like(arrays[0])] * 2
    at_once = trained(kernel, network, arrays, 5, state=zeros)
    halves = [[array[:20] for array in arrays[1:]], [array[20:] for array in arrays[1:]]]
    first, *state = trained(kernel, network, (arrays[0], *halves[0]), 5, state=zeros)
    then = trained(kernel, network, (first, *halves[1]), 5, state=state, steps=4)
    forgotten = trained(kernel, network, (first, *halves[1]), 5, state=state)
    for one, other in zip(at_once, then, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert np.abs(forgotten[0] - then[0]).max() > 1e-3


@kernels
def test_what_has_no_gradient_stays_and_nothing_is_divided_by_zero(kernel):
    parameters, X, Y = example(NETWORKS[0], 12)
    zeros = np.zeros_like(parameters)
    with warnings.catch_warnings(), np.errstate(divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        result, M, V = trained(kernel, NETWORKS[0], (parameters, 0 * X, Y), 5, state=(zeros, zeros))
    of_images = NETWORKS[0].views(result)[0][0]
    np.testing.assert_array_equal(of_images, NETWORKS[0].views(parameters)[0][0])
    assert np.isfinite(result).all() and M.any() and V.any()


@kernels
def test_the_memory_of_what_has_no_gradient_fades_but_does_not_become_subnormal(kernel):
    """Subnormal numbers make each operation many times slower."""
    parameters, X, Y = example(NETWORKS[0], 5)
    M, V = np.full_like(parameters, 1e-26), np.ones_like(parameters)
    for step in range(0, 300, 5):
        X_still, Y_still = np.zeros((25, *X.shape[1:]), np.float32), np.tile(Y, (5, 1))
        parameters, M, V = trained(kernel, NETWORKS[0], (parameters, X_still, Y_still), 5, state=(M, V), steps=step)
    faded = NETWORKS[0].views(M)[0][0]
    assert np.all((faded == 0) | (abs(faded) > 10 * np.finfo(np.float32).tiny)) and abs(faded).max() < 1e-30


@kernels
def test_of_equal_pixels_the_first_gets_the_delta(kernel):
    assert takes_the_first_of_equals(convolutional_sgd_epoch[kernel])


@kernels
def test_no_samples_change_nothing_and_data_may_be_a_view(kernel):
    network, (parameters, X, Y) = NETWORKS[1], example(NETWORKS[1], 7)
    np.testing.assert_array_equal(trained(kernel, network, (parameters, X[:0], Y[:0]), 3)[0], parameters)
    wide = np.repeat(X, 2, axis=3)
    result = convolutional_sgd_epoch[kernel](parameters.copy(), network, wide[:, :, :, ::2], Y, 3, 0.05)
    np.testing.assert_allclose(result, trained(kernel, network, (parameters, X, Y), 3)[0], rtol=1e-5, atol=1e-7)


@kernels
@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("sign", [-1, 1])
def test_saturated_filters_stay_finite_without_warnings(kernel, name, sign):
    network = architecture((1, 4, 4), [(2, 2, *(1, 0, 1))], 2, (3, 2), f"{name} {name} softmax", NETWORKS[0].cost)
    parameters, X, Y = example(network, 6)
    parameters[:] = 1000
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        (result,) = trained(kernel, network, (parameters, sign * np.ones_like(X), Y), 4, rate=1e-3)
    assert np.isfinite(result).all()


# ---- check() rejects wrong kernels: each has one mistake in the text of a right one

MISTAKES = mistakes("epochs/convolutional_cpu")


def verdicts(right="", wrong=""):
    names = mutant(convolutional_cpu, right, wrong)
    found = [check.check(operation, names[name]) for operation, name in zip(BOTH, ("sgd", "adam"), strict=True)]
    assert not any("raised" in verdict.line for verdict in found), str(found)
    return found


def test_check_accepts_the_text_without_a_mistake():
    assert all(verdicts()), str(verdicts())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_check_rejects_a_wrong_epoch(mistake):
    assert not all(verdicts(*MISTAKES[mistake]))
