"""The timing table: what is in it, not how fast anything is."""

import pytest

from nncourse import device
from nncourse.classroom import timing
from nncourse.errors import CourseError
from nncourse.kernels.backend import find, operations

SMALL = {"batch": 4, "n_in": 3, "n_out": 2}
dense = find("dense_forward")


@pytest.fixture
def quick(monkeypatch):
    """Measurements that take no time: the work is done once, and said to take a millisecond."""

    def seconds(work, where="cpu"):
        work()
        return 1e-3

    monkeypatch.setattr(device, "seconds", seconds)
    monkeypatch.setattr(device, "limits", lambda where="cpu": {"copy": 1e9, "matrix": 2e9})


def test_a_real_measurement():
    rows = timing.time_kernels(dense, SMALL)
    assert [row.kernel for row in rows] == list(dense.kernels)
    for row in rows:
        if row.device == "cpu" or device.gpu_available():
            assert row.seconds > 0 and row.limit > 0
        else:
            assert row.seconds is None and row.limit is None and row.note


@pytest.mark.parametrize("operation", operations().values(), ids=list(operations()))
def test_every_operation_can_be_timed(operation, quick):
    sizes = dict.fromkeys(timing.default_sizes(operation), 5)
    rows = timing.time_kernels(operation, sizes, ["loops", "numpy"])
    assert [(row.kernel, row.seconds) for row in rows] == [("loops", 1e-3), ("numpy", 1e-3)]
    assert all(size > 1 for size in timing.default_sizes(operation).values())
    lines = timing.table(operation, rows, sizes).splitlines()
    assert operation.name in lines[0] and all(f"{name} 5" in lines[0] for name in sizes)
    assert all(len(line) <= 100 for line in lines)
    assert [line.split()[0] for line in lines[2:4]] == ["loops", "numpy"]


def test_the_share_of_the_limit_is_that_of_the_limit_that_binds(quick):
    sizes = {"batch": 100, "n_in": 200, "n_out": 300}
    (row,) = timing.time_kernels(dense, sizes, ["numpy"])
    assert row.flops == 2 * 100 * 200 * 300
    assert row.bytes == 4 * (100 * 200 + 300 * 200 + 300 + 100 * 300)
    assert row.limit == pytest.approx(row.flops / 2e9 / 1e-3)
    (row,) = timing.time_kernels(find("mse_gradient"), {"batch": 100, "n": 50}, ["numpy"])
    assert row.limit == pytest.approx(4 * 3 * 100 * 50 / 1e9 / 1e-3)


def test_speedups_are_over_the_first_that_was_timed():
    def row(name, seconds, note=""):
        return timing.Row(name, "cpu", seconds, 10**9, 10**6, seconds and 0.25, note)

    rows = [row("loops", None, "too slow"), row("numpy", 0.2), row("numba", 0.05)]
    text = timing.table(dense, rows, SMALL)
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert lines["loops"].endswith("too slow")
    assert lines["numpy"].endswith("1×") and lines["numba"].endswith("4×")
    assert "20 GFLOP/s" in lines["numba"] and " 25" in lines["numba"]
    assert "Speedup over numpy" in text
    assert timing.table(dense, rows[:1], SMALL)


def test_slow_loops_are_not_waited_for(quick):
    rows = timing.time_kernels(dense, {"batch": 500, "n_in": 500, "n_out": 500}, ["loops", "numpy"])
    assert rows[0].seconds is None and "not timed" in rows[0].note
    assert rows[1].seconds


@pytest.mark.parametrize(("sizes", "names"), [({"rows": 3}, ()), ({}, ["fast"]), ({"n": 3}, ["numpy"])])
def test_unknown_sizes_and_kernels_are_refused(quick, sizes, names):
    with pytest.raises(CourseError):
        timing.time_kernels(dense, SMALL | sizes, names)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (1, "1 s"), (0.0123, "12.3 ms"), (1e-3, "1 ms"), (4.56e-6, "4.56 µs"), (7.8e-8, "78 ns")],
)
def test_durations(seconds, text):
    assert timing.duration(seconds) == text


def test_timing_on_the_gpu(gpu):
    rows = timing.time_kernels(dense, {"batch": 64, "n_in": 64, "n_out": 64})
    assert all(row.seconds > 0 for row in rows)
    assert {row.device for row in rows} == {"cpu", "gpu"}
