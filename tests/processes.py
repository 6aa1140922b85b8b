"""Several real processes for a test: a function of its module runs in each of them, under mpiexec.

    results = in_processes(function, 4, *arguments)

The function takes the group, then the arguments. What it returns or raises in each process comes back, in order.
As a program, this file is one of the processes.
"""

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nncourse import device
from nncourse.child import kill_group
from nncourse.errors import CourseError
from nncourse.parallel.start import find_mpiexec, mpiexec_command

HERE = Path(__file__).resolve().parent
NO_MPI = "mpi4py is not installed: pip install 'nncourse[devices]'"
MPI = pytest.mark.skipif(not find_spec("mpi4py"), reason=NO_MPI)


def in_processes(function: Callable, processes: int, *arguments: Any, limit: float = 60.0, kind: str = "mpi") -> list:
    """What the function returned in each process; the first exception is raised here. Skips where there is no MPI.

    `kind` is the group's: "mpi"; "mpi, gpu", whose vectors go through the host's memory; "nccl".
    """
    command = [*mpiexec(processes), sys.executable, __file__]
    folders = os.pathsep.join((str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")))
    settings = os.environ | {"PYTHONPATH": folders, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="nncourse-test-") as folder, tempfile.TemporaryFile() as said:
        asked = function.__module__, function.__name__, kind, arguments
        (Path(folder) / "asked").write_bytes(pickle.dumps(asked))
        process = subprocess.Popen([*command, folder], env=settings, stdout=said, stderr=said, start_new_session=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit)
        ended = process.poll()
        kill_group(process)
        said.seek(0)
        words = said.read().decode(errors="replace")[-2000:]
        assert ended is not None, f"{processes} processes did not end within {limit:g} s: {words}"
        answers = [Path(folder) / str(rank) for rank in range(processes)]
        results = [pickle.loads(answer.read_bytes()) for answer in answers if answer.exists()]
    for result in results:
        if isinstance(result, Exception):
            raise result
    assert len(results) == processes, f"mpiexec ended with {ended}: {words}"
    return results


def until(happened: Callable[[], Any], patience: float = 60.0) -> bool:
    """Whether something happens within so many seconds."""
    end = time.monotonic() + patience
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def mpiexec(processes: int) -> list[str]:
    """The command that starts so many processes; skips the test where there is no mpiexec, or no mpi4py."""
    if not find_spec("mpi4py"):
        pytest.skip(NO_MPI)
    try:
        return mpiexec_command(find_mpiexec(), processes)
    except CourseError as error:
        pytest.skip(str(error))


def gpus() -> int:
    """How many there are; skips the test below two."""
    if not device.gpu_available():
        pytest.skip(device.why_no_gpu())
    import cupy

    if (count := cupy.cuda.runtime.getDeviceCount()) < 2:
        pytest.skip("there is one GPU, and NCCL wants one for each process")
    return count


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
