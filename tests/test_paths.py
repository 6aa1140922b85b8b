"""Figures of the ways back: which lines are marked."""

import pytest
from matplotlib.text import Annotation

from nnclassroom.figures import nb05
from nncourse.errors import CourseError
from tests.figures import fits_on_its_page


def marked(axes) -> int:
    """The lines with an arrow's head."""
    lines = [text.arrowprops for text in axes.texts if isinstance(text, Annotation)]
    return sum(line["arrowstyle"] != "-" for line in lines)


@pytest.mark.parametrize(
    ("sizes", "k", "j", "lines"),
    [((2, 3, 1), 1, 0, 3), ((2, 3, 2, 1), 0, 2, 1 + 2 + 2 + 1), ((2, 3, 3, 3, 1), 0, 0, 17)],
)
def test_a_weight_acts_through_its_own_line_and_all_that_follow(sizes, k, j, lines):
    shown = nb05.plot_influence(sizes, k, j)
    assert [marked(axes) for axes in shown.figure.axes] == [lines, lines]
    assert f"from input {k + 1} to hidden neuron {j + 1}" in shown.words and "-".join(map(str, sizes)) in shown.words
    assert fits_on_its_page(shown.figure)


def test_a_sum_before_a_softmax_acts_through_all_outputs():
    shown = nb05.plot_softmax(outputs=4, j=2)
    assert [marked(axes) for axes in shown.figure.axes] == [8, 8]
    assert "z3 to each of the 4 outputs" in shown.words and fits_on_its_page(shown.figure)


@pytest.mark.parametrize(("sizes", "k", "j"), [((2, 3, 1), 2, 0), ((2, 3, 1), 0, 3), ((2, 7, 1), 0, 0), ((2,), 0, 0)])
def test_a_weight_that_is_not_there_is_refused(sizes, k, j):
    with pytest.raises(CourseError, match="wanted"):
        nb05.plot_influence(sizes, k, j)
    with pytest.raises(CourseError, match="wanted"):
        nb05.plot_softmax(3, 3)


def test_shapes_name_each_size_and_what_is_summed():
    shown = nb05.plot_shapes()
    red = [{text.get_text() for text in axes.texts if text.get_color() == "tab:red"} for axes in shown.figure.axes]
    assert red == [set(), {"n_out"}, {"batch"}, {"batch"}]
    assert "dW (n_out, n_in) = Dᵀ (n_out, batch)" in shown.words and fits_on_its_page(shown.figure)
