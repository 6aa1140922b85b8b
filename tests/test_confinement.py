"""What the operating system refuses a confined process. Each call works in a forked process that is not confined."""

import ctypes
import errno
import faulthandler
import fcntl
import mmap
import os
import signal
import socket
import struct
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

C = ctypes.CDLL(None, use_errno=True)
FIOSETOWN, PR_SET_PDEATHSIG, AT_FDCWD, PRIO_USER = 0x8901, 1, -100, 2
FCHMODAT2, IO_URING_SETUP = 452, 425  # newer than the names that older versions of libseccomp know


def called(name, *arguments):
    """A function of the C library, or a system call by its number. Raises OSError."""
    call = getattr(C, name) if isinstance(name, str) else lambda *rest: C.syscall(name, *rest)
    if (result := call(*arguments)) < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


REFUSED = {
    "fork": lambda file, process: os.fork() or os._exit(0),
    "program": lambda file, process: subprocess.run(["true"], check=True),
    "exec": lambda file, process: os.execv("/bin/true", ["true"]),
    "socket": lambda file, process: socket.socket(),
    "connection": lambda file, process: socket.socket(socket.AF_UNIX).connect(SERVER.getsockname()),
    "message": lambda file, process: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(
        b"", MAILBOX.getsockname()
    ),
    "a socket of its own": lambda file, process: socket.socket(socket.AF_UNIX).bind(f"\0nncourse-{process}"),
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
    "signal by a descriptor's owner": lambda file, process: fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, process),
    "signal by a socket's owner": lambda file, process: fcntl.ioctl(
        socket.socket(socket.AF_UNIX), FIOSETOWN, struct.pack("i", process)
    ),
    "signal by an int with more bits": lambda file, process: called(
        confinement._libseccomp().seccomp_syscall_resolve_name(b"fcntl"),
        os.pipe()[0],
        ctypes.c_long(fcntl.F_SETOWN | 1 << 40),
        ctypes.c_long(process),
    ),
    "not ending with its parent": lambda file, process: called("prctl", PR_SET_PDEATHSIG, 0),
    "what happens to files": lambda file, process: called(
        "inotify_add_watch", called("inotify_init"), os.fsencode(file), 0xFFF
    ),
    "mode by a newer call": lambda file, process: called(FCHMODAT2, AT_FDCWD, os.fsencode(file), 0o600, 0),
    "a queue of system calls": lambda file, process: called(IO_URING_SETUP, 1, bytes(120)),
    "shared memory without a name": lambda file, process: mmap.mmap(-1, 4096),
    "memory as a file": lambda file, process: os.memfd_create("file"),
    "settings of the machine": lambda file, process: open("/etc/passwd").close(),
}
LEFT_FOR_CUDA = ("a socket of its own", "shared memory without a name", "memory as a file")
LEFT = {
    "a thread": lambda: (thread := threading.Thread(target=len, args=("",))).start() or thread.join(),
    "a product": lambda: np.ones((300, 300)) @ np.ones((300, 300)),
    "Python's modules": lambda: __import__("wave"),
    "its own limits": lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_CORE, (0, 0)),
    "nothing to write to": lambda: os.write(os.open(os.devnull, os.O_WRONLY), b"gone"),
    "its own priority": lambda: os.nice(1),
    "memory": lambda: mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
}


def in_a_fork(call, confined: bool, for_cuda: bool = False) -> int:
    """The status of a forked process that makes the call: 0 if it works, 3 if it is refused, 4 for anything else."""
    pid = os.fork()
    if pid == 0:
        status = 4
        try:
            if confined:
                confinement.confine(confinement.ruleset(limits.visible([]), ["/dev/null"]), for_cuda)
            call()
            status = 0
        except OSError as error:
            status = 3 if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS) else 4
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
    for_cuda = in_a_fork(lambda: REFUSED[name](file, another), True, for_cuda=True)
    assert for_cuda == (0 if name in LEFT_FOR_CUDA else 3)
    assert file.read_text() == "kept" and os.listdir(tmp_path) == ["file"]
    without = in_a_fork(lambda: REFUSED[name](file, another), False)
    if without == 3 and name in ("mode by a newer call", "a queue of system calls"):
        pytest.skip("this system lacks the call")
    assert without == 0, "the call itself is wrong"


def test_no_other_process_of_the_user_gets_another_priority():
    if os.geteuid():
        pytest.skip("only root can be a user without other processes")

    def change():
        os.setpriority(PRIO_USER, 0, 19)

    assert in_a_fork(lambda: [os.setresuid(54321, 54321, 54321), change()], False) == 0, "the call itself is wrong"
    assert in_a_fork(lambda: change() if confined_as(54321) else None, False) == 3


def confined_as(user: int) -> bool:
    os.setresuid(user, user, user)
    confinement.confine(confinement.ruleset(["/usr"]))
    return True


def test_root_keeps_no_capability_but_to_read():
    def look():
        sets = (ctypes.c_uint32 * 6)()
        called("capget", (ctypes.c_uint32 * 2)(confinement.CAPABILITIES_VERSION, 0), sets)
        assert not any(each & ~(1 << confinement.CAP_DAC_READ_SEARCH) for each in sets)

    assert in_a_fork(look, True) == 0


def test_a_thread_that_was_there_before_is_limited_too():
    def from_a_thread():
        begin, refused = threading.Event(), []

        def connect():
            begin.wait()
            try:
                socket.socket()
            except PermissionError:
                refused.append(True)

        thread = threading.Thread(target=connect)
        thread.start()
        confinement.confine(confinement.ruleset(limits.visible([])))
        begin.set()
        thread.join()
        assert refused

    assert in_a_fork(from_a_thread, False) == 0


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


def test_an_older_landlock_is_helped_by_seccomp(tmp_path, monkeypatch):
    """Version 2 does not see that a file is emptied."""
    monkeypatch.setattr(confinement, "_version", lambda: 2)
    file = tmp_path / "file"
    file.write_text("kept")
    assert in_a_fork(lambda: REFUSED["empty by opening"](file, 0), True) == 3 and file.read_text() == "kept"
    assert in_a_fork(lambda: open(os.__file__).close(), True) == 0
