"""Gradients: against finite differences and against PyTorch; networks of sizes, and what does not fit together."""

import itertools

import numpy as np
import pytest
from finite_differences import compare_gradients, slopes
from refusals import refused

from nncourse.backend import choose
from nncourse.model.layers import Dense, StepPosition
from nncourse.model.network import (
    Network,
    backpropagation,
    cost_of,
    forward,
    input_gradient,
    make_network,
)

NUMPY = choose("numpy")
SHAPES = ([2, 3, 1], [2, 3, 2, 1], [2, 3, 2], [5, 8, 6, 4])
HIDDEN = ("sigmoid", "tanh", "softplus", "leaky_relu", "relu", "gelu")
OUTPUTS = [(cost, output) for cost in ("mse", "mae") for output in ("sigmoid", "softmax", "identity", "tanh")]
OUTPUTS += [("binary_cross_entropy", "sigmoid"), ("categorical_cross_entropy", "softmax")]
GRID = [
    (sizes, batch, hidden, (cost, output))
    for sizes, batch, hidden, (cost, output) in itertools.product(SHAPES, (1, 7), HIDDEN, OUTPUTS)
    if output != "softmax" or sizes[-1] > 1
]
IDS = [f"{'-'.join(map(str, s))} batch {n} {h} {o} {c}" for s, n, h, (c, o) in GRID]


def problem(sizes, batch, hidden, cost, output, far=0.02):
    """A network, samples and targets in float64, with every weighted sum of a kinked activation `far` from its kink."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        names = [hidden] * (len(sizes) - 2) + [output]
        pairs = zip(sizes[:-1], sizes[1:], names, strict=True)
        network = Network([Dense(rng.normal(size=(m, n)), rng.normal(size=m), name) for n, m, name in pairs], cost)
        X = rng.normal(size=(batch, sizes[0]))
        Y = rng.random((batch, sizes[-1]))
        if cost == "categorical_cross_entropy":
            Y /= Y.sum(axis=1, keepdims=True)
        Z, A = forward(network, X, NUMPY)
        kinks = Z[:-1] + ([A[-1] - Y] if cost == "mae" else [])
        if min(np.abs(values).min() for values in kinks) > far / batch:
            return network, X, Y
    raise AssertionError("no data away from the kinks")


def flat(gradients) -> np.ndarray:
    return np.concatenate([array.reshape(-1) for pair in gradients for array in pair])


def relative_error(got, wanted) -> float:
    return float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-3))


@pytest.mark.parametrize(("sizes", "batch", "hidden", "cost_and_output"), GRID, ids=IDS)
def test_gradients_are_those_of_finite_differences(sizes, batch, hidden, cost_and_output):
    network, X, Y = problem(sizes, batch, hidden, *cost_and_output)
    compare_gradients(network, X, Y, StepPosition(), least=0)


@pytest.mark.parametrize(("sizes", "batch", "hidden", "cost_and_output"), GRID, ids=IDS)
def test_outputs_cost_and_gradients_are_those_of_pytorch(sizes, batch, hidden, cost_and_output):
    torch = pytest.importorskip("torch")
    functions = {
        "identity": lambda z: z,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "relu": torch.relu,
        "leaky_relu": lambda z: torch.nn.functional.leaky_relu(z, 0.01),
        "softplus": torch.nn.functional.softplus,
        "gelu": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
        "softmax": lambda z: torch.softmax(z, 1),
    }
    cost_name, output = cost_and_output
    network, X, Y = problem(sizes, batch, hidden, cost_name, output, far=1e-6)
    parameters = [torch.tensor(array, requires_grad=True) for array in network.parameters]
    a, y = torch.tensor(X), torch.tensor(Y)
    for layer, W, b in zip(network.layers, parameters[0::2], parameters[1::2], strict=True):
        z = torch.nn.functional.linear(a, W, b)
        a = functions[layer.activation](z)
    cross = torch.nn.functional.binary_cross_entropy_with_logits
    cost = {
        "mse": lambda: ((a - y) ** 2).sum() / 2 / batch,
        "mae": lambda: (a - y).abs().sum() / batch,
        "binary_cross_entropy": lambda: cross(z, y, reduction="sum") / batch,
        "categorical_cross_entropy": lambda: torch.nn.functional.cross_entropy(z, y),
    }[cost_name]()
    cost.backward()
    Z, A = forward(network, X, NUMPY)
    np.testing.assert_allclose(A[-1], a.detach().numpy(), rtol=1e-12, atol=1e-14)
    assert cost_of(network, Z, A, Y, NUMPY) == pytest.approx(cost.item(), rel=1e-12)
    wanted = np.concatenate([parameter.grad.numpy().reshape(-1) for parameter in parameters])
    assert relative_error(flat(backpropagation(network, X, Y, NUMPY)), wanted) < 1e-10


def test_predict_takes_samples_and_leaves_the_network_as_it_is(rng):
    network = make_network([3, 4, 2], seed=1)
    before = [array.copy() for array in network.parameters]
    X = rng.normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_array_equal(network.predict(X, NUMPY), forward(network, X, NUMPY)[1][-1])
    assert all(map(np.array_equal, network.parameters, before))
    for wrong in (X[0], X[:, :2], X[None]):
        assert "3 numbers" in refused(network.predict, wrong, NUMPY)


@pytest.mark.parametrize(
    "options",
    [
        {"sizes": []},
        {"sizes": [3]},
        {"activation": "sigmoidal"},
        {"activation": "softmax"},
        {"activation": ["tanh"]},
        {"activation": ["tanh", "tanh", "tanh"]},
        {"activation": ["tanh", "__class__"]},
        {"cost": "cross_entropy"},
        {"cost": "mse_gradient"},
        {"cost": "binary_cross_entropy", "activation": ["tanh", "tanh"]},
        {"cost": "categorical_cross_entropy", "activation": ["tanh", "sigmoid"]},
        {"initialiser": "zeros"},
    ],
    ids=str,
)
def test_what_does_not_fit_together_is_refused(options):
    refused(make_network, **({"sizes": [3, 2, 1]} | options))


def test_the_gradient_of_the_inputs_is_that_of_each_sample_alone(rng):
    network = make_network("image1x4x4,conv2x2same,pool2,5,3", "tanh", "categorical_cross_entropy", seed=1)
    network = network.with_flat_parameters(np.float64(network.flat_parameters))
    X, Y, backend = rng.standard_normal((3, 1, 4, 4)), np.eye(3), choose("numpy")
    found = input_gradient(network, X, Y, backend)
    for row in range(3):
        alone = slice(row, row + 1)

        def cost(image, alone=alone):
            here = network.forward(image, backend)
            return cost_of(network, [here.Z], [here.A], Y[alone], backend)

        np.testing.assert_allclose(found[alone], slopes(cost, X[alone]), rtol=1e-6, atol=1e-9)
