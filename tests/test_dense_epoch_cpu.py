"""Fused CPU kernels of dense_sgd_epoch: the separate operations do the same, hard numbers, and mistakes show.

That the kernels are right is tested in test_operations.py.
"""

import warnings
from functools import partial

import numpy as np
import pytest
from epoch_networks import example, mistakes, mutant, rejected, steps

from fused_epochs import dense_cpu
from fused_epochs.dense_plain import FORMS, why_not
from nnclassroom.judge.check import check
from nncourse.backend import choose
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch

HIDDEN = ("identity", "step", "sigmoid", "tanh", "relu", "leaky_relu", "softplus")
NETWORK = DenseArchitecture((30, 60, 10, 1), ("sigmoid", "sigmoid", "sigmoid"), "mse")
ON_A_GPU = [pytest.param(name, marks=pytest.mark.gpu) for name in ("cupy", "cuda")]
IN_C = [pytest.param(name, marks=pytest.mark.skipif(bool(why_not(name)), reason=why_not(name))) for name in FORMS]
kernels = pytest.mark.parametrize("kernel", ["numpy", "numba", *IN_C])


def trained(kernel, architecture, arrays, batch, rate=0.1):
    """The parameters after an epoch of a kernel, in place."""
    parameters, X, Y = (array.copy() for array in arrays)
    assert dense_sgd_epoch[kernel](parameters, architecture, X, Y, batch, rate) is parameters
    np.testing.assert_array_equal(X, arrays[1])
    np.testing.assert_array_equal(Y, arrays[2])
    return parameters


@pytest.mark.parametrize("name", ("loops", "numpy", "numba", *ON_A_GPU))
def test_an_epoch_step_by_step_is_right(name, request):
    device = request.getfixturevalue("gpu") if name in ("cupy", "cuda") else "cpu"
    assert check(dense_sgd_epoch, partial(steps, backend=choose(name)), device=device)


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
    parameters, X, Y = example(NETWORK, 25)
    np.testing.assert_array_equal(trained(kernel, NETWORK, (parameters, X[:0], Y[:0]), 10), parameters)
    wide = np.repeat(X, 2, axis=1)
    result = dense_sgd_epoch[kernel](parameters.copy(), NETWORK, wide[:, ::2], Y, 10, 0.1)
    np.testing.assert_allclose(result, trained(kernel, NETWORK, (parameters, X, Y), 10), rtol=1e-5, atol=1e-7)


# ---- check() rejects wrong kernels: each has one mistake in the text of a right one

NUMPY_MISTAKES = mistakes("epochs/dense_array")


def kernel_with(right="", wrong=""):
    """`array` of dense_cpu.py."""
    return mutant(dense_cpu, right, wrong)["array"]


def test_check_accepts_the_text_without_a_mistake():
    verdict = check(dense_sgd_epoch, kernel_with())
    assert verdict, str(verdict)


@pytest.mark.parametrize("mistake", NUMPY_MISTAKES)
def test_check_rejects_a_wrong_array_kernel(mistake):
    rejected(dense_sgd_epoch, kernel_with(*NUMPY_MISTAKES[mistake]))
