"""By-hand tables of several paths and of a softmax: their truth by finite differences."""

import numpy as np
import pytest

from nnclassroom.figures import nb05_by_hand
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.layers import Dense
from nncourse.model.network import Network, cost_of, forward, make_network


@pytest.fixture(autouse=True)
def unsolved(monkeypatch):
    monkeypatch.delenv("NNCOURSE_SOLVE", raising=False)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_the_paths_of_a_weight_add_up_to_its_slope(activation):
    network, backend, h = make_network((2, 3, 4, 1), activation, "mse", "normal", seed=4), choose("numpy"), 1e-5
    network = network.with_flat_parameters(np.float64(network.flat_parameters))
    X, Y, W = np.array([[2.0, -1.0]]), np.array([[1.0]]), network.layers[0].W
    found, kept, costs = nb05_by_hand.paths_of_weight(network, X[0], 1.0, k=1, j=2), W[2, 1], []
    for step in (h, -h):
        W[2, 1] = kept + step
        costs.append(cost_of(network, *forward(network, X, backend), Y, backend))
    paths = [float(found[f"path_{number}"]) for number in (1, 2, 3, 4)]
    assert sum(paths) == pytest.approx((costs[0] - costs[1]) / (2 * h), rel=1e-6)
    assert sum(paths) == pytest.approx(float(found["slope"])) and min(map(abs, paths)) > 0
    lines = found.check(path_1=paths[0], path_2=paths[0], slope=None).lines
    assert [line[-1] for line in lines] == ["✓", "✗", "○ open"]


def test_a_path_with_another_weight_is_not_called_a_factor_2():
    """W³₁₂ is often taken for W³₂₁; that one is the double of the other is chance."""
    layers = [
        Dense(np.array([[1.0], [1.0]]), np.zeros(2), "sigmoid"),
        Dense(np.array([[1.0, 2.0], [1.0, 1.0]]), np.zeros(2), "sigmoid"),
    ]
    network = Network([*layers, Dense(np.array([[1.0, 1.0]]), np.zeros(1), "sigmoid")])
    found = nb05_by_hand.paths_of_weight(network, [1.0], 1.0, k=0, j=0)
    yours = {"path_2": 2 * found["path_2"], "slope": found["slope"] / 2}
    assert [line[-1] for line in found.check(**yours).lines] == ["✗", "✗ half"]


def test_one_path_is_no_table_of_paths():
    with pytest.raises(CourseError, match="two hidden layers"):
        nb05_by_hand.paths_of_weight(make_network((2, 3, 1)), [1.0, 2.0], 1.0, 0, 0)


def test_every_step_of_the_softmax_is_a_slope():
    z, y, h = np.array([1.0, -2.0, 0.5]), np.array([0.2, 0.0, 0.8]), 1e-6
    steps = nb05_by_hand.softmax_by_hand(z, y)

    def outputs(z):
        return np.exp(z) / np.exp(z).sum()

    moves = h * np.eye(3)
    J = np.stack([(outputs(z + move) - outputs(z - move)) / (2 * h) for move in moves], axis=1)
    costs = [(-y @ np.log(outputs(z + move)) + y @ np.log(outputs(z - move))) / (2 * h) for move in moves]
    assert np.allclose(steps["a"], outputs(z)) and np.allclose(steps["J"], J) and np.allclose(steps["delta"], costs)
    assert np.allclose(steps["short"], costs) and np.allclose(steps["g"] * outputs(z), -y)
    table = steps.check(a=None, J=J.tolist(), delta=[0.0, *costs[1:]])
    assert [line[0] for line in table.lines[3:6]] == ["∂a₁/∂z₁", "∂a₁/∂z₂", "∂a₁/∂z₃"]
    assert [line[-1][0] for line in table.lines] == ["○"] * 3 + ["✓"] * 9 + ["✗", "✓", "✓"]


@pytest.mark.parametrize(("z", "y"), [([1.0, 2.0], [0.5, 0.6]), ([1.0, 2.0], [1.0]), ([[1.0]], [[1.0]])])
def test_targets_that_are_none_are_refused(z, y):
    with pytest.raises(CourseError, match="wanted"):
        nb05_by_hand.softmax_by_hand(z, y)
