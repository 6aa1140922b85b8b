"""Work in another process, with a time limit: what a kernel breaks there, or never ends, harms nobody here.

The process starts at the first call and stays, so that what it has imported and compiled serves the next call too.
After a crash, an endless loop or an interrupt it is gone, and the next call starts another one.
"""

import faulthandler
import functools
import os
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from nncourse.child import Child, conversation, empty, written_to
from nncourse.errors import CourseError

LONGEST_PRINT = 2000  # characters of what the work printed that are shown


class WorkerError(CourseError):
    """The process ended before the work did: it crashed, or its time was up."""


def call(function: Callable, *arguments, seconds: float):
    """function(*arguments), computed in the worker process; what it prints is printed here, shortened.

    The function is found by its module and name, arguments and result are copied, and its exceptions come back.
    Raises WorkerError if it does not end within `seconds`, or if the process ends.
    """
    with conversation(_worker) as child:
        _ask(child, callable, (function,), 60)  # it is imported there: that and Python's start do not count
        result, error, printed = _ask(child, function, arguments, seconds)
    if printed:
        more = f"\n… and {len(printed) - LONGEST_PRINT} more characters\n" if len(printed) > LONGEST_PRINT else ""
        sys.stdout.write(printed[:LONGEST_PRINT] + more)
    if error is not None:
        raise error
    return result


def end() -> None:
    """End the worker process; the next call starts another one."""
    _worker(os.getpid()).end()
    _worker.cache_clear()


@functools.lru_cache(maxsize=1)
def _worker(pid: int) -> Child:
    """The worker of the process `pid`, this one."""
    command = [sys.executable, "-m", "nncourse.worker"]
    return Child(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def _ask(child: Child, function: Callable, arguments: tuple, seconds: float) -> tuple:
    """The worker's answer: the result, the exception if one was raised, and what was printed."""
    deadline = time.monotonic() + seconds
    timer = threading.Timer(seconds, child.process.kill)
    timer.start()
    try:
        pickle.dump((function, arguments, seconds), child.process.stdin)
        child.process.stdin.flush()
        return pickle.load(child.process.stdout)
    except (EOFError, OSError, pickle.UnpicklingError):
        status = child.process.wait()
        if time.monotonic() >= deadline:
            raise WorkerError(f"did not end within {seconds:g} s: look for an endless loop") from None
        reason = (child.stderr().strip().splitlines() or ["it left no report"])[-1]
        raise WorkerError(f"ended its process (status {status}): {reason}") from None
    finally:
        timer.cancel()


def _serve() -> None:
    """The worker's side: answer until the other side is gone. What is printed goes to a file, answers to stdout."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    with tempfile.TemporaryFile() as printed, open(os.devnull) as nothing:
        sys.stdin = nothing  # the requests are not for input() in a student's function
        os.dup2(printed.fileno(), 1)  # the file descriptor, so that what CUDA's printf writes is caught too
        while True:
            try:
                function, arguments, seconds = pickle.load(requests)
            except EOFError:
                return
            # A loop that never ends must not outlive a parent that was killed and can no longer stop it.
            faulthandler.dump_traceback_later(seconds + 10, exit=True)
            try:
                answer = function(*arguments), None
            except Exception as error:
                answer = None, error
            faulthandler.cancel_dump_traceback_later()
            sys.stdout.flush()
            text = written_to(1, most=10 * LONGEST_PRINT)
            empty(1)
            answers.write(_pickled(*answer, text))
            answers.flush()


def _pickled(result, error: Exception | None, text: str) -> bytes:
    """The answer; an exception that cannot be copied comes back as its words."""
    try:
        return pickle.dumps((result, error, text))
    except Exception:
        return pickle.dumps((None, CourseError(f"{type(error).__name__}: {error}"), text))


if __name__ == "__main__":
    _serve()
