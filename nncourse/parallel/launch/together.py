"""Run one function in several processes of this machine, over MPI, for measurements in a notebook.

    answers = together(function, 2, batches=[64, 256])     # function(group, batches=[64, 256]) in each of two processes

The function must be importable; its options and its result must be numbers, texts, lists and dicts. Run as a program,
this file is one of the processes.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cuda_on_cpu.processes import kill_group
from nncourse.errors import CourseError
from nncourse.parallel.launch import start, world

LIMIT = 60.0  # seconds
ENDING = 3.0  # seconds that mpiexec has to end its members
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # of each process


def together(function: Callable[..., Any], processes: int, limit: float = LIMIT, **options: Any) -> list[Any]:
    """The results of function(group, **options) in each process, by rank.

    The processes are new and have one thread each. They and their children end with the call, also on Ctrl-C.
    Raises CourseError if MPI is missing, if a process fails, and after `limit` seconds.
    """
    start.refuse_number(processes)
    start.refuse_without_mpi()
    program = ["-m", "nncourse.parallel.launch.together", function.__module__, function.__name__]
    with tempfile.TemporaryDirectory(prefix="nncourse-") as folder:
        (Path(folder) / "options").write_text(json.dumps(options))
        ended, words = run_python([*program, folder], processes, limit)
        answers = [_answer(Path(folder) / str(rank)) for rank in range(processes)]
    for rank, answer in enumerate(answers):
        if "error" in answer:
            raise CourseError(f"rank {rank}: {answer['error']}")
    if ended is None:
        raise CourseError(f"expected {processes} processes to end within {limit:g} s; they were stopped")
    if not all(answers):
        last = words.strip().splitlines()[-1:] or ["no message"]
        raise CourseError(f"{processes} processes ended with {ended}: {last[0]}")
    return [answer["result"] for answer in answers]


def run_python(program: Sequence[str], processes: int, limit: float) -> tuple[int | None, str]:
    """Run Python with these arguments in several processes, with this one's module path and one thread each.

    Returns mpiexec's status, or None if they were ended after `limit` seconds; and everything that they printed.
    """
    modules = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*start.mpiexec_command(start.find_mpiexec(), processes), sys.executable, *program],
            env=world.without_launcher(os.environ) | ONE_THREAD | modules,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit)
            ended = process.poll()
        finally:
            _end(process)
        said.seek(0)
        return ended, said.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate mpiexec before killing it: its members may be in other sessions, and only then does it end them."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING)
    kill_group(process)


def _answer(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):  # the process ended early
        return {}


def main(module: str, name: str, folder: str) -> None:
    """The work of each process: call the function and write its answer."""
    from nncourse.parallel.mpi import MPIGroup

    group = MPIGroup()
    try:
        function = getattr(importlib.import_module(module), name)
        answer = {"result": function(group, **json.loads((Path(folder) / "options").read_text()))}
    except CourseError as error:
        answer = {"error": str(error)}
    except Exception as error:
        answer = {"error": traceback.format_exception_only(error)[-1].strip()}
    (Path(folder) / str(group.rank)).write_text(json.dumps(answer))
    if "error" in answer:
        group.communicator.Abort(1)  # the others may be waiting for this one


if __name__ == "__main__":
    main(*sys.argv[1:])
