"""The load by other processes while something is timed: on a shared server they make times longer.

before = threads.look()
…                                          # what is timed
meanwhile = threads.since(before)          # a Load
print(neighbours.in_words(meanwhile))      # "" if the others did too little to matter
"""

import os
import time
from collections.abc import Container, Iterable
from typing import Any

import psutil

from nncourse import device as devices
from nncourse.threads import TELLS, Load, usable_cores

LATELY = 5.0  # seconds
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
    """A sentence if other users' processes are on this process's GPU, as NVML (nvidia-ml-py) has it; else ""."""
    if not devices.gpu_available():
        return ""
    try:
        import pynvml
    except ImportError:
        return ""
    import cupy

    try:
        pynvml.nvmlInit()
        handle = devices.gpu_handles(pynvml)[cupy.cuda.Device().id]
        running = [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        others = {number for number in running if not _is_mine(number)}
        busy = _busy(pynvml, handle, others)
    except pynvml.NVMLError:
        return ""
    if not others:
        return ""
    used = f", {busy} % busy" if busy else ""
    return f"Shared: processes of others on this GPU: {len(others)}{used}; times may be too long."


def _busy(pynvml: Any, handle: Any, processes: Container[int]) -> int:
    """The per cent of the last seconds in which these processes computed on the GPU; 0 if that is not known."""
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, int(1e6 * (time.time() - LATELY)))
    except pynvml.NVMLError:  # none has computed, or this GPU does not count it
        return 0
    latest = {each.pid: each.smUtil for each in samples if each.pid in processes}
    return min(100, sum(latest.values()))


def _is_mine(number: int) -> bool:
    """Whether a process is this user's, or cannot be seen from here, as inside a container."""
    try:
        return psutil.Process(number).uids().real == os.getuid()
    except psutil.Error:
        return True
