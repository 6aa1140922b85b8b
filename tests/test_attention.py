"""Attention: PyTorch and finite differences agree; masks; several tiles; wrong kernels in Python are told why."""

import numpy as np
import pytest
from finite_differences import slopes

from nnclassroom.judge.check import check
from nncourse.backend import choose
from nncourse.device import stacked
from nncourse.kernels.attention import (
    attention_backward,
    attention_forward,
    fused_attention,
    merge_heads,
    split_heads,
)
from nncourse.kernels.attention_step import attention_step

CPU = ("loops", "numpy", "numba")
SHAPES = [(2, 3, 5, 4), (1, 2, 1, 3), (3, 1, 9, 1)]


def numbers(shape, rng, dtype="f"):
    return tuple(rng.standard_normal((4, *shape)).astype(dtype))


@pytest.mark.parametrize("kernel", CPU)
@pytest.mark.parametrize("causal", (0, 1))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_and_gradients_are_pytorchs(shape, causal, kernel, rng):
    torch = pytest.importorskip("torch")
    Q, K, V, D = numbers(shape, rng)
    tensors = [torch.from_numpy(array).requires_grad_() for array in (Q, K, V)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=bool(causal))
    wanted.backward(torch.from_numpy(D))
    O, P = attention_forward[kernel](Q, K, V, causal)
    np.testing.assert_allclose(O, wanted.detach().numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fused_attention[kernel](Q, K, V, causal), O, rtol=1e-4, atol=1e-6)
    for got, tensor in zip(attention_backward[kernel](D, Q, K, V, P), tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kernel", CPU)
def test_a_step_is_the_last_row_of_attention(kernel, rng):
    """Whatever the places of the cache that are not filled hold."""
    Q, K, V, _ = numbers((2, 3, 5, 4), rng)
    O, _ = attention_forward["numpy"](Q, K, V, 1)
    cache = [np.concatenate([each, np.full((2, 3, 2, 4), np.nan, "f")], axis=2) for each in (K, V)]
    got = attention_step[kernel](np.ascontiguousarray(Q[:, :, 4]), *cache, 5)
    np.testing.assert_allclose(got, O[:, :, 4], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("causal", (0, 1))
def test_gradients_are_those_of_finite_differences(causal, rng):
    Q, K, V, D = numbers((1, 2, 4, 3), rng, float)

    def cost(Q, K, V):
        return float((attention_forward["numpy"](Q, K, V, causal)[0] * D).sum())

    P = attention_forward["numpy"](Q, K, V, causal)[1]
    wanted = slopes(lambda Q: cost(Q, K, V), Q), slopes(lambda K: cost(Q, K, V), K), slopes(lambda V: cost(Q, K, V), V)
    for got, differences in zip(attention_backward["numpy"](D, Q, K, V, P), wanted, strict=True):
        np.testing.assert_allclose(got, differences, atol=1e-6)


def test_no_position_is_changed_by_a_later_one(rng):
    Q, K, V, _ = numbers((2, 2, 6, 3), rng)
    O, P = attention_forward["numpy"](Q, K, V, 1)
    np.testing.assert_array_equal(P, np.tril(P))
    np.testing.assert_allclose(P.sum(axis=3), 1, rtol=1e-6)
    for array in (Q, K, V):
        array[:, :, 4:] = 1e4
    np.testing.assert_array_equal(attention_forward["numpy"](Q, K, V, 1)[0][:, :, :4], O[:, :, :4])


@pytest.mark.parametrize("causal", (0, 1))
def test_fused_attention_of_several_tiles(causal, rng):
    Q, K, V, _ = numbers((1, 2, 600, 4), rng)
    wanted = attention_forward["numpy"](Q, 9 * K, V, causal)[0]
    np.testing.assert_allclose(fused_attention["numpy"](Q, 9 * K, V, causal), wanted, rtol=1e-4, atol=1e-5)


def test_heads_are_split_and_merged(rng):
    A = rng.standard_normal((2, 5, 3, 4, 6)).astype("f")
    H = split_heads["numpy"](A)
    np.testing.assert_array_equal(H[1, 0, 2], A[0, :, 1, 2])
    np.testing.assert_array_equal(merge_heads["numpy"](H), A)


def test_the_default_kernels_on_a_gpu_are_tiled():
    kernels = choose("cuda", emulate=True).kernels
    assert {kernels[name].name for name in ("attention_forward", "attention_backward", "fused_attention")} == {"tiled"}


# ---- wrong kernels


def softmax(S, axis=3):
    E = np.exp(S - S.max(axis=axis, keepdims=True))
    return E / E.sum(axis=axis, keepdims=True)


def masked(S, causal):
    return np.where(np.tri(S.shape[3], dtype=bool), S, -np.inf) if causal else S


def scores(Q, K):
    return Q @ K.swapaxes(2, 3) / np.sqrt(Q.shape[3])


def by_weights(weights):
    """A kernel of attention_forward from a function of the scores and causal, that returns P."""

    def kernel(Q, K, V, causal):
        with np.errstate(all="ignore"):
            P = weights(scores(Q, K), causal, Q.shape[3])
        return (P @ V).astype("f"), P.astype("f")

    return kernel


def unshifted(S, causal, d):
    E = np.exp(masked(S.astype("f"), causal))
    return E / E.sum(axis=3, keepdims=True)


def backward(dS, back=lambda dS, Q, K, d: (dS @ K / np.sqrt(d), dS.swapaxes(2, 3) @ Q / np.sqrt(d))):
    def kernel(D, Q, K, V, P):
        found = dS(P, D @ V.swapaxes(2, 3))
        return *(each.astype("f") for each in back(found, Q, K, Q.shape[3])), P.swapaxes(2, 3) @ D

    return kernel


def right(P, dP):
    return P * (dP - (P * dP).sum(axis=3, keepdims=True))


def fused(kernel):
    return lambda *arguments: kernel(*arguments)[0]


WRONG = {
    "no root": (attention_forward, by_weights(lambda S, c, d: softmax(masked(S * np.sqrt(d), c))), "not divided by √d"),
    "root twice": (attention_forward, by_weights(lambda S, c, d: softmax(masked(S * d, c))), "multiplied by √d"),
    "by d": (attention_forward, by_weights(lambda S, c, d: softmax(masked(S / np.sqrt(d), c))), "divided by d"),
    "no mask": (attention_forward, by_weights(lambda S, c, d: softmax(S)), "mask is left out"),
    "the wrong side": (
        attention_forward,
        by_weights(lambda S, c, d: softmax(np.where(np.tri(len(S[0, 0]), k=-c, dtype=bool), -np.inf, S) if c else S)),
        "on the wrong side",
    ),
    "masked scores 0": (
        attention_forward,
        by_weights(lambda S, c, d: softmax(np.tril(S) if c else S)),
        "whose exp is 1",
    ),
    "weights masked": (
        attention_forward,
        by_weights(lambda S, c, d: np.tril(softmax(S)) if c else softmax(S)),
        "after the softmax",
    ),
    "the wrong axis": (attention_forward, by_weights(lambda S, c, d: softmax(masked(S, c), 2)), "softmax is along i"),
    "swapped": (
        attention_forward,
        by_weights(lambda S, c, d: softmax(masked(S.swapaxes(2, 3), c))),
        "Q and K are swapped",
    ),
    "not shifted": (attention_forward, by_weights(unshifted), "exp overflows"),
    "P transposed": (
        attention_forward,
        lambda Q, K, V, c: (softmax(masked(scores(Q, K), c)).swapaxes(2, 3) @ V, softmax(masked(scores(Q, K), c))),
        "with Pᵀ",
    ),
    "fused, no mask": (fused_attention, fused(by_weights(lambda S, c, d: softmax(S))), "mask is left out"),
    "fused, not shifted": (fused_attention, fused(by_weights(unshifted)), "exp overflows"),
    "no sum of the row": (attention_backward, backward(lambda P, dP: P * dP), "sum of the row is not subtracted"),
    "sum of the column": (
        attention_backward,
        backward(lambda P, dP: P * (dP - (P * dP).sum(axis=2, keepdims=True))),
        "over the columns",
    ),
    "no P": (attention_backward, backward(lambda P, dP: dP - (P * dP).sum(axis=3, keepdims=True)), "P is left out"),
    "no softmax": (attention_backward, backward(lambda P, dP: dP), "softmax is left out"),
    "no root in dQ": (
        attention_backward,
        backward(right, lambda dS, Q, K, d: (dS @ K, dS.swapaxes(2, 3) @ Q / np.sqrt(d))),
        "1/√d is left out",
    ),
    "no root in dK": (
        attention_backward,
        backward(right, lambda dS, Q, K, d: (dS @ K / np.sqrt(d), dS.swapaxes(2, 3) @ Q)),
        "1/√d is left out",
    ),
    "dK not transposed": (
        attention_backward,
        backward(right, lambda dS, Q, K, d: (dS @ K / np.sqrt(d), dS @ Q / np.sqrt(d))),
        "transpose dS",
    ),
    "reshaped": (
        split_heads,
        lambda A: A.reshape(*(A.shape[axis] for axis in (2, 0, 3, 1, 4))).copy(),
        "move the axes",
    ),
    "sequence cut": (
        split_heads,
        lambda A: np.moveaxis(A, 2, 0).reshape(*(A.shape[axis] for axis in (2, 0, 3, 1, 4))),
        "cut into heads",
    ),
    "not merged": (
        merge_heads,
        lambda H: H.reshape(*(H.shape[axis] for axis in (1, 3, 0, 2, 4))).copy(),
        "move the axes",
    ),
}


@pytest.mark.parametrize(("operation", "wrong", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_python_kernel_is_told_why(operation, wrong, said):
    verdict = check(operation, wrong)
    assert not verdict and "\n" not in verdict.line and said in verdict.line, str(verdict)


@pytest.mark.parametrize("seed", range(3))
def test_a_right_kernel_of_another_kind_is_accepted(seed):
    """In double precision; with the logarithm of the sum; and by PyTorch's formula for the gradient of a softmax."""

    def by_logarithm(S, causal, d):
        S = masked(S.astype(float), causal)
        return np.exp(S - np.logaddexp.reduce(S, axis=3, keepdims=True))

    def softmax_gradient(P, dP):
        return P * dP - P * np.einsum("shij,shij->shi", P, dP)[..., None]

    kernels = [
        (attention_forward, by_weights(by_logarithm)),
        (attention_forward, by_weights(lambda S, c, d: softmax(masked(S, c)))),
        (fused_attention, fused(by_weights(by_logarithm))),
        (attention_backward, backward(softmax_gradient)),
    ]
    for operation, kernel in kernels:
        verdict = check(operation, kernel, seed=seed)
        assert verdict, str(verdict)


def test_arrays_are_stacked_without_a_copy_only_where_they_are_the_parts_of_one_in_order(rng):
    whole = rng.standard_normal((3, 2, 4))
    assert stacked(list(whole)) is whole
    others = (
        [whole[0], whole[2], whole[1]],
        list(whole[:2]),
        [each.T for each in np.zeros((3, 4, 4))],
        [np.zeros(2), np.ones(2)],
        list(np.zeros((3, 8))[:, ::2]),
        [np.frombuffer(bytes(8), "f")] * 2,
    )
    for arrays in others:
        got = stacked(arrays)
        assert np.array_equal(got, np.stack(arrays)) and not any(np.shares_memory(got, each) for each in arrays)
