"""Pooling: PyTorch and finite differences agree; ties, NaN and infinities; what is refused."""

import numpy as np
import pytest
from finite_differences import slopes
from refusals import refused

from nnclassroom.judge.check import check, random_case
from nncourse.kernels.pooling import averagepool_backward, averagepool_forward, maxpool_backward, maxpool_forward

CPU = ("loops", "numpy", "numba")
# batch, c, h_in, w_in, size, stride, padding
SHAPES = [
    (2, 3, 8, 8, 2, 2, 0),
    (3, 1, 7, 10, 3, 2, 1),
    (1, 2, 9, 6, 3, 1, 1),
    (2, 2, 5, 11, 2, 3, 0),
    (1, 1, 6, 5, 4, 1, 2),
]
IDS = ["side by side", "overlapping", "every pixel", "pixels between", "much padding"]


def backward_kernels():
    """The kernels that take NumPy arrays; the one of CuPy is among them, since NumPy has the same functions."""
    return {name: kernel for name, kernel in maxpool_backward.kernels.items() if not kernel.cuda}


def images(shape, kind, rng):
    values = rng.standard_normal(shape[:4]).astype(np.float32)
    match kind:
        case "negative":
            values = -abs(values) - 1
        case "ties":
            values = rng.integers(-1, 2, shape[:4]).astype(np.float32)
        case "NaN":
            values[rng.random(shape[:4]) < 0.2] = np.nan
        case "minus infinity":
            values[rng.random(shape[:4]) < 0.8] = -np.inf
    return values


# ---- beside PyTorch


@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
@pytest.mark.parametrize("kind", ["random", "negative", "ties", "NaN", "minus infinity"])
def test_the_largest_and_their_places_are_pytorchs(kind, shape, rng):
    torch = pytest.importorskip("torch")
    A, window = images(shape, kind, rng), shape[4:]
    values, places = torch.nn.functional.max_pool2d(torch.from_numpy(A), *window, return_indices=True)
    nan = np.isnan(values.numpy())
    assert nan.any() == (kind == "NaN")
    for name in CPU:
        Z, of = maxpool_forward[name](A, *window)
        np.testing.assert_array_equal(Z, values.numpy())
        np.testing.assert_array_equal(of[~nan], places.numpy()[~nan])  # of several NaNs PyTorch takes the last


@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_means_and_their_gradients_are_pytorchs(shape, rng):
    torch = pytest.importorskip("torch")
    A, window = images(shape, "random", rng), shape[4:6]
    tensor = torch.from_numpy(A).requires_grad_()
    means = torch.nn.functional.avg_pool2d(tensor, *window)
    D = rng.standard_normal(means.shape).astype(np.float32)
    means.backward(torch.from_numpy(D))
    for name in CPU:
        Z, G = averagepool_forward[name](A, *window), averagepool_backward[name](D, *shape[2:6])
        np.testing.assert_allclose(Z, means.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(G, tensor.grad.numpy(), rtol=1e-5, atol=1e-6)


# ---- beside finite differences


@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_gradients_are_the_slopes(shape, rng):
    A = rng.permutation(np.prod(shape[:4])).reshape(shape[:4]) / 10.0  # no two are within a step of each other
    window = shape[4:]
    Z, places = maxpool_forward.reference(A, *window)
    D = rng.standard_normal(Z.shape)
    wanted = slopes(lambda A: np.sum(D * maxpool_forward.reference(A, *window)[0]), A, 1e-3)
    D_mean = rng.standard_normal(averagepool_forward.reference(A, *window[:2]).shape)
    wanted_mean = slopes(lambda A: np.sum(D_mean * averagepool_forward.reference(A, *window[:2])), A, 1e-3)
    for kernel in backward_kernels().values():
        G = kernel(D.astype(np.float32), places.astype(np.int32), *shape[2:])
        np.testing.assert_allclose(G, wanted, atol=1e-5, err_msg=kernel.name)
    for name in CPU:
        G = averagepool_backward[name](D_mean.astype(np.float32), *shape[2:6])
        np.testing.assert_allclose(G, wanted_mean, atol=1e-5)


def test_the_kernel_of_cupy_is_right_with_numpy():
    assert check(maxpool_backward, maxpool_backward["cupy"].function)


# ---- which one is the largest


@pytest.mark.parametrize("name", CPU)
@pytest.mark.parametrize(
    ("window", "place"),
    [
        ([[1, 5, 5], [5, 5, 5], [0, 0, 0]], 1),
        ([[0, 0, 0], [0, 0, 7], [7, 7, 0]], 5),
        ([[-3, -2, -9], [-4, -2, -2], [-5, -6, -7]], 1),
        ([[-0.0, 0.0, -0.0], [0, 0, 0], [0, 0, 0]], 0),
        ([[-np.inf] * 3] * 3, 0),
        ([[9, np.nan, np.inf], [np.nan, np.inf, 9], [0, 0, 0]], 1),
        ([[9, np.inf, 1], [np.inf, np.inf, 9], [0, 0, np.nan]], 8),
        ([[np.nan] * 3] * 3, 0),
        ([[-np.inf, np.inf, 0], [np.inf, 0, 0], [0, 0, 0]], 1),
    ],
    ids=str,
)
def test_the_first_of_equal_ones_and_the_first_nan(name, window, place):
    A = np.array(window, np.float32)
    Z, places = maxpool_forward[name](A[None, None], 3, 1, 0)
    assert places.dtype == np.int32 and places.item() == place
    np.testing.assert_array_equal(Z.item(), A.flat[place])


@pytest.mark.parametrize("name", CPU)
def test_places_outside_the_image_never_win(name):
    """Not even where all pixels of a window are −∞ and tie with padding of −∞."""
    A = np.full((1, 1, 3, 4), -np.inf, np.float32)
    Z, places = maxpool_forward[name](A, 3, 2, 1)
    assert np.isneginf(Z).all()
    np.testing.assert_array_equal(places[0, 0], [[0, 1], [4, 5]])


# ---- what is refused

SMALL = dict(zip(("batch", "c", "h_in", "w_in", "size", "stride", "padding"), (2, 2, 6, 6, 2, 2, 0), strict=True))


@pytest.mark.parametrize("operation", [maxpool_forward, maxpool_backward, averagepool_forward, averagepool_backward])
@pytest.mark.parametrize(
    "wrong",
    [{"size": size} for size in (7, 0, -1)]
    + [{"stride": 0}, {"stride": -1}, {"h_in": 1}, {"padding": 2}, {"padding": -1}],
    ids=str,
)
def test_impossible_windows_are_refused_in_one_line(operation, wrong):
    names = operation.shapes.free_names
    if not wrong.keys() <= set(names):
        pytest.skip("there is no padding")
    random_case(operation, {name: SMALL[name] for name in names})
    refused(random_case, operation, {name: (SMALL | wrong)[name] for name in names})
