"""Call functions in a child process with a time limit: a crash or hang cannot affect the caller.

The process starts at the first call and persists, so that later calls reuse what it has imported and compiled. After a
crash, a time-out or an interrupt it is killed, and the next call starts a new one. It runs no student's Python text
itself (answer.py does), so objects may be pickled in both directions.
"""

import faulthandler
import functools
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from cuda_on_cpu.processes import Child, conversation, empty, to_parent, written_to
from nncourse.errors import CourseError

LONGEST_PRINT = 2000  # most characters shown of the printed output


class WorkerError(CourseError):
    """The process ended before the work was done: it crashed, or reached the time limit.

    `kind` is "crash" or "time limit", and `facts` are the numbers in the message.
    """

    def __init__(self, message: str, kind: str, **facts: Any):
        super().__init__(message)
        self.kind, self.facts = kind, facts


class Worker:
    """A child that calls functions. It starts at the first call, and again after it has ended."""

    def __init__(self) -> None:
        self._child = functools.lru_cache(maxsize=1)(_started)

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float, quiet: bool = False) -> Any:
        """Return function(*arguments), computed in the child; its output is printed here, shortened, unless `quiet`.

        The function is pickled by module and name; arguments and result are pickled by value. An exception that it
        raises is raised here. Raises WorkerError if it does not end within `seconds`, or if the process crashes.
        """
        with conversation(self._child) as child:
            _ask(child, callable, (function,), 60)  # starts Python and imports the function, outside the time limit
            result, error, printed = _ask(child, function, arguments, seconds)
        if printed and not quiet:
            more = f"\n… and {len(printed) - LONGEST_PRINT} more characters\n" if len(printed) > LONGEST_PRINT else ""
            sys.stdout.write(printed[:LONGEST_PRINT] + more)
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        """End the child, if there is one; the next call starts another."""
        if self._child.cache_info().currsize:
            self._child(os.getpid()).end()
            self._child.cache_clear()


def _started(pid: int) -> Child:
    """A child of this process, whose id is `pid`."""
    command = [sys.executable, "-P", "-m", "nnclassroom.judge.worker"]  # -P: not from the folder that it is started in
    return Child(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def _ask(child: Child, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Any:
    """The worker's answer: the result, the exception if one was raised, and the printed text."""
    try:
        child.connection.send((function, arguments, seconds))
        if child.connection.poll(seconds):
            return child.connection.recv()
    except (EOFError, OSError):
        status = child.status()
        reason = (child.stderr().strip().splitlines() or ["it left no report"])[-1]
        raise WorkerError(f"ended its process (status {status}): {reason}", "crash", status=status) from None
    raise WorkerError(f"did not end within {seconds:g} s: look for an endless loop", "time limit", seconds=seconds)


_mine = Worker()
call, end = _mine.call, _mine.end  # of this process's own worker


def _serve() -> None:
    """The worker process: answer requests until there are no more. Printed output goes to a file."""
    connection = to_parent()
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)  # the file descriptor, to catch the output of CUDA's printf too
        while True:
            try:
                function, arguments, seconds = connection.recv()
            except EOFError:
                return
            # A parent that was killed cannot end an endless loop, so this process ends itself.
            faulthandler.dump_traceback_later(seconds + 10, exit=True)
            answer: tuple[Any, Exception | None]
            try:
                answer = function(*arguments), None
            except Exception as error:
                answer = None, error
            faulthandler.cancel_dump_traceback_later()
            sys.stdout.flush()
            text = written_to(1, most=10 * LONGEST_PRINT)
            empty(1)
            try:
                connection.send((*answer, text))
            except Exception as error:  # a result or exception that cannot be pickled
                connection.send((None, CourseError(f"{type(error).__name__}: {error}"), text))


if __name__ == "__main__":
    _serve()
