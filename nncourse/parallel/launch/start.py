"""Run one command in several processes: `nncourse train --processes 4`.

run() is called in every process. It finds out which one this is: the user's own, which starts `mpiexec` and waits; a
guard (guard.py), started by mpiexec or srun; or a member (member.py), started by a guard, which does the work.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import BinaryIO

from cuda_on_cpu.processes import kill_group
from nncourse.errors import CourseError, reason_of
from nncourse.parallel.launch import guard, heartbeat, world
from nncourse.parallel.launch.heartbeat import Heartbeat

MOST_PROCESSES = 512
OTHERS = 0.4  # seconds to wait for other members that fail for the same reason
ENDING = 2.0  # seconds that the guards have to end, before mpiexec is killed
SAVING = 8.0  # seconds that rank 0 has, after Ctrl-C, to save the best parameters

Work = Callable[[Heartbeat | None], int]


def run(program: Sequence[str], processes: int | None, patience: float, work: Work) -> int:
    """Do work(heart) in this process, or run the program, with its arguments, in several. Returns the exit status.

    `heart` is None in a process that trains alone.
    """
    if heart := heartbeat.mine():
        from nncourse.parallel.launch import member

        return member.run(work, heart)
    refuse_number(1 if processes is None else processes)
    refuse_patience(patience)
    place = world.launcher_environment(os.environ)
    if place.size > 1:
        if processes not in (None, place.size):
            raise CourseError(
                f"expected {processes} processes, but {place.by} started {place.size}: leave --processes out"
            )
        return guard.guard(program, place, patience)
    if (processes or 1) > 1:
        return _start(program, processes or 1)
    return work(None)


def refuse_number(processes: int) -> None:
    """Raise CourseError for a number of processes out of range."""
    if not 1 <= processes <= MOST_PROCESSES:
        raise CourseError(f"expected from 1 to {MOST_PROCESSES} processes, got {processes}")


def refuse_patience(seconds: float) -> None:
    """Raise CourseError for a patience that is not above 0."""
    if not seconds > 0:
        raise CourseError(f"expected a patience of more than 0 seconds, got {seconds:g}")


# ---- mpiexec


def refuse_without_mpi() -> None:
    """Raise CourseError if mpi4py is missing."""
    if not find_spec("mpi4py"):
        where = "" if sys.platform.startswith("linux") else ", on Linux; here only one process can train"
        raise CourseError(f"expected mpi4py for several processes, found none: pip install 'nncourse[devices]'{where}")


def find_mpiexec() -> str:
    """The mpiexec of the MPI that mpi4py uses: that of MPI4PY_LIBMPI, otherwise a wheel's, otherwise the system's."""
    library = os.environ.get("MPI4PY_LIBMPI", "")
    folders = [Path(library).parent.parent / "bin"] if "/" in library else []
    if not library:
        folders.append(Path(sys.prefix) / "bin")
    for folder in folders:
        if os.access(folder / "mpiexec", os.X_OK):
            return str(folder / "mpiexec")
    found = shutil.which("mpiexec")
    if not found:
        raise CourseError("expected mpiexec, to start several processes; found none: pip install 'nncourse[devices]'")
    return found


def mpiexec_command(mpiexec: str, processes: int) -> list[str]:
    """The command before the program: this many processes on this machine, even if it has fewer cores."""
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True).stdout
    if "Open MPI" in version or "OpenRTE" in version:
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        # By default it would bind the processes of each start to the same cores.
        free = ["--oversubscribe", "--bind-to", "none", "--host", f"localhost:{processes}"]
        # Otherwise members that wait keep their core from those that work: four on two cores take 100 times as long.
        polite = ["--mca", "mpi_yield_when_idle", "1"]
        return [mpiexec, *free, *polite, *as_root, "-n", str(processes)]
    return [mpiexec, "-launcher", "fork", "-n", str(processes)]


# ---- the user's process


def _start(program: Sequence[str], processes: int) -> int:
    """Run the program in several processes on this machine, and report for them. Returns the exit status."""
    refuse_without_mpi()
    mpiexec = find_mpiexec()
    environment = world.without_launcher(os.environ)
    with contextlib.ExitStack() as stack:
        # Before any process is started: from here on _wait handles Ctrl-C.
        interrupted = stack.enter_context(_instead(signal.SIGINT))
        ended = stack.enter_context(_instead(signal.SIGTERM, signal.SIGHUP))
        command = mpiexec_command(mpiexec, processes)
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nncourse-"))
            listening.bind(f"{folder}/start")
        except OSError as error:
            raise CourseError(f"expected a folder for a socket; {reason_of(error)}: name one in TMPDIR") from None
        listening.listen(processes)
        said = stack.enter_context(heartbeat.nameless_file())  # the output of mpiexec itself
        started = subprocess.Popen(
            [*command, *program],
            env=environment | {guard.VARIABLE: f"{folder}/start"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        guards = Guards(listening, processes)
        stack.callback(_end, started, guards)
        return _wait(started, command[0], guards, interrupted, ended, said)


def _wait(
    mpiexec: subprocess.Popen[bytes],
    name: str,
    guards: "Guards",
    interrupted: list[int],
    ended: list[int],
    said: BinaryIO,
) -> int:
    """Wait until all end or the first fails. Reports a failure in one line and returns the exit status."""
    last = 0.0  # when to stop waiting, after Ctrl-C
    while mpiexec.poll() is None and not (ended or guards.reports):
        guards.listen(guard.LOOKS)
        if interrupted and last and time.monotonic() > last or len(interrupted) > 1:
            return _tell("interrupted, nothing is saved", guard.INTERRUPTED)
        if interrupted and not last:
            last = time.monotonic() + SAVING
            if not guards.interrupt():
                return _tell("interrupted, nothing is saved", guard.INTERRUPTED)
    if ended:
        return _tell(f"ended by {signal.Signals(ended[0]).name}, nothing is saved", 128 + ended[0])
    until = time.monotonic() + OTHERS
    while guards.open and not guards.all_reported() and time.monotonic() < until:
        guards.listen(guard.LOOKS)
    if guards.reports:
        rank, status, text = guards.reports[0]
        together = len(guards.reports) == guards.expected > 1 and len({report[1:] for report in guards.reports}) == 1
        return _tell(f"every rank: {text}" if together and text else text and guard.named(rank, status, text), status)
    if interrupted:
        return _tell("interrupted, nothing is saved", guard.INTERRUPTED)
    if mpiexec.returncode and guards.lost:
        ranks = " or ".join(map(str, sorted(guards.lost)))
        return _tell(f"rank {ranks}: the process that watched it has ended; was it killed?", 1)
    if mpiexec.returncode:
        status = mpiexec.returncode
        return _tell(f"{name} ended with status {status}: {guard.last_line(said)}", 1)
    return 0


def _end(mpiexec: subprocess.Popen[bytes], guards: "Guards") -> None:
    """End all guards, which first end their processes."""
    guards.end()
    with contextlib.suppress(subprocess.TimeoutExpired):
        mpiexec.wait(ENDING)
    kill_group(mpiexec)


def _tell(text: str, status: int) -> int:
    if text:
        print(f"nncourse: {text}", file=sys.stderr, flush=True)
    return status


@contextlib.contextmanager
def _instead(*numbers: int) -> Iterator[list[int]]:
    """Within the block these signals are only added to a list."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield guard.noticed(*numbers)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Guards:
    """The connections to the guards, and their reports, (rank, status, text), in the order received.

    `lost` has the rank whose guard ended first; several ranks if they were found to have ended at the same time, since
    mpiexec then kills the other guards.
    """

    def __init__(self, listening: socket.socket, expected: int):
        self.expected = expected
        self.open: dict[Connection, int] = {}
        self.reports: list[tuple[int, int, str]] = []
        self.lost: list[int] = []
        self._listening = listening

    def listen(self, seconds: float) -> None:
        """Wait at most this long for an event, and handle it."""
        heard = [self._hear(ready) for ready in wait([self._listening, *self.open], seconds)]
        self.lost = self.lost or [rank for rank in heard if rank is not None]

    def _welcome(self) -> None:
        """Send a guard the files of standard output and error, so that it prints without the launcher in between."""
        connection = Connection(self._listening.accept()[0].detach())
        with contextlib.suppress(OSError):
            for file in (1, 2):
                send_handle(connection, file, None)
        self.open[connection] = -1

    def _hear(self, ready: object) -> int | None:
        """Handle what has come. The rank, if its guard has ended."""
        if not isinstance(ready, Connection):
            self._welcome()
            return None
        try:
            message = json.loads(ready.recv_bytes())
        except (EOFError, OSError):
            ready.close()
            return self.open.pop(ready)
        if isinstance(message, int):
            self.open[ready] = message
        else:
            self.reports.append((self.open[ready], *message))
        return None

    def all_reported(self) -> bool:
        return len(self.reports) == self.expected

    def interrupt(self) -> bool:
        """Tell rank 0 of Ctrl-C; False if it is not connected."""
        for connection, rank in self.open.items():
            if rank == 0:
                with contextlib.suppress(OSError):
                    connection.send_bytes(b"")
                    return True
        return False

    def end(self) -> None:
        """Close the connections, which ends the guards and their processes."""
        for connection in self.open:
            connection.close()
        self.open.clear()
