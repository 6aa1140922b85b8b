"""The filter moved by hand: its sums are the operation's, and sliders and buttons fill the output."""

from contextlib import ExitStack, closing

import numpy as np
import pytest
from figures import fits_on_its_page, png

from nnclassroom.exercises.catalogue import find
from nnclassroom.widgets import filter_by_hand
from nnclassroom.widgets.filter_by_hand import FILTERS, Walk
from nncourse.errors import CourseError

WALKS = [Walk(), Walk(stride=2, before=1, after=1), Walk(filter=np.array([[2, -1], [0.5, 1]]), stride=3, after=2)]


@pytest.fixture
def made():
    """made(walk) is a widget that is closed after the test."""
    with ExitStack() as stack:

        def widget(*walk):
            found = stack.enter_context(closing(filter_by_hand.widget(*walk)))
            assert all(control.label and control.tip for control in found.by_name.values())
            return found

        yield widget


def press(widget, name):
    widget._handle_custom_msg({"pressed": name}, [])


def output_of(widget):
    """The texts in the output's cells, "" where it is still empty."""
    high, wide = widget.walk.shape
    texts = [box["text"] for box in widget.frame["boxes"][-high * wide :]]
    return [texts[row * wide : (row + 1) * wide] for row in range(high)]


@pytest.mark.parametrize("walk", WALKS)
def test_sums_and_shape_are_those_of_the_operation(walk):
    A, W = walk.image[None, None].astype(float), walk.filter[None, None].astype(float)
    Z = find("convolution_forward").reference(A, W, np.zeros(1), walk.stride, walk.before, walk.after)[0, 0]
    assert walk.shape == Z.shape
    assert [[walk.sum(row, column) for column in range(Z.shape[1])] for row in range(Z.shape[0])] == Z.tolist()


def test_the_sliders_move_the_filter_and_fill_the_output(made):
    widget = made()
    assert output_of(widget) == [["4", "", ""], ["", "", ""], ["", "", ""]]
    widget.set(column=2)
    widget.set(row=2)
    assert output_of(widget) == [["4", "", "4"], ["", "", ""], ["", "", "4"]]
    assert widget.words.endswith("1·1 + 1·0 + 1·1 + 1·0 + 1·1 + 0·0 + 1·1 + 0·0 + 0·1 = 4. Done: 3 of 9 places.")


def test_the_button_goes_through_all_places_in_order_and_the_other_begins_again(made):
    widget = made()
    for _ in range(8):
        press(widget, "next")
    assert output_of(widget) == [["4", "3", "4"], ["2", "4", "3"], ["2", "3", "4"]]
    assert widget.words.endswith("Done: 9 of 9 places.")
    press(widget, "next")
    assert (widget.values["row"], widget.values["column"]) == (0, 0)
    widget.set(row=1)
    press(widget, "again")
    assert output_of(widget) == [["4", "", ""], ["", "", ""], ["", "", ""]]


def test_another_filter_empties_the_output(made):
    widget = made()
    press(widget, "next")
    widget.set(filter="all ones")
    assert output_of(widget) == [["", "7", ""], ["", "", ""], ["", "", ""]]


def test_a_walk_of_ones_own_has_its_padding_and_no_menu(made):
    widget = made(Walk(filter=-FILTERS["all ones"], stride=2, before=1, after=1))
    assert set(widget.values) == {"row", "column"}
    assert sum(box["dashed"] for box in widget.frame["boxes"]) == 24
    widget.set(column=1)
    assert output_of(widget)[0] == ["−3", "−5", ""]
    assert "1·(−1)" in widget.words


@pytest.mark.parametrize("walk", WALKS)
def test_the_still_picture_fits_its_page_and_says_its_sum(walk):
    shown = filter_by_hand.still(walk, 0, 1, "title")
    assert f"= {filter_by_hand.number(walk.sum(0, 1))}." in shown.words
    assert png(shown.figure) and fits_on_its_page(shown.figure)


def test_a_filter_that_fits_nowhere_is_refused():
    with pytest.raises(CourseError, match="3 × 3 does not fit on an image of 2 × 5"):
        filter_by_hand.widget(Walk(image=np.ones((2, 5))))
