"""Timings say so when the machine is shared: other processes, a share of its cores, a GPU with others on it."""

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nnclassroom import timing
from nnclassroom.exercises.catalogue import find
from nnclassroom.timing import neighbours
from nncourse import threads
from nncourse.threads import Load

dense = find("dense_forward")
SIZES = {"batch": 4, "n_in": 3, "n_out": 2}


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(), ""),
        (Load(others=0.02, seconds=2.0, cores=2), ""),
        (Load(others=0.8, seconds=2.0, cores=2), ""),  # not half a core
        (Load(others=1.2, seconds=1.0, cores=2), "others kept 1.2 of 2 cores busy"),
        (Load(others=5.0, seconds=1.0, cores=64), ""),  # not a tenth of them
        (Load(others=40.0, seconds=1.0, cores=64), "others kept 40.0 of 64 cores busy"),
        (Load(others=0.05, seconds=0.05, cores=2), ""),  # too short to tell
    ],
)
def test_others_are_told_of_when_they_matter(load, said):
    words = neighbours.in_words(load)
    assert said in words and bool(said) == bool(words)


def test_times_one_after_the_other_are_one():
    assert neighbours.together([Load(1.0, 2.0, 8), Load(), Load(3.0, 1.0, 8)]) == Load(4.0, 3.0, 8)
    assert neighbours.together([]) == Load()


def test_the_work_of_another_process_is_seen():
    before = threads.look()
    code = "import time\nwhile time.process_time() < 1: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert threads.since(before).others > 0.7


def test_ones_own_work_is_not_that_of_others(monkeypatch):
    looks = iter([threads.Look(10.0, 500.0, 3.0), threads.Look(12.0, 504.0, 6.5)])
    monkeypatch.setattr(threads, "look", lambda: next(looks))
    load = threads.since(threads.look())
    assert (load.others, load.seconds) == (0.5, 2.0)


def test_a_share_of_the_cores_is_told(monkeypatch):
    assert neighbours.share_in_words(8, 8) == ""
    assert neighbours.share_in_words(64, 4) == "This process may use 4 of the machine's 64 cores."
    monkeypatch.setattr(threads, "cores", lambda: set(range(16)))
    assert threads.usable_cores() == 16
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "2")
    assert threads.usable_cores() == 2


def test_the_foot_of_a_table_tells_and_fits(monkeypatch):
    monkeypatch.setattr(neighbours, "share_in_words", lambda: "")
    row = timing.Row("numpy", "cpu", 1e-3, 10**9, 10**6, 0.25)
    quiet = timing.table(dense, [row], SIZES)
    assert quiet.shared == () and str(quiet).endswith(quiet.FOOT)
    busy = timing.table(dense, [replace(row, meanwhile=Load(96.0, 1.0, 128)), row], SIZES)
    assert "others kept 96.0 of 128 cores busy" in str(busy).splitlines()[-1]
    assert "others kept 96.0 of 128 cores busy" in busy._repr_html_()
    assert all(len(line) <= 80 for line in str(busy).splitlines()[1:])


def test_a_timing_beside_a_busy_process_is_marked(monkeypatch):
    clock = SimpleNamespace(now=0.0)

    def look():
        clock.now += 1.0
        return threads.Look(clock.now, 3.0 * clock.now, 0.5 * clock.now)

    monkeypatch.setattr(threads, "look", look)
    monkeypatch.setattr(threads, "cores", lambda: set(range(4)))
    table = timing.table(dense, timing.time_kernels(dense, SIZES, ["numpy"]), SIZES)
    assert "others kept 2.5 of 4 cores busy" in str(table)


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch):
    """A GPU on which processes 11, 12 and 13 run; 11 is ours. `shares` are what each has used of it lately."""
    found = SimpleNamespace(shares={}, permitted=True)

    def utilisation(handle, since):
        if not found.shares:
            raise NVMLError("not found")
        return [SimpleNamespace(pid=pid, smUtil=share) for pid, share in found.shares.items()]

    def running(handle):
        if not found.permitted:
            raise NVMLError("no permission")
        return [SimpleNamespace(pid=number) for number in (11, 12, 13)]

    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        nvmlDeviceGetComputeRunningProcesses=running,
        nvmlDeviceGetProcessUtilization=utilisation,
    )
    runtime = SimpleNamespace(deviceGetPCIBusId=lambda n: "7", getDeviceCount=lambda: 1)
    device = SimpleNamespace(Device=lambda: SimpleNamespace(id=0), runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=device))
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(neighbours.devices, "gpu_available", lambda: True)
    monkeypatch.setattr(neighbours, "_is_mine", lambda number: number == 11)
    return found


def test_other_users_on_the_gpu_are_told_of_and_how_busy_they_keep_it(nvml, monkeypatch):
    said = neighbours.gpu_in_words()
    assert said.startswith("Shared: processes of others on this GPU: 2;")
    nvml.shares = {11: 90, 12: 40, 13: 23}
    said = neighbours.gpu_in_words()
    assert "GPU: 2, 63 % busy" in said and len(said) <= 80
    monkeypatch.setattr(neighbours, "_is_mine", lambda number: True)
    assert neighbours.gpu_in_words() == ""


def test_nothing_is_told_where_nvml_says_nothing(nvml, monkeypatch):
    nvml.permitted = False
    assert neighbours.gpu_in_words() == ""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert neighbours.gpu_in_words() == ""


def test_a_process_is_ones_own_or_another_users():
    assert neighbours._is_mine(os.getpid())
    assert neighbours._is_mine(2**22 + 1)  # not to be seen
    if os.getuid() != 0:
        assert not neighbours._is_mine(1)
