"""Set-up of a notebook on a hosted Jupyter, called by its first cell once the wheel is installed (see hosted.py).

It installs the course's requirements that the host lacks, and leaves those that the host has: a package that this
process has loaded must not be replaced. It chooses the folder of kept kernels, and prints a line about each step.
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
    """Install missing packages, and print what this machine has. CourseError if Python has to be restarted first."""
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
    """The major version of CUDA that the NVIDIA driver supports, and the number of GPUs; (0, 0) without a driver."""
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
    """The major version of CUDA to use, since an environment can have only one.

    It is that of the installed CuPy or cuda-bindings; otherwise the newest that the driver supports, or the newest.
    """
    for major in (12, 13):
        if f"cupy-cuda{major}x" in installed or installed.get("cuda-bindings", "").startswith(f"{major}."):
            return major
    return min(served or NEWEST_CUDA, NEWEST_CUDA)


def wanted(cuda: int, gpu: bool) -> list[Requirement]:
    """The course's requirements on a machine with this CUDA, with or without a GPU."""
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
    """The requirements that are not installed, or not in a version that fits."""
    return [each for each in needed if not _is_there(each)]


def _is_there(needed: Requirement) -> bool:
    try:
        return needed.specifier.contains(metadata.version(needed.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def install(needed: Sequence[Requirement]) -> str:
    """Install these with pip. Returns a line about the result. A failure raises no error: cells say what they lack."""
    if not needed:
        return "Everything that the course needs is installed."
    names = ", ".join(each.name for each in needed)
    print(f"Installing missing packages, which takes about a minute: {names}", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += [f"{each.name}{each.specifier}" for each in needed]
    done = subprocess.run(pip, capture_output=True, text=True, errors="replace")
    importlib.invalidate_caches()
    if not done.returncode:
        return "Everything that the course needs is installed now."
    reason = (done.stderr.strip() or "no reason given").rpartition("\n")[2]
    return f"Some packages could not be installed: {names} ({reason}). The cells that need them say so; others work."


def outdated(names: Iterable[str]) -> list[str]:
    """Those of these packages that this process has loaded in a version different from the installed one."""
    found = []
    for name in names:
        loaded = getattr(sys.modules.get(name.replace("-", "_")), "__version__", None)
        if loaded is not None and loaded != metadata.version(name):
            found.append(name)
    return found


# GPU


def about_gpu(gpus: int) -> str:
    """A line about the GPU that is used here, or about the reason why none is used."""
    if device.gpu_available():
        return f"GPU: {device.describe('gpu')}"
    if gpus:
        return f"There is a GPU, but it cannot be used: {device.why_no_gpu()}"
    return (
        "No GPU here: CUDA kernels run on the CPU, thread by thread. For a GPU in Colab: Runtime, Change runtime type."
    )


# Kept kernels


def keep_on(drive: Path) -> str:
    """Keep kernels on the drive if it is mounted. Returns a line that says where they are, and for how long."""
    before = kept_kernels.folder()
    if not (drive.is_dir() and os.access(drive, os.W_OK)):
        return (
            f"Your kernels are in {before}. They are lost when the session ends, or after some hours without use. To "
            "keep them, mount your drive (in Colab: Files, Mount Drive) and run this cell again. Or run !nncourse "
            "submit --out mine.zip, and download that file."
        )
    folder = drive / "nncourse" / "my_kernels"
    os.environ["NNCOURSE_MY_KERNELS"] = str(folder)
    moved = bring(before) if before != folder else 0
    said = f"Your kernels are in {folder}, on your drive, and stay there."
    return f"{said} Copied there from this session: {moved}." if moved else said


def bring(before: Path) -> int:
    """Keep the kernels of this folder too, if they are newer or missing in the present one. Returns how many."""
    try:
        record = kept_kernels.record_in(read_text(before / "progress.json", kept_kernels.MOST_RECORD)) or {}
    except CourseError:  # none was kept
        return 0
    brought = 0
    for key, entry in record.items():
        if entry.get("date", "") <= kept_kernels.progress().get(key, {}).get("date", ""):
            continue
        (operation_name, _, name), launch = key.partition("."), entry.get("launch")
        with contextlib.suppress(CourseError):  # an exercise that this course does not have; a missing file
            operation = find(operation_name)
            text = read_text(before / kept_kernels.file_name(operation, name, launch), kept_kernels.MOST_TEXT)
            seconds, sizes = entry.get("seconds"), entry.get("sizes", "")
            kept_kernels.keep(operation, name, text, launch, seconds, sizes, entry.get("date", ""))
            brought += 1
    return brought
