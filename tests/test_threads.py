"""Threads of BLAS: as many as a product and the other programs on the machine leave worth it."""

import functools
import threading
import time
import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from nncourse import threads
from nncourse.threads import Load, Threads, that_pay


def in_blas() -> int:
    np.ones((2, 2)) @ np.ones((2, 2))
    (count,) = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    return count


@pytest.fixture
def cores(monkeypatch):
    """16 cores; others(n) keeps n of them busy."""

    def others(busy: float) -> None:
        monkeypatch.setattr(threads, "since", lambda before: Load(others=busy * 2.0, seconds=2.0, cores=16))

    monkeypatch.setattr(threads, "usable_cores", lambda: 16)
    monkeypatch.setattr(threads, "TELLS", 0.0)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    others(0)
    return others


@pytest.mark.parametrize(
    ("flops", "idle", "most", "count"),
    [
        (6.4e6, 16, 4, 1),  # 784-128-10 with batch 32
        (51e6, 16, 4, 2),
        (308e6, 16, 4, 4),  # 784-192-10 with batch 1,024
        (308e6, 2.9, 4, 2),
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
        assert in_blas() == 3
        with Threads(1e6) as chosen:
            assert chosen.choose() == in_blas() == 1
        with Threads(1e6, exactly=2) as chosen:
            assert chosen.choose() == in_blas() == 2
        assert in_blas() == 3


def test_no_more_than_the_environment_grants(cores, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with Threads(1e9) as chosen:
        assert chosen.choose() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(threads, "since", None)  # not looked for
    with Threads(1e9) as chosen:
        assert chosen.choose() == 1


def test_only_the_first_choice_waits_until_the_clock_of_work_can_tell(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    slept = []
    monkeypatch.setattr(threads, "since", lambda before: Load(0.0, 1.0, 16))
    monkeypatch.setattr(threads.time, "sleep", slept.append)
    with Threads(1e9) as chosen:
        counts = [chosen.choose(), chosen.choose()]
    assert len(slept) == 1 and 0 < slept[0] <= threads.TELLS and counts[0] == counts[1]
    assert 1 <= counts[0] <= threads.usable_cores()


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
