"""Convolution on numbers that can be checked by hand, and the memory that it needs."""

import numpy as np
import pytest
from memory import peak_of

from nnclassroom.judge import check
from nncourse.kernels.convolution import convolution_forward

HERE = ["loops", "numpy", "numba", "naive", "shared", "constant", "implicit_gemm"]
FILTER = np.array([[4, 3, 4], [2, 4, 3], [2, 3, 4]], np.float32)[None, None]


@pytest.fixture(params=HERE)
def kernel(request):
    kernel = convolution_forward[request.param]
    if kernel.cuda:
        request.getfixturevalue("emulator")
    return kernel


def image(*rows):
    return np.array(rows, np.float32)[None, None]


def test_a_filter_moved_by_hand(kernel):
    A = image([1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 10])
    Z = kernel(A, FILTER, np.array([0.5], np.float32), 1, 0, 0)
    assert Z[0, 0].tolist() == [[8.5, 3.5, 2.5], [3.5, 4.5, 2.5], [4.5, 3.5, 44.5]]


def test_the_filter_is_not_turned_around(kernel):
    """This is a correlation: one bright pixel yields the rotated filter."""
    one = np.zeros((1, 1, 5, 5), np.float32)
    one[0, 0, 2, 2] = 1
    Z = kernel(one, FILTER, np.zeros(1, np.float32), 1, 0, 0)
    assert np.array_equal(Z[0, 0], FILTER[0, 0, ::-1, ::-1])


def test_stride_and_padding(kernel):
    """Windows begin every second row and column; an even filter pads behind the image only, and keeps its size."""
    A = image([1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12])
    ones, none = np.ones((1, 1, 2, 2), np.float32), np.zeros(1, np.float32)
    assert kernel(A, ones, none, 2, 0, 1)[0, 0].tolist() == [[14, 22], [19, 23]]
    assert kernel(A, ones, none, 1, 0, 1)[0, 0].tolist() == [[14, 18, 22, 12], [30, 34, 38, 20], [19, 21, 23, 12]]


@pytest.mark.parametrize("sizes", [(64, 8, 32, 32, 4, 5, 1, 2, 2), (1, 40, 90, 100, 3, 3, 1, 1, 1)])
def test_numpy_never_copies_all_windows_at_once(sizes, rng):
    """Columns for the whole batch would take 52 MB and, in the second case, 13 MB for one image alone."""
    batch, c_in, h, w, c_out, k, *numbers = sizes
    A = rng.standard_normal((batch, c_in, h, w), np.float32)
    W, b = rng.standard_normal((c_out, c_in, k, k), np.float32), np.zeros(c_out, np.float32)
    kernel = convolution_forward["numpy"]
    Z = kernel(A, W, b, *numbers)
    padded = 4 * c_in * (h + 4) * (w + 4)
    assert peak_of(lambda: kernel(A, W, b, *numbers)) < Z.nbytes + 2 * padded + 3_000_000
    np.testing.assert_allclose(Z, convolution_forward.reference(A, W, b, *numbers), rtol=1e-3, atol=1e-3)


def test_constant_memory_that_is_too_small_is_not_used(emulator):
    """A launch never uses the filters of the one before; too many filters are read from W."""
    kernel = convolution_forward["constant"]
    for channels in (2, 300, 3):  # 300 × 9 × 9 weights are more than 16,384
        sizes = dict(zip(convolution_forward.shapes.free_names, (1, channels, 3, 3, 9, 3, 1, 0, 0), strict=True))
        arguments = check.random_case(convolution_forward, sizes, seed=channels).arguments
        reference = convolution_forward.reference(*arguments)
        np.testing.assert_allclose(kernel(*arguments), reference, rtol=1e-3, atol=1e-3)
