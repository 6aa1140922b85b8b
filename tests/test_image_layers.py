"""Layers for images, pooling, flatten and dropout: gradients, masks, shapes, memory."""

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from finite_differences import compare_gradients
from memory import peak_of
from random_layers import convolution, dense
from refusals import refused
from trainings import by_steps, same

from nncourse import datasets
from nncourse.backend import choose
from nncourse.model.image_layers import Convolution, Dropout, MaxPool
from nncourse.model.layers import LayerSequence, StepPosition
from nncourse.model.network import MOST_NUMBERS, Network, backpropagation, make_network, training_step
from nncourse.model.optimizers import SGD, Adam
from nncourse.model.plans import MOST_COPIED
from nncourse.model.training import History, evaluate, train

NUMPY = by_steps("numpy")
DIGITS_CNN = "image1x28x28,conv4x2same,conv4x2same,pool4,128,10"
SMALL = "image1x8x8,conv3x2same,conv4x3s2,pool2,12,10"
CROSS = "categorical_cross_entropy"


# Networks for samples of shape (2, 6, 5); layers within sequences are in test_layers.py.
MIXED = {
    "convolution first": "conv3x3,2",
    "one upon the other": "conv2x2same,conv3x3s2p1,2",
    "an even filter, more zeros behind": "conv2x4same,2",
    "pool first": "pool2,conv3x2,2",
    "pools behind convolutions": "conv3x2same,pool3s2p1,conv2x2p1+0,averagepool2s1,2",
    "overlapping pools": "conv2x1,pool3s1,averagepool2,2",
    "average first": "averagepool3s2,2",
    "dropout of images": "dropout0.3,conv3x3,dropout0.5,pool2,2",
    "dropout behind dense layers": "conv1x3,7,dropout0.4,2",
}


TURN = StepPosition(seed=3, epoch=2, first=70)


@pytest.mark.parametrize("words", MIXED.values(), ids=MIXED)
def test_gradients_of_parameters_and_inputs_are_those_of_finite_differences(words, rng):
    network = make_network(f"image2x6x5,{words}", "tanh", initialiser="normal", seed=1)
    network = network.with_flat_parameters(0.6 * network.flat_parameters.astype(np.float64))
    compare_gradients(network, rng.normal(size=(3, 2, 6, 5)), rng.random((3, 2)), TURN)


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


# ---- fused epochs by one kernel


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
    refused(trained, digits, words, optimizer, 1, choose("numpy"), plan="numpy")


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
        assert "position=" in refused(call, network, X[:8], Y[:8], NUMPY)
    without = make_network(SMALL, "relu", CROSS)
    np.testing.assert_array_equal(network.predict(X, NUMPY), without.predict(X, NUMPY))


def test_seeds_and_epochs_may_be_large(rng):
    network = make_network("5,dropout0.5,2")
    X = rng.random((3, 5)).astype(np.float32)
    found = [network.forward(X, choose(name), StepPosition(10**30, 10**19)).A for name in ("numpy", "loops")]
    np.testing.assert_allclose(*found, rtol=1e-6)


# ---- what does not fit


NEGATIVE = (lambda: convolution(1, 1, 3, before=-1), lambda: MaxPool(2, 1, -1), lambda: Dropout(-0.1))


@pytest.mark.parametrize("make", NEGATIVE)
def test_negative_numbers_which_no_word_has_are_refused(make):
    refused(make)


def test_rows_of_pixels_are_refused_with_advice(digits):
    X, Y = digits
    network = make_network(SMALL, "relu", CROSS)
    assert "data.images" in refused(train, network, X.reshape(200, 64), Y, NUMPY, epochs=1)
    assert "(1, 8, 8)" in refused(network.predict, X.reshape(200, 64), NUMPY)


# ---- memory


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
