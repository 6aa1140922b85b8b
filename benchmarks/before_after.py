"""Time the same epochs and steps with the package of a different commit and with this one, in alternation.

    git archive COMMIT nncourse nnclassroom cuda_on_cpu | tar x -C .old     # gets the other package
    python -m benchmarks.before_after gpu           # the networks of docs/speed.md's tables; or cpu
    python -m benchmarks.before_after cpu --old .old --rounds 5

Each contender has two processes, one for each package. Both prepare; then they take turns, and also take turns at being
first. Prints the medians and their ratios; a ratio above 1 means that this package is slower. Nothing is written,
unless --out names a file for the raw times. This folder's contenders drive both packages. Networks that the other
package does not know are left out.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from benchmarks import workers

ROOT = Path(__file__).resolve().parent.parent
CONTENDERS = {
    "gpu": ("nncourse one_kernel",),
    "cpu": ("nncourse numpy", "nncourse numba", "nncourse numpy, fused", "nncourse numba, fused"),
}
ROUNDS = {"gpu": 11, "cpu": 9}
PATIENCE = {"gpu": {"enough": 0.1, "repeats": 2}, "cpu": {"enough": 0.1, "repeats": 2}}  # options of device.seconds
LIMIT = 200.0  # seconds for an answer
OLD, NEW = "before", "after"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", choices=CONTENDERS)
    parser.add_argument("--old", type=Path, default=ROOT / ".old", help="folder with the other package (default .old)")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--cases", nargs="+", help="networks to time, as docs/speed.md names them (default: all)")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if not (options.old / "nncourse" / "__init__.py").is_file():
        parser.error(f"expected a folder with nncourse/ in it, the other package; got {options.old}")
    found = compare(options.device, options.old.resolve(), options.rounds or ROUNDS[options.device], options.cases)
    print("\n".join(lines(found["seconds"], found["left_out"])))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(not found["seconds"])


def compare(device: str, old: Path, rounds: int, only: list[str] | None = None) -> dict:
    """`seconds`: "case / contender" -> before and after -> one number a round; `left_out`: what failed, and why;
    `files`: where each package lies."""
    begin = time.perf_counter()
    folders = {OLD: old, NEW: ROOT}
    running = {
        (name, when): workers.start(measure, str(folder), device, name)
        for name in CONTENDERS[device]
        for when, folder in folders.items()
    }
    seconds: dict[str, dict[str, list[float]]] = {}
    left_out: dict[str, str] = {}
    files: dict[str, str] = {}
    try:
        for (_, when), worker in running.items():
            workers.send(worker, ("prepare", only))
            files[when] = ""
        for (name, when), worker in running.items():
            try:
                answer = workers.receive(worker, LIMIT)
            except (workers.FailedError, workers.WrongResultError) as error:
                left_out[f"{name}, {when}"] = str(error)
                continue
            files[when] = answer["file"]
            left_out |= {f"{case} / {name}, {when}": why for case, why in answer["failed"].items()}
            for case in answer["ready"]:
                seconds.setdefault(f"{case} / {name}", {})[when] = []
        print(f"{workers.since(begin)}  prepared: {files}", flush=True)
        seconds = {key: times for key, times in seconds.items() if len(times) == len(folders)}
        for number in range(rounds):
            order = [OLD, NEW] if number % 2 == 0 else [NEW, OLD]
            for key, times in seconds.items():
                case, name = key.split(" / ")
                for when in order:
                    times[when].append(workers.ask(running[name, when], ("time", case), LIMIT))
            print(f"{workers.since(begin)}  round {number + 1} of {rounds}", flush=True)
    finally:
        for worker in running.values():
            workers.end(worker)
    return {"seconds": seconds, "left_out": left_out, "files": files}


PREPARED: dict[str, tuple] = {}  # in a contender's process: what it works on


def measure(folder: str, device: str, name: str, request: tuple) -> dict | float:
    """In a contender's process: prepare all networks with the package in this folder, or time one of them."""
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    import nncourse
    import nnexperiment

    nnexperiment.__path__.append(str(ROOT / "nnexperiment"))  # an older one lacks what contenders import
    from benchmarks import contenders
    from nncourse import device as devices

    what, asked = request
    if what == "time":
        work, times = PREPARED[asked][:2]
        return devices.seconds(work, "cpu", **PATIENCE[device]) / times
    failed = {}
    for case in contenders.CASES[device].values():
        wanted = not case.words and (asked is None or case.name in asked)
        if not wanted or contenders.too_slow(case.name, name) or (case.operation and "fused" in name):
            continue
        try:
            PREPARED[case.name] = contenders.CONTENDERS[device][name](case)
        except Exception as error:  # the other networks are still of interest
            failed[case.name] = f"{type(error).__name__}: {error}"
    return {"ready": list(PREPARED), "failed": failed, "file": str(Path(nncourse.__file__).parent)}


def lines(seconds: dict[str, dict[str, list[float]]], left_out: dict[str, str]) -> list[str]:
    """A line for each network and contender: medians in µs, their ratio, that of the smallest times, and of a round.

    On a busy machine the smallest times say more than the medians.
    """
    width = max(map(len, seconds), default=0)
    said = [f"{'µs a step':{width}} {OLD:>10} {NEW:>10} {'ratio':>7} {'smallest':>9}   rounds"]
    for key, times in seconds.items():
        before, after = (statistics.median(times[when]) for when in (OLD, NEW))
        ratios = sorted(new / old for old, new in zip(times[OLD], times[NEW], strict=True))
        smallest = min(times[NEW]) / min(times[OLD])
        said.append(
            f"{key:{width}} {before * 1e6:10.2f} {after * 1e6:10.2f} {after / before:7.3f} {smallest:9.3f}   "
            f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
        )
    return said + [f"left out: {key}: {why}" for key, why in left_out.items()]


if __name__ == "__main__":
    sys.exit(main())
