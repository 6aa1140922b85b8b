"""Layers for images, pooling, flatten and dropout: gradients, PyTorch as oracle, masks, shapes, memory."""

import tracemalloc
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from epoch_networks import gradient_by_pytorch
from finite_differences import compare_gradients
from random_layers import convolution, dense
from trainings import by_steps, same

from cuda_on_cpu import emulate
from fused_epochs.architecture import architecture_of
from nncourse import datasets
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.image_layers import AveragePool, Convolution, Dropout, Flatten, MaxPool
from nncourse.model.layers import LayerSequence, StepPosition
from nncourse.model.network import MOST_NUMBERS, Network, backpropagation, make_network, training_step
from nncourse.model.optimizers import SGD, Adam
from nncourse.model.plans import MOST_COPIED
from nncourse.model.training import History, evaluate, train

NUMPY = by_steps("numpy")
DIGITS_CNN = "image1x28x28,conv4x2same,conv4x2same,pool4,128,10"
SMALL = "image1x8x8,conv3x2same,conv4x3s2,pool2,12,10"
CROSS = "categorical_cross_entropy"


def mixed() -> dict[str, list]:
    """Layers for samples of shape (2, 6, 5), in float64."""
    flat = Flatten()
    return {
        "convolution first": [convolution(2, 3, 3), flat, dense(36, 2, "sigmoid")],
        "one upon the other": [
            convolution(2, 2, 2, after=1),
            convolution(2, 3, 3, "softplus", stride=2, before=1, after=1),
            flat,
            dense(27, 2),
        ],
        "an even filter, more zeros behind": [convolution(2, 2, 4, before=1, after=2), flat, dense(60, 2, "sigmoid")],
        "pool first": [MaxPool(2), convolution(2, 3, 2, "sigmoid"), flat, dense(6, 2)],
        "pools behind convolutions": [
            convolution(2, 3, 2, after=1),
            MaxPool(3, 2, 1),
            convolution(3, 2, 2, "identity", before=1),
            AveragePool(2, 1),
            flat,
            dense(8, 2),
        ],
        "overlapping pools": [convolution(2, 2, 1), MaxPool(3, 1), AveragePool(2), flat, dense(4, 2, "sigmoid")],
        "average first": [AveragePool(3, 2), flat, dense(8, 2, "softmax")],
        "dropout of images": [Dropout(0.3), convolution(2, 3, 3), Dropout(0.5), MaxPool(2), flat, dense(6, 2)],
        "dropout behind dense layers": [convolution(2, 1, 3), flat, dense(12, 7), Dropout(0.4), dense(7, 2)],
        "within a sequence": [
            LayerSequence([convolution(2, 2, 2), Dropout(0.2), MaxPool(2)]),
            LayerSequence([flat, dense(8, 4), Dropout(0.5)]),
            dense(4, 2, "sigmoid"),
        ],
    }


TURN = StepPosition(seed=3, epoch=2, first=70)


@pytest.mark.parametrize("layers", mixed().values(), ids=mixed())
def test_gradients_of_parameters_and_inputs_are_those_of_finite_differences(layers, rng):
    network = Network(layers, "mse", input_shape=(2, 6, 5))
    compare_gradients(network, rng.normal(size=(3, 2, 6, 5)), rng.random((3, 2)), TURN)


@pytest.mark.parametrize("words", [DIGITS_CNN, "image3x9x7,conv5x3p2s2,conv2x4,pool2,6,4"])
def test_the_gradient_is_pytorchs(words, rng):
    torch = pytest.importorskip("torch")
    network = make_network(words, "relu", CROSS, seed=2)
    X = rng.normal(size=(8, *network.input_shape)).astype(np.float32)
    Y = np.eye(network.sizes[-1], dtype=np.float32)[rng.integers(0, network.sizes[-1], 8)]
    wanted = gradient_by_pytorch(torch, architecture_of(network), network.flat_parameters, X, Y)
    training_step(network, X, Y, 0.01, NUMPY)
    assert np.abs(wanted).max() > 1e-2
    np.testing.assert_allclose(network.flat_gradient, wanted, rtol=1e-3, atol=2e-6 * np.abs(wanted).max() + 1e-6)


# ---- training


@pytest.fixture(scope="module")
def digits():
    """200 digits of 8 x 8, standardised by one mean, and their targets."""
    data = datasets.load("digits")
    images = data.images[:200]
    return datasets.fit_scaling(images, "standardization").apply(images), data.Y[:200]


def trained(digits, words, optimizer, epochs, backend=NUMPY, network=None, done=0, **options):
    """A network trained for some epochs, its optimizer, and the history."""
    network = network or make_network(words, "relu", CROSS, seed=1)
    options = {"batch_size": 32, "learning_rate": 0.003, "seed": 5} | options
    history = train(
        network, *digits, backend, epochs=epochs, after=History(before=done), optimizer=optimizer, **options
    )
    return network, optimizer, history


def resumed_exactly(digits, words, kind, backend):
    """The result of training without a stop, after checking that training in two parts gives the same."""
    whole, begun = (trained(digits, words, kind(), epochs, backend) for epochs in (4, 1))
    assert not same(whole, begun)
    network, optimizer, _ = begun
    assert same(whole, trained(digits, words, optimizer, 3, backend, network, done=1))
    assert isinstance(network.flat_parameters, np.ndarray)
    assert all(isinstance(array, np.ndarray) for array in optimizer.state.values())
    return whole


@pytest.mark.parametrize("kind", (Adam, SGD))
@pytest.mark.parametrize("words", (SMALL, SMALL.replace("12,", "dropout0.3,12,")))
def test_resume_goes_on_as_if_it_had_never_stopped(digits, words, kind):
    resumed_exactly(digits, words, kind, choose("numpy"))  # with fused epochs where there is no dropout


# ---- fused epochs by one kernel


@pytest.mark.parametrize("kind", (Adam, SGD))
def test_a_kernel_for_whole_epochs_takes_the_same_steps(digits, kind):
    fused, steps = (trained(digits, SMALL, kind(), 3, backend) for backend in (choose("numpy"), NUMPY))
    assert (fused[2].plan, steps[2].plan, fused[2].note, steps[2].note) == ("numpy", "operations", "", "")
    assert fused[1].steps == steps[1].steps == 3 * 7
    np.testing.assert_allclose(fused[0].flat_parameters, steps[0].flat_parameters, rtol=1e-3, atol=1e-4)
    assert fused[1].state.keys() == steps[1].state.keys()
    for name, array in steps[1].state.items():
        np.testing.assert_allclose(fused[1].state[name], array, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    ("words", "optimizer", "plan"),
    [
        (SMALL, Adam(l2=0.01), "gradient"),
        (SMALL, SGD(momentum=0.9), "gradient"),
        (SMALL, SGD(l2=0.01), "gradient"),
        ("image1x8x8,pool2,conv3x2,10", Adam(), "gradient"),
        (SMALL.replace("12,", "12,dropout0.5,"), Adam(), "operations"),
        (SMALL.replace("pool2", "pool2s1"), SGD(), "operations"),
        (SMALL.replace("pool2", "averagepool2"), Adam(), "operations"),
    ],
)
def test_other_optimizers_take_the_gradient_and_other_layers_steps(digits, words, optimizer, plan):
    *_, history = trained(digits, words, optimizer, 1, choose("numpy"))
    assert history.plan == plan and "\n" not in history.note
    assert ("step by step" in history.note) == (plan == "operations")
    with pytest.raises(CourseError):
        trained(digits, words, optimizer, 1, choose("numpy"), plan="numpy")


def test_an_architecture_is_the_network_without_its_parameters():
    network = make_network("image3x9x8,conv5x3same,conv2x4p1s2,pool2,7,4", "tanh", CROSS)
    found = architecture_of(network)
    assert found.image == (3, 9, 8) and found.pool == 2 and found.sizes == (7, 4)
    numbers = [(f.count, f.k, f.stride, f.before, f.after) for f in found.convolutions]
    assert numbers == [(5, 3, 1, 1, 1), (2, 4, 2, 1, 1)]
    assert found.activations == ("tanh", "tanh", "tanh", "softmax") and found.cost == CROSS
    arrays = [array for pair in found.views(network.flat_parameters) for array in pair]
    for one, other in zip(arrays, network.parameters, strict=True):
        assert np.shares_memory(one, other) and one.shape == other.shape
    assert architecture_of(make_network("image1x8x8,conv2x3,5")).pool == 0
    assert architecture_of(make_network("image1x8x8,5,2")).convolutions == ()


# ---- dropout


def masks(words: str, X, position: StepPosition) -> np.ndarray:
    """Which numbers the dropout layers of a network keep: one row for each sample, all layers side by side."""
    network = make_network(words, "identity", initialiser="uniform")
    passes = network.forward(X, NUMPY, position).kept
    found = [each.A for layer, each in zip(network.layers, passes, strict=True) if isinstance(layer, Dropout)]
    return np.concatenate([A.reshape(len(A), -1) != 0 for A in found], axis=1)


WITH_DROPOUT = "image1x4x4,conv2x2,dropout0.4,8,dropout0.4,3"


def test_a_mask_depends_on_seed_epoch_sample_and_layer_not_on_the_batch(rng):
    X = 1 + rng.random((40, 1, 4, 4)).astype(np.float32)
    whole = masks(WITH_DROPOUT, X, StepPosition(1, 2, 100))
    parts = [masks(WITH_DROPOUT, X[start : start + 7], StepPosition(1, 2, 100 + start)) for start in range(0, 40, 7)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert 0.5 < whole.mean() < 0.7
    for position in (StepPosition(2, 2, 100), StepPosition(1, 3, 100), StepPosition(1, 2, 101)):
        assert not np.array_equal(masks(WITH_DROPOUT, X, position), whole)
    assert len({row.tobytes() for row in whole}) == 40
    square = masks("8,dropout0.4,8,dropout0.4,1", X.reshape(-1, 8), StepPosition(1, 2))
    assert not np.array_equal(square[:, :8], square[:, 8:])  # layers of the same size


def test_layers_within_sequences_have_numbers_of_their_own(rng):
    def layers():
        return [Dropout(0.5), dense(6, 6, "identity"), Dropout(0.5), dense(6, 6, "identity"), Dropout(0.5), dense(6, 2)]

    flat, X = layers(), rng.normal(size=(9, 6))
    nested = layers()
    nested = [LayerSequence([nested[0], LayerSequence(nested[1:3])]), LayerSequence(nested[3:5]), nested[5]]
    outputs = [Network(each, input_shape=(6,)).forward(X, NUMPY, TURN).A for each in (flat, nested)]
    np.testing.assert_array_equal(*outputs)


def test_an_epoch_has_the_same_masks_in_batches_of_any_size(digits):
    """The mean of the batches' gradients is the gradient of all samples at once."""
    X, Y = digits
    network = make_network("image1x8x8,conv2x2,dropout0.5,10", "relu", CROSS)

    def gradient(rows: slice) -> np.ndarray:
        found = backpropagation(network, X[rows], Y[rows], NUMPY, StepPosition(4, 1, rows.start))
        return np.concatenate([array.ravel() for layer in found for array in layer])

    whole = gradient(slice(0, 200))
    for size in (8, 50):
        parts = np.mean([gradient(slice(start, start + size)) for start in range(0, 200, size)], axis=0)
        np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-6)


def test_train_hands_each_batch_its_turn(digits):
    X, Y = digits
    words = SMALL.replace("12,", "dropout0.3,12,")
    for pieces in (1 << 22, 1):  # numbers of X that are reordered at a time
        with pytest.MonkeyPatch.context() as patch:
            for module in ("nncourse.model.plans", "fused_epochs.planner"):
                patch.setattr(f"{module}.MOST_IN_CACHE", pieces)
            network, _, _ = trained(digits, words, SGD(), 2, done=3)
        by_hand = make_network(words, "relu", CROSS, seed=1)
        for epoch in (4, 5):
            order = np.random.default_rng([5, epoch]).permutation(200)
            for start in range(0, 200, 32):
                rows = order[start : start + 32]
                training_step(by_hand, X[rows], Y[rows], 0.003, NUMPY, position=StepPosition(5, epoch, start))
        np.testing.assert_array_equal(network.flat_parameters, by_hand.flat_parameters)


def test_dropout_needs_to_know_where_training_stands(digits):
    X, Y = digits
    network = make_network(SMALL.replace("12,", "12,dropout0.5,"), "relu", CROSS)
    for call in (backpropagation, lambda *arguments: training_step(*arguments[:3], 0.1, arguments[3])):
        with pytest.raises(CourseError, match="position="):
            call(network, X[:8], Y[:8], NUMPY)
    without = make_network(SMALL, "relu", CROSS)
    np.testing.assert_array_equal(network.predict(X, NUMPY), without.predict(X, NUMPY))


def test_seeds_and_epochs_may_be_large(rng):
    network = make_network("5,dropout0.5,2")
    X = rng.random((3, 5)).astype(np.float32)
    found = [network.forward(X, choose(name), StepPosition(10**30, 10**19)).A for name in ("numpy", "loops")]
    np.testing.assert_allclose(*found, rtol=1e-6)


# ---- what does not fit


def refused_in_one_line(make) -> None:
    with pytest.raises(CourseError) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([convolution(2, 3, 3), Flatten(), dense(36, 2)], (3, 6, 5)),
        ([convolution(2, 3, 3), Flatten(), dense(36, 2)], (60,)),
        ([convolution(2, 3, 3), Flatten(), dense(35, 2)], (2, 6, 5)),
        ([convolution(2, 3, 7), Flatten(), dense(3, 2)], (2, 6, 5)),
        ([convolution(2, 3, 3), dense(36, 2)], (2, 6, 5)),
        ([MaxPool(6), Flatten(), dense(2, 2)], (2, 6, 5)),
        ([MaxPool(2), dense(12, 2)], (12,)),
        ([AveragePool(6), Flatten(), dense(2, 2)], (2, 6, 5)),
        ([AveragePool(2), dense(12, 2)], (12,)),
        ([convolution(2, 3, 3)], (2, 6, 5)),
        ([convolution(2, 3, 3), Flatten(), dense(36, 2)], None),
    ],
)
def test_layers_that_do_not_fit_are_refused(layers, shape):
    refused_in_one_line(lambda: Network(layers, input_shape=shape))


@pytest.mark.parametrize(
    "make",
    [
        lambda: convolution(1, 1, 3, "softmax"),
        lambda: convolution(1, 1, 3, "relux"),
        lambda: convolution(1, 1, 3, stride=0),
        lambda: convolution(1, 1, 3, before=-1),
        lambda: convolution(1, 1, 3, after=3),
        lambda: MaxPool(0),
        lambda: MaxPool(2, 0),
        lambda: MaxPool(2, 1, 2),
        lambda: MaxPool(2, 1, -1),
        lambda: AveragePool(0),
        lambda: AveragePool(2, -1),
        lambda: Dropout(1),
        lambda: Dropout(-0.1),
        lambda: Dropout(float("nan")),
    ],
)
def test_sizes_of_layers_that_are_refused(make):
    refused_in_one_line(make)


def test_rows_of_pixels_are_refused_with_advice(digits):
    X, Y = digits
    network = make_network(SMALL, "relu", CROSS)
    with pytest.raises(CourseError, match=r"data\.images"):
        train(network, X.reshape(200, 64), Y, NUMPY, epochs=1)
    with pytest.raises(CourseError, match=r"\(1, 8, 8\)"):
        network.predict(X.reshape(200, 64), NUMPY)


# ---- memory


def peak_of(call) -> int:
    """The largest number of bytes that NumPy allocates during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


WINDOWS = 10 << 20  # bytes: a convolution copies the windows of only some samples at a time


def test_evaluation_takes_no_more_memory_for_more_images(rng):
    """At most the input, Z and A of one layer for `rows_at_once` samples, and some windows of a convolution.

    That is less than MOST_NUMBERS float32. Z and A of all layers for 10,000 digits would take 607 MB.
    """
    network = make_network(DIGITS_CNN, "relu", CROSS)
    X, Y = rng.random((10_000, 1, 28, 28), np.float32), np.zeros((10_000, 10), np.float32)
    one_layer = max(n_in + 2 * n_out for n_in, n_out in pairwise(network.sizes))
    most = 4 * network.rows_at_once * one_layer + WINDOWS
    assert peak_of(lambda: evaluate(network, X, Y, NUMPY)) < most < 4 * MOST_NUMBERS
    assert peak_of(lambda: network.predict(X, NUMPY)) < most


def most_of_a_step(network: Network, batch: int) -> int:
    """Bytes for a training step: Z and A of all layers, and the working memory of the largest layer's `backward`.

    That is three times its input and output, and all windows of a convolution.
    """
    shapes, at_work = network.shapes, []
    for layer, below, here in zip(network.layers, shapes[:-1], shapes[1:], strict=True):
        windows = prod(layer.W.shape[1:]) * prod(here[1:]) if isinstance(layer, Convolution) else 0
        at_work.append(3 * (prod(below) + prod(here)) + windows)
    return 4 * batch * (2 * sum(network.sizes) + max(at_work)) + WINDOWS


@pytest.mark.parametrize("batch", (32, 500))
def test_a_training_step_takes_no_more_memory_than_its_batch_needs(rng, batch):
    network, optimizer = make_network(DIGITS_CNN, "relu", CROSS), Adam()
    X, Y = rng.random((batch, 1, 28, 28), np.float32), np.zeros((batch, 10), np.float32)
    assert peak_of(lambda: training_step(network, X, Y, 0.001, NUMPY, optimizer)) < most_of_a_step(network, batch)


def test_training_step_by_step_copies_no_whole_set(rng):
    network = make_network("image1x28x28,conv2x5s4,10", "relu", CROSS)
    X, Y = np.zeros((30_000, 1, 28, 28), np.float32), np.zeros((30_000, 10), np.float32)
    call = lambda: train(network, X, Y, NUMPY, epochs=1, batch_size=500, optimizer=Adam())  # noqa: E731
    assert peak_of(call) < 4 * (MOST_NUMBERS + MOST_COPIED) < X.nbytes


# ---- other backends


WITH_ALL_LAYERS = "image2x7x6,conv3x2same,dropout0.2,conv2x3s2p1,pool2s1,averagepool2s1,5,dropout0.5,3"


def trained_on(backend):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(7, 2, 7, 6)).astype(np.float32)
    Y = np.eye(3, dtype=np.float32)[rng.integers(0, 3, 7)]
    network = make_network(WITH_ALL_LAYERS, "tanh", CROSS, seed=1)
    history = train(network, X, Y, backend, epochs=1, batch_size=4, learning_rate=0.1, validation=(X, Y))
    return network, history


def assert_agree(one, other):
    np.testing.assert_allclose(one[0].flat_parameters, other[0].flat_parameters, rtol=1e-4, atol=1e-6)
    assert one[1].costs == pytest.approx(other[1].costs, rel=1e-5)
    start = make_network(WITH_ALL_LAYERS, "tanh", CROSS, seed=1)
    assert not np.allclose(one[0].flat_parameters, start.flat_parameters, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ("loops", "cuda"))
def test_backends_agree_cuda_under_the_emulator(name):
    if name == "cuda" and emulate.why_not():
        pytest.skip(emulate.why_not())
    found = [trained_on(backend) for backend in (NUMPY, choose(name, emulate=name == "cuda"))]
    assert_agree(*found)
    assert all(network.flat_parameters.dtype == np.float32 for network, _ in found)


@pytest.mark.parametrize("name", ("cupy", "cuda"))
def test_the_backends_of_the_gpu_agree_and_repeat_themselves(gpu, name):
    found = [trained_on(choose(each)) for each in ("numpy", name, name)]
    assert_agree(found[0], found[1])
    np.testing.assert_array_equal(found[1][0].flat_parameters, found[2][0].flat_parameters)


@pytest.mark.parametrize("name", ("cupy", "cuda"))
@pytest.mark.parametrize("words", (SMALL, SMALL.replace("12,", "dropout0.3,12,")))
def test_resume_is_exact_on_the_gpu(gpu, digits, words, name):
    whole = resumed_exactly(digits, words, Adam, choose(name))
    wanted = trained(digits, words, Adam(), 4)
    np.testing.assert_allclose(whole[0].flat_parameters, wanted[0].flat_parameters, rtol=1e-2, atol=1e-3)
