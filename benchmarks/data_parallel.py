"""Train 784-192-10 on GPUs that share each batch: python -m benchmarks.data_parallel [--devices 1,2,4] [--out FILE].

An epoch of 50,000 made-up samples is one CUDA graph on each GPU, with the all-reduce by peer memory among its kernels.
For comparison, one GPU trains alone, with the kernels `streamed` and, if the network fits, `one_kernel`. Prints a table
and, without --quick, writes results/data_parallel.json.
"""

import statistics
import sys
from typing import Any

import numpy as np

from benchmarks.all_reduce import made_streams, on, recorded, replay, timed, using, wait
from benchmarks.device_tables import base_seconds
from benchmarks.several_gpus import command
from benchmarks.workers import WrongResultError
from fused_epochs.all_reduce import GPUs
from fused_epochs.architecture import chain_of_dense
from fused_epochs.dense_peers import epoch_function
from fused_epochs.network import PLAIN
from nncourse import device as devices
from nncourse.catalogue import find
from nncourse.errors import CourseError
from nncourse.kernels.dense_epoch import DenseArchitecture, batches, random_targets

ARCHITECTURE = DenseArchitecture((784, 192, 10), ("sigmoid", "softmax"), "categorical_cross_entropy")
SAMPLES, RATE, ROUNDS = 50_000, 0.1, 5
BATCHES = (64, 256, 1_024, 4_096)
APART = 1e-2  # parameters after an epoch on several GPUs, from those of one: rounding, over many steps


class WrongTrainingError(WrongResultError):
    """GPUs that share batches have not trained as one would."""


def main(arguments: list[str] | None = None) -> int:
    about, quick = __doc__.splitlines()[0], "few samples, to test that everything runs"
    return command("data_parallel", about, [1, 2, 4], quick, run, table, arguments)


def run(counts: list[int], quick: bool) -> dict:
    """Seconds an epoch for each batch, on one GPU in two ways, and on each of these numbers of GPUs."""
    samples = 2_000 if quick else SAMPLES
    there = devices.gpu_count()
    rng = np.random.default_rng(0)
    parameters = (0.05 * rng.standard_normal(ARCHITECTURE.contract_sizes["p"])).astype(np.float32)
    X = rng.random((samples, 784), np.float32)
    data = parameters, X, random_targets(rng, (samples, 10))
    records: list[dict] = []
    left_out = {f"{count} GPUs": f"there are {there}" for count in counts if count > there}
    for batch in BATCHES:
        alone = data[0]
        for name, kernel in (("streamed", streamed_epoch), ("one_kernel", find("dense_sgd_epoch")["one_kernel"])):
            try:
                found, times = on_one(kernel, data, batch)
            except CourseError as error:
                left_out[f"{name}, batch {batch}"] = str(error)
                continue
            alone = found if name == "streamed" else alone
            records.append(record(1, name, batch, samples, times))
        for count in counts:
            if 1 < count <= there:
                times, difference = on_several(count, data, batch, alone)
                records.append(record(count, "shared batches", batch, samples, times) | {"difference": difference})
    head = {"machine": devices.describe("gpu"), "cpu": devices.describe("cpu"), "gpus": there}
    return head | {"versions": devices.versions(), "records": records, "left_out": left_out}


def record(count: int, name: str, batch: int, samples: int, times: list[float]) -> dict:
    steps, seconds = len(batches(samples, batch)), statistics.median(times)
    about = {"devices": count, "contender": name, "batch": batch, "steps": steps}
    return about | {"seconds_an_epoch": seconds, "seconds_a_step": seconds / steps, "rounds": times}


def streamed_epoch(parameters: Any, architecture: DenseArchitecture, X: Any, Y: Any, batch: int, rate: float) -> None:
    """`streamed` of network_epoch, called as a kernel of dense_sgd_epoch."""
    none = parameters[:0]
    find("network_epoch")["streamed"](parameters, none, none, chain_of_dense(architecture), PLAIN, X, Y, batch, rate, 0)


def on_one(kernel: Any, data: tuple[np.ndarray, ...], batch: int) -> tuple[np.ndarray, list[float]]:
    """The parameters after one epoch, and the seconds of others."""
    import cupy

    with on(0):
        own, X, Y = map(cupy.asarray, data)
        kernel(own, ARCHITECTURE, X, Y, batch, RATE)
        found = own.get()
        return found, [timed(lambda: kernel(own, ARCHITECTURE, X, Y, batch, RATE), (0,)) for _ in range(ROUNDS)]


def on_several(count: int, data: tuple[np.ndarray, ...], batch: int, alone: np.ndarray) -> tuple[list[float], float]:
    """Seconds of epochs, and the largest difference of a parameter from one GPU's.

    WrongTrainingError if that is no rounding, or if the GPUs' parameters differ in a bit.
    """
    import cupy

    gpus = tuple(range(count))
    peers, streams = GPUs(gpus), made_streams(gpus)
    arrays = []
    for gpu in gpus:
        with on(gpu):
            arrays.append([cupy.asarray(array) for array in data])
    parameters, X, Y = zip(*arrays, strict=True)
    epoch = epoch_function(peers, parameters, ARCHITECTURE, X, Y, batch, RATE)
    epoch()  # loads all kernels, which cannot be done while recording
    peers.refuse_missed()
    graphs = recorded(epoch, gpus, streams, (1,))[1]
    for own in parameters:
        with on(own.data.device_id):
            own.set(data[0])
    wait(gpus)
    with using(streams, gpus):
        replay(graphs, streams)
    peers.refuse_missed()
    found = [own.get() for own in parameters]
    if not all(np.array_equal(found[0].view(np.int32), other.view(np.int32)) for other in found):
        raise WrongTrainingError(f"{count} GPUs, batch {batch}: the parameters do not have the same bits everywhere")
    difference = float(np.abs(found[0] - alone).max())
    if not difference <= APART:
        raise WrongTrainingError(f"{count} GPUs, batch {batch}: the parameters differ from one GPU's by {difference}")
    return [timed(lambda: replay(graphs, streams), gpus) for _ in range(ROUNDS)], difference


def table(result: dict) -> str:
    """Milliseconds an epoch, microseconds a step, and the speedup over the same batch on one GPU not by one_kernel."""
    base = base_seconds(result)
    lines = [f"{'batch':>6}  {'GPUs':>4}  {'contender':<15}{'ms/epoch':>10}{'µs/step':>10}{'speedup':>9}"]
    for r in result["records"]:
        speedup = base[r["batch"]] / r["seconds_an_epoch"]
        times = f"{r['seconds_an_epoch'] * 1e3:>10.2f}{r['seconds_a_step'] * 1e6:>10.1f}{speedup:>9.2f}"
        lines.append(f"{r['batch']:>6}  {r['devices']:>4}  {r['contender']:<15}{times}")
    return "\n".join([*lines, *(f"left out: {what}: {why}" for what, why in result["left_out"].items())])


if __name__ == "__main__":
    sys.exit(main())
