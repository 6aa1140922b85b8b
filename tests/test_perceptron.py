"""What notebook 01 draws and checks: XOR by two layers, the widest gap, and figures that say what they show."""

import numpy as np
import pytest
from matplotlib.lines import AxLine

from nnclassroom.figures import nb01
from nnclassroom.figures.nb01 import CORNERS, TwoLayers, widest_gap
from nncourse.errors import CourseError


def fires(x, w, b):
    return int(np.dot(x, w) + b > 0)


RIGHT = [
    ([(1, 1, -0.5), (-1, -1, 1.5)], (1, 1, -1.5)),  # OR and NAND
    ([(2, 2, -1), (2, 2, -3)], (1, -2, -0.5)),  # OR and not AND
    ([(1, -1, 0), (-1, 1, 0)], (1, 1, 0)),  # the one without the other
]


@pytest.mark.parametrize("hidden, output", RIGHT)
def test_any_nine_numbers_that_make_xor_are_right(hidden, output):
    layers = TwoLayers(fires, hidden, output)
    assert layers.right and repr(layers).endswith("✓ XOR by two layers: right at all four corners.")
    assert "3 points" in nb01.plot_two_layers(layers).words


def test_wrong_numbers_are_shown_corner_by_corner():
    layers = TwoLayers(fires, [(1, 1, -0.5), (1, 1, -1.5)], (1, 1, -0.5))
    assert not layers.right
    assert [line[-1] for line in repr(layers).splitlines()[1:5]] == ["✓", "✓", "✓", "✗"]
    assert repr(layers).endswith("✗ XOR by two layers: 1 of 4 corners wrong.")
    assert "the same h1 and h2" in repr(TwoLayers(fires, [(1, 1, -0.5), (1, 1, -0.5)], (1, -1, -0.5)))


def test_nothing_is_judged_while_a_number_is_open():
    layers = TwoLayers(fires, [(1, 1, None), (1, 1, 0)], (1, 1, 0))
    assert layers.open and not layers.right and repr(layers).startswith("○")
    with pytest.raises(CourseError, match="each of them"):
        TwoLayers(fires, [(1, 1)], (1, 1, 0))


def test_a_figure_of_open_numbers_draws_no_line_that_the_student_has_not_found():
    figures = []
    for first, second, third in (([None] * 3,) * 3, ((1, 1, -0.5), [None] * 3, (1, 1, -1)), (*RIGHT[0][0], [None] * 3)):
        figures.append(nb01.plot_two_layers(TwoLayers(fires, (first, second), third)))
    for drawn, lines in zip(figures, ((0, 0), (1, 0), (2, 0)), strict=True):
        axes = drawn.figure.axes
        assert tuple(sum(isinstance(line, AxLine) for line in one.lines) for one in axes) == lines
        assert not any(one.images for one in axes) and f"{lines[0]} of the 2" in drawn.words
    assert ["3 points" in drawn.words for drawn in figures] == [False, False, True]


def test_the_widest_gap_of_points_whose_best_border_is_known():
    inputs = np.array([[2.0, 0, 0], [3, 1, 0], [-1, 0, 0], [-4, 2, 0]])  # the border x1 = 0 keeps 1, none keeps more
    assert widest_gap(inputs, np.array([1, 1, 0, 0])) == pytest.approx(1, rel=0.01)
    xor = np.column_stack([CORNERS, np.ones(4)])
    assert widest_gap(xor, nb01.XOR) <= 0


def test_figures_say_what_they_show():
    X, y = CORNERS, np.array([0, 0, 0, 1])
    weights = np.array([[0, 1, 0], [2, 1, -2]])
    assert "Mistakes in each epoch: 2, 1, 0." in nb01.plot_learning(X, y, weights, [2, 1, 0]).words
    words = nb01.plot_gates({"AND": (y, weights), "XOR": (nb01.XOR, weights)}).words
    assert "AND: the last line leaves 0 of 4" in words and "XOR: the last line leaves 3 of 4" in words
    stairs = np.array([0.5, 0.5, 0.25])
    assert "takes 2 different values" in nb01.plot_wrongness({"step": (np.arange(3), stairs)}).words
