"""One function in several processes of this machine, by MPI, for a notebook that measures.

    answers = together(function, 2, batches=[64, 256])     # function(group, batches=[64, 256]) in each of two processes

The function has to stand in the package, and what it is given and returns has to be numbers, texts, lists and dicts.
As a program, this file is one of the processes.
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
# Each process gets one core: else the libraries of all of them would start a thread for every core.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def together(function: Callable[..., Any], processes: int, limit: float = LIMIT, **options: Any) -> list[Any]:
    """What function(group, **options) returned in each process, in order.

    The processes are new, have one thread each, and are ended with whatever they have started, also by Ctrl-C.
    CourseError where MPI is missing, where one of them fails, and after `limit` seconds.
    """
    if not 1 <= processes <= start.MOST_PROCESSES:
        raise CourseError(f"wanted from 1 to {start.MOST_PROCESSES} processes, got {processes}")
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
        raise CourseError(f"wanted {processes} processes to end within {limit:g} s; they were stopped")
    if not all(answers):
        last = words.strip().splitlines()[-1:] or ["without a word"]
        raise CourseError(f"{processes} processes ended with {ended}: {last[0]}")
    return [answer["result"] for answer in answers]


def run_python(program: Sequence[str], processes: int, limit: float) -> tuple[int | None, str]:
    """Run Python with these arguments in several processes, with this one's modules at hand and one thread each.

    Returns mpiexec's status, None if they had to be ended after `limit` seconds, and all that they have printed.
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


def _end(process: subprocess.Popen) -> None:
    """mpiexec's members may be in sessions of their own: asked to end, it ends them; killed, it would not."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING)
    kill_group(process)


def _answer(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):  # it never came so far
        return {}


def main(module: str, name: str, folder: str) -> None:
    """In each of the processes."""
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
