"""Measure how a training step's time grows: python -m benchmarks.growth [--device cpu] [--rounds 5] [--out FOLDER].

Two families of dense networks with two hidden layers, by SGD: n-n-n-10 with more and more parameters, batch 64; and
512-512-512-10 with larger and larger batches. The contenders are those of benchmarks.networks, and take turns as there.
The results also have the time that the arithmetic alone takes, at the rate of the fastest product of large matrices,
measured in the same run. On a CPU each contender is a process of its own, with one thread.

    python -m benchmarks.growth --plot    # draws docs/growth.png from the results of all machines
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machines, networks, saved, workers
from nnclassroom.timing import network_records
from nncourse import device as devices
from nncourse.threads import begin_with_one
from nnexperiment.trainers import networks as trainers

SIDES, BATCHES = (16, 48, 160, 512, 1000, 2048), (1, 4, 16, 64, 256, 1024)
SIDE, BATCH = 512, 64  # of the family in which the other number grows
LARGE = {"cpu": 1024, "gpu": 4096}  # rows and columns of the product whose rate counts
BACKENDS = {"cpu": ["numba"], "gpu": ["cuda"]}
LEFT_OUT = {"cpu": (), "gpu": ("PyTorch eager", network_records.COMPILED)}  # slow to measure, and far from the others
SECONDS = 600.0  # for a network, at most
PICTURE = Path(__file__).parent.parent / "docs" / "growth.png"
FAMILIES = {"parameters": f"parameters, batch {BATCH}", "batch": f"batch, {SIDE}-{SIDE}-{SIDE}-10"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "gpu"), help="device (default: the GPU if there is one)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=saved.RESULTS, help="folder for the results (default results/)")
    parser.add_argument("--plot", action="store_true", help="only draw docs/growth.png from saved results")
    options = parser.parse_args(arguments)
    if options.plot:
        plot(options.out)
        return 0
    device = options.device or ("gpu" if devices.gpu_available() else "cpu")
    if device == "gpu" and not devices.gpu_available():
        parser.error(devices.why_no_gpu())
    begin_with_one()
    result = saved.dated(machines.about(device)) | {"device": device, "product": best_product(device), "rows": []}
    path = options.out / f"growth-{machines.slug(result['machine'])}.json"
    names = [*trainers.contenders(device, dict.fromkeys(BACKENDS[device], ""))]
    missing = trainers.not_installed(names)
    names = [name for name in names if name not in missing and name not in LEFT_OUT[device]]
    team = networks.Team(device, BACKENDS[device], networks.ONE_THREAD if device == "cpu" else {}, device == "cpu")
    try:
        for row in rows():
            found = networks.contest(row, team, names, options.rounds, time.perf_counter() + SECONDS)
            result["rows"].append(row | {"arithmetic": row["flops"] / result["product"]} | found)
            times = {name: f"{each['seconds_a_step'] * 1e6:.3g}" for name, each in found["contenders"].items()}
            print(f"{row['layers']}, batch {row['batch']}: µs per step {times}", flush=True)
            saved.save(result, path, said=False)
    except workers.FailedError as error:
        print(f"benchmarks.growth: {error}", file=sys.stderr)
        return 1
    finally:
        team.end()
    print(f"written: {path}")
    return 0


def rows() -> Iterator[dict[str, Any]]:
    """The networks of both families, as rows of networks.txt, with their parameters and the FLOPs of a step."""
    from fused_epochs.architecture import chain_of
    from nncourse.model.network import make_network

    sizes = [("parameters", side, BATCH) for side in SIDES] + [("batch", SIDE, batch) for batch in BATCHES]
    for family, side, batch in sizes:
        row = {"layers": f"{side},{side},{side},10", "batch": batch, "optimizer": "sgd", "activation": "relu"}
        row |= {"cost": "categorical_cross_entropy", "family": family}
        network = make_network(row["layers"], row["activation"], row["cost"])
        flops = batch * chain_of(network).flops_a_sample
        yield row | {"parameters": network.flat_parameters.size, "flops": flops}


def best_product(device: str) -> float:
    """FLOP/s of the fastest product of large matrices, by a library or by the course, one thread on a CPU."""
    side = LARGE[device]
    rng = np.random.default_rng(0)
    A, B = (devices.to_device(rng.random((side, side), np.float32), device) for _ in range(2))
    xp = devices.array_module(A)
    C = xp.empty((side, side), xp.float32)
    calls: list[Callable[[], Any]] = [lambda: xp.matmul(A, B, out=C)]
    if device == "cpu":
        from fused_epochs.network_tiles import prepared_product, why_not

        calls += [] if why_not() else [prepared_product(A, B, C)]
    else:
        from nncourse.catalogue import find

        b = xp.zeros(side, xp.float32)
        calls.append(lambda: find("dense_forward")["by_shape"](A, B, b))
    return max(2 * side**3 / _seconds(call, device) for call in calls)


def _seconds(call: Callable[[], Any], device: str) -> float:
    """The least of some times, after a first call."""
    times = []
    for _ in range(8):
        start = time.perf_counter()
        call()
        devices.synchronise(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def plot(folder: Path) -> None:
    """µs per step over parameters and over the batch, a row of panels for each machine."""
    import matplotlib.pyplot as plt

    found = [networks.read(path) for path in sorted(folder.glob("growth-*.json"))]
    figure, panels = plt.subplots(len(found), 2, figsize=(10, 3.6 * len(found)), squeeze=False, layout="constrained")
    for result, across in zip(found, panels, strict=True):
        for (family, words), panel in zip(FAMILIES.items(), across, strict=True):
            some = [row for row in result["rows"] if row["family"] == family]
            for n, name in enumerate(dict.fromkeys(name for row in some for name in row["contenders"])):
                there = [row for row in some if name in row["contenders"]]
                times = [row["contenders"][name]["seconds_a_step"] * 1e6 for row in there]
                panel.loglog([row[family] for row in there], times, marker="os^Dv"[n], label=name)
            alone = [row["arithmetic"] * 1e6 for row in some]
            panel.loglog([row[family] for row in some], alone, "k--", label="the arithmetic alone")
            name = result["machine"] if result["device"] == "cpu" else result["machine"].split(",")[0]
            panel.set(xlabel=words, ylabel="µs per step", title=name + ", one thread" * (result["device"] == "cpu"))
            panel.grid(alpha=0.3)
    panels[0, 0].legend()
    for across in panels[1:]:
        across[0].legend()
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
