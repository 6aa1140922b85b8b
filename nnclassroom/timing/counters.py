"""What a launch of a CUDA kernel asks of memory: the counts of a GPU, by NVIDIA's Nsight Compute (ncu), or emulated.

The counts are: what warps ask global memory for (requests) and the sectors of 32 bytes that this touches, for reads and
writes of all arrays together; and the turns that the banks of shared memory lose to conflicts. Atomics and accesses
outside arrays are left out.

ncu watches another process: python -m nnclassroom.timing.counters OPERATION KERNEL [yours] launches a kernel once.
"""

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cuda_on_cpu.errors import first_words
from cuda_on_cpu.requests import requests_of, sectors_of, turns_of
from cuda_on_cpu.trace import READ, WRITE, Trace
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.judge.budget import case_of
from nncourse import device as devices
from nncourse.errors import CourseError
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

GLOBAL, BANKS = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
WAYS = {"read": ("ld", READ), "write": ("st", WRITE)}
name_of = "{} {}".format  # of a count: "requests read"
METRICS = {
    **{
        name_of(what, way): GLOBAL.format(what, op) for way, (op, _) in WAYS.items() for what in ("requests", "sectors")
    },
    **{name_of("conflicts", way): BANKS.format(op) for way, (op, _) in WAYS.items()},
}
NO_PERMISSION = "ERR_NVGPUCTRPERM"
ERROR = "==ERROR=="  # begins a line of ncu


def counted(trace: Trace) -> dict[str, int]:
    """The counts of an emulated launch."""
    inside = trace.accesses[~trace.accesses["outside"]]
    requests = requests_of(inside)
    found = dict.fromkeys(METRICS, 0)
    for number, memory in enumerate(trace.memories):
        for way, (_, kind) in WAYS.items():
            mine = (inside["memory"] == number) & (inside["kind"] == kind)
            if not mine.any():
                continue
            if memory.shared:
                found[name_of("conflicts", way)] += int((turns_of(memory, inside[mine], requests[mine])[1] - 1).sum())
            else:
                sectors = sectors_of(memory, inside[mine], requests[mine])[1]
                found[name_of("requests", way)] += len(sectors)
                found[name_of("sectors", way)] += int(sectors.sum())
    return found


def why_not() -> str:
    """Why no counters can be read on this machine: one line that says what to do; "" if ncu may be tried."""
    if devices.gpu_available() and not shutil.which("ncu"):
        return "there is no ncu on PATH: install NVIDIA Nsight Compute, or add its folder, such as /usr/local/cuda/bin"
    return devices.why_no_gpu()


def counted_by_gpu(kernel: CudaKernel) -> dict[str, float]:
    """The counts of one launch on the GPU. CourseError if this GPU lacks what the kernel needs, or if ncu fails."""
    if reason := kernel.missing():
        raise CourseError(f"{kernel.operation.name} ({kernel.name}): {reason}")
    launching = ("-m", "nnclassroom.timing.counters", kernel.operation.name, kernel.name, kernel.whose)
    return by_ncu([sys.executable, *filter(None, launching)], [kernel.entry])[0][1]


def by_ncu(
    program: Sequence[str], entries: Iterable[str], debug: str = "0", metrics: Mapping[str, str] = METRICS
) -> list[tuple[str, dict[str, float]]]:
    """The function and the counts of each launch of one of these functions by a program.

    debug: "1" to compile without optimisation, as for a debugger.
    metrics: of ncu, by the names that their numbers get; times are in ns.

    CourseError if ncu fails: one line that says why.
    """
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    command += ["--metrics", ",".join(metrics.values())]
    command += ["--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(entries)})$"]
    # numbers with a decimal point, whatever the locale
    environment = os.environ | {"CUPY_CUDA_COMPILE_WITH_DEBUG": debug, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            [*command, *program], env=environment, capture_output=True, encoding="utf-8", errors="replace"
        )
    except OSError as error:
        raise CourseError(f"ncu cannot be started: {error.strerror}") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode or len(lines) < 3:
        raise CourseError(_why(done.stdout, done.stderr))
    table = list(csv.DictReader(lines))[1:]  # the first row has the units
    try:
        return [(row["Kernel Name"].partition("(")[0], _numbers(row, metrics)) for row in table]
    except (KeyError, ValueError):
        raise CourseError("ncu does not report these counters on this GPU") from None


def _numbers(row: dict[str, str], metrics: Mapping[str, str]) -> dict[str, float]:
    found = {what: float(row[metric].replace(",", "")) for what, metric in metrics.items()}
    return {what: int(number) if number.is_integer() else number for what, number in found.items()}


def _why(out: str, err: str) -> str:
    """Why ncu failed, in one line."""
    if NO_PERMISSION in out + err:
        return (
            f"ncu may not read the GPU's counters ({NO_PERMISSION}): ask the administrator to allow it for all users; "
            "a container needs --cap-add=SYS_ADMIN"
        )
    errors = [line.removeprefix(ERROR) for line in (out + err).splitlines() if line.startswith(ERROR)]
    # That the launching process failed says less than its own last line.
    own = [line for line in errors if "application" not in line] or err.splitlines()[-1:] or errors or [out]
    return f"ncu failed: {first_words(own[0])}"


def launch(operation: Operation, kernel: Kernel) -> None:
    """Launch a kernel once on the GPU, on the small case on which the judge looks at its accesses."""
    arguments = case_of(operation, kernel.name).arguments
    kernel(*(devices.to_device(value, "gpu") if isinstance(value, np.ndarray) else value for value in arguments))
    devices.synchronise("gpu")


def _launch_named(operation_name: str, name: str, whose: str = "") -> None:
    """Launch the course's kernel of that name, or the student's kept one. ncu's parent process has judged it."""
    operation, text, options = find(operation_name), None, None
    if whose:
        options = kept_kernels.progress()[f"{operation_name}.{name}"]["launch"]
        text = kept_kernels.text_of(operation, name, options)
    launch(operation, kept_kernels.build(operation, name, text, options))


if __name__ == "__main__":
    _launch_named(*sys.argv[1:])
