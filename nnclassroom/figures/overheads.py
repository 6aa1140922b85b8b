"""Overheads of a GPU: launches, synchronisation, transfers; measured here, or recorded on another machine.

known("launch")     measured on this machine's GPU; without one, as recorded by `python -m benchmarks.overheads`,
                    or `benchmarks.waits`; None if nothing was recorded
recorded("gpu")     a whole file of benchmarks/results; {} if there is none
"""

import contextlib
import functools
import json
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnclassroom import timing
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.nb08_to_10 import H200, Multiprocessor
from nnclassroom.figures import waits
from nnclassroom.judge.cases import random_case
from nnclassroom.timing import anatomy
from nnclassroom.timing.profiles import step_profile
from nncourse import device as devices
from nncourse.backend import choose
from nncourse.cuda.compile import gpu_kernel
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.kernels.dense_epoch import DenseArchitecture, random_targets
from nncourse.kernels.kernel import MANTISSA, CudaKernel
from nncourse.language import COURSE
from nncourse.model.network import make_network
from nncourse.model.optimizers import SGD
from nncourse.model.plans import train_step_by_step

RESULTS = COURSE / "benchmarks" / "results"
NETWORKS = {(30, 60, 10, 1): 10, (784, 30, 10): 10, (784, 192, 10): 50}  # sizes: batch
MOVES = {  # operations of a step that run on the GPU, with transfers for each
    "nothing": (),
    "dense_forward": ("dense_forward",),
    "the three products": anatomy.PRODUCTS,
}
MOVED_WORDS = {  # words for what is moved to the GPU if it is not a single operation
    "nothing": "nothing",
    "the three products": "the three products",
    "everything, one at a time": "everything, one at a time",
    "everything, and it stays there": "everything, and it stays there",
}
# Sizes of the measurements for notebooks 04, 05b and 07: sums, writes to memory, counting.
SUM = {"batch": 1 << 21, "n": 8}  # 16.8 million numbers
SIDE = 2048
COUNTED = 1 << 22
ROUNDS = 3  # of transfers
COMMON = 0.9  # share of the samples in one cell, as in the credit-card data
HALF_SQUARES = ("T a, T y", "T c", "(a - y) * (a - y)", "a + b", "c = a / 2", "0", "half_squares")


@functools.cache
def recorded(name: str) -> dict[str, Any]:
    """The contents of a results file, with machine and date; {} if there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def table(name: str) -> list[dict[str, Any]]:
    """The records of one part of the GPU benchmark, as benchmarks/README.md lists them."""
    return recorded("gpu").get("tables", {}).get(name, [])


def where(name: str = "overheads", part: str = "") -> str:
    """The source of the numbers in a figure: this GPU, or the recorded GPU and the date."""
    if devices.gpu_available():
        return f"measured here, {devices.describe('gpu').split(',')[0]}"
    return recorded_where(name, part)


def recorded_where(name: str, part: str = "") -> str:
    """The machine and the date of a results file, or the date of one of its parts if parts have their own."""
    if not (found := recorded(name)):
        return "not recorded yet"
    date = found.get("dates", {}).get(part, found["date"])
    return f"recorded, {found['machine'].split(',')[0]}, {date}"


@functools.cache
def known(what: str) -> Any:
    """The result of one of MEASURES or WAITS: measured here if there is a GPU, else as recorded, else None."""
    if devices.gpu_available():
        return (MEASURES | WAITS)[what]()
    name = "gpu" if what == "limits" else "waits" if what in WAITS else "overheads"
    return recorded(name).get(what)


def speeds(side: int = 4096) -> dict[str, float]:
    """FLOP per second of each float32 kernel of dense_forward on square matrices, measured here or recorded."""
    if devices.gpu_available():
        operation = find("dense_forward")
        names = [
            kernel.name
            for kernel in operation.kernels.values()
            if (kernel.cuda and kernel.mantissa == MANTISSA) or kernel.name == "cupy"
        ]
        rows = timing.time_kernels(operation, dict.fromkeys(operation.size_names, side), names)
        return {row.kernel: row.flops / row.seconds for row in rows if row.seconds}
    return {row["kernel"]: 1e12 * row["tflops"] for row in table("dense") if row["side"] == side}


def seconds_alone(sizes: tuple[int, ...]) -> dict[str, float]:
    """Seconds that the calls of each operation of a step take on the GPU, each timed alone."""
    return {part["operation"]: part["seconds"] for part in known("step")["-".join(map(str, sizes))]}


def seconds_a_call(sizes: tuple[int, ...]) -> dict[str, float]:
    """As seconds_alone(), the mean of a single call."""
    return {part["operation"]: part["seconds"] / part["calls"] for part in known("step")["-".join(map(str, sizes))]}


def batch_lines() -> dict[str, tuple[tuple[int, ...], tuple[float, ...]]]:
    """Batch sizes, and microseconds a sample on the GPU, for each kernel of dense_sgd_epoch: lines of a figure."""
    lines: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {}
    for row in known("batches"):
        x, y = lines.get(f"GPU, {row['kernel']}", ((), ()))
        lines[f"GPU, {row['kernel']}"] = ((*x, row["batch"]), (*y, 1e6 * row["seconds"]))
    return lines


def step_seconds(sizes: tuple[int, ...], batch: int) -> dict[str, float]:
    """Seconds of a training step on the GPU by each contender: the course's measured here, else all as recorded."""
    if devices.gpu_available():
        return {f"nncourse {name}": batch * each for name, each in epoch_seconds(sizes, batch, "gpu").items()}
    network = "-".join(map(str, sizes))
    rows = [row for row in table("epochs") if (row["network"], row["batch"]) == (network, batch)]
    return {row["contender"]: row["seconds_a_step"] for row in rows}


LAYER_WORDS = {  # layers of the benchmark that notebooks 10 and 14 show
    "digits CNN, layer 2": "digits CNN, layer 2",
    "64 channels, 37 × 50": "64 channels, 37 × 50",
    "128 channels, 19 × 25": "128 channels, 19 × 25",
    "512 channels, 5 × 7": "512 channels, 5 × 7",
}


def convolution_seconds(layer: str, sizes: dict[str, int], kernels: Sequence[str]) -> dict[str, float]:
    """Seconds of these kernels of convolution_forward, measured here for these sizes or, without a GPU, recorded.

    `layer` is the layer's name in the benchmark. Kernels that cannot run here or were not recorded are left out.
    """
    if devices.gpu_available():
        timed = timing.time_kernels(find("convolution_forward"), sizes, kernels)
        return {row.kernel: row.seconds for row in timed if row.seconds}
    rows = [row for row in table("convolutions") if (row["layer"], row["pass"]) == (layer, "forward")]
    return {row["kernel"]: row["seconds"] for row in rows if row["kernel"] in kernels}


def multiprocessor() -> Multiprocessor:
    """The limits of one multiprocessor of the known GPU; of an H200 if none is known."""
    chip = known("chip")
    return Multiprocessor(**{name: chip[name] for name in vars(H200)}) if chip else H200


# ---- the measurements, each for a machine with a GPU


def chip() -> dict[str, int]:
    """Limits of the GPU, from its device attributes."""
    import cupy

    found = cupy.cuda.Device().attributes
    return {
        "multiprocessors": found["MultiProcessorCount"],
        "clock": 1000 * found.get("ClockRate", 0),  # Hz; 0 if unknown
        "warps": found["MaxThreadsPerMultiProcessor"] // 32,
        "blocks": found.get("MaxBlocksPerMultiprocessor", H200.blocks),
        "registers": found["MaxRegistersPerMultiprocessor"],
        "shared_bytes": found["MaxSharedMemoryPerMultiprocessor"],
        "reserved_bytes": found.get("ReservedSharedMemoryPerBlock", H200.reserved_bytes),
    }


def launch() -> dict[str, float]:
    """Seconds per launch of an empty kernel: queued without waiting, and waiting for each."""
    kernel = gpu_kernel(timing.NOTHING, "nothing")

    def and_wait() -> None:
        kernel((1,), (1,), ())
        devices.synchronise("gpu")

    return {"queued": timing.seconds_of_nothing("gpu"), "waited": devices.seconds(and_wait, pick=min)}


def transfers() -> list[dict[str, Any]]:
    """Seconds to transfer arrays of 4 bytes to 256 MB to the GPU, and back: the shortest of several rounds.

    What is wanted is a property of the bus, and others may use it for longer than a single measurement.
    """
    arrays = [np.ones(4**power, np.float32) for power in range(14)]
    there = [devices.to_device(array, "gpu") for array in arrays]

    def send(array: np.ndarray) -> None:
        devices.to_device(array, "gpu")
        devices.synchronise("gpu")

    ways = {
        "there": [functools.partial(send, array) for array in arrays],
        "back": [functools.partial(devices.to_device, array, "cpu") for array in there],
    }
    rounds = [
        {way: [devices.seconds(each, repeats=3, pick=min) for each in all_] for way, all_ in ways.items()}
        for _ in range(ROUNDS)
    ]
    shortest = {way: [min(times) for times in zip(*(one[way] for one in rounds), strict=True)] for way in ways}
    columns = zip(arrays, shortest["there"], shortest["back"], strict=True)
    return [{"bytes": array.nbytes, "there": sent, "back": fetched} for array, sent, fetched in columns]


def lie() -> list[dict[str, Any]]:
    """Seconds of one call of dense_forward by the host's clock, without and with synchronisation."""
    operation, rows = find("dense_forward"), []
    kernel = operation["cupy"]
    for side in (64, 256, 1024, 4096):
        case = random_case(operation, dict.fromkeys(operation.size_names, side))
        there = [devices.to_device(array, "gpu") for array in case.arguments]

        def clocked(wait: bool, there: list[Any] = there) -> float:
            devices.synchronise("gpu")
            start = time.perf_counter()
            kernel(*there)
            if wait:
                devices.synchronise("gpu")
            return time.perf_counter() - start

        clocked(True)
        pair = (statistics.median(clocked(wait) for _ in range(9)) for wait in (False, True))
        rows.append({"side": side, **dict(zip(("without", "with"), pair, strict=True))})
    return rows


def samples(sizes: tuple[int, ...], n: int) -> tuple[np.ndarray, np.ndarray]:
    """n random samples and targets for a network."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, sizes[0]), dtype=np.float32)
    return X, random_targets(rng, (n, sizes[-1]))


def step() -> dict[str, list[dict[str, Any]]]:
    """The parts of a training step with separate CUDA kernels, for each of NETWORKS."""
    backend = choose("cuda")
    found = {}
    for sizes, batch in NETWORKS.items():
        profile = step_profile(make_network(sizes), *samples(sizes, batch), backend, record=False)
        found["-".join(map(str, sizes))] = [
            {
                "operation": part.operation,
                "calls": part.calls,
                "seconds": part.seconds,
                "flops": part.flops,
                "bytes": part.bytes,
            }
            for part in profile.by_operation
        ]
    return found


def moving() -> dict[str, float]:
    """Seconds of a step of 30-60-10-1 with some operations on the GPU, the data on the CPU; and with all on the GPU."""
    sizes, (cpu, gpu) = (30, 60, 10, 1), (choose("numpy"), choose("cuda"))
    X, Y = samples(sizes, 10)
    network, found = make_network(sizes), {}
    everything = {name for name, _ in anatomy.calls_of_step(network, X, Y, cpu)}
    for label, moved in {**MOVES, "everything, one at a time": everything}.items():
        found[label] = anatomy.seconds_of_step(network, X, Y, anatomy.Mixed(moved, cpu, gpu))
    found["everything, and it stays there"] = anatomy.seconds_of_step(network, X, Y, gpu)
    return found


def batches() -> list[dict[str, Any]]:
    """Seconds per sample of 30-60-10-1 with each kernel of dense_sgd_epoch, at several batch sizes."""
    return [
        {"batch": batch, "kernel": name, "seconds": seconds}
        for batch in (1, 10, 100, 1000)
        for name, seconds in epoch_seconds((30, 60, 10, 1), batch, "gpu").items()
    ]


def epoch_seconds(sizes: tuple[int, ...], batch: int, device: str) -> dict[str, float]:
    """Seconds a sample by each kernel of dense_sgd_epoch for that device, and step by step.

    Fused epochs run more steps, so that the cost of starting them is negligible.
    """
    network = make_network(sizes)
    few = batch * max(2, min(100, 50_000 // batch))
    many = batch * max(2, min(1000, 50_000 // batch)) if device == "gpu" else few
    backend = choose("cuda" if device == "gpu" else "numpy")
    there, (X, Y) = network.on(backend), map(backend.to_device, samples(sizes, few))
    step_by_step = functools.partial(train_step_by_step, there, X, Y, batch, 0.01, backend, SGD())
    found = {"steps": devices.seconds(step_by_step, device) / few}
    for name, kernel in find("dense_sgd_epoch").kernels.items():
        if kernel.device == device and not kernel.missing():
            arrays = (network.flat_parameters.copy(), *samples(sizes, many))
            parameters, X, Y = (devices.to_device(array, device) for array in arrays)
            epoch = functools.partial(kernel, parameters, DenseArchitecture.of(network), X, Y, batch, 0.01)
            with contextlib.suppress(DoesNotFitError):
                found[name] = devices.seconds(epoch, device) / many
    return found


def sums() -> dict[str, float]:
    """Seconds of the mean squared error of SUM's numbers by each kernel, and by CuPy's ReductionKernel."""
    import cupy

    operation, rng = find("mse"), np.random.default_rng(0)
    A, Y = (rng.standard_normal((SUM["batch"], SUM["n"]), dtype=np.float32) for _ in range(2))
    there = [devices.to_device(array, "gpu") for array in (A, Y)]
    found = {"numpy": devices.seconds(lambda: operation["numpy"](A, Y))}
    for name in ("cupy", "shuffle", "tree", "atomic"):
        kernel = operation[name]
        found[name] = devices.seconds(functools.partial(kernel, *there), "gpu")
    half_squares = cupy.ReductionKernel(*HALF_SQUARES)
    return found | {"ReductionKernel": devices.seconds(lambda: half_squares(*there), "gpu")}


def swapped() -> CudaKernel:
    """The naive kernel of weight_gradient with x and y exchanged: neighbouring threads write to different rows."""
    naive = find("weight_gradient")["naive"]
    assert isinstance(naive, CudaKernel)
    text = re.sub(
        r"(blockIdx|blockDim|threadIdx)\.([xy])", lambda m: f"{m[1]}.{'y' if m[2] == 'x' else 'x'}", naive.source.text
    )
    return replace(naive, name="swapped", source=replace(naive.source, text=text), over=("n_in", "n_out"), plans={})


def weight_gradients() -> list[dict[str, Any]]:
    """Seconds of kernels of weight_gradient, SIDE × SIDE weights, for few samples and for many."""
    operation, rng, found = find("weight_gradient"), np.random.default_rng(5), []
    for samples in (8, 1024):
        D, A = (devices.to_device(rng.standard_normal((samples, SIDE), dtype=np.float32), "gpu") for _ in range(2))
        for kernel in (swapped(), operation["naive"], operation["tiled"], operation["cupy"]):
            seconds = devices.seconds(functools.partial(kernel, D, A), "gpu")
            found.append({"samples": samples, "kernel": kernel.name, "seconds": seconds})
    return found


def counting() -> list[dict[str, Any]]:
    """Seconds of confusion_matrix (atomic) on COUNTED samples, spread evenly over cells or most of them in one."""
    atomic, rng, found = find("confusion_matrix")["atomic"], np.random.default_rng(0), []
    for classes, common in ((1, 0.0), (2, 0.0), (10, 0.0), (100, 0.0), (2, COMMON)):
        pair = rng.integers(0, classes, (2, COUNTED), dtype=np.int32)
        pair[:, rng.random(COUNTED) < common] = 0
        there = [devices.to_device(row, "gpu") for row in pair]
        seconds = devices.seconds(functools.partial(atomic, *there, classes), "gpu")
        found.append({"classes": classes, "common": common, "seconds": seconds})
    return found


MEASURES: dict[str, Callable[[], Any]] = {"limits": functools.partial(devices.limits, "gpu")} | {
    part.__name__: part
    for part in (chip, launch, transfers, lie, step, moving, batches, sums, weight_gradients, counting)
}
OF_WAITS = waits.in_flight, waits.latencies, waits.orders, waits.tiles, waits.lost_barrier
WAITS: dict[str, Callable[[], Any]] = {part.__name__: part for part in OF_WAITS}
FILES = {"overheads": MEASURES, "waits": WAITS}  # of benchmarks/results


def measure(name: str = "overheads") -> dict[str, Any]:
    """The results of all measurements of a results file. Raises CourseError without a GPU."""
    if not devices.gpu_available():
        raise CourseError(f"the overheads are those of a GPU: {devices.why_no_gpu()}")
    return {part: measured() for part, measured in FILES[name].items()}
