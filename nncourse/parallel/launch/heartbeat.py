"""Signs of life of one process, in memory that it shares with its guard (guard.py).

The process that trains writes what it is doing: starting, working on a number of rows, or waiting for others. Its guard
reads this and decides whether it is slow or hangs. The time that rows may take follows from that of earlier rows.
"""

import mmap
import os
import tempfile
import time
from typing import BinaryIO

STARTING, WORKING, WAITING = range(3)
SLOWER = 5  # a process that takes up to this many times the slowest rows so far is slow, not hung
TEXT = 64  # where the last words begin; the numbers precede them
SIZE = 8192
VARIABLE = "NNCOURSE_MEMBER"  # in the environment: the file of the memory, for the process that is guarded


def nameless_file() -> BinaryIO:
    """A file without a name; on Linux it is in memory, safe from a full disk."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("nncourse"), "w+b")
    return tempfile.TemporaryFile()


def memory() -> BinaryIO:
    """A file of zeros for a Heartbeat. A child process may inherit it."""
    file = nameless_file()
    file.write(bytes(SIZE))  # not truncate(): with a full disk, writing to mapped memory would end both processes
    file.flush()
    os.set_inheritable(file.fileno(), True)
    return file


class Heartbeat:
    """Both ends of the memory: the process that trains writes, its guard reads."""

    def __init__(self, descriptor: int):
        self._bytes = mmap.mmap(descriptor, SIZE)
        whole = memoryview(self._bytes)
        self._counts, self._seconds = whole[:16].cast("q"), whole[16:24].cast("d")
        self._started, self._rows, self._per_row, self._before = 0.0, 0, 0.0, STARTING

    # ---- for the process

    def works(self, rows: int) -> None:
        """It computes this many rows next, then gives a sign again."""
        now = time.perf_counter()
        self._learn(now)
        self._started, self._rows = now, rows
        self._seconds[0] = SLOWER * rows * self._per_row
        self._say(WORKING)

    def waits(self) -> None:
        """It waits for other processes."""
        self._learn(time.perf_counter())
        self._rows, self._before = 0, self.state
        self._say(WAITING)

    def goes_on(self) -> None:
        """The wait is over: it continues what it did before."""
        self._say(self._before)

    def rests(self) -> None:
        """It reads files, compiles or writes, for an unpredictable time."""
        self._rows = 0
        self._say(STARTING)

    def last_words(self, text: str, status: int) -> None:
        """Why it ends with this status, for its guard to report; "" for nothing."""
        words = f"{status} {text}".encode()[: SIZE - TEXT - 1]
        self._bytes[TEXT : TEXT + len(words) + 1] = words + b"\0"

    def _learn(self, now: float) -> None:
        if self._rows:
            self._per_row = max(self._per_row, (now - self._started) / self._rows)

    def _say(self, state: int) -> None:
        self._counts[1] = state
        self._counts[0] += 1

    # ---- for its guard

    @property
    def beats(self) -> int:
        """The number of signs so far."""
        return self._counts[0]

    @property
    def state(self) -> int:
        return self._counts[1]

    @property
    def foreseen(self) -> float:
        """The seconds after which the current rows take far longer than any before."""
        return self._seconds[0]

    def read_last_words(self) -> tuple[int, str] | None:
        """The status and the text; None if there are none."""
        words = self._bytes[TEXT:].partition(b"\0")[0].decode(errors="replace")
        status, _, text = words.partition(" ")
        return (int(status), text) if status else None


def mine() -> Heartbeat | None:
    """The heartbeat of this process if a guard started it. Its own children are not guarded."""
    descriptor = os.environ.pop(VARIABLE, "")
    if not descriptor:
        return None
    heart = Heartbeat(int(descriptor))
    os.close(int(descriptor))
    return heart
