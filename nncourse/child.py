"""A program that stays beside Python, so that one question after the other can be put to it, through pipes.

What goes wrong in it harms nobody here: see worker.py and cuda/emulate.py.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import BinaryIO


class Child:
    """A running program. It is ended when nobody keeps this object any more, or Python ends."""

    def __init__(self, command: list, **options):
        self.lock = threading.Lock()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the child)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen(command, bufsize=1 << 20, **pipes, **options)
        weakref.finalize(self, _end, self.process, self.errors, os.getpid())

    def stderr(self) -> str:
        """What it wrote there, if it is at rest."""
        return written_to(self.errors.fileno())

    def end(self) -> None:
        """From now on it is at rest."""
        self.process.kill()
        self.process.wait()


def written_to(descriptor: int, most: int = sys.maxsize) -> str:
    """What is in a file, `most` bytes of it. Its writer, who shares the position, must be at rest."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    text = os.read(descriptor, min(os.fstat(descriptor).st_size, most)).decode(errors="replace")
    os.lseek(descriptor, 0, os.SEEK_END)
    return text


def empty(descriptor: int) -> None:
    """Leave nothing in a file, and let its writer begin at its start."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, 0)


@contextlib.contextmanager
def conversation(kept: Callable[..., Child], *key) -> Iterator[Child]:
    """The child that the cached function `kept` starts for (*key, pid); meanwhile no other thread talks with it.

    `pid` is this process: after a fork both sides must not talk with the same child. Whatever breaks off the
    conversation, a Ctrl-C too, leaves the child in the middle of something: it is killed, and the next one starts anew.
    """
    child = kept(*key, os.getpid())
    with child.lock:
        try:
            yield child
        except BaseException:
            child.end()
            kept.cache_clear()
            raise


def _end(process: subprocess.Popen, errors: BinaryIO, owner: int) -> None:
    """Called when a Child is dropped, or Python ends: also in a forked process, which must leave the program alone."""
    if os.getpid() == owner:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, errors):
        with contextlib.suppress(OSError):  # a request that the child did not live to read
            pipe.close()
