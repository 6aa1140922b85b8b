"""The gradients of a convolution against finite differences, and the memory that they need."""

from dataclasses import replace

import numpy as np
import pytest
from memory import peak_of

import nncourse.kernels.convolution_backpropagation as module
from cuda_on_cpu.faults import EmulationError
from nncourse.kernels.convolution import convolution_forward
from nncourse.kernels.convolution_backpropagation import (
    convolution_bias_gradient,
    convolution_input_gradient,
    convolution_weight_gradient,
)

# batch, c_in, h_in, w_in, c_out, k, stride, before, after
WINDOWS = [
    (3, 2, 6, 5, 4, 3, 1, 1, 1),
    (2, 3, 5, 7, 2, 2, 1, 0, 1),  # even, "same"
    (2, 1, 9, 8, 3, 3, 2, 1, 1),
    (1, 2, 10, 7, 5, 2, 3, 0, 0),  # pixels that no window holds
    (2, 2, 7, 6, 3, 4, 2, 2, 1),
    (1, 1, 3, 4, 2, 2, 1, 3, 2),  # windows that lie in the padding altogether
]


def arguments(windows, rng, dtype=np.float64):
    batch, c_in, h_in, w_in, c_out, k, stride, before, after = windows
    h_out, w_out = ((side + before + after - k) // stride + 1 for side in (h_in, w_in))
    shapes = (batch, c_in, h_in, w_in), (c_out, c_in, k, k), (c_out,), (batch, c_out, h_out, w_out)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def gradients(kernel, windows, A, W, D):
    """dW, db and G by the kernels of that name."""
    k, stride, before, after = windows[5:]
    dW = convolution_weight_gradient[kernel](D, A, k, stride, before, after)
    G = convolution_input_gradient[kernel](D, W, *A.shape[2:], stride, before, after)
    return dW, convolution_bias_gradient[kernel](D), G


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("kernel", ["loops", "numpy"])
def test_gradients_are_those_of_finite_differences(kernel, windows, rng):
    """C = mean over the batch of Σ D ⊙ Z, so that dC/dZ of a sample is D."""
    A, W, b, D = arguments(windows, rng)
    h = 1e-3

    def cost():
        return np.sum(D * convolution_forward[kernel](A, W, b, *windows[6:])) / len(A)

    def slope(array, place):
        old = array[place]
        array[place] = old + h
        above = cost()
        array[place] = old - h
        below = cost()
        array[place] = old
        return (above - below) / (2 * h)

    dW, db, G = gradients(kernel, windows, A, W, D)
    for array, gradient in ((W, dW), (b, db), (A, G / len(A))):
        assert gradient.shape == array.shape and gradient.dtype == np.float64
        for number in rng.choice(array.size, min(array.size, 20), replace=False):
            place = np.unravel_index(number, array.shape)
            assert slope(array, place) == pytest.approx(gradient[place], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("windows", [(40, 8, 28, 28, 3, 5, 1, 2, 2), (1, 8, 177, 177, 3, 5, 1, 2, 2)])
def test_arrays_of_windows_are_made_for_some_samples_or_some_rows_at_a_time(windows, rng):
    """All windows at once would take k² = 25 times the images, 25 MB here."""
    A, W, _, D = arguments(windows, rng, np.float32)
    dW, _, G = gradients("numpy", windows, A, W, D)
    assert 25 * A.nbytes > 25e6 > 8e6 > peak_of(lambda: gradients("numpy", windows, A, W, D))
    right = convolution_weight_gradient.reference(D, A, *windows[5:])
    np.testing.assert_allclose(dW, right, rtol=1e-3, atol=1e-3)
    right = convolution_input_gradient.reference(D, W, *A.shape[2:], *windows[6:])
    np.testing.assert_allclose(G, right, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("windows", [(1, 2, 24, 23, 3, 23, 1, 5, 6), (1, 1, 3, 2, 1, 513, 60, 300, 290)])
def test_filters_larger_than_the_room_in_shared_memory(windows, rng, emulator):
    """A block loads some rows of such a filter at a time, or a part of a row."""
    _, W, _, D = arguments(windows, rng, np.float32)
    given = D, W, *windows[2:4], *windows[6:]
    wanted = convolution_input_gradient["numpy"](*given)
    np.testing.assert_allclose(convolution_input_gradient["shared"](*given), wanted, rtol=1e-4, atol=1e-3)


# Few and many filters, sums in one part and in several, a last part that is shorter, and strides.
SPLIT = [
    (1, 3, 9, 8, 5, 3, 1, 1, 1),
    (7, 2, 13, 11, 70, 2, 2, 0, 1),
    (4, 15, 16, 17, 3, 3, 1, 1, 1),
    (3, 2, 17, 16, 130, 5, 1, 2, 2),
    (2, 33, 20, 19, 65, 3, 3, 2, 0),
]


def difference_of_split(windows, rng):
    """The largest error of the kernel whose sums are split among blocks, over the largest weight's gradient."""
    A, _, _, D = arguments(windows, rng, np.float32)
    right = convolution_weight_gradient.reference(D, A, *windows[5:])
    return np.abs(convolution_weight_gradient["implicit_gemm"](D, A, *windows[5:]) - right).max() / np.abs(right).max()


@pytest.mark.parametrize("windows", SPLIT)
def test_weight_gradient_whose_sums_are_split(windows, rng, emulator):
    assert difference_of_split(windows, rng) < 1e-6


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("there = pixel < end", "there = pixel < batch * plane"),  # the next part's pixels are added too
        ("y += DEPTH / w_out % h_out + (x >= w_out)", "y += DEPTH / w_out % h_out"),
        ("part < count", "part < count - 1"),
        ("blockIdx.y * span", "0 * span"),
        ("o0 + row_load + e * APART < c_out", "true"),  # the next sample's deltas
        ("/ batch;", ";"),
    ],
)
def test_mistakes_in_split_sums_are_seen(right, wrong, rng, emulator, monkeypatch):
    assert right in module.WEIGHT_TILES.text
    mutant = replace(module.WEIGHT_TILES, text=module.WEIGHT_TILES.text.replace(right, wrong))
    monkeypatch.setattr(module, "WEIGHT_TILES", mutant)
    try:
        assert max(difference_of_split(windows, rng) for windows in SPLIT) > 1e-3
    except EmulationError as error:
        assert error.kind == "bounds"
