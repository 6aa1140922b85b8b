"""The operations that only the exercises of notebook 03b have, and the figures of notebooks 03 and 03b."""

import numpy as np
import pytest
from figures import fits_on_its_page, png

from cuda_on_cpu import emulate
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.nb03b import add_bias, dense_transposed, one_sample, turn_round
from nnclassroom.figures import nb03, picture, waits
from nncourse.errors import CourseError

WAITS = [{"blocks": 1, "threads": threads, "bytes_a_second": 2e7 * threads} for threads in (1, 32, 1024)]
FIGURES = {
    "products": (lambda: nb03.plot_products([(1, 1), (1, 3), (5, 3)], n_in=4), "A (5, 4), Wᵀ (4, 3), Z (5, 3)"),
    "row-major": (lambda: nb03.plot_row_major(3, 4), "12 cells"),
    "gpu": (lambda: nb03.plot_gpu(132, 64), "132 multiprocessors"),
    "steps": (lambda: nb03.plot_tile_steps(3, 2), "3 steps"),
    "banks": (lambda: nb03.plot_banks((16, 17)), "Rows of 16: 0, 16, 0, 16, 0"),
    "waits, computed": (lambda: nb03.plot_in_flight(None, 4e-7, 1e12, "a title"), "computed from one wait"),
    "waits, measured": (lambda: nb03.plot_in_flight(WAITS, 4e-7, 1e12, "a title"), "measured"),
    "ladder": (lambda: nb03.plot_ladder({"slow": 8e-3, "fast": 2e-3}, 1e12, 1e9, "a title"), "2 ms, 4× as fast"),
}


def test_the_last_piece_is_turned_round_too():
    y = turn_round["numpy"](np.arange(70, dtype=np.float32))
    assert (y[0], y[63], y[64], y[69]) == (63, 0, 69, 64)


def test_the_halves_of_a_dense_layer_are_the_layer():
    rng = np.random.default_rng(0)
    A, W, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 128), (64, 128), (64,)))
    whole = find("dense_forward")["numpy"](A, W, b)
    assert add_bias["numpy"](A @ W.T, b) == pytest.approx(whole, abs=1e-4)
    assert one_sample["numpy"](A[0], W, b) == pytest.approx(whole[0], abs=1e-4)
    assert dense_transposed["numpy"](A, W.T, b) == pytest.approx(whole, abs=1e-4)


def test_columns_are_read_in_fewer_sectors_than_rows():
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    sizes = {"batch": 8, "n_in": 32, "n_out": 32}
    rows = picture.show("dense_forward", "naive", **sizes).accesses["W"]
    columns = picture.show(dense_transposed, "coalesced", **sizes).accesses["W_t"]
    assert rows.reads == columns.reads and rows.sectors == 8 * columns.sectors == 32 * rows.requests


def test_waits_are_measured_with_more_and_more_threads():
    found = waits.launches(multiprocessors=132)
    assert found[:3] == [(1, 1), (1, 32), (1, 1024)] and found[-2:] == [(256, 1024), (264, 1024)]


def test_a_tile_reads_each_number_once_a_block():
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    seen = picture.show(one_sample, "shared", n_in=128, n_out=128)
    assert (seen.accesses["x"].reads, seen.accesses["W"].reads) == (2 * 128, 128 * 128)


def test_a_part_of_a_kernel_is_changed_and_no_other_kernel_of_the_file():
    shared, tiled = one_sample["shared"], find("dense_forward")["tiled"]
    second = nb03.changed(shared, "__syncthreads();", number=2)
    assert second.source.text == shared.source.text.replace(
        "__syncthreads();  // nobody refills it", "  // nobody refills it"
    )
    assert "[TILE][TILE];  // padded" in nb03.changed(tiled, "TILE + 1", "TILE").source.text
    for part, number in (("atomicAdd", 1), ("__syncthreads();", 3)):
        with pytest.raises(CourseError, match="one_sample_shared"):
            nb03.changed(shared, part, number=number)


@pytest.mark.parametrize(("plot", "said"), FIGURES.values(), ids=FIGURES)
def test_figures_fit_and_say_what_is_to_be_seen(plot, said):
    shown = plot()
    assert said in shown.words
    assert png(shown.figure) and fits_on_its_page(shown.figure)
