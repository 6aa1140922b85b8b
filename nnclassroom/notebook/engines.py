"""Real processes in a notebook: ipyparallel's engines, which are ranks of one MPI world, and `%%px` cells for them.

    engines.start(2)

    %%px --seconds 5
    from nncourse.parallel.mpi import MPIGroup
    group = MPIGroup()
    print(f"one of {group.size}")

Each rank's output is labelled. An error names the rank and the line, also for a rank that waits in vain: then all
processes are ended, and the next cell starts new ones, without the variables of the old ones.
"""

import contextlib
import functools
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nnclassroom.arguments import Parser
from nnclassroom.notebook.waiting import waiting
from nncourse.errors import CourseError
from nncourse.parallel.launch import start as starting
from nncourse.parallel.launch import world

SECONDS = 30.0  # limit of a cell, unless it states another
OTHERS = 2.0  # seconds for the other ranks once one has failed
MOST = 4  # processes, unless more are asked for
PRINTED = 5.0  # seconds to wait for the output of a cell that has ended
STARTS = 90  # seconds for the processes to start
ENDED = "====="  # how MPICH's own lines begin, about a process that has failed


def why_not() -> str:
    """Why no real processes can be started here; "" if they can. The simulated group runs everywhere."""
    missing = [name for name in ("mpi4py", "ipyparallel") if not find_spec(name)]
    if not missing:
        try:
            starting.find_mpiexec()
        except CourseError:
            missing = ["mpiexec"]
    if not missing:
        return ""
    where = "pip install 'nncourse[devices]'" if sys.platform.startswith("linux") else "they are only for Linux"
    return f"no {' and no '.join(missing)} here ({where}): this notebook goes on with the simulated group"


def start(count: int | None = None, seconds: float = SECONDS) -> "Engines | None":
    """Start processes for `%%px` cells; by default one for each core, from 2 to 4. None if they cannot be started.

    In a Slurm job on several nodes they are its tasks. The processes of an earlier call are ended.
    """
    if reason := why_not():
        print(reason)
        _register()  # %%px cells then do nothing
        return None
    stop()
    tasks = os.environ.get("SLURM_NTASKS", "")
    usual = int(tasks) if _many_nodes() and tasks.isdecimal() else min(max(2, os.cpu_count() or 2), MOST)
    engines = Engines(usual if count is None else count, seconds)
    with waiting(f"starting {engines.count} processes, about 7 s"):
        engines.begin()
    _kept().append(engines)
    _register()
    print(
        f"{engines.count} processes, ranks 0 to {engines.count - 1} of one MPI world: %%px runs a cell on all of them"
    )
    return engines


def stop() -> None:
    """End the processes. The end of the notebook ends them too."""
    for engines in _kept():
        engines.end()
    _kept().clear()


def mpiexec(count: int, *program: str) -> bool:
    """Run a Python program in several processes of this machine, as `mpiexec -n 2 python mine.py` in a terminal does.

    What they print is shown as it comes, then how they ended. Returns whether all ended well; False where there is no
    MPI, which a line says.
    """
    print(f"$ mpiexec -n {count} python {shlex.join(program)}", flush=True)
    if reason := why_not():
        print(reason)
        return False
    command = [*starting.mpiexec_command(starting.find_mpiexec(), count), sys.executable, *program]
    started = subprocess.Popen(
        command,
        env=world.without_launcher(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert started.stdout
    try:
        shown = True
        for line in started.stdout:
            shown = shown and not line.startswith(ENDED)
            if shown and line.strip():
                print(line, end="", flush=True)
        status = started.wait()
    except KeyboardInterrupt:
        started.terminate()
        raise
    if status:
        print(f"mpiexec: a process ended with status {status}, and mpiexec ended all")
    return not status


@functools.cache
def _kept() -> "list[Engines]":
    """The engines of this notebook: none, or one set of them."""
    return []


def _many_nodes() -> bool:
    return int(os.environ.get("SLURM_JOB_NUM_NODES") or 1) > 1


def _register() -> None:
    """Register `%%px`, if this runs in a notebook."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell:
        shell.register_magic_function(px, "cell", "px")


def px(line: str, cell: str) -> None:
    """The magic: `%%px`, `%%px --seconds 5`, `%%px --ranks 0,1`. It does nothing where no processes can be started.

    With `--fails` the cell is meant to fail: its line is shown, and is no error of the notebook.
    """
    parser = Parser(prog="%%px", add_help=False, allow_abbrev=False)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--fails", action="store_true")
    try:
        options, unknown = parser.parse_known_args(shlex.split(line))
    except ValueError as error:
        raise CourseError(f"expected %%px, perhaps with --seconds 5 or --ranks 0,1; got {line!r}: {error}") from None
    if unknown:
        raise CourseError(f"expected %%px, perhaps with --seconds 5 or --ranks 0,1; got {line!r}")
    if not _kept():
        if why_not():
            return
        raise CourseError("there are no processes for %%px: run engines.start() first")
    try:
        # The magic's own line counts as line 1, as the notebook numbers lines.
        _kept()[0].run(f"# %%px {line}\n{cell}", options.seconds, options.ranks)
    except CourseError as error:
        if not options.fails:
            raise
        print(error)
    else:
        if options.fails:
            raise CourseError("this cell was meant to fail, but did not")


class Engines:
    """`count` processes that run cells, each for at most `seconds`."""

    def __init__(self, count: int, seconds: float = SECONDS):
        if not 1 <= count <= starting.MOST_PROCESSES:
            raise CourseError(f"expected from 1 to {starting.MOST_PROCESSES} processes, got {count}")
        self.count, self.seconds = count, seconds
        self._cluster: Any = None
        self._ranks: list[Any] = []  # ipyparallel's view of each rank
        self._folder: Any = None
        self._anew = False  # whether they have taken the place of processes that were ended

    def begin(self) -> None:
        """Start the processes, and find the rank of each."""
        import ipyparallel
        from traitlets.config import Config

        self._folder = tempfile.TemporaryDirectory(prefix="nncourse-engines-", ignore_cleanup_errors=True)
        several = _many_nodes()
        by_srun = ["srun", "--mpi=pmi2", "--overlap"]
        launch = by_srun if several else starting.mpiexec_command(starting.find_mpiexec(), self.count)[:-2]
        settings = {"mpi_cmd": launch[:1], "mpi_args": launch[1:]}
        profile = {} if several else {"profile_dir": self._folder.name}  # with several nodes, one that all can see
        self._cluster = ipyparallel.Cluster(
            engines="mpi",
            n=self.count,
            controller_ip=socket.gethostbyname(socket.gethostname()) if several else "127.0.0.1",
            log_level=50,
            config=Config({"MPIEngineSetLauncher": settings}),
            **profile,
        )
        try:
            with _quiet():
                self._cluster.start_cluster_sync(self.count)
                client = self._cluster.connect_client_sync()
                client.wait_for_engines(self.count, timeout=STARTS, interactive=False)  # no progress bar as a widget
                controller = [number for number in [getattr(self._cluster.controller, "pid", None)] if number]
                about = os.getpid(), controller, os.getcwd(), list(sys.path), self._folder.name
                every = client[:].apply_async(_joins, *about)
                ranks = every.get(STARTS)
        except Exception as error:
            self.end()
            raise CourseError(f"the processes for %%px did not start: {type(error).__name__}: {error}") from None
        if sorted(ranks) != list(range(self.count)):
            self.end()
            raise CourseError(
                f"expected ranks 0 to {self.count - 1} of one MPI world; got {ranks}: do mpiexec and mpi4py match?"
            )
        self._ranks = [client[ranks.index(rank)] for rank in range(self.count)]
        _register()  # ipyparallel has registered its own %%px

    def end(self) -> None:
        """End the processes, whatever they are doing. run() starts new ones."""
        if self._cluster:
            with _quiet(), contextlib.suppress(Exception):
                self._cluster.signal_engines_sync(9)
            with _quiet(), contextlib.suppress(Exception):
                self._cluster.stop_cluster_sync()
        self._cluster, self._ranks = None, []
        if self._folder:
            self._folder.cleanup()

    def run(self, cell: str, seconds: float | None = None, ranks: Sequence[int] | None = None) -> None:
        """Run a cell on all ranks, or on some, and show what each prints and returns.

        Raises CourseError, which names ranks and lines, if a rank fails or does not end in time.
        """
        if not self._ranks:
            self.begin()
        chosen = list(range(self.count)) if ranks is None else list(ranks)
        if not chosen or not set(chosen) <= set(range(self.count)):
            raise CourseError(f"expected ranks from 0 to {self.count - 1}, got {chosen}")
        limit = self.seconds if seconds is None else seconds
        answers = {rank: self._ranks[rank].execute(cell, silent=False, block=False) for rank in chosen}
        try:
            _wait(answers, limit)
        except KeyboardInterrupt:
            self.end()
            raise
        late = [rank for rank in chosen if not answers[rank].ready()]
        failed = [rank for rank in chosen if rank not in late and not answers[rank].successful()]
        for rank in chosen:
            if rank not in late:
                _show(rank, answers[rank])
        problems = [f"rank {rank} failed: {_mistake(answers[rank])}" for rank in failed]
        for rank in late:
            where = _place(Path(self._folder.name) / f"rank{rank}", cell)
            problems.append(f"rank {rank} {'waited' if failed else f'did not end within {limit:g} s'}{where}")
        if failed:
            time.sleep(0.2)  # an engine that has failed refuses cells for a moment
        if self._anew and any("NameError" in problem for problem in problems):
            problems[-1] += "; these processes are new: run the %%px cells above again, from the first one"
        if late:
            self.end()
            self._anew = True
            problems[-1] += "; all processes were ended, and the next %%px cell starts new ones"
        if problems:
            raise CourseError("; ".join(problems))


def _wait(answers: dict[int, Any], limit: float) -> None:
    """Wait for all answers, for at most `limit` seconds, and only briefly once a rank has failed."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        waiting = [answer for answer in answers.values() if not answer.ready()]
        if not waiting:
            return
        if any(answer.ready() and not answer.successful() for answer in answers.values()):
            end = min(end, time.monotonic() + OTHERS)
        waiting[0].wait(0.05)


def _show(rank: int, answer: Any) -> None:
    """Show what a rank has printed and returned, each line with its label."""
    from IPython.display import display, publish_display_data

    answer.wait_for_output(PRINTED)  # output has a channel of its own
    for text, file in ((answer.stdout, sys.stdout), (answer.stderr, sys.stderr)):
        for line in text.splitlines():
            print(f"rank {rank}: {line}", file=file)
    for output in answer.outputs:
        print(f"rank {rank}:")
        display(output) if not isinstance(output, dict) else publish_display_data(**output)
    result = (answer.metadata.get("execute_result") or {}).get("data", {}).get("text/plain", "")
    for line in result.splitlines():
        print(f"rank {rank}: {line}")


def _mistake(answer: Any) -> str:
    """The exception of a rank, and its line in the cell."""
    error = answer.exception()
    text = re.sub(r"\x1b\[[0-9;]*m", "", getattr(error, "traceback", ""))  # without its colours
    lines = re.findall(r"(?:Cell In.*?, |-+> ?)line (\d+)|^-+> (\d+) ", text, re.MULTILINE)
    numbers = [number for pair in lines for number in pair if number]
    where = f" (line {numbers[0]})" if numbers else ""
    return f"{error.ename}: {error.evalue}{where}" if hasattr(error, "ename") else f"{error}"


def _place(trace: Path, cell: str) -> str:
    """The line of the cell that a rank is in, from the stack that it writes into `trace` at a signal; "" if unknown."""
    with contextlib.suppress(OSError, ValueError):  # the process is on another machine, or has gone
        process, _, before = trace.read_text().partition("\n")
        os.kill(int(process), signal.SIGUSR1)
        end = time.monotonic() + 1
        while len(trace.read_text().partition("\n")[2]) == len(before) and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.05)  # until all lines are written
        stack = trace.read_text().partition("\n")[2][len(before) :]
        places = re.findall(r'File "(?:<ipython-input|[^"]*ipykernel_)[^"]*", line (\d+)', stack)
        lines = cell.splitlines()
        for number in map(int, places):
            if 1 <= number <= len(lines):
                return f" in line {number}: {lines[number - 1].strip()}"
    return ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without ipyparallel's progress bars and warnings."""
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing), contextlib.redirect_stdout(nothing):
        yield


# ---- what runs in the engines


def _joins(notebook: int, others: list[int], folder: str, path: list[str], traces: str) -> int:
    """Let this engine and the processes `others` end with the notebook. Returns the engine's rank."""
    import asyncio
    import contextlib
    import faulthandler
    import os
    import signal
    import sys
    import threading
    import time

    import psutil

    def is_there() -> bool:
        try:
            return psutil.Process(notebook).status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def watch() -> None:
        while is_there():
            time.sleep(1)
        for process in others:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGTERM)
        os._exit(0)

    if is_there():  # on the same machine
        threading.Thread(target=watch, daemon=True).start()
    os.chdir(folder)
    sys.path[:] = [each for each in path if each not in sys.path] + sys.path
    from nncourse.parallel.launch.guard import unlink_shared_memory
    from nncourse.parallel.mpi import mpi

    MPI = mpi()
    MPI.COMM_WORLD.Barrier()  # after it all have opened the shared memory
    unlink_shared_memory()
    kernel = asyncio.get_running_loop()

    def between_cells() -> None:  # MPI may need further calls to send the rest of a long message
        MPI.COMM_WORLD.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
        kernel.call_later(0.02, between_cells)

    between_cells()
    rank = MPI.COMM_WORLD.Get_rank()
    if os.path.isdir(traces):
        trace = open(f"{traces}/rank{rank}", "a")  # noqa: SIM115 (stays open for the signal handler)
        print(os.getpid(), file=trace, flush=True)
        faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True)
    return rank
