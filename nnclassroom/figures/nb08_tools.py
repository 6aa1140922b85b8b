"""Four faults of a tiled kernel, and what NVIDIA's tools said of them on a GPU: for notebook 08c.

What the tools said is recorded: results/tools.json, by `python -m benchmarks.tools`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from cuda_on_cpu.requests import WARP, requests_of
from nnclassroom.figures import overheads
from nnclassroom.figures.accesses import accesses
from nnclassroom.figures.recorded import not_recorded, of_sizes, table
from nnclassroom.formats import duration
from nnclassroom.judge.budget import case_of
from nnclassroom.timing.counters import WAYS
from nncourse.catalogue import find
from nncourse.errors import refuse_unknown
from nncourse.kernels.kernel import CudaKernel

NAME, COMMAND = "tools", "python -m benchmarks.tools"
RATES = "tensor_cores-nvidia-h200"
MAIN = Path(__file__).with_name("nb08_tools_main.cu")
TOOLS = "memcheck", "racecheck", "initcheck", "synccheck"
RUNGS = "naive", "coalesced", "tiled"


class Fault(NamedTuple):
    """Code of the kernel `tiled`, what stands there in the faulty kernel, and the tool that looks for this."""

    right: str
    wrong: str
    tool: str
    place: int = 0  # which of several such places


BARRIER = "        __syncthreads();"
FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "out of bounds": Fault("i < batch && k_load < n_in ? A[", "k_load < n_in ? A[", "memcheck"),
        "race": Fault(BARRIER, "       ", "racecheck", 1),
        "never set": Fault("Z[i * n_out + j] = z + b[j];", "Z[i * n_out + j] += z + b[j];", "initcheck"),
        "barrier": Fault(BARRIER, "        if (k_load < n_in) __syncthreads();", "synccheck"),
    }
)


def _parts(name: str) -> tuple[str, str, str]:
    """The kernel's text before the change, what stands there now, and the text after it."""
    refuse_unknown("a fault", name, FAULTS)
    right, wrong, _, place = FAULTS[name]
    whole = _cuda("tiled").source.text
    pieces = whole[whole.index("#define TILE") :].split(right)  # `tiled` alone: few lines, the same everywhere
    return right.join(pieces[: place + 1]), wrong, right.join(pieces[place + 1 :])


def fault(name: str) -> CudaKernel:
    """The course's kernel `tiled` of dense_forward with one line changed."""
    text, kernel = "".join(_parts(name)), _cuda("tiled")
    file = f"{name.replace(' ', '_')}.cu"
    return replace(kernel, name=name, source=replace(kernel.source, text=text, file=file), plans={})


def _cuda(name: str) -> CudaKernel:
    kernel = find("dense_forward")[name]
    assert isinstance(kernel, CudaKernel)
    return kernel


def program(name: str) -> str:
    """The faulty kernel with a host side, for nvcc."""
    return f"{fault(name).source.text}\n{MAIN.read_text('utf-8')}"


def changed_line(name: str) -> list[str]:
    """The line of `tiled` that is changed, with its number, before the change (−) and after it (+)."""
    before, wrong, after = _parts(name)
    number = before.count("\n")
    texts = (before + FAULTS[name].right + after, before + wrong + after)
    return [
        f"{number + 1:3} {sign} {text.splitlines()[number].strip()}" for sign, text in zip("−+", texts, strict=True)
    ]


# ---- what the emulator sees


def requests(name: str, kind: str, shared: bool) -> np.ndarray:
    """The addresses of each request of a rung on the small case that Nsight Compute watched: (warps, lanes), in bytes.

    kind: "read" or "write". shared: of shared memory, otherwise of global memory. −1 where a lane asks for nothing.
    """
    refuse_unknown("a rung", name, RUNGS)
    operation, kernel = find("dense_forward"), _cuda(name)
    trace = accesses(kernel, *case_of(operation, name).arguments).trace
    found = []
    for number, memory in enumerate(trace.memories):
        mine = (trace.accesses["memory"] == number) & (trace.accesses["kind"] == WAYS[kind][1])
        rows = trace.accesses[mine & ~trace.accesses["outside"]]
        if memory.shared == shared and len(rows):
            request = requests_of(rows)
            addresses = np.full((request.max() + 1, WARP), -1, np.int32)
            addresses[request, rows["thread"] % WARP] = rows["offset"]
            found.append(addresses)
    return np.concatenate(found) if found else np.empty((0, WARP), np.int32)


# ---- what was recorded


def where() -> str:
    """The machine of the records."""
    return overheads.recorded_where(NAME)


def log(name: str) -> str:
    """What the tool for this fault said of the faulty program."""
    refuse_unknown("a fault", name, FAULTS)
    return _of(lambda found: "\n".join(found["logs"][name]))


def debugger() -> str:
    """A session with cuda-gdb, which stopped a thread of "out of bounds" at its fault."""
    return _of(lambda found: "\n".join(found["debugger"]))


def found_table() -> str:
    """For each fault the tools that find something in one run, and the wrong results of the program alone."""

    def made(found: Mapping[str, Any]) -> str:
        rows = [
            [name, *("finds it" if row[tool] else "–" for tool in TOOLS), row["alone"].split()[2]]
            for name, row in found["found"].items()
        ]
        return table(["", *TOOLS, "wrong numbers"], rows)

    return _of(made)


def counts_table(yours: Mapping[str, Mapping[str, int]]) -> str:
    """For each rung the counts in `yours`, by rung and name, beside those of Nsight Compute."""

    def made(found: Mapping[str, Any]) -> str:
        rows = [
            [rung, what, f"{count:,}", f"{found['counts'][rung][what]:,}"]
            for rung, counts in yours.items()
            for what, count in counts.items()
        ]
        return table(["rung", "count", "yours", "GPU"], rows)

    return _of(made)


# What a metric of Nsight Compute is, in words, and how it is shown.
COUNTERS = {
    "seconds": ("time", duration),
    "requests": ("requests to read global memory, in millions", lambda count: f"{count / 1e6:.1f}"),
    "sectors_a_request": ("sectors a request", "{:.1f}".format),
    "dram": ("traffic of global memory behind the caches, % of its maximum", "{:.0f}".format),
    "l1_hits": ("found in the L1 cache, %", "{:.0f}".format),
    "l1": ("traffic of L1 and shared memory, % of its maximum", "{:.0f}".format),
    "arithmetic": ("multiply-add instructions, % of the maximum", "{:.0f}".format),
    "warps": ("places for warps in use, %", "{:.0f}".format),
}


def counters_table() -> str:
    """Counters of three rungs on large matrices, a row each."""

    def made(found: Mapping[str, Any]) -> str:
        rows = [
            [words, *(show(found["large"][rung][name]) for rung in RUNGS)] for name, (words, show) in COUNTERS.items()
        ]
        return table(["dense_forward, 1,024³", *RUNGS], rows)

    return _of(made)


def launches_table() -> str:
    """The launches of a training step in order, with the time of each kernel, and the time of the step."""

    def made(found: Mapping[str, Any]) -> str:
        step = found["step"]
        rows = [[str(n + 1), name, duration(seconds)] for n, (name, seconds) in enumerate(step["launches"])]
        inside = sum(seconds for _, seconds in step["launches"])
        lines = [
            table(["launch", "kernel", "time"], rows),
            f"{'all kernels':28}{duration(inside)}",
            f"{'the step, launched':28}{duration(step['seconds'])}",
            f"{'the step, recorded':28}{duration(step['recorded'])}",
        ]
        return "\n".join(lines)

    return _of(made)


def top_of_the_ladder(factors: str) -> str:
    """TFLOP/s of the last rungs with these factors, by size, and their shares of cuBLAS: "float32" or "TF32"."""
    refuse_unknown("factors", factors, ("float32", "TF32"))
    found = overheads.recorded(RATES)
    if not found:
        return not_recorded("python -m benchmarks.tensor_cores")
    mine = [each for each in found["products"] if each["factors"] == factors]
    best = {_sizes(each): each["tflops"] for each in mine if each["contender"].startswith("PyTorch")}
    cells: dict[str, list[str]] = {}
    for each in mine:
        name = re.sub("^nncourse ", "", each["contender"]).replace(f"PyTorch {factors}", "cuBLAS")
        cells.setdefault(name, []).append(f"{each['tflops']:.3g} ({each['tflops'] / best[_sizes(each)]:.0%})")
    rows = [[name, *row] for name, row in cells.items()]
    return f"{table([f'{factors}, TFLOP/s (of cuBLAS)', *best], rows)}\n{overheads.recorded_where(RATES)}"


def _sizes(record: Mapping[str, Any]) -> str:
    return of_sizes((record["batch"], record["n_in"], record["n_out"]))


def _of(made: Callable[[Mapping[str, Any]], str]) -> str:
    found = overheads.recorded(NAME)
    return made(found) if found else not_recorded(COMMAND)
