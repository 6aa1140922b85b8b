"""The guard of one process that trains with others: it starts the process, watches it, and ends with it.

`mpiexec` and `srun` start guards; each guard starts the process that computes, as its child. It sees whether this
process crashed, was killed or hangs, which a hung process itself cannot report. If the process fails, its guard prints
one line and ends with a status other than 0, and the launcher ends all other guards.

If several processes fail, only one line should appear. Guards that `nncourse --processes` started (start.py) report to
it, and it prints the line. Otherwise rank 0 prints first, and the others give the launcher time to end them.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection
from multiprocessing.reduction import recv_handle
from typing import BinaryIO

import psutil

from nncourse.parallel.launch import heartbeat
from nncourse.parallel.launch.heartbeat import Heartbeat
from nncourse.parallel.launch.world import LauncherEnvironment

LOOKS = 0.1  # seconds between two looks at the process
STOPPED = 3.0  # seconds after which a stopped process counts as hung
ENDED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit statuses
VARIABLE = "NNCOURSE_START"  # in the environment: the socket of the process that started all guards


def guard(program: Sequence[str], place: LauncherEnvironment, patience: float) -> int:
    """Run the program as a guarded child. Returns its exit status."""
    try:
        return _guard(program, place, patience)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # a signal while Python shuts down would change the status


def _guard(program: Sequence[str], place: LauncherEnvironment, patience: float) -> int:
    channel = Channel.to_start(place.rank)
    ended = noticed(signal.SIGTERM, signal.SIGHUP)
    interrupted = noticed(signal.SIGINT)  # Ctrl-C at an mpiexec that the user typed
    memory = heartbeat.memory()
    # Only rank 0 prints warnings, which are the same for all. If a different process does not start, its file says why.
    errors = None if place.rank == 0 else heartbeat.nameless_file()
    environment = os.environ | {heartbeat.VARIABLE: str(memory.fileno())}
    # All open files are inherited: one of them may lead to the launcher. Ctrl-C reaches the child only from here.
    process = subprocess.Popen(program, env=environment, stderr=errors, close_fds=False, process_group=0)
    heart = Heartbeat(memory.fileno())
    watch = Watch(heart, psutil.Process(process.pid), patience)
    problem, launcher = "", os.getppid()
    while process.poll() is None and not problem:
        if ended or (channel and channel.is_closed()):
            return _end(process, ENDED)
        if interrupted or (channel and channel.says_interrupt()):
            interrupted.clear()
            if place.rank == 0 and heart.beats:  # it saves the best parameters, without the others
                process.send_signal(signal.SIGINT)
            elif place.rank == 0:  # Python or MPI is still starting: a signal would print a traceback
                _end(process, 0)
                heart.last_words("interrupted, nothing is saved", INTERRUPTED)
        problem = watch.problem() if os.getppid() == launcher else "the launcher was killed"
        time.sleep(LOOKS)
    _end(process, 0)
    if process.returncode == -signal.SIGTERM:
        time.sleep(LOOKS)  # the sender may have sent it to both
        if ended:
            return ENDED
    status, text = (ENDED, problem) if problem else _how_it_ended(process, heart, errors)
    if status == 0:
        return 0
    told_together = channel is not None and channel.report(status, text)
    if text and not told_together:
        time.sleep(0 if problem or process.returncode < 0 else min(place.rank, 4))  # lets the launcher end this first
        if ended:
            return ENDED
        print(f"nncourse: {named(place.rank, status, text)}", file=sys.stderr, flush=True)
        _end_step(os.environ)
    return status


def named(rank: int, status: int, text: str) -> str:
    """A rank's line."""
    return text if status == INTERRUPTED else f"rank {rank}: {text}"


class Watch:
    """Looks at a process repeatedly, and distinguishes hung processes from slow ones.

    A process that gives signs of life, or waits for others, is well. One that works without a sign for longer than its
    rows can take has hung; sooner if it uses no processor time, and in any state if it was stopped. A long gap between
    two looks counts little, because then the guard itself was stopped.
    """

    def __init__(self, heart: Heartbeat, process: psutil.Process, patience: float):
        self.heart, self.process, self.patience = heart, process, patience
        self.beats, self.used, self.last = -1, -1.0, time.monotonic()
        self.quiet = self.idle = self.stopped = 0.0

    def problem(self) -> str:
        """What is wrong with the process, in words; "" if nothing is."""
        now = time.monotonic()
        passed, self.last = min(now - self.last, 5 * LOOKS), now
        try:
            with self.process.oneshot():
                state, used = self.process.status(), sum(self.process.cpu_times()[:2])
        except psutil.Error:  # it has just ended
            return ""
        beats = self.heart.beats
        same = beats == self.beats
        self.quiet = self.quiet + passed if same else 0.0
        self.idle = self.idle + passed if same and used == self.used and state == psutil.STATUS_SLEEPING else 0.0
        self.stopped = self.stopped + passed if state == psutil.STATUS_STOPPED else 0.0
        self.beats, self.used = beats, used
        where = f"process {self.process.pid} on {socket.gethostname()}"
        if self.stopped > STOPPED:
            return f"hung: it was stopped by a signal ({where})"
        if self.heart.state != heartbeat.WORKING or self.stopped:
            return ""
        advice = "if a step may take this long, add --patience with more seconds"
        if self.idle > self.patience:
            return f"hung: no step for {self.idle:.0f} s, and no processor time used ({where}); {advice}"
        # One second more: on a GPU members that wait for a hung one seem to work.
        if self.quiet > max(self.patience, self.heart.foreseen) + 1:
            return f"hung: no step for {self.quiet:.0f} s ({where}); {advice}"
        return ""


class Channel:
    """A guard's connection to the process that started all guards of its host."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self._interrupts = 0
        self._closed = False

    @classmethod
    def to_start(cls, rank: int) -> "Channel | None":
        """Connect, and print directly to that process's output from now on; None if there is no such process."""
        path = os.environ.pop(VARIABLE, "")
        if not path:
            return None
        connection = Client(path, "AF_UNIX")
        for number in (1, 2):
            file = recv_handle(connection)
            os.dup2(file, number)
            os.close(file)
        connection.send_bytes(json.dumps(rank).encode())
        return cls(connection)

    def _listen(self) -> None:
        try:
            while not self._closed and self.connection.poll():
                self.connection.recv_bytes()
                self._interrupts += 1
        except (EOFError, OSError):
            self._closed = True

    def is_closed(self) -> bool:
        """Whether the other side has ended or closed the connection, which ends this guard."""
        self._listen()
        return self._closed

    def says_interrupt(self) -> bool:
        """Whether Ctrl-C was typed since the last call."""
        self._listen()
        heard, self._interrupts = self._interrupts, 0
        return bool(heard)

    def report(self, status: int, text: str) -> bool:
        """Report how this rank ended, and wait until the report is received; False if it is not."""
        try:
            self.connection.send_bytes(json.dumps([status, text]).encode())
            while self.connection.poll(10):
                self.connection.recv_bytes()
        except EOFError:
            return True
        except OSError:
            pass
        return False


def die_with_parent(number: int) -> None:
    """Ask the kernel for this signal when the parent ends, for any reason. On systems other than Linux: no effect."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(number), 0, 0, 0)  # 1: PR_SET_PDEATHSIG


def noticed(*numbers: int) -> list[int]:
    """A list to which these signals add their numbers from now on."""
    came: list[int] = []
    for number in numbers:
        signal.signal(number, lambda number, frame: came.append(number))
    return came


def unlink_shared_memory(process: int | None = None) -> None:
    """Unlink the shared memory of MPICH that a process, or this one, has opened.

    Otherwise it stays in /dev/shm if a process is killed, and the next job with the same number in Slurm would open it.
    """
    with contextlib.suppress(AttributeError, psutil.Error):  # not Linux, or the process has ended
        for file in psutil.Process(process).memory_maps():
            if file.path.startswith("/dev/shm/mpich_shm_"):
                with contextlib.suppress(OSError):  # another process was faster
                    os.unlink(file.path)


def _end(process: subprocess.Popen[bytes], status: int) -> int:
    if process.poll() is None:
        unlink_shared_memory(process.pid)  # it may end before it does so itself
    process.kill()
    process.wait()
    return status


def _how_it_ended(process: subprocess.Popen[bytes], heart: Heartbeat, errors: BinaryIO | None) -> tuple[int, str]:
    """The status for this guard and a text for the user."""
    words = heart.read_last_words()
    if words:
        return words
    status = process.returncode
    if status >= 0:
        said = last_line(errors) if errors else "see above"
        return status, f"ended with status {status}: {said}" if status else ""
    name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
    why = "; did memory run out?" if -status == signal.SIGKILL else ""
    return ENDED, f"process {process.pid} on {socket.gethostname()} was killed by {name}{why}"


def last_line(file: BinaryIO) -> str:
    """The last line of a file."""
    file.seek(0)
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"


def _end_step(environment: "os._Environ[str]") -> None:
    """Under Slurm, ask the other tasks of this step to end, which srun does only with an option.

    They end with status 1. srun ends with the highest status, which is that of the process that failed.
    """
    job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    if job and step and shutil.which("scancel"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this guard keeps its own status
        subprocess.run(["scancel", "--quiet", "--signal=TERM", f"{job}.{step}"], capture_output=True, timeout=20)
