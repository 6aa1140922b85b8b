"""Compare training steps on the CPU with a plain C program, PyTorch and scikit-learn: python -m benchmarks.cpu.

Each contender of contenders.py runs in its own process, with one thread; contenders take turns. All raw times are
written to results/cpu.json, or --out FILE, with the machine, the versions and the date. With --quick, every contender
is timed briefly, in one round, to test that it runs. Then nothing is written unless --out names a file.
"""

import argparse
import datetime
from pathlib import Path

from benchmarks import tables
from benchmarks.compare import compare, show
from benchmarks.saved import RESULTS, refuse_out, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="short times, to test that everything runs")
    parser.add_argument("--out", type=Path, help="file for the results (default: results/cpu.json, with --quick none)")
    options = parser.parse_args()
    out = options.out or (None if options.quick else RESULTS / "cpu.json")
    if out:
        refuse_out(parser, out)
    from nncourse import device as devices

    compared = compare("cpu", 1 if options.quick else options.rounds, options.quick)
    show(compared)
    result = {"machine": devices.describe("cpu"), "limits": devices.limits("cpu"), "threads": 1} | compared
    if out:
        save(result, out)
    print(tables.call_table({"date": datetime.date.today().isoformat()} | result))


if __name__ == "__main__":
    main()
