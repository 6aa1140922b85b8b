"""Figures of the way back through pooling and convolution: their words name the right pixels."""

import numpy as np
import pytest

from nnclassroom.figures import nb11


def coloured(axes):
    """The places (row, column) of the cells with a colour."""
    cells = [patch for patch in axes.patches if patch.get_fill() and patch.get_facecolor()[3] > 0]
    return {(int(cell.get_y()), int(cell.get_x())) for cell in cells}


@pytest.mark.parametrize(
    ("row", "column", "k", "windows"),
    [
        (1, 2, 2, {(0, 1), (0, 2), (1, 1), (1, 2)}),
        (0, 0, 2, {(0, 0)}),
        (3, 1, 2, {(2, 0), (2, 1)}),
        (2, 2, 4, {(0, 0)}),
    ],
)
def test_a_pixel_is_in_the_windows_that_hold_it(row, column, k, windows):
    shown = nb11.plot_pixel(np.zeros((4, 4)), k, row, column)
    assert {axes.get_title(loc="left") for axes in shown.figure.axes} == {f"delta {window}" for window in windows}
    for axes in shown.figure.axes:
        assert len(coloured(axes)) == k * k and (row, column) in coloured(axes)
    assert f"{len(windows)} windows" in shown.words
    assert all(f"{(y, x)} with the weight w[{row - y}, {column - x}]" in shown.words for y, x in windows)


def test_a_weight_meets_a_shifted_part_of_the_image():
    A, D = np.arange(20.0).reshape(4, 5), np.ones((3, 4))
    shown = nb11.plot_weight(A, D, k=2, i=1, j=0)
    middle = shown.figure.axes[1]
    assert coloured(middle) == {(row, column) for row in (1, 2, 3) for column in (0, 1, 2, 3)}
    assert "rows 1 to 3 and columns 0 to 3" in shown.words
    assert "These pixels: 5 6 7 8; 10 11 12 13; 15 16 17 18." in shown.words and shown.words.count("1 1 1 1") == 3


def test_of_each_window_the_pixel_that_goes_through_is_marked_the_first_of_equals():
    A = np.array([[1, 2, 1, 4], [0, 0, 3, 0], [1, 2, 0, 0], [0, 0, 0, 0]])
    shown = nb11.plot_pool(A, 2)
    assert coloured(shown.figure.axes[0]) == {(0, 1), (0, 3), (2, 1), (2, 2)}
    assert "window (1, 1): 0 from pixel (2, 2)" in shown.words
