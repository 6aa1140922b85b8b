"""The digits CNN for a notebook: whole epochs without costs in between, and what others and we have measured.

epochs(network, X, Y, backend)     trains epoch after epoch, and yields the seconds of each
PROJECT                            the digits CNN project's own results
recorded()                         ours, from benchmarks/results
"""

import statistics
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nnclassroom.figures import overheads
from nnclassroom.formats import duration
from nncourse import device as devices
from nncourse.backend import Backend
from nncourse.errors import DoesNotFitError
from nncourse.kernels.kernel import Kernel
from nncourse.model.network import Network

SAMPLES, BATCH = 50_000, 32  # of an epoch, and of a step
STEPS = -(-SAMPLES // BATCH)
NAMES = ("digits CNN", "image1x28x28")  # what benchmarks call it


class Row(NamedTuple):
    """One implementation: an epoch's seconds, and the test accuracy after one epoch where it is known."""

    name: str
    where: str
    seconds: float
    accuracy: float | None = None


PROJECT = (
    Row("project, NumPy", "CPU, 2018", 2 * 3600 + 2 * 60 + 21, 0.9101),
    Row("project, Numba", "CPU, 2018", 77 * 60),
    Row("project, Keras", "CPU, 2018", 38, 0.9485),
    Row("project, Keras", "Tesla K80, 2018", 16, 0.9491),
)


def epochs(
    network: Network, X: np.ndarray, Y: np.ndarray, backend: Backend, rate: float = 0.001, seed: int = 1
) -> Iterator[float]:
    """Train by the backend's kernel for whole epochs with Adam, in batches of BATCH; yields the seconds of each epoch.

    `network` is changed after each. Unlike `train`, it computes no cost: for this network that takes longer than an
    epoch. As there, the order of the samples depends on the seed and the epoch; before the first, all is compiled.
    """
    there, X, Y = network.on(backend), backend.to_device(X), backend.to_device(Y)
    state = [backend.to_device(np.zeros_like(network.flat_parameters)) for _ in range(2)]
    kernel = _fitting(backend.epochs["convolutional_adam_epoch"], there, X[: 64 * BATCH], Y[: 64 * BATCH], rate)
    number, steps = 0, 0
    while True:
        number += 1
        order = backend.to_device(np.random.default_rng([seed, number]).permutation(len(X)))
        rows, targets = X[order], Y[order]
        devices.synchronise(backend.device)
        start = time.perf_counter()
        kernel(there.flat_parameters, *state, there.architecture, rows, targets, BATCH, rate, steps)
        devices.synchronise(backend.device)
        seconds = time.perf_counter() - start
        steps += -(-len(X) // BATCH)
        network.flat_parameters[...] = devices.to_device(there.flat_parameters, "cpu")
        yield seconds


def _fitting(kernel: Kernel, network: Network, X, Y, rate: float) -> Kernel:
    """The kernel, or the one that takes its place where it does not fit on the chip; tried on copies."""
    while True:
        vectors = [network.flat_parameters.copy() for _ in range(3)]
        vectors[1][...] = vectors[2][...] = 0
        try:
            kernel(*vectors, network.architecture, X, Y, BATCH, rate, 0)
            return kernel
        except DoesNotFitError:
            if not kernel.otherwise:
                raise
            kernel = kernel.operation[kernel.otherwise]


def recorded() -> list[Row]:
    """What the benchmarks recorded of it, on CPU and GPU; [] where nothing is."""
    rows = []
    cpu = overheads.recorded("cpu")
    for title, contenders in cpu.get("seconds", {}).items():
        if any(name in title for name in NAMES):
            where = f"{cpu['machine'].split(',')[0]}, one thread, {cpu['date']}"
            rows += [Row(name, where, STEPS * statistics.median(times)) for name, times in contenders.items()]
    gpu = overheads.recorded("gpu")
    for record in overheads.table("epochs"):
        if any(name in record["network"] for name in NAMES):
            where = f"{gpu['machine'].split(',')[0]}, {gpu['date']}"
            seconds = STEPS * record["seconds_a_step"]
            rows.append(Row(record["contender"], where, seconds, record.get("accuracy")))
    return rows


def table(rows: list[Row]) -> str:
    """The rows as text, slowest first; each with its speed as a multiple of that of the project's NumPy."""
    lines = [f"{'':24} {'an epoch':>10} {'a step':>8} {'speed':>9} {'right':>6}  where"]
    for row in sorted(rows, key=lambda row: -row.seconds):
        right = f"{row.accuracy:.1%}" if row.accuracy else ""
        times = PROJECT[0].seconds / row.seconds
        speed = f"{times:,.0f}×" if times >= 10 else f"{times:.2g}×"
        step = _long(row.seconds / STEPS)
        lines.append(f"{row.name:24} {_long(row.seconds):>10} {step:>8} {speed:>9} {right:>6}  {row.where}")
    return "\n".join(lines)


def _long(seconds: float) -> str:
    """A time; from a minute on in hours and minutes."""
    if seconds < 60:
        return duration(seconds)
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
