"""The tolerance covers all possible roundings, and not much more."""

import numpy as np
import pytest

from nnclassroom.judge import cases
from nnclassroom.judge.check import compare
from nnclassroom.judge.tolerance import references_of
from nncourse.kernels.convolution import convolution_forward
from nncourse.kernels.dense import dense_forward


def one_after_the_other(A, W, b, stride, before, after):
    """The bias first, then one product after the other, each sum rounded to float32."""
    k = W.shape[-1]
    windows = np.lib.stride_tricks.sliding_window_view(A, (k, k), axis=(2, 3))[:, :, ::stride, ::stride]
    Z = np.broadcast_to(b[:, None, None], (len(A), len(W), *windows.shape[2:4])).copy()
    for c, i, j in np.ndindex(W.shape[1:]):
        Z += W[:, c, i, j][:, None, None] * windows[:, c, None, :, :, i, j]
    return Z


def equal_numbers(operation, seed):
    sizes = operation.trial.sizes_to_check[0] if operation.trial.sizes_to_check else cases.usual_sizes(operation)[1]
    return cases.make_case(operation, sizes, "equal", np.random.default_rng(seed)).arguments


@pytest.mark.parametrize("seed", (71, 187, 457, 568, 827, 896))  # these went beyond 8 roundings
def test_a_sum_of_equal_numbers_may_be_rounded_one_way_throughout(seed):
    arguments = equal_numbers(convolution_forward, seed)
    references = references_of(convolution_forward, arguments)
    Z = one_after_the_other(*arguments)
    assert np.ptp(Z) == 0 and Z.flat[0] != np.float32(references["Z"].flat[0])
    assert compare(convolution_forward, Z, references, arguments) is None


@pytest.mark.parametrize("operation", [dense_forward, convolution_forward], ids=lambda operation: operation.name)
@pytest.mark.parametrize("seed", range(5))
def test_a_term_too_few_is_no_rounding(operation, seed):
    arguments = equal_numbers(operation, seed)
    references = references_of(operation, arguments)
    A, W, b = arguments[:3]
    Z = (references["Z"] - A.flat[0] * W.flat[0]).astype(np.float32)
    assert compare(operation, Z, references, arguments)
    assert compare(operation, (references["Z"] - b.flat[0]).astype(np.float32), references, arguments)
