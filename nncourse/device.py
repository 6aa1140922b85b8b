"""Devices: GPU detection, transfers, synchronisation, timing; a machine's name, versions and measured limits.

No other file checks whether there is a GPU.
"""

import contextlib
import ctypes
import functools
import math
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from nncourse.threads import Threads, cores, granted

Array = Any  # a NumPy array on the CPU, a CuPy array on a GPU
# M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h: memory goes back to the system from these sizes on.
MALLOC = {-3: 1 << 25, -1: 1 << 28}
SHARED = 0.1  # of this thread's CPU time: if other threads computed for longer, the work was shared


def gpu_available() -> bool:
    """Whether CuPy is installed and finds a CUDA GPU."""
    return not why_no_gpu()


@functools.cache
def why_no_gpu() -> str:
    """Why no GPU can be used: one line that says what is missing and what to do; "" if there is one."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed here (for an NVIDIA GPU: `make lab`, or pip install 'nncourse[cuda13]')"
    if cupy.cuda.is_available():
        return ""
    return "CuPy is installed, but no NVIDIA GPU answers (on a Slurm cluster, ask for one: --gres=gpu:1)"


def gpu_count() -> int:
    """The number of GPUs that can be used here."""
    if why_no_gpu():
        return 0
    import cupy

    return cupy.cuda.runtime.getDeviceCount()


def on_gpu(array: Array) -> bool:
    """Whether `array` is a CuPy array. Tests an attribute, so that CuPy need not be imported."""
    return hasattr(array, "__cuda_array_interface__")


def address(array: Array) -> int:
    """The address of the first number of a NumPy or CuPy array."""
    return array.data.ptr if on_gpu(array) else array.ctypes.data


def stacked(arrays: Sequence[Array]) -> Array:
    """Arrays of one shape, stacked along a new first axis; not copied if they are the parts of one array, in order.

    >>> parts = np.zeros((3, 2, 5))
    >>> stacked(list(parts)) is parts
    True
    """
    first, whole = arrays[0], arrays[0].base
    if getattr(whole, "shape", None) == (len(arrays), *first.shape) and whole.dtype == first.dtype:
        places = [address(whole) + number * first.nbytes for number in range(len(arrays))]
        in_order = [address(each) for each in arrays] == places
        if in_order and all(each.flags.c_contiguous for each in (whole, *arrays)):
            return whole
    return np.stack(arrays)


def array_module(array: Array) -> ModuleType:
    """The module that made `array`: numpy or cupy."""
    if not on_gpu(array):
        return np
    import cupy

    return cupy


def to_device(array: Array, device: str) -> Array:
    """`array` on "cpu" (NumPy) or "gpu" (CuPy); copied only if it is on the other device."""
    if device == "cpu":
        return array.get() if on_gpu(array) else np.asarray(array)
    import cupy

    return cupy.asarray(array)


def synchronise(device: str) -> None:
    """Wait until the GPU has finished all work queued on the current stream; does nothing on the CPU."""
    if device == "gpu":
        import cupy

        cupy.cuda.get_current_stream().synchronize()


def keep_freed_memory() -> None:
    """Let this process keep the memory of freed arrays for new ones.

    glibc gives much of it back to the system, and later has to fetch it again page by page: a step of a small
    transformer, which frees 40 MB, then takes 1.5 times as long. With any other C library this does nothing.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # no glibc
        for option, size in MALLOC.items():
            ctypes.CDLL(None).mallopt(option, size)


def describe(device: str = "cpu") -> str:
    """One line: the processor's name and usable cores, or the GPU's name, multiprocessors, memory and architecture."""
    if device == "cpu":
        return f"{_cpu_name()}, {len(cores())} cores"
    chip = _chip()
    name = chip["name"].decode()
    memory = chip["totalGlobalMem"] / 2**30
    return f"{name}, {chip['multiProcessorCount']} multiprocessors, {memory:.0f} GiB, sm_{chip['major']}{chip['minor']}"


def multiprocessors() -> int:
    """The number of multiprocessors of the current GPU."""
    return _chip()["multiProcessorCount"]


def capability() -> tuple[int, int]:
    """The compute capability of the current GPU: (9, 0) is an H100's, sm_90."""
    return _chip()["major"], _chip()["minor"]


def _chip() -> dict[str, Any]:
    """The properties of the current GPU, by CUDA's names."""
    import cupy

    return _properties(cupy.cuda.runtime.getDevice())


@functools.cache
def _properties(device: int) -> dict[str, Any]:
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(device)


def versions() -> dict[str, str]:
    """Versions of nncourse, Python and the imported numerical libraries, for reports and model files."""
    from nncourse import __version__

    imported = [name for name in ("numpy", "numba", "cupy", "torch", "sklearn") if name in sys.modules]
    libraries = {name: sys.modules[name].__version__ for name in imported}
    return {"nncourse": __version__, "python": platform.python_version()} | libraries


@functools.cache
def limits(device: str = "cpu") -> dict[str, float]:
    """Copy bandwidth and matrix product rate of this machine, measured once per process: upper bounds for any kernel.

    "copy": bytes per second (read plus written) while one large float32 array is copied to another.
    "matrix": FLOP per second of the library's float32 matrix product, with TF32 off.
    """
    xp: Any = np
    if device == "gpu":
        import cupy

        xp = cupy
    length, side = (1 << 28, 8192) if device == "gpu" else (1 << 24, 1024)
    source, target = xp.ones(length, np.float32), xp.empty(length, np.float32)
    rows = xp.asarray(np.random.default_rng(0).standard_normal((side, side), dtype=np.float32))
    product = xp.empty((side, side), np.float32)
    copy_seconds = seconds(lambda: xp.copyto(target, source), device, pick=min)
    matrix_seconds = seconds(lambda: xp.matmul(rows, rows, out=product), device, pick=min)
    return {"copy": 2 * source.nbytes / copy_seconds, "matrix": 2 * side**3 / matrix_seconds}


def seconds(
    work: Callable[[], Any],
    device: str = "cpu",
    enough: float = 0.05,
    repeats: int = 7,
    pick: Callable[[list[float]], float] = statistics.median,
    slow: float = math.inf,
) -> float:
    """Time of one call of `work()`, in seconds: `pick` of the repeats, by default their median.

    A warm-up call comes first. Each repeat makes enough calls to last about `enough / repeats` seconds, so that the
    cost of reading the clock is negligible. Slow work is repeated less often, to keep the total near one second. If the
    warm-up takes more than `slow` seconds, it is the only call: set `slow` only for work that compiles nothing.
    GPU times are measured with events, because work() only queues its launches. CPU times are for one thread; if a
    library shares the work among threads and cores are idle, for several threads too, and the shorter time counts.
    """
    repeated = functools.partial(_repeated, work, device, enough, repeats, pick)
    with Threads(math.inf if device == "cpu" else 0.0, most=granted()) as threads:
        if (first := elapsed(work, 1, device)) > slow:
            return first
        alone = repeated()
        if threads.choose() == 1:
            return alone
        process, own = time.process_time(), time.thread_time()
        elapsed(work, 1, device)
        process, own = time.process_time() - process, time.thread_time() - own
        return min(alone, repeated()) if process - own > SHARED * own else alone


def _repeated(
    work: Callable[[], Any], device: str, enough: float, repeats: int, pick: Callable[[list[float]], float]
) -> float:
    """seconds() after the warm-up, with the current number of threads."""
    calls = 1
    while (took := elapsed(work, calls, device)) < enough / repeats and calls < 1 << 20:
        calls = max(2 * calls, min(int(calls * enough / repeats / max(took, 1e-9)), 64 * calls))
    repeats = min(repeats, 1 + int(max(1.0, 2 * enough) / max(took, 1e-9)))
    return pick([took / calls] + [elapsed(work, calls, device) / calls for _ in range(repeats - 1)])


def elapsed(work: Callable[[], Any], calls: int, device: str) -> float:
    """Total time of `calls` calls of work(), in seconds."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            work()
        return time.perf_counter() - start
    import cupy

    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    for _ in range(calls):
        work()
    stop.record()
    stop.synchronize()
    return cupy.cuda.get_elapsed_time(start, stop) / 1000  # milliseconds


def _cpu_name() -> str:
    """The processor's name from /proc/cpuinfo, otherwise from Python's platform module."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        if match := re.search(r"^model name\s*:(.*)$", file.read(), re.MULTILINE):
            return match[1].strip()
    return platform.processor() or platform.machine()


def gpu_handles(pynvml: Any) -> list[Any]:
    """NVML's handles in CUDA's order. NVML lists all GPUs of a host, CUDA those that this process may use."""
    try:
        import cupy

        buses = [cupy.cuda.runtime.deviceGetPCIBusId(n) for n in range(cupy.cuda.runtime.getDeviceCount())]
    except Exception:  # no CuPy or no driver: then NVML's order has to do
        return [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    return [pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode() if isinstance(bus, str) else bus) for bus in buses]
