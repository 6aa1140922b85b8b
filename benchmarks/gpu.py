"""All measurements on a GPU in one run: python -m benchmarks.gpu [--only PART ...] [--quick] [--out FILE].

Only a complete run writes results/gpu.json, from which `python -m benchmarks.tables` makes README.md's tables; this
folder's README.md describes its contents. Each part runs in its own process, and so does each contender of `epochs`.
"""

import argparse
import datetime
import statistics
import sys
import time
from pathlib import Path

from benchmarks import compare, workers
from benchmarks.contenders import CASES
from benchmarks.saved import RESULTS, refuse_out, save

PARTS = ("epochs", "floors", "dense", "mnist", "credit_card")
LIMIT = 75.0  # seconds after which a part other than `epochs` is given up


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="small sizes, to test that everything runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="the results (default, for a whole run: results/gpu.json)")
    options = parser.parse_args(arguments)
    whole = set(options.only) == set(PARTS) and not options.quick
    out = options.out or (RESULTS / "gpu.json" if whole else None)
    if out:
        refuse_out(parser, out)
    from nncourse import device as devices

    if not devices.gpu_available():
        print(f"benchmarks.gpu: {devices.why_no_gpu()}", file=sys.stderr)
        return 2
    try:
        result = run(options.only, 1 if options.quick else options.rounds, options.quick)
    except workers.WrongResultError as error:
        print(f"benchmarks.gpu: a wrong result, so nothing is written: {error}", file=sys.stderr)
        return 1
    except workers.FailedError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        return 1
    if out:
        save(result, out)
    return 0


def run(parts: list[str], rounds: int, quick: bool) -> dict:
    """Run the parts. Returns the contents of the results file, and prints the tables."""
    from benchmarks import tables

    begin = time.perf_counter()
    result = workers.asked_once(part, ("machine", quick, rounds), LIMIT)
    result |= {"date": datetime.date.today().isoformat(), "tables": {}, "left_out": {}}
    for name in parts:
        if name == "epochs":
            compared = compare.compare("gpu", rounds, quick)
            compare.show(compared)
            result["tables"]["epochs"] = epoch_records(compared["seconds"], quick)
            result["versions"] |= compared["versions"]
            result["left_out"] |= compared["left_out"]
        else:
            try:
                result["tables"] |= workers.asked_once(part, (name, quick, rounds), LIMIT)
            except workers.FailedError as error:
                result["left_out"][name] = str(error)
        print(f"{workers.since(begin)}  {name}", flush=True)
    join_floors(result["tables"])
    print(tables.gpu_tables(result))
    return result


def part(request: tuple[str, bool, int]) -> dict:
    """Called in a separate process: the tables of one part, or the description of the machine."""
    name, quick, rounds = request
    if name == "machine":
        return machine()
    if name == "floors":
        from benchmarks import floors
        from nncourse.model.network import make_network

        cases = CASES["gpu"].values()
        return floors.measure([(make_network(case.sizes).architecture, case.batch) for case in cases])
    if name == "dense":
        from benchmarks import ladder

        return {"dense": ladder.measure(512 if quick else 4096, rounds)}
    from benchmarks import learning

    if name == "mnist":
        return {"mnist": learning.mnist(1 if quick else 5, 2 if quick else learning.MNIST["epochs"])}
    return {"credit_card": learning.credit_card(2 if quick else learning.CREDIT_CARD["epochs"])}


def machine() -> dict:
    """The GPU, the CPU, the versions, and the measured limits."""
    import cupy

    from nncourse import device as devices

    runtime = cupy.cuda.runtime.runtimeGetVersion()  # 13020 is CUDA 13.2
    described = {"cuda": f"{runtime // 1000}.{runtime % 1000 // 10}", "driver": driver()}
    return {
        "machine": devices.describe("gpu"),
        "cpu": devices.describe("cpu"),
        "limits": devices.limits("gpu"),
        "versions": compare.versions() | described,
    }


def driver() -> str:
    """The version of NVIDIA's driver, from nvidia-smi; "unknown" if that is missing."""
    import subprocess

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def epoch_records(seconds: dict[str, dict[str, list[float]]], quick: bool = False) -> list[dict]:
    """The table `epochs`, from compare()'s seconds per step."""
    found = []
    for name, times in seconds.items():
        case = CASES["gpu"][name].smaller() if quick else CASES["gpu"][name]
        for contender, rounds in times.items():
            median = statistics.median(rounds)
            found.append(
                {
                    "network": "-".join(map(str, case.sizes)),
                    "batch": case.batch,
                    "samples": case.samples,
                    "contender": contender,
                    "seconds_a_step": median,
                    "seconds_an_epoch": median * (case.samples // case.batch),
                    "rounds": rounds,
                }
            )
    return found


def join_floors(tables: dict[str, list[dict]]) -> None:
    """Add one_kernel's measured time, and what limits it, to the records of its floors."""
    from benchmarks import floors

    measured = {
        (record["network"], record["batch"]): record["seconds_a_step"]
        for record in tables.get("epochs", [])
        if record["contender"] == "nncourse one_kernel"
    }
    for record in tables.get("floors", []):
        record["seconds_a_step"] = measured.get((record["network"], record["batch"]))
        record["limit"] = floors.limit(record)


if __name__ == "__main__":
    sys.exit(main())
