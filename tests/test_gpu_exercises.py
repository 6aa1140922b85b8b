"""Operations that only exercises have, pretended GPUs, and what notebook 08 shows of a step."""

import json

import numpy as np
import pytest

from cuda_on_cpu import emulate
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.nb08_to_10 import A4000, H200, PretendGpu, occupancy
from nnclassroom.figures import common, nb08, overheads, recorded
from nnclassroom.judge.check import check
from nnclassroom.timing import anatomy
from nncourse import device
from nncourse.backend import choose
from nncourse.cuda.compile import gpu_kernel, resources
from nncourse.errors import CourseError
from nncourse.model.network import make_network, training_step

SIZES = (30, 60, 10, 1)


def test_launches_and_kernels_overlap_on_a_gpu_that_is_not_there():
    gpu = PretendGpu(launch=1.0, kernel=3.0, compiling=10.0)
    gpu.launch()
    gpu.launch()
    assert gpu.launches == [(0, 11), (11, 12)] and gpu.runs == [(11, 14), (14, 17)]
    assert gpu.clock() == 12
    gpu.synchronise()
    assert gpu.clock() == 17
    gpu.synchronise()
    assert gpu.clock() == 17, "nothing is left to wait for"


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "threads", "sm", "share"),
    [
        (32, 0, 256, H200, 1.0),  # all of its 65,536 registers
        (33, 0, 256, H200, 0.75),  # 40 registers a thread: 6 blocks
        (32, 0, 32, H200, 0.5),  # 32 blocks of one warp
        (255, 0, 1024, H200, 0.0),  # too many registers for a single block
        (32, 100_000, 256, H200, 0.25),
        (32, 0, 1024, A4000, 32 / 48),
        (32, 0, 33, A4000, 32 / 48),  # two warps a block, and 16 blocks
    ],
)
def test_occupancy_as_nvidia_counts(registers, shared_bytes, threads, sm, share):
    numbers = [np.array([value], np.int32) for value in (registers, shared_bytes, threads)]
    assert occupancy["numpy"](*numbers, sm)[0] == pytest.approx(share)


def test_occupancy_is_the_drivers(gpu):
    from cupy.cuda import driver

    sm = overheads.multiprocessor()
    for kernel in (kernel for kernel in find("dense_forward").kernels.values() if kernel.cuda):
        need, threads = resources(kernel.source, kernel.entry), int(np.prod(kernel.block))
        numbers = [np.array([value], np.int32) for value in (need.registers, need.shared_bytes, threads)]
        function = gpu_kernel(kernel.source, kernel.entry).kernel
        blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, threads, 0)
        assert occupancy["numpy"](*numbers, sm)[0] == pytest.approx(blocks * threads / 32 / sm.warps), kernel.name


def test_what_travels_is_counted_and_the_step_stays_the_same():
    X, Y = overheads.samples(SIZES, 10)
    counted = anatomy.traffic(SIZES, X, Y, ["dense_forward"])
    assert (counted.launches, len(counted.sent), len(counted.fetched)) == (3, 9, 3)
    assert sum(counted.fetched) == 4 * 10 * (60 + 10 + 1)
    ours, theirs = make_network(SIZES), make_network(SIZES)
    training_step(ours, X, Y, 0.1, anatomy.Mixed(["sgd_update", "dense_forward", "bias_gradient"]))
    training_step(theirs, X, Y, 0.1, choose("numpy"))
    assert all(np.array_equal(p, q) for p, q in zip(ours.parameters, theirs.parameters, strict=True))


def test_what_was_recorded_is_found_and_what_was_not_is_none(results, monkeypatch):
    monkeypatch.setattr(device, "gpu_available", lambda: False)
    assert overheads.known("launch") is None and overheads.known("limits") is None
    assert overheads.table("epochs") == [] and overheads.where() == "not recorded yet"
    assert overheads.multiprocessor() == H200
    head = {"machine": "A chip, 2 multiprocessors", "date": "2026-01-02"}
    results("overheads", head | {"launch": {"queued": 1e-6}})
    assert overheads.known("launch") == {"queued": 1e-6}
    assert overheads.where() == "recorded, A chip, 2026-01-02"
    with pytest.raises(CourseError, match="GPU"):
        overheads.measure()
    assert overheads.convolution_seconds("a layer", {}, ["naive"]) == {}
    names = ("a layer", "forward", "naive"), ("a layer", "forward", "PyTorch"), ("a layer", "input gradient", "naive")
    rows = [{"layer": layer, "pass": way, "kernel": kernel, "seconds": 2.0} for layer, way, kernel in names]
    results("gpu", head | {"dates": {"convolutions": "2026-03-04"}, "tables": {"convolutions": rows}})
    assert overheads.convolution_seconds("a layer", {}, ["naive", "shared"]) == {"naive": 2.0}
    assert overheads.where("gpu", "convolutions") == "recorded, A chip, 2026-03-04"
    assert overheads.where("gpu") == "recorded, A chip, 2026-01-02"


def test_recorded_steps_are_shown_as_they_were_measured(results):
    assert "not recorded yet" in recorded.launching()
    case = {"network": "4-3-1", "batch": 2, "optimizer": "adam"}
    records = [case | {"contender": name, "seconds_a_step": s} for name, s in (("launched", 4e-4), ("recorded", 5e-5))]
    results("recorded", {"machine": "A chip, 2 multiprocessors", "date": "2026-01-02", "records": records})
    head, more, *lines, where = recorded.launching().splitlines()
    assert head.split() == ["network", "4-3-1"] and more.endswith("2, adam") and where == "recorded, A chip, 2026-01-02"
    assert [line.split() for line in lines] == [["launched", "400", "µs"], ["graph", "50", "µs"]]


def test_it_can_be_measured(gpu):
    found = overheads.measure()
    assert found.keys() == overheads.MEASURES.keys()
    assert overheads.measure("waits").keys() == overheads.WAITS.keys()
    json.dumps(found)
    assert all(min(row["without"], row["with"]) > 0 for row in found["lie"])


def test_epochs_are_timed_by_each_kernel_of_the_device():
    found = overheads.epoch_seconds((3, 4, 1), 5, "cpu")
    kernels = [kernel for kernel in find("dense_sgd_epoch").kernels.values() if kernel.device == "cpu"]
    assert {"steps", *(kernel.name for kernel in kernels if not kernel.missing())} == found.keys()
    assert {"numpy", "numba"} < found.keys() and min(found.values()) > 0


def test_shares_in_a_confusion_matrix_can_be_read():
    """White on the dark cells, black on the pale ones, whatever the largest number is."""
    M = np.array([[0.5, 0.1], [0.0, 0.4]])
    for matrix in (M, 100 * M):
        (axes,) = common.plot_confusion(matrix, ("a", "b")).axes
        assert [text.get_color() for text in axes.texts] == ["white", "black", "black", "white"]
        assert axes.images[0].get_clim() == (0, matrix.max())


def test_a_legend_below_the_axes_covers_no_line():
    figure = common.plot_lines({"a": ((1, 10), (1, 10)), "b": ((1, 10), (10, 1))}, "x", "y", below=True).figure
    (axes,), (legend,) = figure.axes, figure.legends
    figure.canvas.draw()
    assert axes.get_legend() is None and [text.get_text() for text in legend.texts] == ["a", "b"]
    assert legend.get_window_extent().y1 < axes.get_window_extent().y0


def test_figures_have_labels_and_words():
    one = {"a": ((1, 10), (1e-3, 1e-2)), "b": ((1, 10), (2e-3, 1e-2))}
    seconds = {"a": 1e-3, "b": 2e-6}
    spans = {"a": ([(0, 1e-6)], [(1e-6, 2e-6)])}
    for shown in (
        nb08.plot_amdahl({"a": 0.5, "b": 0.9}, "title"),
        common.plot_lines(one, "x, units", "y, units", "title"),
        common.plot_lines(one, "x, units", "y, units", "title", below=True),
        nb08.plot_bars(seconds, "time, s", "title", marks={"a": 1e-4}),
        nb08.plot_timelines(spans, "title"),
        common.plot_roofline({"a": (1e9, 1e10)}, {"b": (2.0, 1e9)}, "title"),
        nb08.plot_batches(one, {"a": ((1, 10), (0.5, 0.6))}, "F1", "title"),
    ):
        assert len(shown.words) > 40 and "a" in shown.words
        assert all(axes.get_xlabel() for axes in shown.figure.axes)
        shown.figure.canvas.draw()


def test_what_was_recorded_of_sums_gradients_and_counting_is_shown(monkeypatch):
    monkeypatch.setattr(overheads, "known", overheads.recorded("overheads").get)
    sums = recorded.sums().splitlines()
    assert sums[0].startswith("mse, 16,777,216") and [line.split()[0] for line in sums[1:3]][0] == "cupy"
    gradients = recorded.weight_gradients().splitlines()
    assert [line.split()[0] for line in gradients[2:-1]] == ["swapped", "naive", "tiled", "cupy"]
    assert recorded.counting().count("\n") == 6
    monkeypatch.setattr(overheads, "known", {"orders": {"W": 0.2, "W_t": 0.02}}.get)
    assert recorded.orders().splitlines()[1:3] == ["W      200 ms", "W_t     20 ms, 10× as fast"]
    monkeypatch.setattr(overheads, "known", lambda name: None)
    for text in (recorded.sums(), recorded.weight_gradients(), recorded.orders(), recorded.counting()):
        assert "not recorded yet" in text and "\n" not in text


def test_exchanging_x_and_y_changes_only_the_order_of_writes():
    swapped = overheads.swapped()
    assert "int k = blockIdx.y" in swapped.source.text and swapped.over == ("n_in", "n_out")
    if not emulate.why_not():
        assert check(swapped.operation, swapped, device="emulator")
