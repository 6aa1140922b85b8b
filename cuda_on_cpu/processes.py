"""A persistent child process that answers requests through pipes.

A crash or hang in the child cannot affect this process. Used by worker.py and cuda_on_cpu/emulate.py.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import BinaryIO


class Child:
    """A running child process. It is killed when this object is garbage-collected or Python exits.

    It leads a process group of its own, which ends with it: also what it has started itself.
    """

    def __init__(self, command: list, **options):
        self.lock = threading.Lock()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the child)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen(command, bufsize=1 << 20, start_new_session=True, **pipes, **options)
        weakref.finalize(self, _end, self.process, self.errors, os.getpid())

    def stderr(self) -> str:
        """What the child has written to stderr. It must not be writing: see written_to()."""
        return written_to(self.errors.fileno())

    def end(self) -> None:
        """Kill the child's process group and wait until the child has ended, so that it writes no more."""
        kill_group(self.process)


def written_to(descriptor: int, most: int = sys.maxsize) -> str:
    """The first `most` bytes of a file. Its writer shares the file position, so it must not be writing meanwhile."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    text = os.read(descriptor, min(os.fstat(descriptor).st_size, most)).decode(errors="replace")
    os.lseek(descriptor, 0, os.SEEK_END)
    return text


def empty(descriptor: int) -> None:
    """Truncate a file and move its position, which its writer shares, to the start."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, 0)


@contextlib.contextmanager
def conversation(kept: Callable[..., Child], *key) -> Iterator[Child]:
    """Lock and yield the child that the cached function `kept` starts for (*key, pid).

    `pid` is this process: after a fork, parent and child must not use the same child process. Any exception, including
    KeyboardInterrupt, may leave a request half answered: the child is then killed, and the next call starts a new one.
    """
    child = kept(*key, os.getpid())
    with child.lock:
        try:
            yield child
        except BaseException:
            child.end()
            kept.cache_clear()
            raise


def kill_group(process: subprocess.Popen) -> None:
    """Kill the process and all of its group."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the whole group has ended
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _end(process: subprocess.Popen, errors: BinaryIO, owner: int) -> None:
    """Finalizer of Child. It also runs in forked processes, which must not kill the child: only its `owner` does."""
    if os.getpid() == owner and process.returncode is None:  # else the number may belong to another process by now
        kill_group(process)
    for pipe in (process.stdin, process.stdout, errors):
        with contextlib.suppress(OSError):  # closing flushes: fails if the child ended before it read a request
            pipe.close()
