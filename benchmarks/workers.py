"""Persistent processes that prepare their work and then wait for requests, so that measurements can take turns.

Each contender has its own process, because thread pools, allocators and settings would interfere.
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

# Environment variables of the processes: libraries that compute on the CPU use one thread.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class WrongResultError(Exception):
    """A contender computes a wrong result: its times must not be published."""


class FailedError(Exception):
    """A process could not answer a request; the message gives the reason in one line."""


@dataclass(frozen=True)
class Worker:
    process: Any
    connection: Any
    log: Path  # its output, for example the last message of a library that crashed


def start(work: Callable, *arguments, environment: dict[str, str] = ONE_THREAD) -> Worker:
    """Start a process that answers each request with work(*arguments, request). `work` is a module-level function."""
    context = multiprocessing.get_context("spawn")  # inherits no state of this process, such as a CUDA context
    ours, theirs = context.Pipe()
    handle, log = tempfile.mkstemp(prefix="nncourse-benchmark-")
    os.close(handle)
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        process = context.Process(target=_serve, args=(theirs, log, work, arguments))
        process.start()
    finally:
        os.environ.clear()
        os.environ.update(before)
    theirs.close()
    return Worker(process, ours, Path(log))


def send(worker: Worker, request) -> None:
    """Send a request without waiting for the answer. If the process has ended, receive() reports it."""
    with contextlib.suppress(OSError):
        worker.connection.send(request)


def receive(worker: Worker, limit: float):
    """The answer to the oldest request. Raises FailedError, and kills the process, if none arrives in `limit` seconds.

    Also raises FailedError if the process has ended or its work failed, and WrongResultError if a result was wrong.
    """
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
    """Send a request and return the answer."""
    send(worker, request)
    return receive(worker, limit)


def end(worker: Worker) -> None:
    """Close the connection, whereupon the process ends; kill it if it does not end within 5 seconds."""
    worker.connection.close()
    worker.process.join(5)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join(5)
    worker.log.unlink(missing_ok=True)


def asked_once(work: Callable, request, limit: float):
    """The answer of a process that is started for this request only."""
    worker = start(work)
    try:
        return ask(worker, request, limit)
    finally:
        end(worker)


def _serve(connection, log: str, work: Callable, arguments: tuple) -> None:
    """The worker process: answer requests until the connection closes. All output goes to the log."""
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
        except Exception as error:  # libraries may raise anything; the contender is left out with this reason
            answer = "failed", _one_line(error)
        try:
            connection.send(answer)
        except OSError:
            return


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def since(begin: float) -> str:
    """The seconds since time.perf_counter() returned `begin`, for progress messages."""
    return f"{time.perf_counter() - begin:5.0f} s"
