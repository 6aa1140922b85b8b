"""Time all contenders on all cases, in separate interleaved processes: python -m benchmarks.compare cpu|gpu.

`python -m benchmarks.cpu` is the same for the CPU; each process that is started calls this file with --one.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.contenders import CASES, CONTENDERS

RESULTS = Path(__file__).parent / "results"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def main(device: str | None = None) -> None:
    """The command line; it asks for the device unless it is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.set_defaults(device=device)
    if device is None:
        parser.add_argument("device", choices=CONTENDERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="the results file (default benchmarks/results/DEVICE.json)")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "CONTENDER"), help="time this one and print its seconds")
    options = parser.parse_args()
    from nncourse import device as devices

    if options.device == "gpu" and not devices.gpu_available():
        sys.exit(f"compare gpu: {devices.why_no_gpu()}")
    if options.one:
        print(json.dumps(measure(options.device, *options.one)))
        return
    result = compare(options.device, options.rounds)
    out = options.out or RESULTS / f"{options.device}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {out}")


def measure(device: str, case: str, contender: str) -> dict:
    """Seconds of one call, in this process; and the versions of what was imported for it."""
    from nncourse import device as devices

    work, times = CONTENDERS[device][contender](CASES[case])
    return {"seconds": devices.seconds(work, device, enough=1.0) / times, "versions": devices.versions()}


def compare(device: str, rounds: int) -> dict:
    """Every case × contender in `rounds` rounds, a process each."""
    from nncourse import device as devices

    seconds: dict[str, dict[str, list[float]]] = {case: {} for case in CASES}
    left_out: dict[str, str] = {}
    versions: dict[str, str] = {}
    for number in range(rounds):
        for case in CASES:
            for contender in CONTENDERS[device]:
                key = f"{case} / {contender}"
                if key in left_out or _too_slow(case, contender):
                    continue
                command = [sys.executable, "-m", "benchmarks.compare", device, "--one", case, contender]
                done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ONE_THREAD)
                if done.returncode:
                    left_out[key] = done.stderr.strip().splitlines()[-1]
                    continue
                one = json.loads(done.stdout.strip().splitlines()[-1])
                seconds[case].setdefault(contender, []).append(one["seconds"])
                versions |= one["versions"]
        print(f"round {number + 1} of {rounds}", flush=True)
    for case, times in seconds.items():
        print(case)
        for contender, values in times.items():
            print(f"  {contender:24}{statistics.median(values) * 1e6:12.1f} µs")
    for key, reason in left_out.items():
        print(f"left out: {key}: {reason}")
    return {
        "machine": devices.describe(device),
        "limits": devices.limits(device),
        "date": datetime.date.today().isoformat(),
        "versions": versions,
        "threads": 1 if device == "cpu" else None,
        "seconds": seconds,
        "left_out": left_out,
    }


def _too_slow(case: str, contender: str) -> bool:
    """A thousand million multiplications in Python loops take minutes."""
    return contender == "nncourse loops" and ("784" in case or "1024" in case)


if __name__ == "__main__":
    main()
