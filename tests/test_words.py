"""Networks in words: what each word means, its shortest spelling, and one line for whatever is no network."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory import peak_of
from refusals import refused

from nncourse.model import words
from nncourse.model.image_layers import AveragePool, Convolution, Dropout, Flatten, MaxPool
from nncourse.model.initialisers import INITIALISERS
from nncourse.model.layers import Dense, LayerSequence
from nncourse.model.network import Network, make_network, refuse_other_layers

DIGITS_CNN = "image1x28x28,conv4x2same,conv4x2same,pool4,128,10"


def refusal(text) -> str:
    message = refused(make_network, text)
    assert "expected" in message
    return message


def test_the_digits_cnn():
    """Document 004's table: shapes and parameters."""
    network = make_network(DIGITS_CNN, "relu", "categorical_cross_entropy", seed=1)
    assert network.shapes == [(1, 28, 28), (4, 28, 28), (4, 28, 28), (4, 7, 7), (196,), (128,), (10,)]
    counts = [sum(array.size for array in layer.parameters) for layer in network.layers]
    assert counts == [20, 68, 0, 0, 25_216, 1_290] and network.flat_parameters.size == 26_594
    assert network.activations == ("relu", "relu", "", "", "relu", "softmax")
    assert [type(layer) for layer in network.layers] == [Convolution, Convolution, MaxPool, Flatten, Dense, Dense]
    assert network.in_words == DIGITS_CNN and DIGITS_CNN in repr(network)
    assert make_network("784,30,10").in_words == "784-30-10"


@pytest.mark.parametrize(
    ("word", "shape", "layer", "values"),
    [
        ("conv5x3", (5, 6, 7), Convolution, {"stride": 1, "before": 0, "after": 0}),
        ("conv5x3same", (5, 8, 9), Convolution, {"stride": 1, "before": 1, "after": 1}),
        ("conv5x4same", (5, 8, 9), Convolution, {"stride": 1, "before": 1, "after": 2}),
        ("conv5x2same", (5, 8, 9), Convolution, {"stride": 1, "before": 0, "after": 1}),
        ("conv1x1same", (1, 8, 9), Convolution, {"stride": 1, "before": 0, "after": 0}),
        ("conv2x5p2s3", (2, 3, 3), Convolution, {"stride": 3, "before": 2, "after": 2}),
        ("conv2x5s3p2", (2, 3, 3), Convolution, {"stride": 3, "before": 2, "after": 2}),
        ("conv2x5p1+3", (2, 8, 9), Convolution, {"stride": 1, "before": 1, "after": 3}),
        ("pool3p1s2", (2, 4, 5), MaxPool, {"size": 3, "stride": 2, "padding": 1}),
        ("conv2x3sames2", (2, 4, 5), Convolution, {"stride": 2, "before": 1, "after": 1}),
        ("pool2", (2, 4, 4), MaxPool, {"size": 2, "stride": 2, "padding": 0}),
        ("pool3s2p1", (2, 4, 5), MaxPool, {"size": 3, "stride": 2, "padding": 1}),
        ("pool3s1", (2, 6, 7), MaxPool, {"size": 3, "stride": 1, "padding": 0}),
        ("pool4p2", (2, 3, 3), MaxPool, {"size": 4, "stride": 4, "padding": 2}),
        ("averagepool4", (2, 2, 2), AveragePool, {"size": 4, "stride": 4}),
        ("averagepool3s2", (2, 3, 4), AveragePool, {"size": 3, "stride": 2}),
        ("dropout0.25", (2, 8, 9), Dropout, {"rate": 0.25}),
        ("dropout.5", (2, 8, 9), Dropout, {"rate": 0.5}),
        ("dropout0", (2, 8, 9), Dropout, {"rate": 0}),
    ],
)
def test_words(word, shape, layer, values):
    network = make_network(f"image2x8x9,{word},3")
    assert type(network.layers[0]) is layer and network.shapes[1] == shape
    assert {name: getattr(network.layers[0], name) for name in values} == values
    again = make_network(network.in_words)
    assert [each.describe() for each in again.layers] == [each.describe() for each in network.layers]


@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 5), st.integers(0, 5))
def test_every_convolution_has_words(k, stride, before, after):
    word = words.Word("conv", (4, k, stride, before % k, after % k))
    assert words.parsed(f"image1x9x9,{word},2")[1] == word


def test_numbers_lists_and_texts_mean_the_same():
    wanted = make_network([30, 60, 1], seed=3).flat_parameters
    for sizes in ("30,60,1", " 30, 60 ,1", ["30", 60, "1"], (30.0, np.int64(60), np.float64(1))):
        network = make_network(sizes, seed=3)
        assert network.sizes == (30, 60, 1)
        np.testing.assert_array_equal(network.flat_parameters, wanted)
    assert make_network(["image1x8x8", "conv2x3", 10]).sizes == (64, 72, 72, 10)


def test_one_activation_is_for_all_hidden_layers_with_parameters():
    network = make_network("image1x8x8,conv2x3,pool2,dropout0.5,9,4", "tanh")
    assert network.activations == ("tanh", "", "", "", "tanh", "sigmoid")
    network = make_network("image1x8x8,conv2x3,pool2,9,4", ["relu", "tanh", "identity"])
    assert network.activations == ("relu", "", "", "tanh", "identity")
    assert "each of the 3 layers" in refused(make_network, "image1x8x8,conv2x3,pool2,9,4", ["relu", "identity"])


# What the line says → words that are refused after image1x8x8 and before 10.
WRONG_WORDS = {
    "first word only": "image1x8x8",
    "such as conv4x3": "conv4 conv4x3same1 conv4x3p conv4x3x3",
    ": expected s and p at most once each, and not both": "conv4x3samep1 conv4x3s1s2 conv4x3p1p1 conv4x3p1same",
    "conv4x3samesame: expected": "conv4x3samesame",
    "conv4x9: expected filters no larger": "conv4x9",
    "{}: ": "conv0x3 conv4x0 conv4x3s0 conv4x3p3 conv4x3p0+3",
    "{}: expected": "pool0 pool2s0 pool2p2 averagepool0 averagepool2s0 averagepool9",
    "such as pool2": "pool pool3p1+0 pool3same",
    "pool9: expected windows no larger": "pool9",
    "such as averagepool2": "averagepool2p1",
    "averagepool": "avgpool2",
    "such as dropout0.5": "dropout dropout-0.5",
    "below 1": "dropout1 dropout1.5",
    "did you mean conv?": "cov4x3",
    "got '{}'": "Conv4x3 -3 2.5 0 dropoutnan １６",
}
WRONG = [
    ("", "such as"),
    ("image1x8x8", "two words"),
    ("10", "two words"),
    ("image1x8x8,conv4x3", "outputs"),
    ("image1x8x8,conv4x3,pool2", "pool2"),
    ("image1x8x8,10,dropout0.5", "dropout0.5"),
    ("image1x8x8,,10", "got ''"),
    ("image1x8x8,conv4x3\n,10,", "got"),
    *((f"{word},10", "size first") for word in ("conv4x3", "pool2")),
    *((f"64,{word},10", f"{word}: expected images") for word in ("conv4x3", "pool2")),
    ("image1x8x8,16,conv4x3,10", "conv4x3: expected images"),
    *((f"{image},10", "such as image1x28x28") for image in ("image1x8", "image1x0x8", "image8")),
    ("x" * 10_000, "got"),
    *(([64, size, 10], f"got '{size}'") for size in (None, True, float("nan"), float("inf"), 2.5)),
    *((f"image1x8x8,{word},10", said.format(word)) for said, all in WRONG_WORDS.items() for word in all.split()),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_no_network_is_refused_in_one_line(text, said):
    message = refusal(text)
    assert said in message and len(message) < 300


@pytest.mark.parametrize(
    "text",
    [
        "image1x8x8,999999999,10",
        "image1x99999x99999,conv1x3,10",
        "image1x99999x99999,conv99x1,pool99999,10",
        "image1x8x8,conv999999999x8,10",
        "image1x8x8,conv9x8,999999999,999999999,1",
        "image999999999x999999999x999999999,conv1x999999999,10",
        "image1x8x8,conv1x999999999p999999998,10",
        "999999999,999999999,1",
        "16000,16000,16000,1",
    ],
)
def test_huge_networks_are_refused_before_memory_is_taken(text):
    assert peak_of(lambda: refusal(text)) < 1 << 20


# ---- initialisers


def test_a_convolution_begins_by_the_inputs_that_a_neuron_sums():
    network = make_network("image8x9x9,conv400x3,2", "relu", initialiser="he", seed=4)
    filters = network.layers[0]
    assert filters.W.shape == (400, 8, 3, 3) and not filters.b.any()
    assert filters.W.std() == pytest.approx(np.sqrt(2 / (8 * 9)), rel=0.01)
    filters = make_network("image8x9x9,conv400x3,2", seed=4).layers[0]
    bound = np.sqrt(6 / (8 * 9 + 400 * 9))
    assert 0.99 * bound < np.abs(filters.W).max() <= bound and not filters.b.any()


@pytest.mark.parametrize("name", INITIALISERS)
def test_dense_layers_begin_as_ever(name):
    """Random numbers are drawn as in earlier versions: W, then b, layer by layer, by the papers' formulas."""
    rng = np.random.default_rng(7)
    for layer in make_network([3, 4, 2], initialiser=name, seed=7).layers:
        n_out, n_in = shape = layer.W.shape
        if name == "xavier":
            W = rng.uniform(-1, 1, shape) * np.sqrt(6 / (n_in + n_out))
        elif name == "uniform":
            W = rng.uniform(size=shape)
        else:
            W = rng.normal(size=shape) * (np.sqrt(2 / n_in) if name == "he" else 1)
        b = {"normal": rng.normal, "uniform": rng.uniform}.get(name, lambda size: np.zeros(size))(size=n_out)
        np.testing.assert_allclose(layer.W, W, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(layer.b, b, rtol=1e-5)


# ---- dropout behind dense layers, and comparison


def test_dropout_behind_each_hidden_dense_layer():
    def words_with(text, rate=0.5):
        return ",".join(map(str, words.with_dropout(words.parsed(text), rate)))

    assert words_with("64,30,20,10") == "64,30,dropout0.5,20,dropout0.5,10"
    assert words_with("image1x8x8,conv4x3,pool2,16,10", 0.25) == "image1x8x8,conv4x3,pool2,16,dropout0.25,10"
    for text in ("64,10", "image1x8x8,conv4x3,10"):
        assert "hidden dense layer" in refused(words_with, text)


def test_layers_are_compared_with_words():
    network = make_network("image1x8x8,conv4x2same,pool2,16,10", "relu")
    refuse_other_layers(network, "image1x8x8, conv4x2same,pool2s2p0,16,10", "it")
    for other in ("image1x8x8,conv4x2,pool2,16,10", "image1x8x8,conv4x2same,pool2,17,10", "64,16,10", "64,x"):
        refused(refuse_other_layers, network, other, "it")
    refuse_other_layers(make_network([3, 4, 1]), "3,4,1", "it")
    nested = Network([LayerSequence(make_network([3, 4, 1]).layers)], input_shape=(3,))
    assert "LayerSequence" in refused(refuse_other_layers, nested, "3,4,1", "it")
