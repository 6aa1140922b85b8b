"""The operations that only the exercises of notebook 06 have, and training by a kept Algorithm 1."""

import numpy as np
import pytest
from test_answers import RIGHT

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.nb06 import algorithm_1, best_rate, stop_early
from nnclassroom.exercises.own_backend import choose
from nnclassroom.exercises.solutions import solution_text
from nnclassroom.judge.check import check
from nnclassroom.notebook import speedup
from nnclassroom.widgets.playground.engine import Engine, Settings
from nncourse import datasets
from nncourse.model.network import make_network, training_step
from nncourse.model.optimizers import SGD, Adam
from nncourse.model.training import train

MOONS = datasets.moons(60, seed=1)


# ---- Algorithm 1


def test_it_is_the_step_of_the_package():
    ours, theirs = (make_network((2, 5, 4, 1), seed=3) for _ in range(2))
    backend = choose("numpy")
    W, b = [layer.W for layer in ours.layers], [layer.b for layer in ours.layers]
    for _ in range(3):
        algorithm_1["loops"](W, b, MOONS.X, MOONS.Y, 0.5, backend)
        training_step(theirs, MOONS.X, MOONS.Y, 0.5, backend)
    np.testing.assert_allclose(ours.flat_parameters, theirs.flat_parameters, rtol=1e-5, atol=1e-6)


def test_in_this_process_the_verdict_names_mistakes_too():
    def does_it_itself(W, b, X, Y, rate, k):
        W[0] -= rate * X.T @ X

    def replaces(W, b, X, Y, rate, k):
        b[1] = b[1] - rate

    def asks_for_another(W, b, X, Y, rate, k):
        k.softmax(X)

    def moves_biases_alone(W, b, X, Y, rate, k):
        before = [weights.copy() for weights in W]
        algorithm_1["loops"](W, b, X, Y, rate, k)
        for weights, old in zip(W, before, strict=True):
            weights[...] = old

    for kernel, says in (
        (does_it_itself, "raised ValueError"),
        (replaces, "b[1] must be changed in place, but its place in the list holds a different array"),
        (asks_for_another, "k has no softmax; it has dense_forward"),
        (moves_biases_alone, "the weights have not moved"),
        (lambda *arguments: None, "is unchanged"),
    ):
        assert says in check(algorithm_1, kernel).line


def counting() -> str:
    """A right answer that prints a line at each step."""
    head, _, body = solution_text("algorithm_1", "loops").partition("\n")
    return f'def algorithm_1{head[head.index("(") :]}\n    print("a step")\n{body}\n'


def test_a_kept_one_trains_the_networks_that_it_is_for(my_kernels, capsys):
    before = choose("numpy", mine=True)
    kept_kernels.keep(algorithm_1, "loops", counting())
    backend = choose("numpy", mine=True)
    assert "algorithm_1" not in before.kernels and backend.notes["algorithm_1"] == "yours"
    capsys.readouterr()

    def steps(network, optimizer=None, backend=backend):
        options = {"epochs": 2, "batch_size": 20, "seed": 1, "optimizer": optimizer}
        history = train(network, MOONS.X, MOONS.Y, backend, **options)
        return capsys.readouterr().out.count("a step"), history.costs

    made, costs = steps(make_network((2, 3, 1), seed=1))
    optimizer = SGD()
    assert made == 7 == steps(make_network((2, 3, 1), seed=1), optimizer)[0]  # one of them to see that it works
    assert optimizer.steps == 6
    none, by_the_course = steps(make_network((2, 3, 1), seed=1), backend=before)
    assert none == 0 and costs == pytest.approx(by_the_course, rel=1e-5)
    assert steps(make_network((2, 3, 1), "tanh"))[0] == 0
    assert steps(make_network((2, 3, 1), cost="binary_cross_entropy"))[0] == 0
    assert steps(make_network((2, 3, 1)), Adam())[0] == 0
    assert steps(make_network((2, 3, 1)), SGD(momentum=0.5))[0] == 0


def test_it_calls_the_kernels_that_were_kept(my_kernels, capsys):
    answers = {(right["operation"], right["kernel"]): right["text"] for right in RIGHT}
    sigmoid = 'def sigmoid(z):\n    print("my sigmoid")\n    return 1 / (1 + np.exp(-z))\n'
    kept_kernels.keep(find("sigmoid"), "numpy", sigmoid, seconds=1e-9)
    kept_kernels.keep(algorithm_1, "loops", answers["algorithm_1", "loops"])
    backend = choose("numpy", mine=True)
    capsys.readouterr()
    training_step(make_network((2, 3, 1)), MOONS.X, MOONS.Y, 0.5, backend)
    assert capsys.readouterr().out.count("my sigmoid") == 2


def test_a_kept_one_that_is_wrong_now_drives_nothing(my_kernels):
    kept_kernels.keep(algorithm_1, "loops", "def algorithm_1(W, b, X, Y, rate, k):\n    pass\n")
    backend = choose("numpy", mine=True)
    assert "algorithm_1" not in backend.kernels and "yours is not used" in backend.notes["algorithm_1"]


# ---- the search, and the stop


def test_half_of_the_largest_rate_that_falls():
    rates = np.array([0.1, 1, 10, 100], np.float32)
    costs = np.array([[0.5, 0.4], [0.5, 0.1], [0.5, 0.3], [0.5, np.nan]], np.float32)
    assert best_rate["numpy"](rates, costs) == 5
    assert best_rate["numpy"](rates[3:], costs[3:]) == 0


@pytest.mark.parametrize(
    ("costs", "patience", "wanted"),
    [
        ([5, 4, 3, 4, 5, 6, 1], 2, (5, 3)),
        ([5, 4, 3, 4, 5, 6, 1], 5, (7, 7)),
        ([3, 2, 2, 2], 2, (4, 2)),
        ([3, np.nan, 2, np.inf], 2, (4, 3)),
        ([np.nan, np.nan, 1], 2, (2, 0)),
        ([3, 2, 1], 1, (3, 3)),
    ],
)
def test_stopping(costs, patience, wanted):
    assert stop_early["loops"](np.array(costs, np.float32), patience) == wanted


def test_a_report_that_refuses_it_measures_the_other_kernels(my_kernels):
    kept_kernels.keep(find("sigmoid"), "numpy", "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n", seconds=1e-9)
    kept_kernels.keep(algorithm_1, "loops", counting())
    contender, network = speedup.Contender("yours", "numpy", {"mine": True}), make_network((2, 3, 1))
    assert speedup.backend_of(contender, network).notes == {"sigmoid": "yours", "algorithm_1": "yours"}
    backend = speedup.backend_of(contender, network, refused={"algorithm_1.loops"})
    assert backend.notes == {"sigmoid": "yours"} and "algorithm_1" not in backend.kernels


def test_the_playground_says_whether_it_steps_by_it(my_kernels):
    kept_kernels.keep(algorithm_1, "loops", counting())
    fits = Engine(Settings(mine=True, activation="sigmoid", cost="mse", samples=50))
    assert "algorithm_1" in fits.yours()
    assert "algorithm_1" not in Engine(Settings(mine=True, samples=50)).yours()
