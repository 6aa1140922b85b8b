"""Work in another process: results, output and exceptions come back; crashes and endless loops stay there."""

import os
import time

import pytest

from cuda_on_cpu.processes import Connection
from nnclassroom.judge import worker
from nncourse.errors import CourseError


def test_the_result_comes_back_from_another_process_that_stays():
    first = worker.call(os.getpid, seconds=5)
    assert first != os.getpid()
    assert worker.call(os.getpid, seconds=5) == first


def test_what_is_printed_is_printed_here_and_shortened(capsys):
    worker.call(print, "hello", seconds=5)
    assert capsys.readouterr().out == "hello\n"
    worker.call(print, "x" * 5000, seconds=5)
    out = capsys.readouterr().out
    assert out.startswith("x" * worker.LONGEST_PRINT + "\n… and 3001 more")
    worker.call(os.system, "echo from below", seconds=5)  # past Python's own stdout, as CUDA's printf writes
    assert capsys.readouterr().out == "from below\n"


def test_exceptions_come_back_and_the_worker_stays():
    before = worker.call(os.getpid, seconds=5)
    with pytest.raises(ValueError, match="invalid literal"):
        worker.call(int, "three", seconds=5)
    assert worker.call(os.getpid, seconds=5) == before


def test_what_never_ends_is_ended():
    before = worker.call(os.getpid, seconds=5)
    start = time.perf_counter()
    with pytest.raises(worker.WorkerError, match="did not end within 0.5 s"):
        worker.call(time.sleep, 60, seconds=0.5)
    assert time.perf_counter() - start < 10
    assert worker.call(os.getpid, seconds=5) != before
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


def test_a_crash_is_one_line(capfd):
    with pytest.raises(CourseError, match=r"ended its process \(status -6\)") as caught:
        worker.call(os.abort, seconds=5)
    assert "\n" not in str(caught.value)
    assert worker.call(len, "abc", seconds=5) == 3


def test_there_is_nothing_to_read_for_input():
    with pytest.raises(EOFError):
        worker.call(input, seconds=5)
    assert worker.call(len, "abc", seconds=5) == 3


def test_an_interrupt_ends_the_work(monkeypatch):
    before = worker.call(os.getpid, seconds=5)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Connection, "poll", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.call(time.sleep, 60, seconds=60)
    monkeypatch.undo()
    assert worker.call(os.getpid, seconds=5) != before


def test_end_is_harmless_at_any_time():
    worker.end()
    worker.end()
    assert worker.call(len, "ab", seconds=5) == 2
