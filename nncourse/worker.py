"""Work in another process, with a time limit: what a kernel breaks there, or never ends, harms nobody here.

The process starts at the first call and stays, so that what it has imported and compiled serves the next call too.
After a crash, an endless loop or an interrupt it is gone, and the next call starts another one.
"""

import contextlib
import faulthandler
import functools
import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable

from nncourse.errors import CourseError

LONGEST_PRINT = 2000  # characters of what the work printed that are shown


class WorkerError(CourseError):
    """The process ended before the work did: it crashed, or its time was up."""


def call(function: Callable, *arguments, seconds: float):
    """function(*arguments), computed in the worker process; what it prints is printed here, shortened.

    The function is found by its module and name, arguments and result are copied. Exceptions come back as they are.
    Raises WorkerError if it does not end within `seconds`, or if the process ends.
    """
    worker = _worker(os.getpid())
    try:
        return worker.call(function, arguments, seconds)
    except BaseException as error:
        if not getattr(error, "came_back", False):  # the worker is gone, or in the middle of something
            end()
        raise


def end() -> None:
    """End the worker process; the next call starts another one."""
    _worker(os.getpid()).process.kill()
    _worker.cache_clear()


class _Worker:
    def __init__(self):
        self.lock = threading.Lock()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the worker)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        command = [sys.executable, "-m", "nncourse.worker"]
        self.process = subprocess.Popen(command, **pipes, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
        weakref.finalize(self, _close, self.process, os.getpid())

    def call(self, function: Callable, arguments: tuple, seconds: float):
        with self.lock:
            self._ask(_import, (function.__module__,), 60)  # Python's start and imports do not count
            return self._ask(function, arguments, seconds)

    def _ask(self, function: Callable, arguments: tuple, seconds: float):
        out_of_time = threading.Event()

        def stop() -> None:
            out_of_time.set()
            self.process.kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            pickle.dump((function, arguments, seconds), self.process.stdin)
            self.process.stdin.flush()
            result, error, printed = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            status = self.process.wait()
            if out_of_time.is_set():
                raise WorkerError(f"did not end within {seconds:g} s: look for an endless loop") from None
            reason = (self._errors().strip().splitlines() or ["it left no report"])[-1]
            raise WorkerError(f"ended its process (status {status}): {reason}") from None
        finally:
            timer.cancel()
        if printed:
            more = f"\n… and {len(printed) - LONGEST_PRINT} more characters\n" if len(printed) > LONGEST_PRINT else ""
            sys.stdout.write(printed[:LONGEST_PRINT] + more)
        if error is not None:
            error.came_back = True
            raise error
        return result

    def _errors(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")


@functools.lru_cache(maxsize=1)
def _worker(pid: int) -> _Worker:
    """The worker of the process `pid`, this one: after a fork, both sides must not talk with the same worker."""
    return _Worker()


def _close(process: subprocess.Popen, owner: int) -> None:
    """Called when a _Worker is dropped, or Python ends."""
    if os.getpid() == owner:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


def _import(module: str) -> None:
    importlib.import_module(module)


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
            result, error = None, None
            try:
                result = function(*arguments)
            except Exception as raised:
                error = raised
            faulthandler.cancel_dump_traceback_later()
            sys.stdout.flush()
            size = os.lseek(1, 0, os.SEEK_END)
            text = os.pread(1, min(size, 10 * LONGEST_PRINT), 0).decode(errors="replace")
            os.ftruncate(1, 0)
            os.lseek(1, 0, os.SEEK_SET)
            answers.write(_pickled(result, error, text))
            answers.flush()


def _pickled(result, error: Exception | None, text: str) -> bytes:
    """The answer; an exception that cannot be copied comes back as its words."""
    try:
        return pickle.dumps((result, error, text))
    except Exception:
        return pickle.dumps((None, CourseError(f"{type(error).__name__}: {error}"), text))


if __name__ == "__main__":
    _serve()
