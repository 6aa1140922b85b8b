"""The widget of Downpour with a slow worker: its numbers, its still picture, and the panel without a browser."""

import numpy as np
import pytest

from nnclassroom.widgets import downpour
from nnclassroom.widgets.downpour import Problem, Settings, asynchronous, plot_downpour, run, synchronous, words_of
from nncourse.errors import CourseError


def test_the_gradient_is_that_of_the_cost_and_the_curvatures_are_those_stated(rng):
    problem, h = Problem(), 1e-5
    np.testing.assert_allclose(problem.X.T @ problem.X / len(problem.X), np.diag(downpour.CURVATURES), atol=1e-12)
    w = rng.standard_normal(downpour.FEATURES)
    assert problem.cost(w) == pytest.approx(np.mean((problem.X @ w - problem.y) ** 2) / 2)
    steps = h * np.eye(downpour.FEATURES)
    slopes = [(problem.cost(w + step) - problem.cost(w - step)) / (2 * h) for step in steps]
    mean = np.mean([problem.gradient(w) for _ in range(20_000)], axis=0)
    assert mean == pytest.approx(slopes, abs=0.05)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_equal_workers_are_stale_by_one_less_than_their_number(workers):
    course = asynchronous(Settings(workers, 1.0, 0.02))
    assert course.staleness[1:].mean() == pytest.approx(workers - 1, abs=0.2)
    assert len(course.costs) == pytest.approx(100 * workers, rel=0.05)


def test_only_synchronous_training_waits_for_the_slow_worker():
    slow = Settings(4, 10.0, 0.05)
    assert len(synchronous(slow).costs) - 1 == pytest.approx(10, abs=1)
    assert len(asynchronous(slow).costs) - 1 == pytest.approx(310, rel=0.05)
    assert max(asynchronous(slow).staleness) >= 25  # the three others take ten steps each in the meantime
    courses = run(slow)
    assert courses["Downpour"].costs[-1] < courses["alone"].costs[-1] < courses["synchronous"].costs[-1]


def test_stale_gradients_want_a_smaller_rate():
    high, low = run(Settings(16, 1.0, 0.3)), run(Settings(16, 1.0, 0.03))
    assert high["alone"].costs[-1] < 0.1 and high["Downpour"].costs[-1] > downpour.TOO_HIGH
    assert low["Downpour"].costs[-1] < 0.01
    words = words_of(high)
    assert "Downpour diverges: take a smaller rate" in words and "Alone: " in words and "Alone diverges" not in words


@pytest.mark.parametrize("settings", [{"workers": 0}, {"workers": 17}, {"slowness": 0.5}, {"rate": 0.0}])
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(CourseError, match="expected from 1 to 16 workers"):
        plot_downpour(**settings)
