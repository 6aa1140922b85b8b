"""What the operating system refuses a confined process. Each call works in a forked process that is not confined."""

import faulthandler
import os
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from nnclassroom.judge import limits
from nnclassroom.judge.answer_process import confinement

pytestmark = pytest.mark.skipif(bool(confinement.why_not()), reason=confinement.why_not())

SERVER, MAILBOX = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
SERVER.bind(f"\0nncourse-{os.getpid()}-server")
SERVER.listen()
MAILBOX.bind(f"\0nncourse-{os.getpid()}-mailbox")

REFUSED = {
    "fork": lambda file, process: os.fork() or os._exit(0),
    "program": lambda file, process: subprocess.run(["true"], check=True),
    "exec": lambda file, process: os.execv("/bin/true", ["true"]),
    "socket": lambda file, process: socket.socket(),
    "connection": lambda file, process: socket.socket(socket.AF_UNIX).connect(SERVER.getsockname()),
    "message": lambda file, process: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(
        b"", MAILBOX.getsockname()
    ),
    "socket pair": lambda file, process: socket.socketpair(),
    "signal": lambda file, process: os.kill(process, signal.SIGCONT),
    "signal by a descriptor": lambda file, process: signal.pidfd_send_signal(os.pidfd_open(process), signal.SIGCONT),
    "memory": lambda file, process: os.open(f"/proc/{process}/mem", os.O_RDONLY),
    "priority": lambda file, process: os.setpriority(os.PRIO_PROCESS, process, 19),
    "read": lambda file, process: file.read_text(),
    "write": lambda file, process: file.write_text("no"),
    "empty": lambda file, process: os.truncate(file, 0),
    "empty by opening": lambda file, process: os.open(file, os.O_RDONLY | os.O_TRUNC),
    "remove": lambda file, process: file.unlink(),
    "rename": lambda file, process: file.rename(file.with_name("other")),
    "make": lambda file, process: file.with_name("new").touch(),
    "make a folder": lambda file, process: file.with_name("new").mkdir(),
    "link": lambda file, process: file.with_name("new").symlink_to(file),
    "mode": lambda file, process: file.chmod(0o600),
    "times": lambda file, process: os.utime(file),
    "attribute": lambda file, process: os.setxattr(file, "user.a", b"1"),
}
LEFT = {
    "a thread": lambda: (thread := threading.Thread(target=len, args=("",))).start() or thread.join(),
    "a product": lambda: np.ones((300, 300)) @ np.ones((300, 300)),
    "Python's modules": lambda: __import__("wave"),
    "its own limits": lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_CORE, (0, 0)),
    "nothing to write to": lambda: os.write(os.open(os.devnull, os.O_WRONLY), b"gone"),
}


def in_a_fork(call, confined: bool) -> int:
    """The status of a forked process that makes the call: 0 if it works, 3 if it is refused, 4 for anything else."""
    pid = os.fork()
    if pid == 0:
        status = 4
        try:
            if confined:
                confinement.confine(confinement.ruleset(limits.visible([]), ["/dev/null"]))
            call()
            status = 0
        except PermissionError:
            status = 3
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def another():
    """The number of another process of this user."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.stdin.close()


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name, another, tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    assert in_a_fork(lambda: REFUSED[name](file, another), True) == 3
    assert file.read_text() == "kept" and os.listdir(tmp_path) == ["file"]
    assert in_a_fork(lambda: REFUSED[name](file, another), False) == 0, "the call itself is wrong"


@pytest.mark.parametrize("name", LEFT)
def test_it_still_works(name):
    assert in_a_fork(LEFT[name], True) == 0


def test_a_process_can_end_itself():
    assert in_a_fork(lambda: [faulthandler.disable(), os.abort()], True) == -signal.SIGABRT


def test_only_what_is_writable_is_written(tmp_path):
    (tmp_path / "in").mkdir()

    def write():
        (tmp_path / "in" / "file").write_text("here")
        (tmp_path / "file").write_text("there")

    pid = os.fork()
    if pid == 0:
        try:
            confinement.confine(confinement.ruleset(limits.visible([]), [str(tmp_path / "in")]))
            write()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert (tmp_path / "in" / "file").exists() and not (tmp_path / "file").exists()


def test_what_is_hidden_is_left_out_of_the_folder_around_it(tmp_path):
    for name in ("site-packages/numpy", "site-packages/nncourse"):
        (tmp_path / name).mkdir(parents=True)
    found = list(limits._without(tmp_path, [tmp_path / "site-packages" / "nncourse"]))
    assert found == [tmp_path / "site-packages" / "numpy"]
