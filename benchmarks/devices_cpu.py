"""Measure how much two processes on two cores gain: python -m benchmarks.devices_cpu [--rounds N] [--out FILE].

Weak scaling of data-parallel training, with NumPy's kernels and one BLAS thread per process: K processes have K times
the batch of one process. The efficiency is the time of a step alone, divided by the time of a step of all processes.
Each measurement starts its processes anew, so that no waiting process disturbs it; the two kinds take turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.saved import RESULTS, refuse_out, save
from benchmarks.workers import ONE_THREAD, FailedError, since

SIZES = (784, 192, 10)
ROWS = (64, 256, 1024)  # of each process, in a batch
SAMPLES = 48 * 1024  # of an epoch, whatever the batch: few enough for the memory, and no small batch at its end
EPOCHS = 4  # of a measurement; the first is to warm up
LIMIT = 120.0  # seconds for a measurement
ALONE, WHOLE = "one process", "one process, whole epochs"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--out", type=Path, default=RESULTS / "devices_cpu.json")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples in an epoch; few test that it runs")
    parser.add_argument("--member", type=int, metavar="ROWS", help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.member:
        return member(options.member, options.samples, options.whole)
    refuse_out(parser, options.out)
    from nncourse import device as devices
    from nncourse.errors import CourseError

    found = {"machine": devices.describe("cpu"), "sizes": SIZES, "samples": options.samples}
    found |= {"processes": options.processes}
    try:
        found |= compare(options.rounds, options.processes, options.rows, options.samples)
    except (CourseError, FailedError) as error:
        print(f"benchmarks.devices_cpu: {error}", file=sys.stderr)
        return 1
    print(table(found | {"date": "now"}))
    save(found, options.out)
    return 0


def compare(rounds: int, processes: int, rows: list[int], samples: int) -> dict:
    """`seconds`: rows -> contender -> seconds a step, a list for each round; `exchange`: seconds of an all-reduce."""
    begin = time.perf_counter()
    together = together_of(processes)
    seconds: dict[str, dict[str, list[float]]] = {str(each): {} for each in rows}
    exchange: list[float] = []
    versions: dict[str, str] = {}
    for number in range(rounds):
        for each in rows:
            for contender in (ALONE, together, WHOLE):
                answer = measured(processes if contender == together else 1, each, samples, contender == WHOLE)
                seconds[str(each)].setdefault(contender, []).append(answer["seconds"])
                versions |= answer["versions"]
                exchange += answer["exchange"]
        print(f"{since(begin)}  round {number + 1} of {rounds}", flush=True)
    return {"seconds": seconds, "exchange": exchange, "versions": versions}


def together_of(processes: int) -> str:
    return f"{processes} processes"


def measured(processes: int, rows: int, samples: int, whole: bool) -> dict:
    """What the first of so many new processes says, which train together with batches of so many rows each."""
    from nncourse.parallel.launch.start import find_mpiexec, mpiexec_command

    command = [*mpiexec_command(find_mpiexec(), processes), sys.executable, "-m", "benchmarks.devices_cpu"]
    command += ["--member", str(rows), "--samples", str(samples), *["--whole"] * whole]
    folder = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        command, env=os.environ | ONE_THREAD, cwd=folder, capture_output=True, text=True, timeout=LIMIT
    )
    if done.returncode:
        raise FailedError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def member(rows: int, samples: int, whole: bool) -> int:
    """One of the processes: the first prints the seconds of a step, and of an all-reduce of the gradient."""
    import numpy as np
    from mpi4py import MPI

    from nncourse import device as devices
    from nncourse.backend import choose
    from nncourse.model.data_parallel import Together
    from nncourse.model.network import make_network
    from nncourse.model.training import train
    from nncourse.parallel.mpi import MPIGroup

    group = MPIGroup()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((samples, SIZES[0]), dtype=np.float32)
    Y = np.eye(SIZES[-1], dtype=np.float32)[rng.integers(0, SIZES[-1], samples)]
    backend, plan = choose("numpy"), None if whole else "operations"
    network, batch = make_network(SIZES), rows * group.size
    history = train(network, X, Y, backend, epochs=EPOCHS, batch_size=batch, plan=plan, together=Together(group))
    steps = -(-samples // batch)
    exchange = []
    for _ in range(20 if group.size > 1 else 0):
        group.barrier()
        start = time.perf_counter()
        group.all_reduce(network.flat_gradient)
        exchange.append(time.perf_counter() - start)
    if group.rank == 0:
        taken = statistics.median(epoch.seconds for epoch in history.epochs[1:]) / steps
        mpi = MPI.Get_library_version().splitlines()[0].split(",")[0].replace("Version:", "")
        versions = devices.versions() | {"mpi": " ".join(mpi.split())}
        print(json.dumps({"seconds": taken, "exchange": exchange[5:], "versions": versions}))
    return 0


def table(result: dict) -> str:
    """A row for each number of rows: medians of the steps, and of the efficiency in each round."""
    together = together_of(result["processes"])
    said = ["| rows a process | one process, ms a step | its fused epoch | "]
    said[0] += f"{together}, ms a step | efficiency | smallest and largest |"
    said.append("|---" * 6 + "|")
    for rows, times in result["seconds"].items():
        ratios = sorted(alone / all_ for alone, all_ in zip(times[ALONE], times[together], strict=True))
        alone, whole, all_ = (f"{statistics.median(times[name]) * 1e3:.2f}" for name in (ALONE, WHOLE, together))
        efficiency = f"{statistics.median(ratios):.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f}"
        said.append(f"| {int(rows):,} | {alone} | {whole} | {all_} | {efficiency} |")
    exchange = statistics.median(result["exchange"]) * 1e6
    versions = ", ".join(f"{name} {text}" for name, text in result["versions"].items() if name != "nncourse")
    sizes = "-".join(map(str, result["sizes"]))
    about = f"{sizes}, data-parallel, {result['samples']:,} samples an epoch, one BLAS thread a process"
    about += f"; an all-reduce of its gradient takes {exchange:.0f} µs"
    return "\n".join([*said, "", f"{about}. {result['machine']}; {result['date']}; {versions}."])


if __name__ == "__main__":
    sys.exit(main())
