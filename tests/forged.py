"""The forgeries and attacks of tests/answers, what they aim at outside of their process, and what they plant.

The aims: a file, {tmp}/precious; sockets; shared memory; a variable of the environment. Nobody may reach them.
"""

import contextlib
import ctypes
import functools
import os
import socket
import sys
import time
import tomllib
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import psutil

FILES = [Path(__file__).parent / "answers" / f"{name}.toml" for name in ("forgeries", "attacks")]


def _forgeries(file: Path) -> Iterator[dict]:
    for kind, named in tomllib.loads(file.read_text("utf-8")).items():
        for name, fields in named.items():
            operation, kernel = fields.get("exercise", fields.get("line", "")).split()[:2]
            yield {"name": name, "kind": kind, "operation": operation, "kernel": kernel, "file": file.stem} | fields


FORGERIES = [forgery for file in FILES for forgery in _forgeries(file)]
PRECIOUS, IPC_CREATE, IPC_REMOVE, PR_SET_CHILD_SUBREAPER = "precious", 0o1600, 0, 36
os.environ["SECRET_OF_THE_SESSION"] = "a-password-of-the-session"  # for all processes that tests start from now on


class Outside:
    """Sockets and memory on this machine, which are named by the port of one of them."""

    def __init__(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.sockets = [listening]
        if sys.platform == "linux":
            abstract, letters = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            abstract.bind(f"\0nncourse-{self.port}")
            abstract.listen()
            letters.bind(f"\0nncourse-{self.port}-letters")
            self.sockets += [abstract, letters]
            self._share()
        for each in self.sockets:
            each.setblocking(False)

    def _share(self) -> None:
        """Memory and a queue that others may open."""
        self.shared = SharedMemory(f"nncourse-{self.port}", create=True, size=4096)
        weakref.finalize(self, self.shared.unlink)
        library = ctypes.CDLL(None)
        segment, queue = library.shmget(self.port, 4096, IPC_CREATE), library.msgget(self.port, IPC_CREATE)
        weakref.finalize(self, library.shmctl, segment, IPC_REMOVE, None)
        weakref.finalize(self, library.msgctl, queue, IPC_REMOVE, None)

    def reached(self) -> bool:
        """Whether something came to a socket since the last call."""
        return sum(map(_came_to, self.sockets)) > 0


def _came_to(own: socket.socket) -> bool:
    came = False
    with contextlib.suppress(BlockingIOError):
        while True:
            own.recv(9) if own.type == socket.SOCK_DGRAM else own.accept()[0].close()
            came = True
    return came


@functools.cache
def outside() -> Outside:
    return Outside()


def make_precious(folder: Path) -> None:
    (folder / PRECIOUS).write_text(PRECIOUS)
    (folder / PRECIOUS).chmod(0o640)


def assert_nothing_was_reached(folder: Path) -> None:
    """The file that make_precious() made is as it was, and nothing came to the sockets."""
    file = folder / PRECIOUS
    assert file.read_text() == PRECIOUS and file.stat().st_mode & 0o777 == 0o640
    assert not (os.listxattr(file) if hasattr(os, "listxattr") else ())
    assert not outside().reached()


@contextlib.contextmanager
def nothing_stays(seconds: float = 10.0) -> Iterator[None]:
    """No process that is started within goes on after it. Orphans become children of this process, and are seen."""
    outside()  # which may start one
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    before = _running()
    try:
        yield
        deadline = time.monotonic() + seconds
        while (left := _running() - before) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left
    finally:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)


def _running() -> set[psutil.Process]:
    """All descendants of this process that have not ended."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found.add(child)
    return found


def plant(path: Path, thing: dict, filled: Callable[[str], str]) -> None:
    """One planted file, as the head of forgeries.toml describes it; filled(text) has no places left open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if "link" in thing:
        path.symlink_to(filled(thing["link"]))
    elif "fifo" in thing:
        os.mkfifo(path)
    elif "folder" in thing:
        path.mkdir()
    elif "size" in thing:
        with path.open("wb") as file:
            file.truncate(thing["size"])
    else:
        path.write_bytes(bytes.fromhex(thing["bytes"]) if "bytes" in thing else filled(thing["text"]).encode())
