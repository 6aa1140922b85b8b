"""What the set-up cell of a notebook on a hosted Jupyter does once the wheel is there; hosted.py writes that cell.

It installs what the host lacks of the course's requirements, and leaves what it has: a package that this process has
loaded must not be replaced. It chooses where kept kernels lie, and prints one line about each.
"""

import contextlib
import ctypes
import importlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from cuda_on_cpu import emulate
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nncourse import device
from nncourse.errors import CourseError, read_text

DRIVE = Path("/content/drive/MyDrive")  # Google Drive, as Colab mounts it
NEWEST_CUDA = 13
NVRTC = ("cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")  # all that a machine without a GPU can use


def set_up(drive: Path = DRIVE) -> None:
    """Install what is missing, and say what this machine has. CourseError if Python has to be restarted first."""
    cuda, gpus = driver()
    print(install(missing(wanted(cuda_of_host(installed_versions(), cuda), bool(gpus)))))
    if stale := ", ".join(outdated(each.name for each in requirements(""))):
        again = "restart it (in Colab: Runtime, Restart session), then run this cell again"
        raise CourseError(f"this Python still has the old version of {stale}: {again}")
    print(about_gpu(gpus))
    if reason := emulate.why_not():
        print(f"CUDA kernels cannot run on the CPU: {reason}")
    print(keep_on(drive))


# Packages


def driver() -> tuple[int, int]:
    """The major version of CUDA that the NVIDIA driver serves, and the number of GPUs; (0, 0) without a driver."""
    version, count = ctypes.c_int(), ctypes.c_int()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, 0
    if cuda.cuDriverGetVersion(ctypes.byref(version)) or cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return 0, 0
    return version.value // 1000, count.value


def installed_versions() -> dict[str, str]:
    """The version of each installed distribution."""
    return {each.name: each.version for each in metadata.distributions()}


def cuda_of_host(installed: Mapping[str, str], served: int) -> int:
    """The major version of CUDA to use: one environment holds one.

    That of the CuPy or cuda-bindings that is installed, else the newest that the driver serves, else the newest.
    """
    for major in (12, 13):
        if f"cupy-cuda{major}x" in installed or installed.get("cuda-bindings", "").startswith(f"{major}."):
            return major
    return min(served or NEWEST_CUDA, NEWEST_CUDA)


def wanted(cuda: int, gpu: bool) -> list[Requirement]:
    """What the course needs on such a machine."""
    of_cuda = requirements(f"cuda{cuda}")
    if gpu:
        of_cuda += [] if has_library(f"libcublas.so.{cuda}") else requirements(f"toolkit{cuda}")
    else:
        of_cuda = [each for each in of_cuda if each.name in NVRTC]
    return [*requirements(""), *of_cuda, *requirements("devices")]


def requirements(extra: str) -> list[Requirement]:
    """The requirements of the course's distribution, or of one of its extras alone, for this machine."""
    every = [Requirement(text) for text in metadata.requires("nncourse") or ()]
    return [
        each
        for each in every
        if (extra != "") == ("extra ==" in str(each.marker or ""))
        and (each.marker is None or each.marker.evaluate({"extra": extra}))
    ]


def has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def missing(needed: Iterable[Requirement]) -> list[Requirement]:
    """Those that are not installed, or in a version that does not do."""
    return [each for each in needed if not _is_there(each)]


def _is_there(needed: Requirement) -> bool:
    try:
        return needed.specifier.contains(metadata.version(needed.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def install(needed: Sequence[Requirement]) -> str:
    """Install these by pip. Returns a line that says what came of it: what cannot be had is no error, cells say so."""
    if not needed:
        return "All that the course needs is here."
    names = ", ".join(each.name for each in needed)
    print(f"Installing what is missing, which takes a minute or so: {names}", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += [f"{each.name}{each.specifier}" for each in needed]
    done = subprocess.run(pip, capture_output=True, text=True, errors="replace")
    importlib.invalidate_caches()
    if not done.returncode:
        return "All that the course needs is here now."
    reason = (done.stderr.strip() or "no reason given").rpartition("\n")[2]
    return f"This could not be installed: {names} ({reason}). All runs without it but some cells, which say so."


def outdated(names: Iterable[str]) -> list[str]:
    """Which of these packages this process has loaded in another version than the one that is installed now."""
    found = []
    for name in names:
        loaded = getattr(sys.modules.get(name.replace("-", "_")), "__version__", None)
        if loaded is not None and loaded != metadata.version(name):
            found.append(name)
    return found


# What there is


def about_gpu(gpus: int) -> str:
    """A line about the GPU that is used here, or why none is."""
    if device.gpu_available():
        return f"GPU: {device.describe('gpu')}"
    if gpus:
        return f"A GPU is here and cannot be used: {device.why_no_gpu()}"
    return (
        "No GPU here: CUDA kernels run on the CPU, thread by thread. In Colab, Runtime, Change runtime type offers one."
    )


# Kept kernels


def keep_on(drive: Path) -> str:
    """Keep kernels on the drive if it is mounted. Returns a line that says where they lie, and for how long."""
    before = kept_kernels.folder()
    if not (drive.is_dir() and os.access(drive, os.W_OK)):
        return (
            f"Your kernels lie in {before}, which is lost with this machine: at the end of the session, or after hours "
            "without use. To keep them, mount your drive (in Colab: Files, Mount Drive) and run this cell again; or "
            "download what !nncourse submit --out mine.zip packs."
        )
    folder = drive / "nncourse" / "my_kernels"
    os.environ["NNCOURSE_MY_KERNELS"] = str(folder)
    moved = bring(before) if before != folder else 0
    said = f"Your kernels lie in {folder}, on your drive, where they stay."
    return f"{said} {moved} from this session went along." if moved else said


def bring(before: Path) -> int:
    """Keep the kernels of another folder too, where they are newer or not there. Returns how many."""
    try:
        record = kept_kernels.record_in(read_text(before / "progress.json", kept_kernels.MOST_RECORD)) or {}
    except CourseError:  # none was kept
        return 0
    brought = 0
    for key, entry in record.items():
        if entry.get("date", "") <= kept_kernels.progress().get(key, {}).get("date", ""):
            continue
        (operation_name, _, name), launch = key.partition("."), entry.get("launch")
        with contextlib.suppress(CourseError):  # an exercise that this course does not have; a text that is gone
            operation = find(operation_name)
            text = read_text(before / kept_kernels.file_name(operation, name, launch), kept_kernels.MOST_TEXT)
            seconds, sizes = entry.get("seconds"), entry.get("sizes", "")
            kept_kernels.keep(operation, name, text, launch, seconds, sizes, entry.get("date", ""))
            brought += 1
    return brought
