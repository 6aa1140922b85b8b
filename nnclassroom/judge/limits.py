"""What limits the process of an answer on this machine, and what it may read there.

The first of these that the system has, once for all answers of this process:

1. Landlock and seccomp, which confine a forked process (answer_process/confinement.py);
2. bubblewrap, in which a new Python is started (sandbox.py), as for every text that `nncourse grade` judges;
3. nothing: then only the words of answer_process/guard.py stand in the way, and one line says so, once.
"""

import functools
import glob
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nnclassroom.judge import sandbox
from nnclassroom.judge.answer_process import confinement
from nncourse.device import gpu_available
from nncourse.language import PACKAGES, ROOT

ARGV = ("ipykernel_launcher.py", "-f", "kernel.json")  # as in a notebook, where a text is used
HIDDEN = [ROOT / name for name in PACKAGES]
SYSTEM = ("/dev/null", "/dev/random", "/dev/urandom", "/sys/devices/system", "/proc/cpuinfo", "/usr", "/opt")
OF_A_GPU = ("/proc", "/sys", "/etc", "/run/nvidia-persistenced")
NAMED = ("CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH")  # variables that name folders
# The environment may hold secrets: only variables that begin so are passed on.
LIBRARIES = ("PYTHON", "CUDA", "CUPY", "NVIDIA", "OMP", "KMP", "OPENBLAS", "MKL", "NUMBA", "CONDA", "LD_")
PASSED = (*sandbox.PASSED, *LIBRARIES, "HOME", "TMPDIR", "TZ", "LC_", "NNCOURSE", "SLURM_CPUS")


def confined() -> bool:
    """Whether a forked process can be confined here."""
    return not _why_not_confined()


@functools.cache
def _why_not_confined() -> str:
    return confinement.why_not()


@functools.cache
def prefix() -> tuple[str, ...]:
    """The words before a command that start it in a sandbox, where answers are not confined; () if there is none."""
    if confined():
        return ()
    if (reason := sandbox.why_none()) is None:
        return sandbox.prefix(readable=[Path(__file__).parent / "answer_process"], hidden=HIDDEN)
    print(f"An answer runs with your own rights here: {_why_not_confined()}; {reason}.")
    return ()


def of_process(on_gpu: bool, judged: bool) -> dict[str, Any]:
    """What the process is told: the folders that it may read and write, and those that it must not see."""
    hidden = HIDDEN if judged else []
    readable = [*visible(hidden), *([] if judged else ["/proc/self", "/proc/stat", *sys.path])]
    said: dict[str, Any] = {"confined": confined(), "judged": judged, "course": PACKAGES, "argv": ARGV}
    said |= {"hidden": [str(path) for path in hidden], "writable": ["/dev/null"]}
    if on_gpu:
        readable += OF_A_GPU
        devices = [*glob.glob("/dev/nvidia*"), *glob.glob("/dev/nvidia-caps/*")]
        said["writable"] += [_compiled().name, "/proc/self/task", *devices]  # CUDA names its threads there
    return said | {"readable": readable}


def environment() -> dict[str, str]:
    """The environment of the nursery. CuPy and CUDA keep what they compile for answers where nobody else reads it."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
    caches = ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "TMPDIR") if gpu_available() and confined() else ()
    return passed | dict.fromkeys(caches, _compiled().name if caches else "")


def visible(hidden: Iterable[Path]) -> Iterator[str]:
    """The system's folders, and Python's with its packages; without those that are hidden, wherever they lie."""
    roots, packages = sandbox.python_folders()
    named = [folder for name in NAMED for folder in os.environ.get(name, "").split(os.pathsep) if folder]
    places = [*map(_resolved, hidden)]
    folders = [*SYSTEM, *sandbox.SYSTEM, *sandbox.SETTINGS, *roots, *packages, *named]
    for folder in dict.fromkeys(map(_resolved, folders)):
        yield from map(str, _without(folder, places))


@functools.lru_cache(maxsize=256)
def _resolved(path: str | Path) -> Path:
    """The path without symbolic links, which are taken to stay as they are."""
    return Path(path).resolve()


def _without(folder: Path, hidden: list[Path]) -> Iterator[Path]:
    """The folder; where something hidden lies in it, what else does."""
    if folder in hidden:
        return
    if not any(folder in path.parents for path in hidden):
        yield folder
        return
    for entry in folder.iterdir():
        yield from _without(entry, hidden)


@functools.cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nncourse-")
