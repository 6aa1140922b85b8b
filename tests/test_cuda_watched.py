"""What the emulator watches: every memory, every barrier, values never set; and faults told by kind and facts."""

import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import is_running, until

from cuda_on_cpu import emulate
from cuda_on_cpu.emulate import ORDERS, EmulationError
from cuda_on_cpu.faults import TEMPLATES, WORDS, message
from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.text import CudaSource
from nncourse.cuda.launch import launch

FOLDER = Path(__file__).parent / "cuda"

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))

SOURCE = CudaSource.read(FOLDER / "watched.cu")


def line_of(comment: str) -> int:
    return next(i for i, line in enumerate(SOURCE.text.splitlines(), 1) if line.endswith("// " + comment))


def fault(function: str, n: int, threads: int = 8, blocks: int = 1, **options) -> EmulationError:
    with pytest.raises(EmulationError) as caught:
        launch(SOURCE, function, (blocks,), (threads,), [np.zeros(32, np.float32), n], **options)
    error = caught.value
    assert error.function == function
    assert str(error).startswith(f"cuda/watched.cu{f':{error.line}' if error.line else ''}: {function}")
    launch(SOURCE, "fine", (1,), (1,), [a := np.zeros(1, np.float32), 1])
    assert a[0] == 9
    return error


def result(function: str, n: int, dtype="float32", threads: int = 8, **options) -> np.ndarray:
    a = np.zeros(32, dtype)
    launch(SOURCE, function, (1,), (threads,), [a, n], **options)
    return a


# ---- memory


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("function", "what"), [("adds_to_a_variable", "total"), ("sets_one_element", "table[2]")])
def test_races_on_device_variables(function, what, order):
    error = fault(function, 2, races=True, order=order)
    assert (error.kind, error.line) == ("race", line_of(function))
    assert f"both touch {what}, one writes" in str(error)
    assert not error.facts["shared"] and not error.facts["between_blocks"]
    between = fault(function, 2, threads=1, blocks=2, races=True, order=order)
    assert between.facts["between_blocks"]
    assert str(between).endswith("check the index; if it is right, use atomicAdd in all lines that touch it")


def test_a_race_on_a_variable_is_named_where_none_has_a_value_from_the_start():
    text = """__device__ float first;
__device__ float total[4];
extern "C" __global__ void adds(float* a) { total[2] += a[0]; }"""
    with pytest.raises(EmulationError, match=re.escape("both touch total[2]")):
        launch(CudaSource(text, "zeros.cu"), "adds", (1,), (8,), [np.ones(1, np.float32)], races=True)


@pytest.mark.parametrize("function", ["past_a_table", "past_constants", "past_a_template"])
def test_bounds_of_variables(function):
    error = fault(function, 8)
    assert (error.kind, error.line) == ("bounds", line_of(function))
    assert error.facts["write"] == (function != "past_constants")
    assert error.facts["array"] in ("table", "weights", "tile")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", ["template_race", "inline_race"])
def test_races_on_shared_arrays_in_templates_and_inline_functions(function, order):
    error = fault(function, 0, races=True, order=order)
    assert (error.kind, error.facts["array"], error.facts["shared"]) == ("race", "tile", True)
    assert "both touch shared memory, one writes, with no barrier between them: is a __syncthreads() missing?" in str(
        error
    )
    assert error.line == line_of(function) or error.facts["other_line"] == line_of(function)
    assert result(function, 1, races=True)[:8].tolist() == list(range(8))[::-1]


def test_shared_arrays_in_templates_start_as_nan_in_every_block():
    a = np.zeros(32, np.float32)
    launch(SOURCE, "template_unset", (3,), (8,), [a, 0])
    assert np.isnan(a[:8]).all()


@pytest.mark.parametrize("function", ["unused_read", "read_for_nothing", "overwritten_read"])
def test_reads_whose_value_is_not_used(function):
    error = fault(function, 32)
    assert (error.kind, error.line) == ("bounds", line_of(function))
    assert (error.facts["array"], error.facts["index"], error.facts["elements"]) == ("a", 32, 32)


@pytest.mark.parametrize("races", [False, True])
@pytest.mark.parametrize(
    ("function", "dtype"), [("unset_sum", "float32"), ("unset_count", "int32"), ("unset_array", "float32")]
)
def test_a_variable_that_is_not_set_is_not_zero_by_chance(function, dtype, races):
    for _ in range(2):
        found = result(function, 4, dtype, races=races)[:8]
        assert not (np.abs(found) < 1000).any()


def test_nor_where_the_compiler_cannot_set_patterns(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("cuda_on_cpu.program._sets_patterns", lambda *compiler: False)
    emulate._child.cache_clear()
    found = result("unset_sum", 4)[:8]
    assert not (np.abs(found) < 1000).any()
    emulate._child.cache_clear()


@pytest.mark.parametrize("order", ORDERS)
def test_the_loop_of_the_programming_guide_is_no_race(order):
    for blocks in (1, 3):
        a = np.zeros(2, np.float32)
        launch(SOURCE, "compare_and_swap", (blocks,), (64,), [a, 2], order=order, races=True)
        assert a[0] == 128 * blocks


def test_without_a_loop_a_change_is_lost_where_another_thread_came_first():
    assert result("swaps_once", 1, "int32", order="forward")[0] == 8
    counts = [result("swaps_once", 1, "int32", order="shuffled", seed=seed)[0] for seed in range(8)]
    assert min(counts) < 8 and min(counts) > 0
    assert result("compare_and_swap", 2, order="shuffled")[0] == 16


@pytest.mark.parametrize("order", ORDERS)
def test_a_plain_read_of_what_others_add_is_one(order):
    error = fault("looks_and_swaps_another", 0, races=True, order=order)
    assert error.kind == "race"
    lines = {error.line, error.facts["other_line"]}
    assert lines == {line_of("looks_and_swaps_another"), line_of("other: looks_and_swaps_another")}


# ---- barriers


@pytest.mark.parametrize(
    ("function", "kind", "threads", "call"),
    [("two_barriers_in_a_line", "barrier", 8, "__syncthreads"), ("two_shuffles_in_a_line", "warp", 32, "__shfl_sync")],
)
def test_two_waits_in_one_line_are_two(function, kind, threads, call):
    error = fault(function, 3, threads)
    assert (error.kind, error.line, error.facts["arrived"]) == (kind, line_of(function), 3)
    assert str(error).endswith(f"the others wait at another {call}() of the same line")


# ---- named ends


def test_trap_and_assert(capsys):
    error = fault("traps", 3)
    assert (error.kind, error.line, error.facts["thread"]) == ("trap", line_of("traps"), (3, 0, 0))
    assert "__trap() called by thread (3, 0, 0) of block (0, 0, 0)" in str(error)
    error = fault("asserts", 3)
    assert (error.kind, error.line) == ("assert", line_of("asserts"))
    assert 'the assertion `threadIdx.x < n && "small"` does not hold' in str(error)
    assert result("asserts", 8).any() == 0
    assert capsys.readouterr().out == ""
    assert fault("stops", 1).kind == "trap"
    assert capsys.readouterr().out == "stops\n"


def test_the_heap_ends_as_on_a_gpu():
    result("too_much_memory", 7, threads=1)
    error = fault("too_much_memory", 100, threads=1)
    assert (error.kind, error.facts["cause"], error.line) == ("crash", "address", line_of("too_much_memory"))


def test_too_much_memory_is_named(capsys):
    error = fault("fills_a_large_variable", 1, threads=1)
    assert capsys.readouterr().out == ""
    assert error.kind == "memory"
    assert "takes more than 1024 MB of memory; thread (0, 0, 0) of block (0, 0, 0)" in str(error)


def test_a_flood_of_output_is_cut(capsys):
    assert result("prints_wide", 20, threads=1)[0] == 1
    assert len(capsys.readouterr().out) <= 1 << 20


def test_kinds_of_crashes():
    error = fault("deep", 5)
    assert error.kind == "crash"
    assert error.facts["cause"] in ("stack", "address")


def test_the_time_limit_is_cpu_time_and_a_fact():
    text = 'extern "C" __global__ void endless(float* a) { while (a[0] == 0) {} }'
    with pytest.raises(EmulationError) as caught:
        launch(CudaSource(text, "e.cu"), "endless", (1,), (1,), [np.zeros(1, np.float32)], time_limit=0.5)
    assert (caught.value.kind, caught.value.facts["seconds"]) == ("time limit", 0.5)


# ---- words


def test_errors_can_be_pickled_and_keep_their_facts():
    error = fault("adds_to_a_variable", 2, races=True)
    again = pickle.loads(pickle.dumps(error))
    assert (again.kind, again.line, dict(again.facts), str(again)) == (
        error.kind,
        error.line,
        dict(error.facts),
        str(error),
    )


def test_another_language_needs_only_other_templates():
    error = fault("past_a_table", 4)
    spanish = TEMPLATES | {"bounds of other": " {verb} fuera de {what}; {who}"}
    words = WORDS | {"True": "escribe", "thread of block": "hilo {thread} del bloque {block}", "array of": "{array}"}
    where = f"cuda/watched.cu:{error.line}: past_a_table"
    assert (
        message(error.fault, spanish, words) == f"{where} escribe fuera de table; hilo (0, 0, 0) del bloque (0, 0, 0)"
    )


# ---- processes


BWRAP = ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-net", "--bind", "{folder}", "{folder}")


def bubblewrap_works() -> bool:
    return bool(shutil.which("bwrap")) and not subprocess.run([*BWRAP[:6], "true"], capture_output=True).returncode


@pytest.mark.skipif(not bubblewrap_works(), reason="bubblewrap does not work here")
def test_a_sandbox(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = CudaSource('extern "C" __global__ void f(float* a, int n) { a[n] = 1; }', "sandboxed.cu")
    for races in (False, True):
        a = np.zeros(2, np.float32)
        launch(source, "f", (1,), (1,), [a, 1], races=races, sandbox=BWRAP)
        assert a.tolist() == [0, 1]
    with pytest.raises(EmulationError, match=r"sandboxed.cu:1: f writes 4 bytes out of bounds: a\[2\]"):
        launch(source, "f", (1,), (1,), [a, 2], sandbox=BWRAP)
    emulate._child.cache_clear()


def test_the_sandbox_is_put_before_compiler_and_program(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    spy = tmp_path / "spy"
    spy.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/seen\nexec "$@"\n')
    spy.chmod(0o755)
    source = CudaSource('extern "C" __global__ void f(float* a) { a[0] = 1; }', "spied.cu")
    launch(source, "f", (1,), (1,), [np.zeros(1, np.float32)], sandbox=(str(spy),))
    lines = (tmp_path / "seen").read_text().splitlines()
    assert sum("-c kernels.cpp" in line for line in lines) == 2
    assert lines[-1].startswith(str(tmp_path / "cache"))
    launch(source, "f", (1,), (1,), [np.zeros(1, np.float32)])  # without it: another child
    assert (tmp_path / "seen").read_text().splitlines() == lines
    emulate._child.cache_clear()


def test_what_a_child_started_ends_with_it(tmp_path):
    from cuda_on_cpu.processes import Child

    text = "from cuda_on_cpu.processes import to_parent; import subprocess, time; parent = to_parent(); "
    text += "parent.send(subprocess.Popen(['sleep', '60']).pid); time.sleep(60)"
    child = Child([sys.executable, "-c", text])
    grandchild = child.connection.recv()
    child.end()
    assert until(lambda: not is_running(grandchild), 5)


def test_an_emulated_kernel_ends_with_the_process_that_launched_it():
    text = """
import numpy as np, threading, time
from cuda_on_cpu import emulate
from nncourse.cuda.launch import launch
from cuda_on_cpu.text import CudaSource
source = CudaSource('extern "C" __global__ void f(float* a, int n) { while (n) a[0] += n; }', "k.cu")
launch(source, "f", (1,), (1,), [np.zeros(1, np.float32), 0])
import os
print(emulate._child(source, False, (), os.getpid()).process.pid, flush=True)
launch(source, "f", (1,), (1,), [np.zeros(1, np.float32), 1], time_limit=60)
"""
    parent = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    time.sleep(0.3)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert until(lambda: not is_running(child), 20)
