"""The drawing pad without a browser: the image that the network gets, its answer, and the still picture."""

import numpy as np
import pytest
from PIL import Image

from nnclassroom.widgets import digit_pad
from nncourse import datasets
from nncourse.errors import CourseError

BLANK = np.zeros((digit_pad.SIDE, digit_pad.SIDE), np.uint8)


def moved(ink, down, right):
    return np.roll(ink, (down, right), axis=(0, 1))


def centre(image):
    """The centre of mass, (down, right); pixel 0 reaches from 0 to 1."""
    places = np.arange(len(image)) + 0.5
    return image.sum(axis=1) @ places / image.sum(), image.sum(axis=0) @ places / image.sum()


@pytest.mark.parametrize("name", digit_pad.DRAWN)
def test_a_drawing_is_prepared_as_mnist_is_wherever_it_is_and_however_large(name):
    ink = digit_pad.ink_of(digit_pad.DRAWN[name])
    image = digit_pad.as_image(ink, 28)
    rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
    assert max(np.ptp(rows), np.ptp(columns)) == 19  # it fills a box of 20 x 20
    assert image.dtype == np.float32 and image.min() == 0 and image.max() == 1
    assert np.allclose(centre(image), 14.5, atol=0.55)  # to a pixel
    for shift in ((-9, 14), (7, -20)):
        assert np.array_equal(digit_pad.as_image(moved(ink, *shift), 28), image)
    half = BLANK.copy()
    half[10:66, 40:96] = np.asarray(Image.fromarray(ink).resize((56, 56), Image.Resampling.BOX))
    assert abs(digit_pad.as_image(half, 28) - image).mean() < 0.4 * image.mean()  # to a pixel


def test_a_digit_of_the_data_that_is_drawn_again_looks_as_before():
    digits = datasets.mnist_or_digits("test")
    side = digits.image_shape[-1]
    errors, ink = [], []
    for image in digits.images[:50, 0]:
        again = np.zeros((digit_pad.SIDE, digit_pad.SIDE), np.uint8)
        size = 3 * side if side == 28 else 9 * side
        again[5 : 5 + size, 17 : 17 + size] = 255 * np.kron(image, np.ones((size // side, size // side)))
        errors.append(abs(digit_pad.as_image(again, side) - image).mean())
        ink.append(image.mean())
    assert np.mean(errors) < 0.4 * np.mean(ink)


def test_nothing_drawn_is_a_black_image_and_other_sides_are_refused():
    assert not digit_pad.as_image(BLANK, 28).any()
    with pytest.raises(CourseError, match="28 or 8 pixels; got 16"):
        digit_pad.as_image(BLANK, 16)
    with pytest.raises(CourseError, match="got 16"):
        digit_pad.pad(lambda image: np.full(10, 0.1), side=16)


def test_a_dot_and_a_thin_line_are_no_trouble():
    dot = BLANK.copy()
    dot[50, 60] = 255
    assert digit_pad.as_image(dot, 28).sum() > 0
    line = BLANK.copy()
    line[10:100, 60] = 255
    assert np.ptp(np.flatnonzero(digit_pad.as_image(line, 28).any(axis=1))) == 19


def test_the_pen_is_as_thick_as_it_says():
    ink = digit_pad.ink_of([[(20, 50), (80, 50)]])
    across = ink[:, 56] / 255
    assert across.max() == 1 and across.sum() == pytest.approx(2 * digit_pad.FORMS[28].pen, abs=0.5)


def test_the_pad_answers_every_drawing_and_knows_when_all_is_wiped_away():
    shares = np.array([0.01, 0.02, 0, 0, 0, 0, 0, 0.9, 0.07, 0], np.float32)
    images = []

    def says(image):
        images.append(image)
        return shares

    pad = digit_pad.pad(says, side=8)
    try:
        assert (pad.words, pad.shares) == ("Nothing is drawn yet.", [])
        ink = digit_pad.ink_of(digit_pad.DRAWN["7"], side=8)
        pad.ink = memoryview(ink.tobytes())  # as it comes from a browser
        assert pad.words == "The network says 7 (90%), then 8 (7%)."
        assert pad.shares == pytest.approx(shares)
        assert np.array_equal(np.frombuffer(pad.seen, np.uint8).reshape(8, 8), np.uint8(255 * images[0]))
        pad.ink = BLANK.tobytes()
        assert (pad.words, pad.shares, pad.seen) == ("Nothing is drawn yet.", [], b"")
        pad.ink = b"of another size"
        assert pad.shares == [] and len(images) == 1
        assert repr(pad) == pad._repr_mimebundle_()[0]["text/plain"]  # what a saved notebook shows without a kernel
    finally:
        pad.close()


def test_the_still_picture_says_what_it_shows():
    sevens = np.eye(10)[7]
    shown = digit_pad.still(lambda image: sevens, names=("1", "a house"))
    assert shown.words.count("The network says 7 (100%)") == 2 and "Drawn: a house." in shown.words
    labels = [axes.get_xlabel() for axes in shown.figure.axes]
    assert labels.count("digit") == 2
