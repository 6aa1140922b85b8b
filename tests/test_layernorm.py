"""Layer normalisation: PyTorch agrees; hard numbers; sequences; wrong kernels in Python are told why."""

import numpy as np
import pytest
from finite_differences import compare_gradients
from random_layers import dense
from refusals import refused

from nnclassroom.judge.check import check
from nncourse.backend import choose
from nncourse.kernels.layernorm import layernorm_backward, layernorm_forward, layernorm_gradients
from nncourse.model.image_layers import Flatten
from nncourse.model.layer_norm import EPSILON, LayerNorm
from nncourse.model.network import Network, make_network

CPU = ("loops", "numpy", "numba")
SHAPES = [(4, 3, 5), (9, 1, 6), (1, 2, 8), (3, 4, 1)]


def numbers(shape, rng):
    A, D = rng.normal(3, 2, shape), rng.normal(size=shape)
    gamma, beta = rng.uniform(0.5, 2, shape[-1]), rng.normal(size=shape[-1])
    return tuple(array.astype(np.float32) for array in (A, D, gamma, beta))


def there_and_back(kernel, A, D, gamma, beta):
    Z, mean, scale = layernorm_forward[kernel](A, gamma, beta, EPSILON)
    G = layernorm_backward[kernel](D, A, mean, scale, gamma)
    return Z, G, *layernorm_gradients[kernel](D, A, mean, scale)


@pytest.mark.parametrize("kernel", CPU)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_and_gradients_are_pytorchs(shape, kernel, rng):
    torch = pytest.importorskip("torch")
    A, D, gamma, beta = numbers(shape, rng)
    tensors = [torch.from_numpy(array).requires_grad_() for array in (A, gamma, beta)]
    wanted = torch.nn.functional.layer_norm(tensors[0], shape[-1:], *tensors[1:], eps=EPSILON)
    wanted.backward(torch.from_numpy(D))
    Z, G, dgamma, dbeta = there_and_back(kernel, A, D, gamma, beta)
    np.testing.assert_allclose(Z, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    for got, tensor in zip((G, dgamma * len(A), dbeta * len(A)), tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-4, atol=1e-4)  # n = 1: PyTorch rounds 316 − 316


@pytest.mark.parametrize("kernel", CPU)
def test_hard_rows(kernel, rng):
    """Small deviations from a large mean, equal numbers, and a NaN, which stays in its row."""
    A, D, gamma, beta = numbers((3, 2, 40), rng)
    A[0] = 4000 + 0.25 * rng.integers(-4, 5, (2, 40))
    A[1] = 1.5
    A[2, 0, 3] = np.nan
    Z, G, _, _ = there_and_back(kernel, A, D, gamma, beta)
    exact = A[0].astype(np.float64)
    normal = (exact - exact.mean(axis=1, keepdims=True)) / np.sqrt(exact.var(axis=1, keepdims=True) + EPSILON)
    np.testing.assert_allclose(Z[0], normal * gamma + beta, atol=2e-3)
    np.testing.assert_array_equal(Z[1], np.broadcast_to(beta, (2, 40)))
    for found in (Z, G):
        assert np.isnan(found[2, 0]).all() and np.isfinite(found[2, 1]).all() and np.isfinite(found[:2]).all()


# ---- the layer


def sequence_network():
    norm = LayerNorm(np.linspace(0.5, 2, 4), np.linspace(-1, 1, 4))
    return Network([norm, Flatten(), dense(12, 5), dense(5, 2, "sigmoid")], input_shape=(3, 4))


def test_a_sequence_is_normalised_place_by_place(rng):
    network, X = sequence_network(), rng.normal(2, 3, (5, 3, 4))
    compare_gradients(network, X, rng.random((5, 2)), None)
    A = Network([network.layers[0], Flatten()], input_shape=(3, 4)).predict(X, choose("numpy")).reshape(X.shape)
    gamma, beta = network.layers[0].parameters
    np.testing.assert_allclose(((A - beta) / gamma).mean(axis=2), 0, atol=1e-12)
    np.testing.assert_allclose(((A - beta) / gamma).std(axis=2), 1, rtol=1e-4)


def test_no_samples_and_samples_that_do_not_fit():
    assert make_network("4,layernorm,3").predict(np.zeros((0, 4), np.float32), choose("numpy")).shape == (0, 3)
    assert "4 numbers in a row" in refused(Network, [LayerNorm(np.ones(4), np.zeros(4))], input_shape=(5,))


# ---- wrong kernels


def forward(deviation, subtract=True):
    def kernel(A, gamma, beta, epsilon):
        mean = A.mean(axis=2)
        divided = deviation(A, np.float32(epsilon))
        Z = (A - mean[..., None] * subtract) / divided[..., None] * gamma + beta
        return Z.astype("f"), mean, (1 / divided).astype("f")

    return kernel


def backward(change):
    def kernel(D, A, mean, scale, gamma):
        normal = (A - mean[..., None]) * scale[..., None]
        return change(D, normal, scale[..., None], gamma, lambda H: H.mean(axis=2, keepdims=True)).astype("f")

    return kernel


def gradients(change):
    return lambda D, A, *rest: tuple(
        change(found, D).astype("f") for found in layernorm_gradients["numpy"](D, A, *rest)
    )


WRONG = {
    "behind the root": (layernorm_forward, forward(lambda A, e: A.std(axis=2) + e), "inside the root"),
    "unbiased": (layernorm_forward, forward(lambda A, e: np.sqrt(A.var(axis=2, ddof=A.shape[2] > 1) + e)), "ddof"),
    "no root": (layernorm_forward, forward(lambda A, e: A.var(axis=2) + e), "take its root"),
    "over all rows": (
        layernorm_forward,
        forward(lambda A, e: np.full(A.shape[:2], np.sqrt(A.var() + e))),
        "",
    ),
    "mean kept": (layernorm_forward, forward(lambda A, e: np.sqrt(A.var(axis=2) + e), False), "not subtracted"),
    "scaled alone": (layernorm_backward, backward(lambda D, x, s, g, m: s * g * D), "count as constants"),
    "no mean": (
        layernorm_backward,
        backward(lambda D, x, s, g, m: s * (g * D - x * m(g * D * x))),
        "of the mean",
    ),
    "no variance": (
        layernorm_backward,
        backward(lambda D, x, s, g, m: s * (g * D - m(g * D))),
        "of the variance",
    ),
    "gamma outside": (
        layernorm_backward,
        backward(lambda D, x, s, g, m: g * s * (D - m(D) - x * m(D * x))),
        "D by it first",
    ),
    "no gamma": (layernorm_backward, backward(lambda D, x, s, g, m: s * (D - m(D) - x * m(D * x))), "γ is left out"),
    "a sum": (layernorm_gradients, gradients(lambda found, D: found * len(D)), "divide it by the batch"),
    "a mean over places": (layernorm_gradients, gradients(lambda found, D: found / D.shape[1]), "by the batch alone"),
}


@pytest.mark.parametrize(("operation", "wrong", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_python_kernel_is_told_why(operation, wrong, said):
    verdict = check(operation, wrong)
    assert not verdict and "\n" not in verdict.line and said in verdict.line, str(verdict)


@pytest.mark.parametrize("seed", range(3))
def test_a_right_kernel_of_another_kind_is_accepted(seed):
    """In double precision; as PyTorch documents it; and all from sums."""
    right = [
        (layernorm_forward, forward(lambda A, e: np.sqrt(np.float64(A).var(axis=2) + e))),
        (layernorm_backward, backward(lambda D, x, s, g, m: s * (g * (D - x * 0) - m(g * D) - x * m(x * D * g)))),
        (layernorm_gradients, gradients(lambda found, D: found)),
    ]
    for operation, kernel in right:
        verdict = check(operation, kernel, seed=seed)
        assert verdict, str(verdict)
