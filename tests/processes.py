"""Several real processes for a test: a function of its module runs in each of them, under mpiexec.

    results = in_processes(function, 4, *arguments)

The function takes the group, then the arguments. What it returns or raises in each process comes back, in order.
As a program, this file is one of the processes.
"""

import contextlib
import importlib
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from nncourse.errors import CourseError
from nncourse.parallel.launch.start import find_mpiexec, refuse_without_mpi
from nncourse.parallel.launch.together import run_python

MPI = pytest.mark.skipif(not find_spec("mpi4py"), reason="mpi4py is not installed: pip install 'nncourse[devices]'")


def in_processes(function: Callable, processes: int, *arguments: Any, limit: float = 60.0, kind: str = "mpi") -> list:
    """Run the function in each process and return the results, or raise the first exception. Skip without MPI.

    `kind` is the group's: "mpi"; "mpi, gpu", whose vectors go through the host's memory; "nccl".
    """
    skip_without_mpi()
    with tempfile.TemporaryDirectory(prefix="nncourse-test-") as folder:
        asked = function.__module__, function.__name__, kind, arguments
        (Path(folder) / "asked").write_bytes(pickle.dumps(asked))
        ended, words = run_python([__file__, folder], processes, limit)
        assert ended is not None, f"{processes} processes did not end within {limit:g} s: {words[-2000:]}"
        answers = [Path(folder) / str(rank) for rank in range(processes)]
        results = [pickle.loads(answer.read_bytes()) for answer in answers if answer.exists()]
    for result in results:
        if isinstance(result, Exception):
            raise result
    assert len(results) == processes, f"mpiexec ended with {ended}: {words[-2000:]}"
    return results


def until(happened: Callable[[], Any], patience: float = 60.0) -> bool:
    """Whether something happens within so many seconds."""
    end = time.monotonic() + patience
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def is_running(process: int) -> bool:
    """Whether there is such a process, not counting zombies."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def with_variable(name: str, value: Any) -> dict[psutil.Process, dict[str, str]]:
    """The running processes whose environment holds a variable with this value, and their environments."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environment = process.environ()
            if environment.get(name) == str(value) and process.status() != psutil.STATUS_ZOMBIE:
                found[process] = environment
    return found


def skip_without_mpi() -> None:
    try:
        refuse_without_mpi()
        find_mpiexec()
    except CourseError as error:
        pytest.skip(str(error))


def main(folder: Path) -> None:
    """In each of the processes."""
    from nncourse.parallel.mpi import MPIGroup
    from nncourse.parallel.nccl import NCCLGroup

    module, name, kind, arguments = pickle.loads((folder / "asked").read_bytes())
    world = MPIGroup()
    try:
        group = {"mpi": lambda: world, "mpi, gpu": lambda: MPIGroup("gpu"), "nccl": NCCLGroup}[kind]()
        result = getattr(importlib.import_module(module), name)(group, *arguments)
    except Exception as error:
        result = error
    (folder / str(world.rank)).write_bytes(pickle.dumps(result))
    if isinstance(result, Exception):
        world.communicator.Abort(1)  # the others may be waiting for this one


if __name__ == "__main__":
    main(Path(sys.argv[1]))
