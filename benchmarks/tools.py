"""Record what NVIDIA's tools report about notebook 08c's kernels: python -m benchmarks.tools [--out FOLDER].

Needs a GPU, nvcc, compute-sanitizer, cuda-gdb and Nsight Compute (ncu). Four programs with one fault each run under the
four tools of compute-sanitizer, and one of them in cuda-gdb. ncu reads the counters of three kernels of dense_forward,
and lists the launches of a training step.
Writes results/tools.json, which the notebook shows.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machines, saved
from nnclassroom.figures import overheads
from nnclassroom.figures.nb08_tools import FAULTS, RUNGS, TOOLS, fault, program
from nnclassroom.timing.counters import METRICS, by_ncu, counted_by_gpu
from nnclassroom.timing.profiles import step_profile
from nncourse import device as devices
from nncourse.backend import choose
from nncourse.catalogue import find
from nncourse.model.network import make_network, training_step

SIDE, SIZES, BATCH = 1024, (784, 128, 10), 32
FOUND = 9  # the exit status of compute-sanitizer where a tool finds something
LINES = 12  # of a report: its first error
STOPPED = "out of bounds"  # the program that cuda-gdb stops
DIALOGUE = (  # cuda-gdb refuses a condition before the kernel is loaded, so it comes after the first stop
    "break out_of_bounds.cu:14",
    "run",
    "condition 1 i >= batch && k_load < n_in",
    "continue",
    "print i",
    "print batch",
    "print i * n_in + k_load",
    "print batch * n_in",
)
NOISE = "[Thread", "[New", "[Detaching", "[Inferior", "Using host", "warning", "Breakpoint 1 at"  # of the host's code
TIME = "gpu__time_duration.sum"
LARGE = {
    "seconds": TIME,
    "requests": METRICS["requests read"],
    "sectors": METRICS["sectors read"],
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_hits": "l1tex__t_sector_hit_rate.pct",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "arithmetic": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=saved.RESULTS, help="folder for the results (default results/)")
    parser.add_argument("--launch", choices=(*RUNGS, "step"), help="only launch this: the command that ncu runs")
    options = parser.parse_args(arguments)
    if options.launch:
        return launch(options.launch)
    if not devices.gpu_available():
        parser.error(devices.why_no_gpu())
    result = saved.dated(machines.about("gpu"))
    with tempfile.TemporaryDirectory() as folder:
        result |= sanitized(Path(folder)) | {"debugger": in_debugger(Path(folder))}
    kernels = find("dense_forward").kernels
    result["counts"] = {name: counted_by_gpu(kernels[name]) for name in RUNGS}
    result["large"] = {name: large(name) for name in RUNGS}
    result["step"] = step()
    saved.save(result, options.out / "tools.json")
    return 0


def compiled(name: str, folder: Path, *options: str) -> Path:
    """The program with this fault."""
    text = folder / fault(name).source.file
    text.write_text(program(name), "utf-8")
    there = text.with_suffix("")
    subprocess.run(["nvcc", "-arch=native", *options, text.name, "-o", there.name], cwd=folder, check=True)
    return there


def sanitized(folder: Path) -> dict[str, Any]:
    """Which tool finds which fault in one run, and the first error that the tool for each reports."""
    found: dict[str, dict[str, Any]] = {}
    logs: dict[str, list[str]] = {}
    for name in FAULTS:
        there = compiled(name, folder, "-lineinfo")
        alone = subprocess.run([there], capture_output=True, text=True).stdout.strip()
        found[name] = {"alone": alone}
        for tool in TOOLS:
            command = ["compute-sanitizer", "--tool", tool, "--show-backtrace", "no", "--error-exitcode", str(FOUND)]
            done = subprocess.run([*command, there], capture_output=True, text=True, cwd=folder)
            found[name][tool] = done.returncode == FOUND
            if tool == FAULTS[name].tool:
                logs[name] = [f"$ compute-sanitizer --tool {tool} ./{there.name}", *first_error(done.stdout, folder)]
    return {"found": found, "logs": logs}


def first_error(report: str, folder: Path) -> list[str]:
    """The first error of a report, and its last line, which counts all; paths are left out."""
    lines = [line.replace(f"{folder}/", "").rstrip() for line in report.splitlines() if line.startswith("=====")]
    blank = [number for number, line in enumerate(lines[1:], 1) if not line.strip("= ")]
    end = min(blank[0] if blank else len(lines) - 1, LINES)
    return [*lines[:end], lines[-1]]


def in_debugger(folder: Path) -> list[str]:
    """What is typed into cuda-gdb to stop a thread at its fault, and what it answers."""
    there = compiled(STOPPED, folder, "-g", "-G")
    typed = [part for each in DIALOGUE for part in ("-ex", f"echo (cuda-gdb) {each}\n", "-ex", each)]
    command = ["cuda-gdb", "-q", "-batch", "-nx", "-ex", "set breakpoint pending on", *typed, there.name]
    said = subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout
    said = re.sub(r" \(A=0x.*\) at ", " at ", said)  # the addresses among the arguments
    return [line.rstrip() for line in said.splitlines() if line.strip() and not line.startswith(NOISE)]


def launched(what: str, metrics: dict[str, str], entries: Sequence[str]) -> list[tuple[str, dict[str, float]]]:
    return by_ncu([sys.executable, "-m", "benchmarks.tools", "--launch", what], entries, metrics=metrics)


def large(name: str) -> dict[str, float]:
    """Counters of a kernel on large matrices."""
    counts = launched(name, LARGE, [f"dense_forward_{name}"])[-1][1]
    return counts | {
        "seconds": counts["seconds"] / 1e9,
        "sectors_a_request": counts["sectors"] / counts["requests"],
    }


def step() -> dict[str, Any]:
    """The launches of the second of two training steps, in seconds each, and the time of a step without ncu."""
    rows = launched("step", {"seconds": TIME}, [".*"])
    rows = rows[len(rows) // 2 :]
    profiles = [step_profile(*parts()) for _ in range(5)]
    times = {word: statistics.median(getattr(each, word) for each in profiles) for word in ("seconds", "recorded")}
    return {"launches": [[name, counts["seconds"] / 1e9] for name, counts in rows]} | times


def parts() -> tuple[Any, np.ndarray, np.ndarray, Any]:
    """A network, a batch, and the backend of the step that is looked at."""
    return make_network(SIZES), *overheads.samples(SIZES, BATCH), choose("cuda")


def launch(what: str) -> int:
    """Launch a kernel once on large matrices, or two training steps."""
    if what == "step":
        network, X, Y, backend = parts()
        there, X, Y = network.on(backend), backend.to_device(X), backend.to_device(Y)
        for _ in range(2):
            training_step(there, X, Y, 0.1, backend)
    else:
        rng = np.random.default_rng(0)
        arrays = (rng.standard_normal(shape, np.float32) for shape in ((SIDE, SIDE), (SIDE, SIDE), SIDE))
        find("dense_forward")[what](*(devices.to_device(array, "gpu") for array in arrays))
    devices.synchronise("gpu")
    return 0


if __name__ == "__main__":
    sys.exit(main())
