"""The race down a valley: its numbers, its still picture, and the panel without a browser."""

import numpy as np
import pytest

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.own_backend import choose
from nnclassroom.widgets import race as valley
from nncourse.model.optimizers import SGD, Adam

NUMPY = choose("numpy")


# ---- the numbers


@pytest.mark.parametrize("name", valley.VALLEYS)
def test_gradients_are_right_and_vanish_at_the_lowest_place(rng, name):
    here, h = valley.VALLEYS[name], 1e-6
    for x, y in rng.uniform(-2, 2, (10, 2)):
        across = (here.cost(x + h, y) - here.cost(x - h, y)) / (2 * h)
        up = (here.cost(x, y + h) - here.cost(x, y - h)) / (2 * h)
        assert here.gradient(x, y) == pytest.approx((across, up), abs=1e-5)
        assert here.cost(x, y) > here.cost(*here.lowest) == 0
    assert here.gradient(*here.lowest) == (0, 0)


def test_plain_descent_multiplies_each_direction_by_its_own_factor():
    path, costs = valley.descend("straight", (-2, 0.5), SGD(), 0.03, NUMPY, steps=20)
    t = np.arange(21)
    wanted = np.stack([-2 * 0.97**t, 0.5 * (-0.5) ** t], axis=1)
    assert path == pytest.approx(wanted, abs=1e-5)
    assert costs == pytest.approx((wanted[:, 0] ** 2 + 50 * wanted[:, 1] ** 2) / 2, abs=1e-4)


@pytest.mark.parametrize(("rate", "comes_down"), [(0.0399, True), (0.0401, False)])
def test_the_border_is_two_over_the_largest_curvature(rate, comes_down):
    _, costs = valley.descend("straight", (0.0, 1.0), SGD(), rate, NUMPY)
    assert bool(costs[-1] < costs[0]) is comes_down


def test_momentum_and_adam_are_those_of_the_networks():
    path, _ = valley.descend("bent", (-1.0, 0.5), SGD(momentum=0.8), 0.01, NUMPY, steps=15)
    w, v = np.array([-1.0, 0.5]), np.zeros(2)
    for _ in range(15):
        v = 0.8 * v + valley.VALLEYS["bent"].gradient(*w)
        w = w - 0.01 * v
    assert path[-1] == pytest.approx(w, abs=1e-4)
    path, _ = valley.descend("bent", (-1.0, 0.5), Adam(), 0.07, NUMPY, steps=1)
    assert abs(path[1] - path[0]) == pytest.approx(
        [0.07, 0.07], rel=1e-4
    )  # the first step is the rate, whatever the gradient


@pytest.mark.parametrize(
    ("costs", "step"),
    [([1, 0.1, 0.001], 2), ([1, 0.001, 0.1, 0.001], 3), ([1, 0.5], None), ([0, 0], 0), ([1, np.nan], None)],
)
def test_a_race_has_arrived_where_it_stays_down(costs, step):
    assert valley.arrival(np.array(costs, float)) == step


def test_words_say_which_race_leaps_out():
    races = valley.run(valley.Settings(rate=0.1), NUMPY)
    assert len(races["plain"][1]) < valley.STEPS
    words = valley.words_of(races, 100)
    assert "plain has leapt out" in words and "plain not in 150 steps" in words and "Adam has leapt" not in words


# ---- the widget


def test_a_frame_shows_the_race_up_to_the_step():
    panel = valley.race()
    panel.set(at=7)
    shapes = {name: race["path"]["shape"] for name, race in panel.frame["races"].items()}
    assert shapes == dict.fromkeys(("plain", "momentum", "Adam"), [8, 2])
    assert panel.words.startswith("Step 7.")
    panel.set(at=valley.STEPS, rate=0.1)  # the other two leap out, and their races are shorter
    lengths = {name: race["costs"]["shape"][0] for name, race in panel.frame["races"].items()}
    assert lengths["plain"] < lengths["Adam"] == valley.STEPS + 1
    panel.close()


def test_the_students_own_kernels_race(my_kernels):
    text = "def momentum_update(W, G, V, rate, momentum):\n    V[:] = V * momentum + G\n"
    text += "    W -= rate * V\n    return W, V\n"
    kept_kernels.keep(find("momentum_update"), "numpy", text)
    for mine in (True, False):
        panel = valley.race(mine=mine)
        assert ("momentum_update" in panel.words) is mine
        panel.close()
