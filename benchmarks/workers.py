"""Processes that stay. Each prepares its work and then waits until it is asked, so that measurements can take turns.

No two contenders share a process: their thread pools, allocators and settings would get in each other's way.
"""

import contextlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A process that computes on the CPU has one thread. It is started with these variables, and its libraries read them.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class WrongResultError(Exception):
    """A contender does not compute what the others compute: no time of it may be published."""


class FailedError(Exception):
    """A process could not do what it was asked; one line on why."""


@dataclass(frozen=True)
class Worker:
    process: Any
    connection: Any
    log: Path  # what it printed: a library's last words


def start(work: Callable, *arguments) -> Worker:
    """A process that answers each request with work(*arguments, request). `work` is a function of a module."""
    context = multiprocessing.get_context("spawn")  # nothing of this process goes along, and certainly no CUDA
    ours, theirs = context.Pipe()
    handle, log = tempfile.mkstemp(prefix="nncourse-benchmark-")
    os.close(handle)
    before = dict(os.environ)
    os.environ.update(ONE_THREAD)
    try:
        process = context.Process(target=_serve, args=(theirs, log, work, arguments))
        process.start()
    finally:
        os.environ.clear()
        os.environ.update(before)
    theirs.close()
    return Worker(process, ours, Path(log))


def send(worker: Worker, request) -> None:
    """Ask, without waiting for the answer. A process that has ended says so when the answer is fetched."""
    with contextlib.suppress(OSError):
        worker.connection.send(request)


def receive(worker: Worker, limit: float):
    """The answer to the oldest request. FailedError if there is none within `limit` seconds: then the process ends."""
    try:
        if not worker.connection.poll(limit):
            worker.process.kill()
            raise FailedError(f"no answer within {limit:.0f} s")
        kind, answer = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join(5)
        words = worker.log.read_text(errors="replace").strip().splitlines() if worker.log.exists() else []
        raise FailedError(f"ended with status {worker.process.exitcode}: {words[-1] if words else ''}") from None
    if kind == "wrong":
        raise WrongResultError(answer)
    if kind == "failed":
        raise FailedError(answer)
    return answer


def ask(worker: Worker, request, limit: float):
    """Send and receive."""
    send(worker, request)
    return receive(worker, limit)


def end(worker: Worker) -> None:
    """Close the connection, on which the process ends; after some seconds it is made to."""
    worker.connection.close()
    worker.process.join(5)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join(5)
    worker.log.unlink(missing_ok=True)


def asked_once(work: Callable, request, limit: float):
    """The answer of a process that is there for one request."""
    worker = start(work)
    try:
        return ask(worker, request, limit)
    finally:
        end(worker)


def _serve(connection, log: str, work: Callable, arguments: tuple) -> None:
    """In the process: answer until nobody asks any more. What libraries print goes to the log."""
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(handle, descriptor)
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = "right", work(*arguments, request)
        except WrongResultError as error:
            answer = "wrong", str(error)
        except Exception as error:  # whatever a library raises: the contender is left out, and this is why
            answer = "failed", _one_line(error)
        try:
            connection.send(answer)
        except OSError:
            return


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def since(begin: float) -> str:
    """The seconds since time.perf_counter() gave `begin`, for what is printed on the way."""
    return f"{time.perf_counter() - begin:5.0f} s"
