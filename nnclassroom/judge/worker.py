"""Call functions in a child process with a time limit: a crash or hang cannot affect the caller.

The process starts at the first call and persists, so that later calls reuse what it has imported and compiled.
After a crash, a time-out or an interrupt it is killed, and the next call starts a new one.
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

from cuda_on_cpu.processes import Child, conversation, empty, written_to
from nncourse.errors import CourseError

LONGEST_PRINT = 2000  # of the work's printed output, at most this many characters are shown


class WorkerError(CourseError):
    """The process ended before the work was done: it crashed, or reached the time limit.

    `kind` is "crash" or "time limit", and `facts` are the numbers in the message.
    """

    def __init__(self, message: str, kind: str, **facts):
        super().__init__(message)
        self.kind, self.facts = kind, facts


def call(function: Callable, *arguments, seconds: float):
    """Return function(*arguments), computed in the worker process; its output is printed here, shortened.

    The function is pickled by module and name; arguments and result are pickled by value. An exception that it raises
    is raised here. Raises WorkerError if it does not end within `seconds`, or if the process crashes.
    """
    with conversation(_worker) as child:
        _ask(child, callable, (function,), 60)  # starts Python and imports the function, outside the time limit
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
    """The worker of this process, whose id is `pid`."""
    command = [sys.executable, "-m", "nnclassroom.judge.worker"]
    return Child(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def _ask(child: Child, function: Callable, arguments: tuple, seconds: float) -> tuple:
    """The worker's answer: the result, the exception if one was raised, and the printed text."""
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
            said = f"did not end within {seconds:g} s: look for an endless loop"
            raise WorkerError(said, "time limit", seconds=seconds) from None
        reason = (child.stderr().strip().splitlines() or ["it left no report"])[-1]
        raise WorkerError(f"ended its process (status {status}): {reason}", "crash", status=status) from None
    finally:
        timer.cancel()


def _serve() -> None:
    """The worker process: answer requests until stdin closes. Printed output goes to a file, answers go to stdout."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    with tempfile.TemporaryFile() as printed, open(os.devnull) as nothing:
        sys.stdin = nothing  # so that input() in a student's function does not read the requests
        os.dup2(printed.fileno(), 1)  # the file descriptor, so that the output of CUDA's printf is caught too
        while True:
            try:
                function, arguments, seconds = pickle.load(requests)
            except EOFError:
                return
            # A parent that was killed cannot end an endless loop, so this process ends itself.
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
    """The pickled answer; if result or exception cannot be pickled, a CourseError with the message instead."""
    try:
        return pickle.dumps((result, error, text))
    except Exception:
        return pickle.dumps((None, CourseError(f"{type(error).__name__}: {error}"), text))


if __name__ == "__main__":
    _serve()
