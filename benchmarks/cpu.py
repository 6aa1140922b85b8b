"""Compare training steps on the CPU with PyTorch and scikit-learn: python -m benchmarks.cpu [--rounds N] [--out FILE].

Each contender of contenders.py runs in its own process with one thread; they are timed in turn. All raw times are
written to results/cpu.json, with the machine, the versions and the date.
"""

import argparse
from pathlib import Path

from benchmarks.compare import compare, show
from benchmarks.saved import RESULTS, refuse_out, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu.json")
    options = parser.parse_args()
    refuse_out(parser, options.out)
    from nncourse import device as devices

    compared = compare("cpu", options.rounds)
    show(compared)
    machine = {"machine": devices.describe("cpu"), "limits": devices.limits("cpu"), "threads": 1}
    save(machine | compared, options.out)


if __name__ == "__main__":
    main()
