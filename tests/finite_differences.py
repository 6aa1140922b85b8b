"""Finite differences: of any function, and beside the gradients of a network."""

from collections.abc import Callable

import numpy as np

from nncourse.backend import choose
from nncourse.calls import Calls
from nncourse.model.layers import StepPosition
from nncourse.model.network import OF_TOKENS, Network, backpropagation, cost_of, first_delta

NUMPY = choose("numpy")


def slopes(cost: Callable[[np.ndarray], float], A: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The gradient of a number that follows from A, by central differences."""
    found = np.empty_like(A)
    for place in np.ndindex(A.shape):
        there = np.zeros_like(A)
        there[place] = step
        found[place] = (cost(A + there) - cost(A - there)) / (2 * step)
    return found


def compare_gradients(
    network: Network,
    X: np.ndarray,
    Y: np.ndarray,
    position: StepPosition,
    backend: Calls = NUMPY,
    step: float = 1e-5,
    rtol: float = 1e-6,
    least: float = 1e-3,
) -> None:
    """AssertionError if the gradients of parameters and of inputs X differ from the slopes of the cost, in float64.

    The largest slopes must be at least `least`, or the comparison would say nothing. Tokens are whole numbers, whose
    gradients are 0.
    """
    got = np.concatenate([a.ravel() for layer in backpropagation(network, X, Y, backend, position) for a in layer])
    here = network.forward(X, backend, position)
    D = first_delta(network, [here.Z], [here.A], Y, backend)
    of_inputs = network.backward(D, here, X, None, backend)[0].ravel() / len(X)
    compared = [(network.flat_parameters, got), (X.reshape(-1), of_inputs)]
    if network.cost == OF_TOKENS:
        assert not of_inputs.any() and compared.pop()
    for vector, gradient in compared:
        wanted = np.empty(vector.size)
        for place, before in enumerate(vector.copy()):
            costs = []
            for moved in (step, -step):
                vector[place] = before + moved
                costs.append(cost_in_training(network, X, Y, position))
            vector[place] = before
            wanted[place] = (costs[0] - costs[1]) / (2 * step)
        largest = np.abs(wanted).max()
        assert gradient.shape == wanted.shape and largest >= least
        np.testing.assert_allclose(gradient, wanted, rtol=rtol, atol=1e-9 * max(1, largest))


def cost_in_training(network: Network, X: np.ndarray, Y: np.ndarray, position: StepPosition) -> float:
    here = network.forward(X, NUMPY, position)
    return cost_of(network, [here.Z], [here.A], Y, NUMPY)
