"""`nncourse profile`: what CUDA kernels ask of memory, on the emulator and by a GPU's counters."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nnclassroom.commands import check
from nncourse.errors import CourseError, refuse_unknown

if TYPE_CHECKING:
    from nncourse.kernels.operation import Operation

COLUMN_WORDS = {"emulator": "emulator", "gpu": "GPU"}
ROW_WORDS = {
    "requests read": "read requests",
    "sectors read": "read sectors",
    "ratio read": "sectors per read request",
    "requests write": "write requests",
    "sectors write": "write sectors",
    "ratio write": "sectors per write request",
    "conflicts read": "bank conflicts of reads",
    "conflicts write": "bank conflicts of writes",
}


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("operation", help="name of the operation")
    check.add_kernel_names(parser)
    parser.add_argument("--mine", action="store_true", help="profile your own kept kernels instead of the course's")


def run(options: Namespace) -> int:
    from nnclassroom.exercises import kept_kernels
    from nnclassroom.exercises.catalogue import find
    from nnclassroom.figures.accesses import accesses, wrapped
    from nnclassroom.judge.budget import case_of
    from nnclassroom.timing import counters
    from nncourse.kernels.kernel import CudaKernel

    operation = find(options.operation)
    kept = _kept(operation) if options.mine else {}
    of_course = [name for name, kernel in operation.kernels.items() if isinstance(kernel, CudaKernel)]
    known = list(kept) if options.mine else of_course
    if not known:
        if options.mine:
            raise CourseError(f"{operation.name}: expected a CUDA kernel of yours to profile; you have kept none")
        raise CourseError(f"{operation.name}: expected a CUDA kernel of one launch to profile; the course has none")
    for name in options.kernel:
        refuse_unknown("a CUDA kernel of one launch", name, known)
    reason, status = counters.why_not(), 0
    for name in options.kernel or known:
        kernel = kept_kernels.load(operation, name, kept[name]) if options.mine else operation[name]
        if not isinstance(kernel, CudaKernel):  # but the verdict on a kept one
            print(kernel, end="\n\n")
            status = 1
            continue
        kernel = replace(kernel, whose="yours") if options.mine else kernel
        found = accesses(kernel, *case_of(operation, name).arguments)
        print("\n".join(wrapped(found.title, 80)), flush=True)
        counts: dict[str, Mapping[str, float]] = {"emulator": counters.counted(found.trace)}
        try:
            counts |= {} if reason else {"gpu": counters.counted_by_gpu(kernel)}
        except CourseError as error:  # no other kernel is tried on the GPU: most reasons are the machine's
            reason = str(error)
        print(table(counts), end="\n\n", flush=True)
    if reason:
        print(f"No GPU counts: {reason}")
    return status


def _kept(operation: Operation) -> dict[str, dict[str, Any]]:
    """The records of the student's kept CUDA kernels of an operation, by name."""
    from nnclassroom.exercises import kept_kernels

    record = {key.partition(".")[::2]: entry for key, entry in kept_kernels.progress().items() if "launch" in entry}
    return {name: entry for (of, name), entry in record.items() if of == operation.name}


def table(counts: Mapping[str, Mapping[str, float]]) -> str:
    """The counts of each device as lines of text; with two devices, also whether they agree."""
    columns = {COLUMN_WORDS[device]: _cells(found) for device, found in counts.items()}
    width = max(map(len, ROW_WORDS.values()))
    lines = ["".join([" " * width, *(f"{head:>12}" for head in columns)])]
    for name, words in ROW_WORDS.items():
        lines.append("".join([f"{words:{width}}", *(f"{cells[name]:>12}" for cells in columns.values())]))
    if len(counts) > 1:
        same = counts["gpu"] == counts["emulator"]
        why = "The counts differ, since compilers leave out or add accesses: see docs/confirmed.md."
        lines.append("The counts are the same." if same else why)
    return "\n".join(lines)


def _cells(counts: Mapping[str, float]) -> dict[str, str]:
    """A text for each row."""
    from nnclassroom.timing.counters import WAYS, name_of

    cells = {name: f"{count:,}" for name, count in counts.items()}
    for way in WAYS:
        requests, sectors = counts[name_of("requests", way)], counts[name_of("sectors", way)]
        cells[name_of("ratio", way)] = f"{sectors / requests:.1f}" if requests else "–"
    return cells
