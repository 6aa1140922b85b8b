"""Describe the machine that measures, for the contents of results files and for their names. Not a command."""

import contextlib
import re
import subprocess
from importlib import metadata

from benchmarks.compare import versions


def about(device: str) -> dict:
    """The machine that computes, its CPU, and the versions."""
    from nncourse import device as devices

    described = {}
    if device == "gpu":
        import cupy

        runtime = cupy.cuda.runtime.runtimeGetVersion()  # 13020 is CUDA 13.2
        described = {"cuda": f"{runtime // 1000}.{runtime % 1000 // 10}", "driver": driver()}
    for library in ("torch", "jax"):  # without importing them, which takes seconds
        with contextlib.suppress(metadata.PackageNotFoundError):
            described[library] = metadata.version(library)
    names = {"machine": devices.describe(device), "cpu": devices.describe("cpu")}
    return names | {"versions": versions() | described}


def driver() -> str:
    """The version of NVIDIA's driver, from nvidia-smi; "unknown" if that is missing."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def slug(machine: str) -> str:
    """A machine's name for a file: nvidia-h200; intel-xeon-processor-2-cores."""
    name = machine.split(",")[0] if "multiprocessors" in machine else re.sub(r"\((R|TM)\)|@.*Hz", "", machine)
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
