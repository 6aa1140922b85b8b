"""Layers that follow the protocol work together with dense ones: gradients, shapes, views, descriptions."""

import numpy as np
import pytest
from finite_differences import compare_gradients
from random_layers import dense
from refusals import refused
from trainings import by_steps

from fused_epochs.architecture import architecture_of
from nncourse.errors import CourseError
from nncourse.model import network as networks
from nncourse.model.image_layers import Dropout, Flatten, WithoutParameters
from nncourse.model.layer_norm import LayerNorm
from nncourse.model.layers import Forward, LayerSequence, StepPosition
from nncourse.model.network import Network, forward, make_network, training_step
from nncourse.model.registry import rebuilt
from nncourse.model.training import evaluate

NUMPY = by_steps("numpy")


def norm(n: int) -> LayerNorm:
    """Parameters without an activation. It keeps numbers for the way back."""
    rng = np.random.default_rng(n)
    return LayerNorm(rng.uniform(0.5, 2, n), rng.normal(size=n))


def mixed() -> dict[str, Network]:
    """Networks for samples of shape (2, 3), in float64."""
    layers = {
        "flatten first": [Flatten(), dense(6, 4), dense(4, 2, "sigmoid")],
        "parameters without activation first": [Flatten(), norm(6), dense(6, 2, "sigmoid")],
        "between dense layers": [Flatten(), dense(6, 5), norm(5), Dropout(0.4), dense(5, 2, "sigmoid")],
        "no activation at the end": [Flatten(), dense(6, 2), norm(2)],
        "dropout first": [Dropout(0.4), Flatten(), dense(6, 3, "softplus"), dense(3, 2, "softmax")],
        "sequence first": [LayerSequence([Flatten(), norm(6), dense(6, 4)]), dense(4, 2, "sigmoid")],
        "sequence within": [
            Flatten(),
            dense(6, 4),
            LayerSequence([norm(4), Dropout(0.4), dense(4, 3)]),
            dense(3, 2),
        ],
        "sequence at the end": [Flatten(), dense(6, 4), LayerSequence([dense(4, 3), dense(3, 2, "sigmoid")])],
        "sequence in a sequence": [LayerSequence([Flatten(), LayerSequence([dense(6, 3), norm(3)]), dense(3, 2)])],
    }
    return {name: Network(each, "mse", input_shape=(2, 3)) for name, each in layers.items()}


@pytest.mark.parametrize("network", mixed().values(), ids=mixed())
def test_gradients_of_parameters_and_inputs_are_those_of_finite_differences(network, rng):
    compare_gradients(network, rng.normal(size=(5, 2, 3)), rng.random((5, 2)), StepPosition())


def test_only_training_leaves_numbers_out(rng):
    network, X = mixed()["between dense layers"], rng.normal(size=(4, 2, 3))
    used, trained = network.forward(X, NUMPY).A, network.forward(X, NUMPY, training=StepPosition()).A
    assert not np.allclose(used, trained)
    without = Network([layer for layer in network.layers if not isinstance(layer, Dropout)], input_shape=(2, 3))
    np.testing.assert_array_equal(used, without.forward(X, NUMPY, training=StepPosition()).A)
    np.testing.assert_array_equal(network.predict(X, NUMPY), used)
    np.testing.assert_array_equal(forward(network, X, NUMPY)[1][-1], used)


# ---- shapes


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([dense(3, 4), dense(5, 2)], None),
        ([dense(3, 4)], (4,)),
        ([dense(3, 4)], (3, 1)),
        ([Flatten(), dense(6, 2)], (2, 4)),
        ([dense(6, 2)], (2, 3)),
        ([Flatten(), norm(5), dense(5, 2)], (6,)),
        ([LayerSequence([Flatten(), dense(6, 3)]), dense(2, 2)], (2, 3)),
        ([norm(2), Dropout(0.4)], (2, 3)),
        ([Flatten(), dense(6, 2)], None),
        ([LayerSequence([dense(6, 2)])], None),
        ([Flatten()], (3,)),
        ([], (3,)),
        ([dense(3, 2), Dropout(0.4), dense(2, 2, "softmax"), dense(2, 2)], (3,)),
    ],
)
def test_layers_that_do_not_fit_are_refused(layers, shape):
    refused(Network, layers, input_shape=shape)


def test_outputs_are_one_row_a_sample():
    image = LayerSequence([Dropout(0.4), norm(3)])
    refused(Network, [image], input_shape=(2, 3))
    assert Network([image, Flatten()], input_shape=(2, 3)).shapes == [(2, 3), (2, 3), (6,)]


def test_shapes_and_sizes():
    network = mixed()["between dense layers"]
    assert network.shapes == [(2, 3), (6,), (5,), (5,), (5,), (2,)]
    assert network.sizes == (6, 6, 5, 5, 5, 2)
    assert network.activations == ("", "tanh", "", "", "sigmoid")
    assert not network.is_dense and make_network([2, 2]).is_dense
    with pytest.raises(CourseError):
        architecture_of(network)
    refused(network.predict, np.zeros((4, 6)), NUMPY)


# ---- parameters are views


def test_parameters_are_views_into_one_vector():
    network = mixed()["sequence within"]
    assert sum(array.size for array in network.parameters) == network.flat_parameters.size
    assert all(np.shares_memory(array, network.flat_parameters) for array in network.parameters)
    network.flat_parameters[:] = np.arange(network.flat_parameters.size)
    ravelled = np.concatenate([array.ravel() for array in network.parameters])
    np.testing.assert_array_equal(ravelled, np.arange(network.flat_parameters.size))
    network.parameters[-1][1] = -7
    assert network.flat_parameters[-1] == -7
    network.layers[1].W = 5
    network.layers[1].b = np.full(4, 6)
    assert (network.flat_parameters[:24] == 5).all() and (network.flat_parameters[24:28] == 6).all()
    assert (network.flat_parameters[28:36] == np.arange(28, 36)).all()


def test_a_network_has_copies_of_its_layers_parameters_unless_a_vector_is_given(rng):
    layer = dense(3, 2)
    before = layer.W.copy()
    network = Network([layer])
    network.flat_parameters[:] = 0
    np.testing.assert_array_equal(layer.W, before)
    vector = rng.normal(size=8)
    other = network.with_flat_parameters(vector)
    assert other.flat_parameters is vector and np.shares_memory(other.layers[0].W, vector)
    np.testing.assert_array_equal(other.layers[0].b, vector[6:])
    vector[0] = 77
    assert other.layers[0].W[0, 0] == 77 and not network.flat_parameters.any()
    training_step(other, rng.normal(size=(4, 3)), rng.random((4, 2)), 0.1, NUMPY)
    assert vector[0] != 77 and not network.flat_parameters.any()


# ---- large sets go through in pieces


class Counted(WithoutParameters):
    """Notes how many samples come at once."""

    def __init__(self):
        self.rows = []

    def shape_after(self, shape):
        return shape

    def forward(self, A_below, backend, training=None):
        self.rows.append(len(A_below))
        return Forward(A_below)


@pytest.mark.parametrize(
    ("name", "most", "at_once"), [("MOST_ROWS", 7, 7), ("MOST_NUMBERS", 260, 5), ("MOST_NUMBERS", 1, 1)]
)
def test_large_sets_are_evaluated_in_pieces(monkeypatch, rng, name, most, at_once):
    counted = Counted()
    network = Network([Flatten(), counted, dense(6, 5), dense(5, 2, "sigmoid")], input_shape=(2, 3))
    X, Y = rng.normal(size=(16, 2, 3)), rng.random((16, 2))
    outputs, cost = network.predict(X, NUMPY), evaluate(network, X, Y, NUMPY)
    assert counted.rows == [16, 16]
    monkeypatch.setattr(networks, name, most)  # sizes 6, 6, 6, 5, 2: 2 × 25 numbers a sample
    counted.rows.clear()
    np.testing.assert_allclose(network.predict(X, NUMPY), outputs, rtol=1e-12)
    assert evaluate(network, X, Y, NUMPY) == pytest.approx(cost, rel=1e-12)
    pieces = [at_once] * (16 // at_once) + [16 % at_once] * (16 % at_once > 0)
    assert counted.rows == pieces * 2
    assert network.predict(X[:0], NUMPY).shape == (0, 2)


# ---- descriptions


@pytest.mark.parametrize("layers", [[], [{"kind": "pool"}]])
def test_descriptions_that_are_refused(layers):
    refused(rebuilt, {"kind": "sequence", "layers": layers})
