"""A child: a process that works for this one, and whose crash or endless loop cannot affect this one.

- Group: a child leads a process group of its own, which is killed with it, including all that it has started.
- Messages: bytes, sent through `connection` (multiprocessing.connection), which is the child's standard input and
  output. Messages of a process that runs a text to be judged are never unpickled: use recv_bytes() and JSON.
- Time: connection.poll(seconds) waits for an answer. Within a message there is no pause of more than PAUSE.
- Crash: EOFError or ConnectionError instead of an answer; then call status() and stderr().
- End: end() kills it; so do garbage collection, the end of Python, and any exception in a conversation().

The emulator's programs, the worker, the process of an answer and its fork server are children. docs/architecture.md
lists the processes that are not, with reasons.
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, BinaryIO, Protocol

PAUSE, ENDING = 10, 60  # seconds


class Child:
    """A running child process; see above. `options` are those of subprocess.Popen."""

    def __init__(self, command: list[Any], **options: Any):
        self.lock = threading.Lock()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the child)
        self.connection, theirs = pipe()
        with theirs, open(_descriptor_of(theirs), "rb", 0) as end:
            usual: dict[str, Any] = {"stdin": end, "stdout": end, "stderr": self.errors, "start_new_session": True}
            self.process = subprocess.Popen(command, **(usual | options))
        weakref.finalize(self, _end, self.process, self.connection, self.errors, os.getpid())

    def stderr(self) -> str:
        """The child's stderr. The child must not be writing to it: see written_to()."""
        return written_to(self.errors.fileno())

    def status(self) -> int:
        """The exit status of a child that no longer answers. It has ENDING to write a report, and is then killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(ENDING)
        self.end()
        return self.process.returncode

    def end(self) -> None:
        """Kill the child's process group and wait until the child has ended, so that it writes no more."""
        kill_group(self.process)


def pipe() -> tuple[Connection, Connection]:
    """Both ends of a connection: for this process, and for a child.

    This one waits at most PAUSE within a message that it receives, and ENDING for a child that does not read its own.
    """
    here, there = Pipe()
    if os.name == "posix":
        with socket.socket(fileno=os.dup(here.fileno())) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PAUSE, 0))
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", ENDING, 0))
    return here, there


def to_parent() -> Connection:
    """In a child that is Python: the connection to its parent. Standard input is then empty, output goes to stderr."""
    own = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt
        from multiprocessing.connection import PipeConnection

        return PipeConnection(msvcrt.get_osfhandle(own))
    return Connection(own)


def _descriptor_of(end: Connection) -> int:
    """A new descriptor of a connection's end."""
    if sys.platform == "win32":
        import msvcrt
        from multiprocessing.reduction import duplicate

        return msvcrt.open_osfhandle(duplicate(end.fileno()), 0)
    return os.dup(end.fileno())


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


class Kept(Protocol):
    """A cached function that starts a child."""

    def __call__(self, *key: Any) -> Child: ...

    def cache_clear(self) -> None: ...


@contextlib.contextmanager
def conversation(kept: Kept, *key: Any) -> Iterator[Child]:
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


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill the process and all of its group."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the whole group has ended
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _end(process: subprocess.Popen[Any], connection: Connection, errors: BinaryIO, owner: int) -> None:
    """Finalizer of Child. It also runs in forked processes, which must not kill the child: only its `owner` does."""
    if os.getpid() == owner and process.returncode is None:  # else the number may belong to another process by now
        kill_group(process)
    connection.close()
    errors.close()
