"""Figures of images: they fit on their page, and their labels, words and pixels are right."""

import numpy as np
import pytest
from figures import fits_on_its_page, png

from nnclassroom.exercises.catalogue import find
from nnclassroom.figures import images, nb10, nb11

DIGIT = np.arange(64).reshape(8, 8) / 64
FIGURES = {
    "images": lambda: images.plot_images(
        {"one": DIGIT, "two": DIGIT - 0.5, "three": DIGIT}, "title", "what it is", across=2
    ),
    "counts": lambda: nb10.plot_counts({"naive": np.full((8, 8), 9), "shared": np.full((8, 8), 2)}, "reads", "title"),
    "halo": lambda: nb10.plot_halo((8, 8), 4, 3, (0, 1)),
    "slices": lambda: nb10.plot_slices(DIGIT[:5, :4], 2, 0, 1),
    "channels": lambda: nb10.plot_channels(3, 2, 3),
}


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in (*axes.texts, axes.title)]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_fits_on_its_page_and_has_a_text_alternative(name):
    shown = FIGURES[name]()
    assert png(shown.figure) and len(shown.words.split()) > 12
    assert fits_on_its_page(shown.figure)


def test_black_is_zero_and_so_is_white_where_numbers_are_negative():
    positive, negative = images.plot_images({"one": DIGIT + 1, "two": DIGIT - 0.25}).figure.axes
    assert positive.images[0].get_clim() == (0, DIGIT.max() + 1)
    assert negative.images[0].get_clim() == (0.25 - DIGIT.max(), DIGIT.max() - 0.25)
    assert negative.images[0].to_rgba(np.zeros((1, 1)))[0, 0, :3].min() > 0.98


def test_images_may_share_one_scale():
    dark, bright = images.plot_images({"dark": DIGIT / 4, "bright": DIGIT}, largest=2).figure.axes
    assert dark.images[0].get_clim() == bright.images[0].get_clim() == (0, 2)


def test_all_numbers_of_a_filter_are_said_and_of_an_image_their_range():
    assert images.plot_images({"a": np.array([[0.5, -0.25], [1, 2]])}).words == "Row by row: a: 0.5 −0.25; 1 2."
    assert f"0 to {DIGIT.max():.3g}" in images.plot_images({"a": DIGIT}).words


def test_a_mosaic_shows_every_image_in_its_place_and_none_touches_another():
    tiles = np.arange(1, 6)[:, None, None] * np.ones((5, 2, 3))
    shown = images.mosaic(tiles, columns=2, title="five", words="Rising numbers.")
    (axes,) = shown.figure.axes
    grid = np.asarray(axes.images[0].get_array())
    assert grid.shape == (3 * 4, 2 * 5) and shown.words == "five. Rising numbers."
    for number in range(6):
        row, column = 4 * (number // 2), 5 * (number % 2)
        place = grid[row : row + 4, column : column + 5]
        assert (place[1:-1, 1:-1] == (tiles[number] if number < 5 else 1)).all()
        assert (place[[0, -1]] == 1).all() and (place[:, [0, -1]] == 1).all()


def test_counts_stand_in_their_pixels_and_are_summed_in_words():
    counts = np.arange(6).reshape(2, 3)
    shown = nb10.plot_counts({"naive": counts}, "reads", "title")
    written = {text.get_position(): text.get_text() for text in shown.figure.axes[0].texts}
    assert written == {(column, row): str(counts[row, column]) for row, column in np.ndindex(2, 3)}
    assert "naive: reads from 0 to 5 per pixel, 15 in all" in shown.words


def test_the_halo_is_counted():
    """A tile of 4 × 4 in a corner, 3 × 3: 36 cells are loaded, 11 of them zeros."""
    shown = FIGURES["halo"]()
    assert any("6 × 6 = 36 cells,\n20 of them" in text for text in texts(shown.figure))
    assert texts(shown.figure).count("0") == 11


def test_a_slice_holds_what_its_weight_meets():
    """One weight of 1, and the convolution is the slice that the title names."""
    P = np.pad(DIGIT[:5, :4], (0, 1)).astype(np.float32)
    titles = [axes.get_title().splitlines() for axes in FIGURES["slices"]().figure.axes]
    assert len(titles) == 4
    for number, (weight, written) in enumerate(titles):
        W = np.zeros((1, 1, 2, 2), np.float32)
        W.flat[number] = 1
        Z = find("convolution_forward")["loops"](P[None, None, :5, :4], W, np.zeros(1, np.float32), 1, 0, 1)
        assert weight == f"Weight {divmod(number, 2)}" and (Z[0, 0] == eval(written, {"P": P})).all()


def test_the_filter_for_left_edges_finds_those_alone():
    even, left = np.ones((3, 3)), np.array([[0, 1, 1]] * 3)
    answers = [(patch * nb10.LEFT_EDGES).sum() for patch in (even, left, left[:, ::-1], left.T)]
    assert np.sign(answers).tolist() == [0, 1, -1, 0]


def test_numbers_stand_in_their_cells_and_marked_ones_are_blue():
    arrays = {"channel 0": np.array([[1, -2], [0, 3]]), "columns": np.array([[1], [-2]])}
    shown = nb10.plot_numbers(arrays, {"columns": [(0, 0)]}, "A window.")
    left, right = shown.figure.axes
    assert [text.get_text() for text in left.texts] == ["1", "−2", "0", "3"]
    faces = [cell.get_facecolor()[3] > 0 for axes in (left, right) for cell in axes.patches]
    assert faces == [False] * 4 + [True, False]
    assert shown.words == "A window. channel 0: 1 −2; 0 3. columns: 1; −2."


# ---- the way back through pooling and convolution


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
