"""The fused CPU kernels of dense_sgd_epoch agree with the separate operations and with PyTorch; mistakes show."""

import warnings
from functools import partial

import numpy as np
import pytest
from epoch_networks import example, gradient_by_pytorch, mistakes, mutant, rejected, steps

from fused_epochs import dense_cpu
from fused_epochs.dense_plain import FORMS, why_not
from nnclassroom.judge.check import check
from nncourse.backend import choose
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch

HIDDEN = ("identity", "step", "sigmoid", "tanh", "relu", "leaky_relu", "softplus")
NETWORKS = [
    DenseArchitecture((30, 60, 10, 1), ("sigmoid", "sigmoid", "sigmoid"), "mse"),
    DenseArchitecture((7, 5, 4), ("relu", "softmax"), "categorical_cross_entropy"),
    DenseArchitecture((6, 8, 1), ("tanh", "sigmoid"), "binary_cross_entropy"),
    DenseArchitecture((6, 9, 7, 3), ("softplus", "leaky_relu", "identity"), "mae"),
    DenseArchitecture((5, 4, 3), ("leaky_relu", "softmax"), "mse"),
    DenseArchitecture((4, 2), ("sigmoid",), "mse"),
    DenseArchitecture((3, 4, 4, 4, 4, 2), ("tanh", "step", "identity", "relu", "tanh"), "mse"),
]
ON_A_GPU = [pytest.param(name, marks=pytest.mark.gpu) for name in ("cupy", "cuda")]
IN_C = [pytest.param(name, marks=pytest.mark.skipif(bool(why_not(name)), reason=why_not(name))) for name in FORMS]
kernels = pytest.mark.parametrize("kernel", ["numpy", "numba", *IN_C])
networks = pytest.mark.parametrize("architecture", NETWORKS, ids=str)


def trained(kernel, architecture, arrays, batch, epochs=1, rate=0.1):
    """The parameters after some epochs of a kernel, in place."""
    parameters, X, Y = (array.copy() for array in arrays)
    epoch = steps if kernel == "steps" else dense_sgd_epoch[kernel]
    for _ in range(epochs):
        assert epoch(parameters, architecture, X, Y, batch, rate) is parameters
    np.testing.assert_array_equal(X, arrays[1])
    np.testing.assert_array_equal(Y, arrays[2])
    return parameters


@pytest.mark.parametrize("name", ("loops", "numpy", "numba", *ON_A_GPU))
def test_an_epoch_step_by_step_is_right(name, request):
    device = request.getfixturevalue("gpu") if name in ("cupy", "cuda") else "cpu"
    assert check(dense_sgd_epoch, partial(steps, backend=choose(name)), device=device)


@kernels
@networks
@pytest.mark.parametrize(("n", "batch"), [(40, 10), (23, 10), (6, 9), (3, 1), (16, 16)])
def test_epochs_are_those_of_the_separate_operations(kernel, architecture, n, batch):
    arrays = example(architecture, n)
    expected = trained("steps", architecture, arrays, batch, epochs=3)
    assert abs(expected - arrays[0]).max() > 1e-4
    np.testing.assert_allclose(trained(kernel, architecture, arrays, batch, epochs=3), expected, rtol=1e-4, atol=2e-6)


@kernels
@networks
def test_a_step_is_the_one_of_pytorchs_autograd(kernel, architecture):
    torch = pytest.importorskip("torch")
    if "step" in architecture.activations:
        pytest.skip("PyTorch has no step function with a slope")
    arrays = example(architecture, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = arrays[0] - 0.1 * gradient_by_pytorch(torch, architecture, *arrays)
    np.testing.assert_allclose(trained(kernel, architecture, arrays, 8), expected, rtol=1e-5, atol=1e-6)


@kernels
@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("sign", [-1, 1])
def test_saturated_neurons_stay_finite_without_warnings(kernel, name, sign):
    architecture = DenseArchitecture((1, 3, 2), (name, "softmax"), "categorical_cross_entropy")
    parameters, X, Y = example(architecture, 6)
    parameters[:] = 1000
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        assert np.isfinite(trained(kernel, architecture, (parameters, sign * np.ones_like(X), Y), 4, rate=1e-3)).all()


@kernels
def test_no_samples_change_nothing_and_data_may_be_a_view(kernel):
    parameters, X, Y = example(NETWORKS[0], 25)
    np.testing.assert_array_equal(trained(kernel, NETWORKS[0], (parameters, X[:0], Y[:0]), 10), parameters)
    wide = np.repeat(X, 2, axis=1)
    result = dense_sgd_epoch[kernel](parameters.copy(), NETWORKS[0], wide[:, ::2], Y, 10, 0.1)
    np.testing.assert_allclose(result, trained(kernel, NETWORKS[0], (parameters, X, Y), 10), rtol=1e-5, atol=1e-7)


# ---- check() rejects wrong kernels: each has one mistake in the text of a right one

NUMPY_MISTAKES = mistakes("epochs/dense_array")
NUMBA_MISTAKES = mistakes("epochs/dense_loops")


def kernel_with(function, right="", wrong=""):
    """`array` or `loops` of dense_cpu.py."""
    names = mutant(dense_cpu, right, wrong)
    names["compiled_steps"] = names["_steps"]
    return names[function]


@pytest.mark.parametrize("function", ["array", "loops"])
def test_check_accepts_the_text_without_a_mistake(function):
    verdict = check(dense_sgd_epoch, kernel_with(function))
    assert verdict, str(verdict)


@pytest.mark.parametrize("mistake", NUMPY_MISTAKES)
def test_check_rejects_a_wrong_array_kernel(mistake):
    rejected(dense_sgd_epoch, kernel_with("array", *NUMPY_MISTAKES[mistake]))


@pytest.mark.parametrize("mistake", NUMBA_MISTAKES)
def test_check_rejects_wrong_loops(mistake):
    rejected(dense_sgd_epoch, kernel_with("loops", *NUMBA_MISTAKES[mistake]))
