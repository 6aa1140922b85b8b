"""The load by other processes while something is timed: on a shared server they make times longer.

before = threads.look()
…                                          # what is timed
meanwhile = threads.since(before)          # a Load
print(neighbours.in_words(meanwhile))      # "" if the others did too little to matter
"""

import os
import subprocess
from collections.abc import Iterable

import psutil

from nncourse import device as devices
from nncourse.threads import TELLS, Load, usable_cores

MATTERS = 0.5, 0.1  # load that is reported: at least so many cores, and this share of all cores


def together(loads: Iterable[Load]) -> Load:
    """The total load of several successive times."""
    loads = list(loads)
    others, seconds = sum(load.others for load in loads), sum(load.seconds for load in loads)
    return Load(others, seconds, max((load.cores for load in loads), default=1))


def in_words(load: Load) -> str:
    """A sentence if others kept so many cores busy that times are in doubt, else ""."""
    busy = load.others / load.seconds if load.seconds >= TELLS else 0.0
    least, share = MATTERS
    if busy < max(least, share * load.cores):
        return ""
    return f"Shared: others kept {busy:.1f} of {load.cores} cores busy meanwhile; times may be too long."


def share_in_words(cores: int | None = None, usable: int | None = None) -> str:
    """A sentence if this process may use only some of the machine's cores, as in a Slurm job, else ""."""
    cores = cores or os.cpu_count() or 1
    usable = usable or usable_cores()
    return f"This process may use {usable} of the machine's {cores} cores." if usable < cores else ""


def gpu_in_words() -> str:
    """A sentence if other users' processes run on this process's GPU, else ""."""
    if not devices.gpu_available():
        return ""
    import cupy

    place = cupy.cuda.runtime.deviceGetPCIBusId(cupy.cuda.Device().id)
    others = sum(not _is_mine(number) for number in _processes_on(place))
    return f"Shared: {others} of other users' processes are on this GPU; times may be too long." if others else ""


def _processes_on(place: str) -> list[int]:
    """The numbers of the processes that compute on the GPU at this PCI bus id, as nvidia-smi lists them."""
    command = ["nvidia-smi", f"--id={place}", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [int(line) for line in answer.stdout.split() if line.isdigit()] if answer.returncode == 0 else []


def _is_mine(number: int) -> bool:
    """Whether a process is this user's, or cannot be seen from here, as inside a container."""
    try:
        return psutil.Process(number).uids().real == os.getuid()
    except psutil.Error:
        return True
