"""Threads of BLAS: as many as a product and the other programs on the machine leave worth it."""

import functools
import math
import os
import subprocess
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from refusals import refused
from threadpoolctl import threadpool_info, threadpool_limits
from trainings import by_steps

from nncourse import choose, make_network, threads, train
from nncourse.model.network import threads_for
from nncourse.model.training import evaluate
from nncourse.threads import Load, Look, Threads, asked, granted, that_pay


def in_blas() -> int:
    np.ones((2, 2)) @ np.ones((2, 2))
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    own = [pool for pool in pools if "numpy" in pool["filepath"]]  # SciPy and PyTorch may have loaded others
    (count,) = {pool["num_threads"] for pool in own or pools}
    return count


@pytest.fixture
def cores(monkeypatch):
    """16 cores for this process alone; others(n) keeps n of them busy, which shows at once."""

    def others(busy: float) -> None:
        monkeypatch.setattr(threads, "since", lambda before: Load(others=busy * 2.0, seconds=2.0, cores=16))

    monkeypatch.setattr(threads, "cores", lambda: set(range(16)))
    monkeypatch.setattr(threads, "TELLS", 0.0)
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_ON_NODE", *threads.LOCAL):
        monkeypatch.delenv(name, raising=False)
    others(0)
    return others


class Watched:
    """NumPy's backend; `counts` are the threads of BLAS at each product forward."""

    def __init__(self):
        self.backend, self.counts = by_steps("numpy"), []

    def __getattr__(self, name):
        if name == "dense_forward":
            self.counts.append(in_blas())
        return getattr(self.backend, name)


LARGE = make_network([784, 192, 10])
X, Y = np.zeros((1024, 784), np.float32), np.zeros((1024, 10), np.float32)  # 308 MFLOP in the first layer


@pytest.mark.parametrize(
    ("flops", "idle", "most", "count"),
    [
        (6.4e6, 16, 4, 1),  # 784-128-10 with batch 32
        (51e6, 16, 4, 2),
        (308e6, 16, 4, 4),  # 784-192-10 with batch 1,024
        (float("inf"), 16, 16, 16),
        (308e6, 2.6, 4, 2),
        (308e6, 1.9, 4, 2),  # two cores, on which the system has something to do
        (308e6, 1.5, 4, 1),
        (308e6, 0.0, 4, 1),
        (308e6, -1.5, 4, 1),  # more work than cores
        (308e6, 16, 1, 1),
    ],
)
def test_threads_that_pay(flops, idle, most, count):
    assert that_pay(flops, idle, most) == count


def test_a_block_has_its_threads_and_leaves_as_many_as_there_were(cores):
    with threadpool_limits(limits=3):
        with Threads(1e9) as chosen:
            assert in_blas() == 1
            assert chosen.choose() == in_blas() == 4
            cores(14.0)
            assert chosen.choose() == in_blas() == 2
            with Threads(1e9, exactly=3) as inner:
                assert inner.choose() == in_blas() == 3
            assert in_blas() == 2
        assert in_blas() == 3
        with Threads(1e6) as chosen:
            assert chosen.choose() == in_blas() == 1
    assert "at least 1 thread" in refused(Threads, 1e9, exactly=0)


@pytest.mark.parametrize(
    ("environment", "most"),
    [
        ({}, 16),
        ({"OMP_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "99"}, 16),
        ({"MPI_LOCALNRANKS": "4"}, 4),
        ({"MPI_LOCALNRANKS": "4", "OMP_NUM_THREADS": "16"}, 4),
        ({"MPI_LOCALNRANKS": "32"}, 1),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 8),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x2)", "SLURM_CPUS_ON_NODE": "16"}, 2),
        ({"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_CPUS_ON_NODE": "64"}, 16),  # srun gave these 16 to this one alone
        ({"SLURM_CPUS_ON_NODE": "2"}, 2),
    ],
)
def test_a_process_of_a_group_has_its_share_of_the_cores(cores, monkeypatch, environment, most):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert granted() == most


@pytest.mark.parametrize(("processes", "count"), [(1, 4), (4, 4), (8, 2), (16, 1)])
def test_training_in_a_process_of_a_group(cores, monkeypatch, processes, count):
    monkeypatch.setenv("MPI_LOCALNRANKS", str(processes))
    history = train(LARGE.on(choose("numpy")), X, Y, choose("numpy"), epochs=1, batch_size=1024)
    assert history.threads == count


def test_training_predicting_and_evaluating_choose_alike(cores):
    def counts(work) -> set[int]:
        watched = Watched()
        work(watched)
        return set(watched.counts)

    network = LARGE.on(choose("numpy"))
    works = (
        lambda backend, **options: network.predict(X, backend, **options),
        lambda backend, **options: evaluate(network, X, Y, backend, **options),
    )
    for work in works:
        assert counts(work) == {4}
        assert counts(lambda backend, work=work: work(backend, threads=2)) == {2}
    with asked(2):
        trained = counts(lambda backend: train(network, X, Y, backend, epochs=1, batch_size=1024))
    assert trained == {1, 2}  # one where a step is only tried
    cores(16.0)
    assert [counts(work) for work in works] == [{1}, {1}]
    assert threads_for(network, 1024, SimpleNamespace(device="gpu")).most == 1


def test_threads_that_are_asked_for_are_in_the_history(cores):
    small = make_network([4, 3, 2])
    rows = np.zeros((8, 4), np.float32), np.zeros((8, 2), np.float32)
    assert train(small, *rows, choose("numpy"), epochs=1).threads == 1
    with asked(3):
        assert train(small, *rows, choose("numpy"), epochs=1).threads == 3


@pytest.fixture
def machine(monkeypatch):
    """A clock, the seconds slept, and two cores on which others work for `others` core-seconds a second."""
    now = SimpleNamespace(clock=50.0, others=0.0, done=0.0, slept=[])

    def go_on(seconds: float) -> None:
        now.clock += seconds
        now.done += now.others * seconds

    def sleep(seconds: float) -> None:
        now.slept.append(seconds)
        go_on(seconds)

    now.go_on = go_on
    monkeypatch.setattr(threads, "cores", lambda: {0, 1})
    monkeypatch.setattr(threads, "look", lambda: Look(now.clock, now.done, 0.0))
    monkeypatch.setattr(threads, "time", SimpleNamespace(perf_counter=lambda: now.clock, sleep=sleep))
    return now


def test_what_others_did_before_a_block_does_not_count_and_only_its_first_choice_waits(machine, monkeypatch):
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_ON_NODE", *threads.LOCAL):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Threads, "take", lambda block, count: setattr(block, "count", count) or count)
    machine.others = 2.0
    machine.go_on(60.0)
    machine.others = 0.0
    with Threads(math.inf) as block:
        assert block.choose(waits=False) == 1 and not machine.slept  # nothing is known yet
        assert block.choose() == 2 and machine.slept == [pytest.approx(0.1)]
        machine.others = 1.0
        machine.go_on(0.05)
        assert block.choose() == 2 and len(machine.slept) == 1  # too soon for another
        machine.go_on(1.0)
        assert block.choose(waits=False) == 1
        machine.others = 0.0
        machine.go_on(1.0)
        assert block.choose() == 2 and len(machine.slept) == 1
    with Threads(1e6) as small:
        assert small.choose() == 1 and len(machine.slept) == 1


def test_the_load_is_that_of_the_cores_that_this_process_may_use(monkeypatch):
    def core(user: float) -> SimpleNamespace:
        times = {"user": user, "nice": 20, "system": 30, "irq": 6, "softirq": 7, "steal": 8}
        return SimpleNamespace(**times, idle=4000, iowait=500, guest=90, guest_nice=1)

    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [core(100), core(1000), core(10_000)])
    monkeypatch.setattr(threads, "cores", lambda: {0, 2})
    assert threads.look().machine == 100 + 10_000 + 2 * 71  # neither idle time, nor the guests' twice
    monkeypatch.setattr(threads, "cores", lambda: {6, 7})  # a container may number its cores anew
    assert threads.look().machine == 11_100 + 3 * 71


COUNT = """
import numpy
from threadpoolctl import threadpool_info
numpy.ones((2, 2)) @ numpy.ones((2, 2))
print(*{pool["num_threads"] for pool in threadpool_info()}, flush=True)
"""
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"


@pytest.mark.parametrize("before", ["", "import numpy\n"])
def test_all_begins_with_one_thread_and_so_do_processes_that_are_started(before):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", f"{before}import nnclassroom\n{COUNT}\n{CHILD}", COUNT]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert said.split() == ["1", "1"]


def test_calls_are_made_together_by_as_many_threads_as_were_chosen():
    """Each in a thread with one thread of BLAS, and within what is around the block."""
    names, counts, divided = [], [], []

    def call(number: int) -> None:
        time.sleep(0.02)
        names.append(threading.current_thread().name)
        counts.append(in_blas())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            divided.append(float(np.float32(number) / np.float32(0)))

    calls = [functools.partial(call, number) for number in range(1, 6)]
    with np.errstate(divide="ignore"):
        threads.together(calls)
        assert set(names) == {threading.current_thread().name} and threads.at_most() == 1
        names.clear()
        with Threads(1e12, exactly=3) as block:
            threads.together(calls)  # one, until they are chosen
            assert len(set(names)) == 1
            names.clear(), counts.clear()
            block.choose()
            assert threads.at_most() == 3
            threads.together(calls)
            assert len(set(names)) == 3 and set(counts) == {1}
            assert len(names) == 5 and set(divided) == {np.inf}
    assert threads.at_most() == 1


@pytest.mark.parametrize("which", [0, 1])
def test_an_error_in_a_call_comes_out_when_all_have_ended(which):
    ended = []

    def call(number: int) -> None:
        if number == which:
            raise ValueError("no")
        time.sleep(0.05)
        ended.append(number)

    with Threads(1e12, exactly=2) as block:
        block.choose()
        with pytest.raises(ValueError, match="no"):
            threads.together([functools.partial(call, number) for number in range(2)])
        assert ended == [1 - which]


HELD = """
import time, nnclassroom, numpy
from nncourse.threads import Threads
with Threads(1e9, exactly=2) as block:
    block.choose()
    A = numpy.ones((600, 600), numpy.float32)
    A @ A
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before)
"""


@pytest.mark.skipif(len(threads.cores()) < 2, reason="one core")
def test_cores_are_free_soon_after_a_product():
    said = subprocess.run([sys.executable, "-c", HELD], check=True, capture_output=True, text=True).stdout
    assert float(said) < 0.05  # seconds of the processor
