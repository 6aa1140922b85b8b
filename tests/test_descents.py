"""The figures of notebook 09: what they draw, and what their words say."""

import numpy as np

from nnclassroom.figures import nb09
from nncourse.model.optimizers import constant


def test_a_running_mean_and_the_corrected_one_in_words():
    numbers, from_zero = np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.5, 0.75, 0.875, 0.94])
    words = nb09.plot_means(numbers, from_zero, np.ones(4), "Means").words
    assert words == "Means. After 3 numbers: from 0 0.88, corrected 1.00; after 4: 0.94 and 1.00."


def test_a_search_rings_the_best_rate_and_survives_a_cost_that_is_no_number():
    rates = {"plain": (0.01, 0.1, 1.0)}
    shown = nb09.plot_search(rates, {("plain", 32): (0.5, 0.3, np.nan)}, "validation cost")
    curve, ring = shown.figure.axes[0].get_lines()
    assert curve.get_ydata().tolist() == [0.5, 0.3, nb09.MOST]
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (0.1, 0.3)
    assert shown.words.endswith("plain, batches of 32: best 0.1 with 0.300, largest 1 with 3.00 or more.")


def test_courses_show_the_mean_of_the_seeds_and_say_their_range():
    costs = {("plain", 32): np.array([[0.4, 0.2], [0.6, 0.3]]), ("plain", 200): np.array([[0.8, 0.6], [0.8, 0.6]])}
    shown = nb09.plot_courses(costs, "training cost")
    left, right = shown.figure.axes
    assert (left.get_title(), right.get_title()) == ("Batches of 32", "Batches of 200")
    assert np.allclose(left.get_lines()[0].get_ydata(), [0.5, 0.25])
    assert "plain, batches of 32: 0.250 (0.200 to 0.300) after the last epoch" in shown.words


def test_a_schedule_that_rises_first_says_where_it_is_highest():
    shown = nb09.plot_schedules({"flat": constant(0.1), "up": lambda epoch: (1, 2, 0.5)[epoch - 1]}, 3, "Two")
    assert shown.words.endswith("flat from 0.1 to 0.1; up from 1, up to 2 in epoch 2 to 0.5.")


def test_curvatures_that_are_as_good_as_zero_are_left_out():
    shown = nb09.plot_curvatures(np.array([250.0, 50.0, 0.5, 1e-9, -1e-12]), "A bowl")
    (curve,) = shown.figure.axes[0].get_lines()
    assert curve.get_ydata().tolist() == [250, 50, 0.5]
    assert shown.words == "A bowl. 3 curvatures, on a logarithmic axis: 250, 50, then falling to 0.5."


def test_sizes_are_counted_over_powers_of_ten():
    shown = nb09.plot_sizes(np.array([1e-4, 1e-2, 1e-2, 0.1]), "Sizes")
    assert sum(bar.get_height() for bar in shown.figure.axes[0].patches) == 4
    assert shown.words == "Sizes. 4 gradients, from 0.0001 to 0.1, most near 0.01."
