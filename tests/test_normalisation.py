"""Batch normalisation and shortcuts: PyTorch agrees; hard numbers; wrong kernels in Python."""

import numpy as np
import pytest
from finite_differences import slopes

from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.nb14 import residual_backward
from nnclassroom.judge.check import check
from nncourse.backend import choose
from nncourse.catalogue import operations
from nncourse.kernels.normalisation import (
    batchnorm_backward,
    batchnorm_forward,
    batchnorm_gradients,
    batchnorm_statistics,
)

CPU = ("loops", "numpy", "numba")
SHAPES = [(4, 3, 5, 7), (9, 6, 1, 1), (1, 2, 8, 3)]
EPSILON = 1e-5


def numbers(shape, rng):
    A, D = rng.normal(3, 2, shape), rng.normal(size=shape)
    gamma, beta = rng.uniform(0.5, 2, shape[1]), rng.normal(size=shape[1])
    return tuple(array.astype(np.float32) for array in (A, D, gamma, beta))


def there_and_back(kernel, A, D, gamma, beta):
    """What batch normalisation in training computes: mean and variance, Z, both gradients of parameters, and dC/dA."""
    mean, variance = batchnorm_statistics[kernel](A)
    Z = batchnorm_forward[kernel](A, mean, variance, gamma, beta, EPSILON)
    sums = batchnorm_gradients[kernel](D, A, mean, variance, EPSILON)
    return mean, variance, Z, *sums, batchnorm_backward[kernel](D, A, mean, variance, gamma, *sums, EPSILON)


# ---- beside PyTorch


@pytest.mark.parametrize("kernel", CPU)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_training_s_outputs_and_gradients_are_pytorchs(shape, kernel, rng):
    torch = pytest.importorskip("torch")
    A, D, gamma, beta = numbers(shape, rng)
    tensors = [torch.from_numpy(array).requires_grad_() for array in (A, gamma, beta)]
    wanted = torch.nn.functional.batch_norm(tensors[0], None, None, *tensors[1:], training=True, eps=EPSILON)
    wanted.backward(torch.from_numpy(D))
    _, _, Z, dgamma, dbeta, G = there_and_back(kernel, A, D, gamma, beta)
    for got, tensor in ((G, tensors[0]), (dgamma * len(A), tensors[1]), (dbeta * len(A), tensors[2])):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(Z, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_block_s_way_back_is_the_slope_of_the_way_there(rng):
    A, G, W = rng.normal(size=(4, 5)), rng.normal(size=(4, 5)), rng.normal(size=(5, 5))
    wanted = slopes(lambda A: np.sum(G * np.maximum(0, A @ W.T + A)), A)
    np.testing.assert_allclose(residual_backward["numpy"](G, np.maximum(0, A @ W.T + A), W), wanted, atol=1e-6)


# ---- hard numbers


@pytest.mark.parametrize("kernel", CPU)
@pytest.mark.parametrize("shape", [(5, 2, 3, 3), (1, 2, 1, 1)], ids=["a channel of equal numbers", "one pixel"])
def test_without_a_variance_the_output_is_beta_and_nothing_goes_back(shape, kernel, rng):
    A = np.full(shape, 1.5, np.float32)
    gamma, beta = np.array([2, 3], np.float32), np.array([-1, 1], np.float32)
    _, variance, Z, _, _, G = there_and_back(kernel, A, np.ones(shape, np.float32), gamma, beta)
    assert not variance.any()
    np.testing.assert_array_equal(Z, np.broadcast_to(beta[:, None, None], shape))
    np.testing.assert_allclose(G, 0, atol=1e-3)


@pytest.mark.parametrize("kernel", CPU)
def test_nan_stays_in_its_channel(kernel, rng):
    A, D, gamma, beta = numbers((4, 3, 2, 2), rng)
    A[1, 1, 0, 0] = np.nan
    mean, variance, Z, dgamma, _, G = there_and_back(kernel, A, D, gamma, beta)
    for found in (mean, variance, dgamma):
        np.testing.assert_array_equal(np.isnan(found), [False, True, False])
    for found in (Z, G):
        assert np.isnan(found[:, 1]).all() and not np.isnan(found[:, ::2]).any()


# ---- what does several operations at once makes way for a kernel that was chosen


def test_a_chosen_kernel_runs_and_is_not_passed_over():
    fused = {"batchnorm_relu", "batchnorm_shortcut_relu"}
    assert fused <= choose("numpy").kernels.keys()
    for name in ("batchnorm_forward", "relu"):
        assert not fused & choose("numpy", **{name: "loops"}).kernels.keys()
    assert fused & choose("numpy", shortcut_sum="loops").kernels.keys() == {"batchnorm_relu"}
    kept = choose("numpy", relu="loops", batchnorm_relu="numba").kernels
    assert kept["batchnorm_relu"].name == "numba"


# ---- wrong kernels


def each(values):
    return values[:, None, None]


def statistics(variance, mean=lambda A: A.mean(axis=(0, 2, 3))):
    return "batchnorm_statistics", lambda A: (mean(A), variance(A))


def outputs(divided):
    """A − μ divided as `divided` says, scaled and shifted."""

    def forward(A, mean, variance, gamma, beta, epsilon):
        return divided(A - each(mean), each(variance), np.float32(epsilon)) * each(gamma) + each(beta)

    return "batchnorm_forward", forward


def with_statistics(change):
    """The course's outputs, for other statistics."""
    forward = batchnorm_forward["numpy"]
    return "batchnorm_forward", lambda A, mean, variance, *rest: forward(A, *change(A, mean, variance), *rest)


def gradients(factor):
    def scaled(D, A, *rest):
        return tuple(found * np.float32(factor(A)) for found in batchnorm_gradients["numpy"](D, A, *rest))

    return "batchnorm_gradients", scaled


def deltas(change):
    def backward(D, A, mean, variance, gamma, dgamma, dbeta, epsilon):
        deviation = each(np.sqrt(variance + np.float32(epsilon)))
        normal = (A - each(mean)) / deviation
        return change(D, normal, each(gamma) / deviation, each(dgamma), each(dbeta), pixels(A))

    return "batchnorm_backward", backward


def pixels(A):
    return A.shape[2] * A.shape[3]


def relu_before_the_sum(*arguments):
    *rest, shortcut = arguments
    return operations()["batchnorm_relu"]["numpy"](*rest) + shortcut


WRONG = {
    "E[x²] − E[x]²": statistics(lambda A: (A**2).mean((0, 2, 3)) - A.mean((0, 2, 3)) ** 2),
    "unbiased": statistics(lambda A: A.var((0, 2, 3), ddof=1)),
    "deviation": statistics(lambda A: A.std((0, 2, 3))),
    "over the samples alone": statistics(lambda A: A.var((0, 2, 3)), lambda A: A[:, :, 0, 0].mean(0)),
    "epsilon behind the root": outputs(lambda a, v, epsilon: a / (np.sqrt(v) + epsilon)),
    "no root": outputs(lambda a, v, epsilon: a / (v + epsilon)),
    "statistics of its own": with_statistics(lambda A, mean, variance: batchnorm_statistics["numpy"](A)),
    "along the columns": with_statistics(lambda A, mean, variance: (mean[::-1].copy(), variance)),
    "a sum over the batch": gradients(len),
    "a mean over the pixels too": gradients(lambda A: 1 / pixels(A)),
    "scaled alone": deltas(lambda D, x, scale, dgamma, dbeta, n: scale * D),
    "the mean's share alone": deltas(lambda D, x, scale, dgamma, dbeta, n: scale * (D - dbeta / n)),
    "divided by the batch too": deltas(
        lambda D, x, scale, dgamma, dbeta, n: scale * (D - (dbeta + x * dgamma) / (len(D) * n))
    ),
    "not divided": deltas(lambda D, x, scale, dgamma, dbeta, n: scale * (D - dbeta - x * dgamma)),
    "sums of D, not those of all members": deltas(
        lambda D, x, scale, dgamma, dbeta, n: scale * (D - D.mean((0, 2, 3), keepdims=True)[0])
    ),
    "no ReLU": ("batchnorm_relu", batchnorm_forward["numpy"].function),
    "ReLU before the sum": ("batchnorm_shortcut_relu", relu_before_the_sum),
    "no shortcut": ("residual_backward", lambda G, A, W: (G * (A > 0)) @ W),
    "the shortcut past ReLU": ("residual_backward", lambda G, A, W: (G * (A > 0)) @ W + G),
    "W transposed": ("residual_backward", lambda G, A, W: (D := G * (A > 0)) @ W.T + D),
    "ReLU behind": ("residual_backward", lambda G, A, W: (G @ W + G) * (A > 0)),
}


@pytest.mark.parametrize(("operation", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_python_kernel_is_rejected(operation, wrong):
    verdict = check(find(operation), wrong)
    assert not verdict, f"accepted: {verdict}"
    assert "\n" not in verdict.line


def welford(A):
    """One pass, number by number."""
    batch, c = A.shape[:2]
    mean, variance = np.zeros(c, np.float32), np.zeros(c, np.float32)
    for k in range(c):
        squares = np.float32(0)
        for n, a in enumerate(A[:, k].ravel(), 1):
            difference = a - mean[k]
            mean[k] += difference / np.float32(n)
            squares += difference * (a - mean[k])
        variance[k] = squares / np.float32(A[:, k].size)
    return mean, variance


def shifted(A):
    """One pass, with sums of distances from a rough mean."""
    near = A[:, :, :1, :1].mean(axis=0)
    away = A - near
    mean = away.mean(axis=(0, 2, 3))
    return mean + near[:, 0, 0], (away - each(mean)).var(axis=(0, 2, 3))


RIGHT = {
    "welford": ("batchnorm_statistics", welford),
    "shifted": ("batchnorm_statistics", shifted),
    "in double precision": statistics(lambda A: np.float64(A).var((0, 2, 3)).astype("f")),
    "scale and shift": (
        "batchnorm_forward",
        lambda A, m, v, gamma, beta, epsilon: (
            A * each(scale := gamma / np.sqrt(v + np.float32(epsilon))) + each(beta - m * scale)
        ),
    ),
    "all from D": deltas(lambda D, x, scale, dgamma, dbeta, n: scale / n * (n * D - dbeta - x * dgamma)),
    "a product with W + 1": (
        "residual_backward",
        lambda G, A, W: (G * (A > 0)) @ (W + np.eye(len(W), dtype="f")),
    ),
}


@pytest.mark.parametrize(("operation", "right"), RIGHT.values(), ids=RIGHT)
def test_a_right_kernel_is_accepted_whatever_the_seed(operation, right):
    for seed in range(4):
        verdict = check(find(operation), right, seed=seed)
        assert verdict, str(verdict)
