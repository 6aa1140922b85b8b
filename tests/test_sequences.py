"""Networks of sequences: their layers beside PyTorch's, their data, what they generate, and the commands."""

import numpy as np
import pytest
from refusals import command_refused, refused

from nnclassroom.commands import main
from nncourse import datasets, language
from nncourse.backend import choose
from nncourse.catalogue import find
from nncourse.datasets_sequences import CHARACTERS, UNKNOWN, decoded, encoded, prose
from nncourse.kernels.kernel import Kernel
from nncourse.model import files, metrics
from nncourse.model.generation import generate, positioned
from nncourse.model.layers import LayerSequence
from nncourse.model.network import OF_TOKENS, Network, backpropagation, cost_of, forward, input_gradient, make_network
from nncourse.model.optimizers import Adam
from nncourse.model.sequence_layers import SelfAttention
from nncourse.model.training import train

NUMPY = choose("numpy")
SMALL = "tokens12x12,embed16,block2x24,layernorm,12"


def transformer(words=SMALL, **options):
    return make_network(words, cost=OF_TOKENS, **options)


def moved(network, seed=1, much=0.3):
    """The network with parameters that are all far from 0."""
    rng = np.random.default_rng(seed)
    network.flat_parameters += (much * rng.standard_normal(network.flat_parameters.size)).astype("f")
    return network


def tokens(rng, batch, network):
    t, kinds = network.shapes[-1]
    X, Y = rng.integers(0, kinds, (batch, t)), rng.integers(-1, kinds, (batch, t))
    Y[0], Y[-1] = -1, Y[-1].clip(0)  # none count, or all
    X[0, :2], Y[-1, 0] = (0, kinds - 1), kinds - 1
    return X.astype("f"), Y.astype("f")


# ---- beside PyTorch


def pytorchs(network, X, Y):
    """Cost and gradients of a network of one embedding, blocks, a layer normalisation and a dense layer."""
    import torch

    F = torch.nn.functional
    values = [torch.from_numpy(array.copy()).requires_grad_() for array in network.parameters]
    left, (X, Y) = iter(values), (torch.from_numpy(each.astype(int)) for each in (X, Y))
    A = F.embedding(X, next(left)) + next(left)
    n = A.shape[2]

    def norm(A):
        return F.layer_norm(A, (n,), next(left), next(left), eps=1e-5)

    for block in (layer for layer in network.layers if layer.kind == "residual"):
        B = norm(A)
        if isinstance(attention := block.layers[1], SelfAttention):
            W, b, W_o, b_o = (next(left) for _ in range(4))
            of_heads = [
                each.unflatten(2, (attention.heads, -1)).transpose(1, 2) for each in F.linear(B, W, b).split(n, 2)
            ]
            found = F.scaled_dot_product_attention(*of_heads, is_causal=attention.causal)
            A = A + F.linear(found.transpose(1, 2).flatten(2), W_o, b_o)
        else:
            A = A + F.linear(F.gelu(F.linear(B, next(left), next(left)), approximate="tanh"), next(left), next(left))
    Z = F.linear(norm(A), next(left), next(left))
    losses = F.cross_entropy(Z.transpose(1, 2), Y, ignore_index=-1, reduction="none")
    cost = (losses.sum(1) / (Y >= 0).sum(1).clamp(min=1)).mean()
    cost.backward()
    return cost.item(), [value.grad.numpy() for value in values]


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("causal", [True, False])
def test_cost_and_gradients_are_pytorchs(causal, backend, rng):
    pytest.importorskip("torch")
    network, backend = moved(transformer("tokens9x7,embed16,block4x24,block2x8,layernorm,7"), much=0.1), choose(backend)
    for block in network.layers[1:-2:2]:
        block.layers[1].causal = causal
    X, Y = tokens(rng, 6, network)
    cost, wanted = pytorchs(network, X, Y)
    assert cost_of(network, *forward(network, X, backend), Y, backend) == pytest.approx(cost, rel=1e-4)
    got = [array for of_layer in backpropagation(network, X, Y, backend) for array in of_layer]
    for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * abs(other).max() + 1e-7, err_msg=str(number))


# ---- what fits together


def test_an_unordered_embedding_does_not_see_the_order_before_a_position(rng):
    """Attention adds up what it finds: without P, exchanging two tokens before the last changes nothing there."""
    for words, same in ((SMALL.replace("16,", "16unordered,"), True), (SMALL, False)):
        network = moved(transformer(words))
        X = rng.integers(0, 12, (5, 12)).astype("f")
        X[:, 3] = (X[:, 7] + 1) % 12
        exchanged = X.copy()
        exchanged[:, [3, 7]] = X[:, [7, 3]]
        last = [network.predict(each, NUMPY)[:, -1] for each in (X, exchanged)]
        assert np.allclose(*last, atol=1e-5) == same


def test_no_position_sees_those_after_it_unless_attention_is_not_causal(rng):
    network = moved(transformer())
    X = rng.integers(0, 12, (5, 12)).astype("f")
    other = np.concatenate([X[:, :7], (X[:, 7:] + 5) % 12], axis=1)
    for causal in (True, False):
        network.layers[1].layers[1].causal = causal
        one, two = (network.predict(each, NUMPY)[:, :7] for each in (X, other))
        assert np.array_equal(one, two) == causal
    words = "tokens12x12,embed16,attention2all,layernorm,12"
    network = transformer(words)
    assert network.in_words == words and not network.layers[1].causal
    assert "expected causal attention, such as attention2, to generate" in refused(generate, network, [1], NUMPY, 2)


def test_tokens_have_no_gradient_and_no_samples_have_outputs(rng):
    network = transformer()
    X, Y = tokens(rng, 3, network)
    assert not input_gradient(network, X, Y, NUMPY).any()
    assert network.predict(X[:0], NUMPY).shape == (0, 12, 12)


def test_what_does_not_fit_is_refused_in_one_line(rng):
    for words, said in (
        ("tokens12x12,128,12", "128: expected embed between tokens and other layers: tokens12x12,embed64,128"),
        ("tokens12x12,attention2,12", "attention2: expected embed between"),
        (
            "12,embed8,12",
            "embed8: expected tokens before it, such as tokens12x12,embed8; got rows of 12 numbers",
        ),
        ("image1x4x4,embed8,12", "embed8: expected tokens just before it"),
        ("12,attention2,12", "such as tokens12x12,embed64,attention2"),
        ("12,block2x8,12", "such as tokens12x12,embed64,block2x8"),
        ("image4x4x4,attention2,12", "attention2: expected sequences"),
        ("tokens12x12,embed9,attention2,12", "attention2: expected a number of heads that divides 9"),
        ("tokens12x12,embed9,block2x8,12", "block2x8: expected a number of heads that divides 9"),
        ("tokens12x12,embed8,attention0,12", "expected a whole number of at least 1 for the heads"),
        ("tokens12x12,embed8,conv2x3,12", "conv2x3: expected images"),
        ("tokens12x12,embed8,tokens2x3,12", "expected tokens as the first word only"),
        ("tokens0x12,embed8,12", "such as tokens12x10; got 'tokens0x12'"),
        ("tokens12,embed8,12", "such as tokens12x10"),
    ):
        assert said in refused(make_network, words, cost=OF_TOKENS), words
    assert f'for sequences take cost="{OF_TOKENS}"' in refused(make_network, SMALL)
    assert "expected outputs (positions, kinds)" in refused(make_network, "4,3", cost=OF_TOKENS)
    network = transformer()
    X, Y = tokens(rng, 4, network)
    for x, y, said in (
        (X + 1, Y, "expected tokens, whole numbers from 0 to 11, not scaled; got numbers from 1 to 12"),
        (X - 0.5, Y, "expected tokens"),
        (X, Y[:, :5], "targets of shape (n, 12)"),
        (X, np.eye(12, dtype="f")[Y.astype(int)], "targets of shape (n, 12)"),
        (X, Y + 1, "expected targets that are whole numbers from -1"),
        (X, Y - 1, "got numbers from -2 to"),
        (X, Y / 2, "expected targets that are whole"),
        (X * np.nan, Y, "expected tokens"),
    ):
        assert said in refused(train, network, x, y, NUMPY, epochs=1)
    assert "expected tokens" in refused(network.predict, X + 1, NUMPY)


def test_a_network_of_tokens_comes_back_as_the_words_of_its_blocks():
    """Two blocks in a row, and residual blocks that are none of a transformer."""
    words = "tokens5x4,embed8,block2x12,block4x12,attention2,dropout0.1,7,4"
    network = transformer(words)
    assert network.in_words == words and len(network.layers) == 1 + 2 + 2 + 4
    halves = network.layers[1:3]
    for layers, said in ((halves[::-1], "Residual,Residual"), (halves[:1], "Residual"), (halves, "block2x12")):
        other = Network([network.layers[0], *layers, make_network([8, 4], ["softmax"]).layers[0]], OF_TOKENS, (5,))
        assert other.in_words == f"tokens5x4,embed8,{said},4"


# ---- data


def test_sums_are_right_and_those_for_testing_are_unseen():
    for name, digits in (("sums", 3), ("sums4", 4), ("sums5", 5), ("sums7", 7)):
        parts = [datasets.load(name, part=part) for part in ("train", "test")]
        pairs = []
        for data, count in zip(parts, (25_600, 2000), strict=True):
            assert data.name == name and data.X.shape == data.Y.shape == (count, 3 * digits + 3)
            texts = [decoded(row, data.classes) for row in data.X]
            numbers = [tuple(map(int, (text[:digits], text[digits + 1 : 2 * digits + 1]))) for text in texts]
            wanted = [f"{a:0{digits}}+{b:0{digits}}=" + f"{a + b:0{digits + 1}}"[::-1] for a, b in numbers]
            assert texts == wanted
            pairs.append({tuple(sorted(each)) for each in numbers})
            assert (data.Y[:, : 2 * digits + 1] == -1).all() and (data.Y[:, -1] == -1).all()
            np.testing.assert_array_equal(data.Y[:, 2 * digits + 1 : -1], data.X[:, 2 * digits + 2 :])
        assert pairs[0].isdisjoint(pairs[1])
    again, other = datasets.sums(), datasets.sums(seed=1)
    assert np.array_equal(again.X, datasets.load("sums").X) and not np.array_equal(again.X, other.X)
    assert datasets.sums(2, samples=500, unseen=9).X.shape == (500, 9)
    assert "at most 10000 sums of 2 digits" in refused(datasets.sums, 2)


def test_text_is_the_prose_of_the_notebooks():
    parts = [datasets.load("text", part=part) for part in ("train", "test")]
    windows = sum(len(data.X) for data in parts)
    assert windows == (len(prose()) - 1) // 64 and len(parts[1].X) == windows // 10
    for data in parts:
        assert data.X.shape == data.Y.shape and data.X.shape[1] == 64 and data.classes == tuple(CHARACTERS)
        np.testing.assert_array_equal(data.Y[:, :-1], data.X[:, 1:])
    assert "# 01" in prose() and "neuron" in decoded(parts[0].X[:50].ravel(), CHARACTERS)
    assert prose().count("\n") > 1000 and np.mean(parts[0].X > 126) < 1e-3
    assert len(set(CHARACTERS)) == len(CHARACTERS) == 128
    assert decoded(encoded("a₇b\n", CHARACTERS), CHARACTERS) == f"a{UNKNOWN}b\n"
    assert datasets.text(length=100).X.shape[1] == 100
    assert "expected windows" in refused(datasets.text, 10**6)


def test_text_is_in_the_courses_language(tmp_path, monkeypatch):
    monkeypatch.setattr(language, "COURSE", tmp_path)
    monkeypatch.setenv(language.VARIABLE, "es")
    assert "expected the notebooks" in refused(prose)
    (tmp_path / "notebooks" / "es").mkdir(parents=True)
    cells = [{"cell_type": "markdown", "source": ["¿Qué ", "es?"]}, {"cell_type": "code", "source": ["x = 1"]}]
    for name in "ba":
        text = str(cells).replace("'", '"').replace("es?", f"es {name}?")
        (tmp_path / "notebooks" / "es" / f"{name}.ipynb").write_text(f'{{"cells": {text}}}', "utf-8")
    assert prose() == "¿Qué es a?\n\n¿Qué es b?"


# ---- training and generation


@pytest.fixture(scope="module")
def adder():
    """A small network that adds some pairs of numbers of one digit: 07+05=210."""
    a, b = (each.ravel() for each in np.mgrid[:10, :10])
    rows = [f"0{x}+0{y}={(x + y) % 10}{(x + y) // 10}0" for x, y in zip(a, b, strict=True)]
    X = np.array([encoded(row, "0123456789+=") for row in rows], np.float32)
    Y = np.where(np.arange(9) < 5, -1, np.roll(X, -1, axis=1)).astype("f")
    Y[:, -1] = -1
    network = transformer("tokens9x12,embed16,block2x32,layernorm,12", seed=2)
    train(network, X, Y, NUMPY, epochs=60, batch_size=20, learning_rate=0.01, optimizer=Adam())
    return network, X, Y


def test_it_learns_and_generates_what_the_measure_says(adder):
    network, X, Y = adder
    shares = metrics.tokens_right(network, X, Y, NUMPY)
    found = generate(network, X[:, :6], NUMPY, 3)
    assert found.dtype == np.int32 and np.array_equal(found[:, :6], X[:, :6])
    assert shares[1] == (found == X).all(axis=1).mean() and 0.05 < shares[1] < shares[0]
    right = network.predict(X, NUMPY)[:, 5:8].argmax(axis=2) == X[:, 6:]
    assert shares[0] == pytest.approx(right.mean())


def test_generation_draws_by_temperature_and_goes_beyond_the_window(adder):
    network, X, _ = adder
    begin = X[3, :6].astype(int)
    greedy = generate(network, begin, NUMPY, 20)
    assert greedy.shape == (26,) and np.array_equal(
        greedy, generate(network, begin, NUMPY, 20, temperature=1e-3, seed=5)
    )
    one, same, other = (generate(network, begin, NUMPY, 20, temperature=2, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    X = np.repeat(X[:1], 4000, axis=0)
    p = network.predict(X[:1], NUMPY)[0, 2]
    drawn = np.bincount(generate(network, X[:, :3], NUMPY, 1, temperature=1.0)[:, 3], minlength=12) / 4000
    np.testing.assert_allclose(drawn, p, atol=0.04)
    assert "whole numbers from 0 to 11" in refused(generate, network, [12], NUMPY, 1)
    assert "at least one to begin with" in refused(generate, network, np.zeros((2, 0), int), NUMPY, 1)
    assert f"with the cost {OF_TOKENS}; got mse" in refused(generate, make_network([3, 2]), [1], NUMPY, 1)


@pytest.mark.parametrize("backend", ["loops", "numpy", "numba"])
@pytest.mark.parametrize(
    "words",
    [
        "tokens9x12,embed16,block2x24,block4x8,layernorm,12",
        "tokens9x12,embed8unordered,attention2,dropout0.2,7,attention1,12",
    ],
)
def test_a_position_computed_alone_is_that_of_the_whole_window(words, backend, rng):
    """Keys and values are kept for each layer of attention, in blocks and outside, and the network is not changed."""
    network, backend = moved(transformer(words)), choose(backend)
    before, X = network.flat_parameters.copy(), rng.integers(0, 12, (3, 9)).astype("f")
    whole, by_position = network.predict(X, backend), LayerSequence(positioned(network.layers, 9))
    for place in range(9):
        alone = by_position.forward(X[:, place : place + 1], backend).A
        np.testing.assert_allclose(alone[:, 0], whole[:, place], rtol=1e-4, atol=1e-6)
    assert np.array_equal(network.flat_parameters, before)


def test_generation_computes_each_position_once_while_the_window_holds_all():
    """Counted by the rows that the first dense layer of attention gets."""
    network, rows = transformer("tokens6x12,embed8,attention2,12"), []

    def counted(A, W, b):
        rows.append(len(A))
        return NUMPY.dense_forward(A, W, b)

    kernel = Kernel(find("dense_forward"), "counted", "cpu", "", counted)
    generate(network, [[1, 2], [3, 4], [5, 6]], choose("numpy", dense_forward=kernel), 6)
    assert rows[0::3] == rows[1::3] == rows[2::3] == [3] * 6 + [18]  # the last token needs the whole window


def said_by(capsys, *arguments):
    assert main(list(map(str, arguments))) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["sums", "text"])
def test_the_commands_know_the_sets_of_sequences(name, tmp_path, capsys, monkeypatch):
    few = datasets.sums if name == "sums" else datasets.text
    monkeypatch.setattr(datasets, few.__name__, lambda *options, **more: cut(few(*options, **more)))
    model, of = tmp_path / "m.npz", ("--dataset", name, "--model", tmp_path / "m.npz")
    said = said_by(capsys, "train", *of, "--epochs", 1)
    assert "scaling: none" in said and "optimizer: adam, learning rate 0.001, schedule cosine," in said
    assert "on 130 unseen samples " in said and ("of the samples entirely right" in said) == (name == "sums")
    network, about = files.load(model).network, files.load(model).provenance
    assert network.in_words == said_by(capsys, "test", *of).split("network ")[1].split(", cost")[0]
    assert about["batch_size"] == (128 if name == "sums" else 32) and network.cost == OF_TOKENS
    t = network.input_shape[0]
    layers = f"tokens{t}x{len(CHARACTERS) if name == 'text' else 12},embed8unordered,{network.shapes[-1][-1]}"
    assert "schedule constant" in said_by(
        capsys, "train", *of, "--layers", layers, "--schedule", "constant", "--epochs", 1
    )
    assert files.load(model).network.in_words == layers
    assert "tokens right" in said_by(capsys, "train", *of, "--resume", model, "--epochs", 1)
    refusal = command_refused(capsys, ["train", *map(str, of), "--epochs", "1", "--scaling", "standardization"])
    assert "expected tokens, whole numbers" in refusal
    assert f"expected {t} outputs for {name}; the network has 3" in command_refused(
        capsys, ["train", *map(str, of), "--layers", f"{t},3", "--cost", "mse"]
    )


def cut(data):
    return datasets.replace(data, X=data.X[:130], Y=data.Y[:130])
