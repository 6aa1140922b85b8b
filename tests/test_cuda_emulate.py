"""The CPU emulator: right kernels give right results in every thread order, wrong ones are caught at the right line."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cuda_on_cpu import emulate
from cuda_on_cpu.emulate import ORDERS, EmulationError
from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.source import kernels_in
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.trace import READ, WRITE
from nncourse.cuda.launch import launch

FOLDER = Path(__file__).parent / "cuda"

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))

MATMUL = CudaSource.read(FOLDER / "matmul.cu")


def matmul_error(function: str, order: str, n: int = 19, m: int = 17, k: int = 21) -> float:
    """The greatest error of a matrix product against float64; NaN and cells never written count as infinite."""
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((n, k), dtype=np.float32), rng.standard_normal((k, m), dtype=np.float32)
    C = np.full((n, m), np.nan, np.float32)
    launch(MATMUL, function, (-(-m // 8), -(-n // 8)), (8, 8), [A, B, C, n, m, k], order=order, seed=3)
    return float(np.nan_to_num(np.abs(C - A.astype(float) @ B.astype(float)), nan=np.inf).max())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", ["naive", "tiled"])
def test_matrix_product_is_right_in_every_order(function, order):
    assert matmul_error(function, order) < 1e-5


@pytest.mark.parametrize("function", ["no_first_barrier", "no_second_barrier"])
def test_a_missing_barrier_shows_in_some_order(function):
    assert max(matmul_error(function, order) for order in ORDERS) > 0.1


def test_portable_fibers_give_the_same_results(monkeypatch):
    monkeypatch.setenv("CXX", "g++ -DCUDA_ON_CPU_PORTABLE")
    emulate._child.cache_clear()  # the environment is no part of its key
    assert matmul_error("tiled", "shuffled") < 1e-5
    emulate._child.cache_clear()


def test_the_emulator_works_where_there_is_a_compiler():
    assert emulate.why_not() is None


# ---- mistakes: each kernel marks its faulty line with a comment

MISTAKES = CudaSource.read(FOLDER / "mistakes.cu")


def line_of(comment: str) -> int:
    return next(i for i, line in enumerate(MISTAKES.text.splitlines(), 1) if line.endswith("// " + comment))


def mistake(function: str, arguments: list, threads: int = 8, **options) -> str:
    """What the emulator says about a launch; then another kernel must run as if nothing had been."""
    with pytest.raises(EmulationError) as caught:
        launch(MISTAKES, function, (2,), (threads,), arguments, **options)
    after = np.zeros(4, np.float32)
    launch(MISTAKES, "fine", (1,), (4,), [after, 4])
    assert after.tolist() == [0, 1, 2, 3]
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("cuda/mistakes.cu:")
    return message


def floats(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


@pytest.mark.parametrize(
    ("function", "arguments", "says"),
    [
        ("unguarded_write", [floats(13), 13], "writes 4 bytes out of bounds: a[13], but a has 13 elements; thread (5,"),
        ("unguarded_write", [floats(0), 0], "a[0], but a has 0 elements"),
        ("unguarded_read", [floats(13), floats(13), 13], "reads 4 bytes out of bounds: a[13], but a has 13 elements"),
        ("before_the_start", [floats(3), 0], "writes 4 bytes out of bounds: a[-1]"),
        ("before_the_start", [floats(3), 10001], "a[10000], but a has 3 elements"),
        ("unguarded_atomic", [np.zeros(3, np.int32), 3], "a[3], but a has 3 elements"),
        ("shared_write", [floats(3), 4], "writes 4 bytes out of bounds of tile (128 bytes)"),
        ("shared_read", [floats(3), 8], "reads 4 bytes out of bounds of tile (32 bytes)"),
        ("local_write", [floats(3), 4], "writes 4 bytes out of bounds of an array"),
        ("null_pointer", [floats(3), 0], "memory that belongs to no array"),
        ("misaligned_read", [floats(8), 3], "no multiple of what it takes at once: 16 bytes for float4"),
        ("misaligned_write", [floats(1), 5], "no multiple of what it takes at once: 16 bytes for float4, 8 for float2"),
        ("divides", [np.zeros(3, np.int32), 0], "divides an integer by zero"),
    ],
)
def test_crashes_name_the_line(function, arguments, says):
    message = mistake(function, arguments)
    assert message.startswith(f"cuda/mistakes.cu:{line_of(function)}: {function} ")
    assert says in message


def test_fours_at_multiples_of_16_bytes_are_right():
    a = np.arange(12, dtype=np.float32)
    launch(MISTAKES, "misaligned_read", (1,), (1,), [a, 8])
    assert a[0] == 8 + 11


def test_a_write_past_dynamic_shared_memory_is_caught():
    message = mistake("dynamic_write", [floats(1), 1], shared_bytes=32)
    assert f":{line_of('dynamic_write')}: " in message
    assert "byte 32 of the dynamic shared memory, which has 32; thread (7, 0, 0) of block (0, 0, 0)" in message


def test_thread_and_block_of_a_crash_are_named():
    assert mistake("unguarded_write", [floats(13), 13]).endswith("thread (5, 0, 0) of block (1, 0, 0)")


@pytest.mark.parametrize(
    ("function", "threads", "says"),
    [
        ("some_return_early", 8, "reached by 3 of 8 threads of block ({block}, 0, 0); the others ended without it"),
        ("divergent_shuffle", 32, "__shfl_down_sync() reached by 3 of the 32 threads in its mask"),
        ("shuffle_or_barrier", 32, "3 of the 32 threads in its mask, in warp 0 of block ({block}, 0, 0); the others"),
        ("not_in_its_mask", 8, "__shfl_sync() called by a thread that is not in its mask"),
    ],
)
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_divergence_is_an_error(function, threads, says, order):
    message = mistake(function, [floats(1), 3], threads, order=order)
    assert message.startswith(f"cuda/mistakes.cu:{line_of(function)}: {function}: ")
    assert says.format(block=0 if order == "forward" else 1) in message


def test_a_divergent_barrier_names_both_lines():
    message = mistake("divergent_barrier", [floats(1), 3])
    first, other = line_of("divergent_barrier"), line_of("its other branch")
    assert message.startswith(f"cuda/mistakes.cu:{first}: divergent_barrier: __syncthreads() reached by 3 of 8 ")
    assert f"the others wait at line {other}" in message


def test_a_write_to_a_const_array_is_caught():
    message = mistake("casts_const_away", [floats(9), floats(9), 8])
    assert message == "cuda/mistakes.cu: casts_const_away writes to a, which it declares const"
    same = floats(9)
    launch(MISTAKES, "casts_const_away", (1,), (1,), [same, same, 8])  # the other parameter may write it
    assert same[8] == 5


def test_an_endless_loop_is_ended_and_its_line_named():
    start = time.monotonic()
    message = mistake("endless", [floats(2), 1], time_limit=0.3)
    assert time.monotonic() - start < 30
    assert "endless did not end within 0.3 s: thread (0, 0, 0) of block (0, 0, 0) still runs" in message
    assert int(message.split(":")[1]) - line_of("endless") in (-1, 0)


# ---- the language

LANGUAGE = CudaSource.read(FOLDER / "language.cu")


def integers(count: int) -> np.ndarray:
    return np.zeros(count, np.int32)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("threads", [32, 256, 1024])
def test_reduction_by_shuffles(order, threads):
    a = np.random.default_rng(0).random(2 * threads - 7, dtype=np.float32)
    sums = floats(2)
    launch(LANGUAGE, "reduce", (2,), (threads,), [a, sums, a.size], order=order)
    assert np.allclose(sums, [a[:threads].sum(dtype=float), a[threads:].sum(dtype=float)], rtol=1e-6)


@pytest.mark.parametrize("width", [32, 8])
def test_shuffles_read_the_lane_that_cuda_says(width):
    out = integers(160)
    launch(LANGUAGE, "shuffles", (1,), (32,), [out, width])
    lanes = np.arange(32)
    start = lanes // width * width
    assert out[:32].tolist() == (start + 5).tolist()
    assert out[32:64].tolist() == np.where(lanes - 3 < start, lanes, lanes - 3).tolist()
    assert out[64:96].tolist() == np.where(lanes + 3 >= start + width, lanes, lanes + 3).tolist()
    assert out[96:128].tolist() == (lanes ^ 6).tolist()
    assert (out[128:] == 31 * 4 + 1).all()


def test_parts_of_a_warp_shuffle_by_themselves():
    out = integers(32)
    launch(LANGUAGE, "half_warps", (1,), (32,), [out, 0], order="shuffled")
    lanes = np.arange(32)
    assert out.tolist() == np.where(lanes < 16, lanes ^ 1, lanes ^ 2).tolist()


def test_votes():
    out = integers(7)
    launch(LANGUAGE, "votes", (1,), (32,), [out, 5])
    assert out.tolist() == [0b11111, 1, 1, 5, 10, 10, 32]


@pytest.mark.parametrize("order", ORDERS)
def test_atomics(order):
    a, u = integers(6), np.array([0, 2**32 - 1, 0, 0], np.uint32)
    f, d = floats(1), np.zeros(1)
    launch(LANGUAGE, "atomics", (1,), (32,), [a, u, f, d], order=order)
    assert a[:5].tolist() == [496, -32, 31, -31, 7]
    assert a[5] == {"forward": 1, "reverse": 32}.get(order, a[5])  # the first to come
    assert 1 <= a[5] <= 32
    assert u.tolist() == [2**32 - 1, 0, 0, 2]
    assert (f[0], d[0]) == (16, 32)


@pytest.mark.parametrize("order", ORDERS)
def test_histogram_in_dynamic_shared_memory(order):
    values = np.random.default_rng(0).integers(0, 256, 1000).astype(np.uint8)
    counts = integers(256)
    launch(LANGUAGE, "histogram", (3,), (64,), [values, counts, values.size], shared_bytes=1024, order=order)
    assert counts.tolist() == np.bincount(values, minlength=256).tolist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("grid", "block"), [((2, 3), (4, 5)), ((2, 3, 4), (5, 2, 3)), ((6,), (7,)), ((1, 1, 1), (1, 1, 1))]
)
def test_every_thread_of_every_block_runs_once(grid, block, order):
    grid3, block3 = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
    out = np.full(np.prod(grid3 + block3), -1, np.int32)
    launch(LANGUAGE, "places", grid, block, [out], order=order, seed=5)
    bz, by, bx, tz, ty, tx = np.indices(grid3[::-1] + block3[::-1])
    assert out.tolist() == (100000 * bx + 10000 * by + 1000 * bz + 100 * tx + 10 * ty + tz).ravel().tolist()


def test_shared_memory_starts_as_nan_in_every_block():
    out = floats(32)
    launch(LANGUAGE, "unwritten", (3,), (32,), [out])
    assert np.isnan(out).all()


def test_printf_reaches_pythons_stdout(capsys):
    launch(LANGUAGE, "prints", (1,), (3,), [-4], order="reverse")
    assert capsys.readouterr().out == "thread 2 of -4\nthread 1 of -4\nthread 0 of -4\n"
    launch(LANGUAGE, "prints", (1,), (1,), [5])
    assert capsys.readouterr().out == "thread 0 of 5\n"


def test_mathematics():
    x = 2.0
    out = floats(7)
    launch(LANGUAGE, "mathematics", (1,), (1,), [out, np.array([x], np.float32)])
    functions = np.exp(x) + x**-0.5 + 1 / x + x * x + 1 + np.log(x)
    assert np.allclose(out, [functions, 3 + 3 + x + 3.5, 1, x + 8 + 4 + 31, 1 + x + 4, 2, 1], rtol=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_all_blocks_can_wait_for_each_other(order):
    a, sums = integers(20), integers(20)
    launch(LANGUAGE, "everyone_meets", (5,), (4,), [a, sums], order=order, seed=2)
    assert sums.tolist() == (np.arange(20) // 4 * 100 + 20).tolist()


def test_an_array_passed_twice_is_the_same_memory():
    a = floats(2)
    launch(LANGUAGE, "adds_one", (1,), (1,), [a, a])
    assert a.tolist() == [1, 1]


def test_constants_come_from_defines():
    for value in ("0.25f", "4.0f"):
        text = 'extern "C" __global__ void alpha(float* a) { a[0] = ALPHA; }'
        a = floats(1)
        launch(CudaSource(text, "tests/alpha.cu", (f"ALPHA={value}",)), "alpha", (1,), (1,), [a])
        assert a[0] == float(value[:-1])


def test_a_kernel_may_have_a_name_that_the_emulator_uses_too():
    names = ("call", "fence", "grid_barrier", "lane", "serve")
    text = "\n".join(f'extern "C" __global__ void {name}(int* a) {{ a[0] = {len(name)}; }}' for name in names)
    for name in names:
        launch(CudaSource(text, "tests/names.cu"), name, (1,), (1,), [found := integers(1)])
        assert found[0] == len(name)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"order": "random"}, "shuffled"),
        ({"time_limit": 0}, "time_limit"),
        ({"record": [], "most_records": 0}, "most_records"),
    ],
)
def test_wrong_options_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        launch(LANGUAGE, "prints", (1,), (1,), [1], **options)


# ---- races: each kernel marks with comments the line that is named, and the line of the other access

RACES = CudaSource.read(FOLDER / "races.cu")
RIGHT = [name for name in kernels_in(RACES) if name.startswith("ok_")]
WRONG = [name for name in kernels_in(RACES) if name not in RIGHT]


def race(function: str, threads: int = 64, blocks: int = 2, **options) -> str:
    """What the emulator says about a race. Without looking for races nothing is wrong with these kernels."""
    with pytest.raises(EmulationError) as caught:
        launch(RACES, function, (blocks,), (threads,), [floats(128)], shared_bytes=256, races=True, **options)
    launch(RACES, function, (blocks,), (threads,), [floats(128)], shared_bytes=256, **options)
    return str(caught.value)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", RIGHT)
def test_no_race_where_none_is(function, order):
    for _ in range(2):  # what the launch before left behind is no race either
        launch(RACES, function, (2,), (64,), [floats(128)], shared_bytes=256, order=order, races=True)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", WRONG)
def test_a_race_is_found(function, order):
    message = race(function, order=order)
    assert message.startswith("cuda/races.cu:") and "\n" not in message
    assert "both touch" in message


@pytest.mark.parametrize("function", WRONG)
def test_a_race_names_its_lines(function):
    lines = RACES.text.splitlines()
    first = [i for i, line in enumerate(lines, 1) if line.endswith("// " + function)]
    other = [i for i, line in enumerate(lines, 1) if line.endswith("// other: " + function)]
    message = race(function)
    assert message.startswith(f"cuda/races.cu:{first[0]}: {function}: thread (")
    assert f" (the other access is in line {other[0]})" in message if other else "other access" not in message


def test_a_race_names_threads_blocks_and_the_cell():
    assert race("adds") == (
        "cuda/races.cu:3: adds: thread (1, 0, 0) and thread (0, 0, 0) of block (0, 0, 0) both touch a[1], one writes, "
        "and nothing makes one wait for the other: check the index; if it is right, use atomicAdd or __syncthreads()"
    )
    assert race("adds", threads=1) == (
        "cuda/races.cu:3: adds: thread (0, 0, 0) of block (1, 0, 0) and thread (0, 0, 0) of block (0, 0, 0) both "
        "touch a[1], one writes, and blocks do not wait for each other: check the index; if it is right, "
        "use atomicAdd in all lines that touch it"
    )
    assert "both touch shared memory, one writes" in race("shared_for_private")
    assert "both touch dynamic shared memory, one writes" in race("dynamic")


def test_one_thread_cannot_race():
    launch(RACES, "adds", (1,), (1,), [floats(2)], races=True)


# ---- recording: more in test_picture.py


@pytest.mark.parametrize("order", ORDERS)
def test_recording_changes_no_result_and_sees_every_access_once(order):
    a, sums, found = integers(20), integers(20), []
    launch(LANGUAGE, "everyone_meets", (5,), (4,), [a, sums], order=order, seed=2, record=found)
    assert sums.tolist() == (np.arange(20) // 4 * 100 + 20).tolist()
    assert [memory.name for memory in found[0].memories] == ["a", "sums", "mine"]
    rows = found[0].accesses
    reads = np.bincount(rows["memory"][rows["kind"] == READ], minlength=3)
    writes = np.bincount(rows["memory"][rows["kind"] == WRITE], minlength=3)
    assert (reads.tolist(), writes.tolist()) == ([400, 0, 20], [20, 20, 20])
    assert not rows["outside"].any()


def test_races_are_no_mistake_while_recording_and_are_one_afterwards():
    launch(RACES, "adds", (2,), (64,), [floats(128)], record=(found := []))
    assert (found[0].accesses["cell"] == 1).all()
    assert len(found[0].accesses) == 2 * 128
    assert "both touch a[1]" in race("adds")


# ---- the child process


def test_threads_take_turns():
    results = [floats(2) for _ in range(16)]

    def work(result):
        for _ in range(10):
            launch(LANGUAGE, "adds_one", (1,), (1,), [np.full(1, 5, np.float32), result])

    workers = [threading.Thread(target=work, args=(result,)) for result in results]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [result.tolist() for result in results] == [[10, 5]] * 16


def _add_in_another_process(queue):
    a = floats(2)
    launch(LANGUAGE, "adds_one", (1,), (1,), [a, a])
    queue.put(a.tolist())


def test_a_forked_process_has_a_child_of_its_own():
    a = floats(2)
    launch(LANGUAGE, "adds_one", (1,), (1,), [a, a])
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    process = fork.Process(target=_add_in_another_process, args=(queue,))
    process.start()
    assert queue.get(timeout=30) == [1, 1]
    process.join()
    launch(LANGUAGE, "adds_one", (1,), (1,), [a, a])
    assert a.tolist() == [2, 2]


def test_an_interrupted_launch_does_not_disturb_the_next():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without it
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            launch(MISTAKES, "endless", (1,), (1,), [floats(2), 1], time_limit=10)
            pytest.fail("the launch was not interrupted")
    finally:
        signal.signal(signal.SIGINT, before)
    after = floats(4)
    launch(MISTAKES, "fine", (1,), (4,), [after, 4])
    assert after.tolist() == [0, 1, 2, 3]


def test_an_endless_printf_is_ended_too(capsys):
    text = 'extern "C" __global__ void chatty(int n) { while (n) printf("again\\n"); }'
    with pytest.raises(EmulationError, match="chatty did not end within 0.3 s"):
        launch(CudaSource(text, "tests/chatty.cu"), "chatty", (1,), (1,), [1], time_limit=0.3)
    assert 1000 < capsys.readouterr().out.count("again\n") < 1_000_000


# ---- threads that sleep

SLEEPERS = CudaSource.read(FOLDER / "sleepers.cu")


@pytest.mark.parametrize("races", [False, True])
@pytest.mark.parametrize("order", emulate.ORDERS)
def test_a_sleeping_thread_lets_other_blocks_go_on(order, races):
    flags, order_of = np.zeros(6, np.int32), np.zeros(5, np.int32)
    launch(SLEEPERS, "in_turns", (5,), (4,), [flags, order_of], order=order, races=races)
    assert order_of.tolist() == [4002, 3012, 2022, 1032, 42]


def test_nobody_sleeps_for_ever():
    with pytest.raises(EmulationError, match="0.2 s"):
        launch(SLEEPERS, "alone", (2,), (32,), [np.zeros(1, np.int32)], time_limit=0.2)
    seen = np.zeros(1, np.int32)
    launch(SLEEPERS, "impatient", (1,), (1,), [np.zeros(1, np.int32), seen], time_limit=2.0)
    assert seen[0] == 1


def test_a_sleeper_that_does_not_come_to_the_barrier_is_a_mistake():
    with pytest.raises(EmulationError, match="31 of 32 threads"):
        launch(SLEEPERS, "one_does_not_come", (1,), (32,), [np.zeros(1, np.int32)])
