"""The gradients of a network beside finite differences, for the tests of layers."""

import numpy as np

from nncourse.backend import choose
from nncourse.calls import Calls
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, backpropagation, cost_of, first_delta

NUMPY = choose("numpy")


def compare_gradients(
    network: Network,
    X: np.ndarray,
    Y: np.ndarray,
    position: StepPosition,
    backend: Calls = NUMPY,
    step: float = 1e-5,
    rtol: float = 1e-6,
) -> None:
    """AssertionError if the gradients of parameters and of inputs X differ from the slopes of the cost, in float64."""
    got = np.concatenate([a.ravel() for layer in backpropagation(network, X, Y, backend, position) for a in layer])
    here = network.forward(X, backend, position)
    D = first_delta(network, [here.Z], [here.A], Y, backend)
    of_inputs = network.backward(D, here, X, None, backend)[0].ravel() / len(X)
    for vector, gradient in ((network.flat_parameters, got), (X.reshape(-1), of_inputs)):
        wanted = np.empty(vector.size)
        for place, before in enumerate(vector.copy()):
            costs = []
            for moved in (step, -step):
                vector[place] = before + moved
                costs.append(cost_in_training(network, X, Y, position))
            vector[place] = before
            wanted[place] = (costs[0] - costs[1]) / (2 * step)
        assert gradient.shape == wanted.shape and np.abs(wanted).max() > 1e-3
        np.testing.assert_allclose(gradient, wanted, rtol=rtol, atol=1e-8)


def cost_in_training(network: Network, X: np.ndarray, Y: np.ndarray, position: StepPosition) -> float:
    here = network.forward(X, NUMPY, position)
    return cost_of(network, [here.Z], [here.A], Y, NUMPY)
