"""The timing table: what is in it, not how fast anything is."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from nnclassroom import formats, timing
from nnclassroom.exercises.catalogue import find
from nnclassroom.judge import check
from nnclassroom.timing import pytorch
from nncourse import device, threads
from nncourse.catalogue import epochs, operations
from nncourse.errors import CourseError

SMALL = {"batch": 4, "n_in": 3, "n_out": 2}
dense = find("dense_forward")


@pytest.fixture
def quick(monkeypatch):
    """Measurements that take no time: the work is done once, and said to take a millisecond."""

    def seconds(work, where="cpu", **_):
        work()
        return 1e-3

    monkeypatch.setattr(device, "seconds", seconds)
    monkeypatch.setattr(timing, "seconds_of_nothing", lambda where: 1e-6)
    monkeypatch.setattr(device, "limits", lambda where="cpu": {"copy": 1e9, "matrix": 2e9})


def test_a_real_measurement():
    rows = timing.time_kernels(dense, SMALL)
    assert [row.kernel for row in rows] == list(dense.kernels)
    for row in rows:
        if row.device == "cpu" or device.gpu_available():
            assert row.seconds > 0 and row.limit > 0
        else:
            assert row.seconds is None and row.limit is None and row.note


def test_work_that_threads_share_is_timed_with_several_too_where_cores_are_idle(monkeypatch):
    threads_of = []

    def alone() -> None:
        _compute()
        threads_of.append(max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"))

    def shared() -> None:
        helper = threading.Thread(target=_compute)
        helper.start()
        helper.join()
        alone()

    def counts(work, busy: float) -> list[int]:
        monkeypatch.setattr(threads, "since", lambda before: threads.Load(busy, 1.0, 3))
        threads_of.clear()
        device.seconds(work, enough=1e-3, repeats=1)
        return list(threads_of)

    monkeypatch.setattr(threads, "cores", lambda: {0, 1, 2})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert counts(shared, busy=0.1) == [1, 1, 3, 3]
    assert counts(shared, busy=2.5) == [1, 1]
    assert counts(alone, busy=0.1) == [1, 1, 3]  # the third call shows that no other thread helps


PRODUCT = """
from nnclassroom.exercises.catalogue import find
from nnclassroom.judge import answer, check
operation = find("dense_forward")
case = check.random_case(operation, {"batch": 400, "n_in": 784, "n_out": 300})
text = "def dense_forward(A, W, b):\\n    return A @ W.T + b\\n"
print(answer.seconds_of_text(operation, "numpy", text, case.arguments, 20.0))
"""


def test_an_answer_is_timed_with_several_threads_where_it_may_have_them():
    """Its process may look at the load of the machine, whatever else is closed to it."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", PRODUCT]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert float(said.split()[-1]) > 0


def _compute() -> None:
    begin = time.thread_time()
    while time.thread_time() < begin + 0.05:
        pass


TIMED = [operation for operation in (operations() | epochs()).values() if "numpy" in operation.kernels]


@pytest.mark.parametrize("operation", TIMED, ids=lambda operation: operation.name)
def test_every_operation_can_be_timed(operation, quick):
    if operation.trial.sizes_to_time:  # its sizes depend on each other
        few = {"n": 20} if operation.trial.iterates else {"batch": 2}
        rows = timing.time_kernels(operation, few, ["numpy"])
        assert [(row.kernel, row.seconds) for row in rows] == [("numpy", 1e-3)]
        return
    sizes = dict.fromkeys(timing.default_sizes(operation), 5)
    rows = timing.time_kernels(operation, sizes, ["loops", "numpy"])
    assert [(row.kernel, row.seconds) for row in rows] == [("loops", 1e-3), ("numpy", 1e-3)]
    assert all(size > 1 for size in timing.default_sizes(operation).values())
    table = timing.table(operation, rows, sizes)
    lines = str(table).splitlines()
    assert operation.name in lines[0] and all(f"{name} 5" in lines[0] for name in sizes)
    assert all(len(line) <= 80 for line in lines[1:])
    assert table._repr_html_().count("<tr>") == 3
    assert [line.split()[0] for line in lines[2:4]] == ["loops", "numpy"]


def test_the_share_of_the_limit_is_that_of_the_limit_that_binds(quick):
    sizes = {"batch": 100, "n_in": 200, "n_out": 300}
    (row,) = timing.time_kernels(dense, sizes, ["numpy"])
    assert row.flops == 2 * 100 * 200 * 300
    assert row.bytes == 4 * (100 * 200 + 300 * 200 + 300 + 100 * 300)
    assert row.limit == pytest.approx(row.flops / 2e9 / 1e-3)
    (row,) = timing.time_kernels(find("mse_gradient"), {"batch": 100, "n": 50}, ["numpy"])
    assert row.limit == pytest.approx(4 * 3 * 100 * 50 / 1e9 / 1e-3)


def row(name, seconds, note="", limit=0.25):
    return timing.Row(name, "cpu", seconds, 10**9, 10**6, limit, note)


def cells(rows):
    """The words of each line below the head, by kernel."""
    lines = str(timing.table(dense, rows, SMALL)).splitlines()[2:-1]
    return {line.split()[0]: line.split() for line in lines}


def test_speedups_are_over_loops_and_numpy():
    lines = cells([row("loops", 20.0), row("numpy", 0.2), row("numba", 0.05, limit=1.5)])
    assert lines["loops"][-2:] == ["1×", "1/100"] or lines["loops"][-2:] == ["1×", "0.01×"]
    assert lines["numpy"][-2:] == ["100×", "1×"]
    assert lines["numba"][-2:] == ["400×", "4×"]
    assert "20 GFLOP/s" in " ".join(lines["numba"]) and "150 %" in " ".join(lines["numba"])
    assert "25 %" in " ".join(lines["numpy"])


def test_bytes_that_move_faster_than_the_memory_are_in_the_cache():
    faster = timing.Row("numpy", "cpu", 1e-3, 1000, 10**6, 1.5)
    assert "in cache" in " ".join(cells([faster])["numpy"])
    table = timing.table(dense, [faster], SMALL)
    assert "In cache: faster than memory" in str(table) and "In cache: faster than memory" in table._repr_html_()
    assert "In cache" not in str(timing.table(dense, [row("numpy", 0.2)], SMALL))


def test_what_the_bandwidth_limits_may_be_in_the_cache_with_some_flops_for_each_byte():
    assert timing.of_limit(1.37, 5 * 10**6, 10**6) == "137 %"
    assert timing.of_limit(1.37, 5 * 10**6, 10**6, by_memory=True) == timing.Table.CACHED
    assert timing.of_limit(1.37, 1000, 10**6, by_memory=False) == "137 %"


@pytest.mark.parametrize(
    ("language", "numbers"), [("en", ["2,345×", "12,345×", "1/2,345"]), ("es", ["2345×", "12 345×", "1/2345"])]
)
def test_thousands_in_the_readers_language(monkeypatch, language, numbers):
    monkeypatch.setenv("NNCOURSE_LANG", language)
    assert [formats.times_as_fast(ratio) for ratio in (2345.0, 12_345.0, 1 / 2345)] == numbers


def test_no_cache_holds_large_data_and_a_limit_that_is_passed_was_measured_under_load():
    def said(name, *numbers):
        return str(timing.table(dense, [timing.Row(name, "gpu", *numbers)], SMALL))

    large = said("naive", 1e-3, 1000, 1 << 30, 2.2)
    assert "220 %" in large and "in cache" not in large and timing.BUSY_LIMIT in large
    assert timing.BUSY_LIMIT in said("naive", 1e-3, 10**9, 10**6, 1.4)
    for within in (
        said("naive", 1e-3, 1000, 10**6, 2.2),  # in cache
        said("naive", 1e-3, 10**9, 10**6, 1.05),
        said("tensor_cores", 1e-3, 10**9, 10**6, 2.0),  # which has a note of its own
        said("naive", None, 0, 0, None, "too slow"),
    ):
        assert timing.BUSY_LIMIT not in within
    assert all(len(line) <= 80 for line in (*large.splitlines(), timing.Table.CACHED_FOOT))


@pytest.mark.parametrize(
    ("times", "bases"),
    [
        ({"loops": 1.0, "numpy": 0.1}, ["× loops", "× numpy"]),
        ({"numpy": 0.1, "naive": 1e-3}, ["× numpy"]),
        ({"loops": None, "numpy": 0.1, "naive": 1e-3}, ["× numpy"]),
        ({"naive": 1e-3}, []),
        ({"loops": 1.0, "c": 0.1, "numpy": 0.2}, ["× c", "× numpy"]),
    ],
)
def test_a_table_has_a_column_for_each_base_that_was_timed(times, bases):
    rows = [
        timing.Row(name, "cpu", seconds, 10**9, 10**6, 0.1, "" if seconds else "–") for name, seconds in times.items()
    ]
    table = timing.table(dense, rows, SMALL)
    found = [base for base in ("× loops", "× c", "× numpy") if base in str(table).splitlines()[1]]
    assert found == bases and all(base in table._repr_html_() for base in bases)
    assert [line.split()[0] for line in str(table).splitlines()[2 : 2 + len(times)]] == list(times)


def test_what_was_not_timed_or_is_too_short_says_so_instead_of_numbers(monkeypatch, quick):
    lines = cells([row("loops", None, "too slow"), row("numpy", 1e-7, "too short to measure"), row("numba", 0.05)])
    assert " ".join(lines["loops"]).endswith("– too slow")
    assert " ".join(lines["numpy"]).endswith("100 ns too short to measure")
    assert len(lines["numba"]) == 9, "no column for loops, which have no time to compare with"
    html = timing.table(dense, [row("<b>", None, "a & b")], SMALL)._repr_html_()
    assert "&lt;b&gt;" in html and "a &amp; b" in html
    monkeypatch.setattr(timing, "seconds_of_nothing", lambda where: 0.6e-3)
    (short,) = timing.time_kernels(dense, SMALL, ["numpy"])
    assert "too short to measure" in short.note and "600 µs" in short.note
    monkeypatch.setattr(timing, "seconds_of_nothing", lambda where: 1.25e-3)
    table = timing.table(dense, timing.time_kernels(dense, SMALL, ["numpy"]), SMALL)
    assert "1.25 ms" in table.rows[0].note and max(map(len, str(table).splitlines())) <= 80


def test_a_students_kernel_is_compared_with_the_packages_and_with_pytorch(monkeypatch, quick):
    table = timing.compare(dense["numpy"])
    names = [line.kernel for line in table.rows]
    assert names[:4] == ["yours", "loops", "numpy", "numba"]
    assert ("PyTorch" in names) == (pytorch.installed("cpu") is not None)
    assert "transfers" not in names


@pytest.mark.parametrize("operation", (operations() | epochs()).values(), ids=lambda operation: operation.name)
def test_pytorch_computes_the_same(operation):
    torch = pytest.importorskip("torch")
    function = pytorch.counterpart(operation.name, torch)
    if function is None:
        pytest.skip("PyTorch has no such function")

    def with_tensors(*arguments):
        return function(*[torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in arguments])

    for sizes in operation.trial.sizes_to_check or [dict.fromkeys(operation.size_names, 5)]:
        arguments = check.random_case(operation, sizes).arguments
        if operation.name == "dropout":  # PyTorch leaves out others, unless it leaves out none
            arguments = (arguments[0], 0.0, *arguments[2:])
        references = check.references_of(operation, arguments)  # before an argument is changed in place
        results = with_tensors(*arguments)
        results = results if isinstance(results, tuple) else (results,)
        for reference, result in zip(references.values(), results, strict=True):
            np.testing.assert_allclose(result.numpy().reshape(reference.shape), reference, rtol=1e-4, atol=1e-5)


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


def test_a_kernel_on_the_gpu_has_a_line_for_the_transfers(gpu):
    rows = {row.kernel: row for row in timing.compare(dense["naive"]).rows}
    assert {"yours", "numpy", "naive", "tiled", "transfers"} <= rows.keys()
    assert "to the GPU" in rows["transfers"].note and rows["transfers"].seconds > 0


def test_a_slow_call_that_compiles_nothing_is_made_once():
    calls = []
    assert device.seconds(lambda: calls.append(sum(range(10**6))), slow=1e-3) > 0 and len(calls) == 1
