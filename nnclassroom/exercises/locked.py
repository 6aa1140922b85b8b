"""One process at a time: with locked(folder) the others wait, and none waits for a process that has ended.

The system lets go of a lock when its process ends, however it ends. So no lock can be left behind: a killed process
leaves at most an empty file, which the next one uses and removes.
"""

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = ".lock"
PATIENCE = 30.0  # seconds to wait; work under a lock takes milliseconds
PAUSE = 0.01  # seconds between two tries
HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what systems say of a lock that another process has


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Run the body while no other process runs one for this folder, which is made if it is not there.

    The body runs without a lock in a folder that cannot be written, on a file system without locks, and where another
    process has held the lock for PATIENCE seconds: then that one hangs.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # so that others cannot copy from it
    path = folder / LOCK
    file = _held(path)
    try:
        yield
    finally:
        if file:
            with contextlib.suppress(OSError):
                path.unlink()  # first: whoever waits for this file then sees that it is gone
            file.close()


def _held(path: Path) -> FileIO | None:
    """The file with its lock, or None where there is none to be had."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o600), "r+")
        except OSError:
            return None
        try:
            _lock(file)
            if _is_there(file, path):
                return file
        except OSError as error:
            if error.errno not in (*HELD, errno.ESTALE):
                file.close()
                return None
        file.close()
        time.sleep(PAUSE)
    return None


def _lock(file: FileIO) -> None:
    """Take the file's lock; OSError at once if another process has it."""
    if sys.platform == "win32":
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # on NFS, Linux makes it a lock for all hosts


def _is_there(file: FileIO, path: Path) -> bool:
    """Whether the path is still this file's: the process that had the lock before may have removed it."""
    here = os.fstat(file.fileno())
    try:
        return here.st_nlink > 0 and os.path.samestat(here, os.stat(path))
    except FileNotFoundError:
        return False
