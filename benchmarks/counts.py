"""The emulator's counts beside a GPU's counters, for every CUDA kernel: python -m benchmarks.counts [--out FOLDER].

Needs a GPU and Nsight Compute (ncu); with --again only the saved counts of a GPU. Each kernel of the course is launched
once, on the small case on which the judge looks at its accesses: under ncu, which reads the hardware's counters, and on
the emulator. Counted are what warps ask global memory for (requests) and the sectors of 32 bytes that this touches, for
reads and writes of all arrays together, and the turns that the banks of shared memory lose to conflicts. Atomics and
accesses outside arrays are left out.

The compiler may leave out accesses that the text has, or add some. So ncu watches twice: kernels compiled as always,
and kernels compiled as they are written, without optimisation.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machines, saved
from cuda_on_cpu.requests import requests_of, sectors_of, turns_of
from cuda_on_cpu.trace import READ, WRITE, Trace
from nnclassroom.exercises.catalogue import exercise_topics
from nnclassroom.figures.accesses import accesses
from nnclassroom.judge.budget import case_of
from nncourse import device as devices
from nncourse.catalogue import defined_in, operations
from nncourse.kernels.kernel import CudaKernel
from nncourse.kernels.operation import Operation

GPU, AS_WRITTEN, EMULATOR = "gpu", "gpu, as written", "emulator"
GLOBAL, BANKS = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
WAYS = {"read": ("ld", READ), "write": ("st", WRITE)}
METRICS = {
    **{f"{what} {way}": GLOBAL.format(what, op) for way, (op, _) in WAYS.items() for what in ("requests", "sectors")},
    **{f"conflicts {way}": BANKS.format(op) for way, (op, _) in WAYS.items()},
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launch", action="store_true", help="only launch the kernels, as ncu is told to do")
    parser.add_argument("--out", type=Path, default=saved.RESULTS, help="folder for the results (default results/)")
    parser.add_argument("--again", action="store_true", help="count on the emulator only, and keep the GPU's counts")
    options = parser.parse_args(arguments)
    if options.launch:
        for operation, kernel in kernels():
            kernel(*(on_gpu(value) for value in case_of(operation, kernel.name).arguments))
        devices.synchronise("gpu")
        return 0
    if not options.again and not devices.gpu_available():
        parser.error(devices.why_no_gpu())
    path = options.out / "counts.json"
    result = (
        json.loads(path.read_text("utf-8")) if options.again else machines.about("gpu") | {"counts": twice_by_ncu()}
    )
    rows = []
    for (operation, kernel), measured in zip(kernels(), result["counts"], strict=True):
        case = case_of(operation, kernel.name)
        sizes = {name: size for name, size in operation.sizes(*case.arguments).items() if isinstance(size, int)}
        about = {"operation": operation.name, "kernel": kernel.name, "sizes": sizes}
        expected = about | {"entry": kernel.entry}
        if expected | measured != measured | expected:
            parser.error(f"expected the GPU's counts of {expected}, got {measured}")
        counts = {device: measured[device] for device in (GPU, AS_WRITTEN)}
        rows.append(about | counts | {EMULATOR: counted(accesses(kernel, *case.arguments).trace)})
        print(rows[-1], flush=True)
    saved.save(result | {"counts": rows}, path)
    return 0


def kernels() -> Iterator[tuple[Operation, CudaKernel]]:
    """Every kernel of the course that is one launch of a `__global__` function in one of its .cu files."""
    for operation in (operations() | defined_in(exercise_topics())).values():
        for kernel in operation.kernels.values():
            if isinstance(kernel, CudaKernel):
                yield operation, kernel


def on_gpu(value: Any) -> Any:
    return devices.to_device(value, "gpu") if isinstance(value, np.ndarray) else value


def twice_by_ncu() -> list[dict[str, Any]]:
    """The function and both counts of each launch of a course's kernel, in order."""
    optimised, written = by_ncu("0"), by_ncu("1")
    return [
        {"entry": entry, GPU: counts, AS_WRITTEN: again}
        for (entry, counts), (_, again) in zip(optimised, written, strict=True)
    ]


def by_ncu(debug: str) -> list[tuple[str, dict[str, int]]]:
    """The function and the counters of each launch. debug: "1" to compile without optimisation, as for a debugger.

    SystemExit if ncu fails.
    """
    names = "|".join(dict.fromkeys(kernel.entry for _, kernel in kernels()))
    command = ["ncu", "--csv", "--page", "raw", "--clock-control", "none", "--metrics", ",".join(METRICS.values())]
    command += ["--kernel-name-base", "function", "--kernel-name", f"regex:^({names})$"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "benchmarks.counts", "--launch"],
        env=os.environ | {"CUPY_CUDA_COMPILE_WITH_DEBUG": debug},
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode or len(lines) < 3:
        raise SystemExit(f"benchmarks.counts: ncu failed: {(done.stderr or done.stdout)[-2000:]}")
    table = list(csv.DictReader(lines))[1:]  # the first row has the units
    number = {
        what: (lambda row, metric=metric: int(float(row[metric].replace(",", "")))) for what, metric in METRICS.items()
    }
    return [(row["Kernel Name"].partition("(")[0], {what: of(row) for what, of in number.items()}) for row in table]


def counted(trace: Trace) -> dict[str, int]:
    """The same counts of an emulated launch."""
    inside = trace.accesses[~trace.accesses["outside"]]
    requests = requests_of(inside)
    found = dict.fromkeys(METRICS, 0)
    for number, memory in enumerate(trace.memories):
        for way, (_, kind) in WAYS.items():
            mine = (inside["memory"] == number) & (inside["kind"] == kind)
            if not mine.any():
                continue
            if memory.shared:
                found[f"conflicts {way}"] += int((turns_of(memory, inside[mine], requests[mine])[1] - 1).sum())
            else:
                sectors = sectors_of(memory, inside[mine], requests[mine])[1]
                found[f"requests {way}"] += len(sectors)
                found[f"sectors {way}"] += int(sectors.sum())
    return found


# ---- the table


def words_and_rows(result: Mapping[str, Any]) -> tuple[str, list[list[str]]]:
    """How many kernels agree in every count, and a row for each that does not in both ways of compiling it."""
    rows = result["counts"]
    same = [[row[device] == row[EMULATOR] for device in (GPU, AS_WRITTEN)] for row in rows]
    always, written = map(sum, zip(*same, strict=True))
    close = sum(any(_near(row[device], row[EMULATOR]) for device in (GPU, AS_WRITTEN)) for row in rows)
    said = (
        f"Of {len(rows)} CUDA kernels, each launched once on a small case, {sum(map(any, same))} have the same six "
        f"counts on the emulator and on the GPU in at least one of two ways of compiling them: {always} as always, "
        f"{written} as they are written, without optimisation. {close} have the same sectors within 1 %. Where a count "
        "differs, the table has GPU as always / GPU as written / emulator:"
    )
    head = ["kernel", *METRICS]
    others = [row for row, both in zip(rows, same, strict=True) if not all(both)]
    return said, [head, *([f"{row['operation']} (`{row['kernel']}`)", *_cells(row)] for row in others)]


def _near(counts: Mapping[str, int], others: Mapping[str, int]) -> bool:
    """Whether two counts of sectors differ by at most 1 %."""
    pairs = [(counts[name], others[name]) for name in METRICS if name.startswith("sectors")]
    return all(max(pair) - min(pair) <= 0.01 * max(pair) for pair in pairs)


def _cells(row: Mapping[str, Any]) -> list[str]:
    """The three counts of each kind, or one if they are the same."""
    found = []
    for name in METRICS:
        counts = [f"{row[device][name]:,}" for device in (GPU, AS_WRITTEN, EMULATOR)]
        found.append(counts[0] if len(set(counts)) == 1 else " / ".join(counts))
    return found


if __name__ == "__main__":
    sys.exit(main())
