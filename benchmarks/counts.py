"""Compare the emulator's counts with a GPU's counters for all kernels: python -m benchmarks.counts [--out FOLDER].

Needs a GPU and Nsight Compute (ncu); with --again it needs only the saved counts of a GPU. Each kernel of the course is
launched once under ncu, which reads the hardware's counters, and once on the emulator. Both launches use the small case
on which the judge looks at the kernel's accesses. What is counted, for reads and for writes of all arrays together: the
requests of warps to global memory, the sectors of 32 bytes that these touch, and the turns that the banks of shared
memory lose to conflicts. Atomics and accesses outside arrays are left out.

The compiler may remove accesses that the code has, or add some. So ncu watches each kernel twice: compiled as always,
and compiled as it is written, without optimisation.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machines, saved
from nnclassroom.exercises.catalogue import exercise_topics
from nnclassroom.figures.accesses import accesses
from nnclassroom.judge.budget import case_of
from nnclassroom.timing.counters import METRICS, by_ncu, counted, launch
from nncourse import device as devices
from nncourse.catalogue import defined_in, operations
from nncourse.errors import CourseError
from nncourse.kernels.kernel import CudaKernel
from nncourse.kernels.operation import Operation

GPU, AS_WRITTEN, EMULATOR = "gpu", "gpu, as written", "emulator"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launch", action="store_true", help="only launch the kernels: the command that ncu runs")
    parser.add_argument("--out", type=Path, default=saved.RESULTS, help="folder for the results (default results/)")
    parser.add_argument("--again", action="store_true", help="count on the emulator, and keep the GPU's saved counts")
    options = parser.parse_args(arguments)
    if options.launch:
        for operation, kernel in kernels():
            launch(operation, kernel)
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


def twice_by_ncu() -> list[dict[str, Any]]:
    """The function and both counts of each launch of a course's kernel, in order. SystemExit if ncu fails."""
    program = [sys.executable, "-m", "benchmarks.counts", "--launch"]
    entries = list(dict.fromkeys(kernel.entry for _, kernel in kernels()))
    try:
        optimised, written = (by_ncu(program, entries, debug) for debug in ("0", "1"))
    except CourseError as error:
        raise SystemExit(f"benchmarks.counts: {error}") from None
    return [
        {"entry": entry, GPU: counts, AS_WRITTEN: again}
        for (entry, counts), (_, again) in zip(optimised, written, strict=True)
    ]


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
