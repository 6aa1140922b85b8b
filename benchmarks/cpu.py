"""Compare training steps on the CPU with a plain C program, PyTorch and scikit-learn: python -m benchmarks.cpu.

Each contender of contenders.py runs in its own process with one thread; they are timed in turn. All raw times are
written to results/cpu.json, with the machine, the versions and the date: --out FILE. With --quick every contender is
timed shortly in one round, to see that it runs; then nothing is written unless --out says where, and the tables shown.
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
    parser.add_argument("--out", type=Path, help="the results (default, unless --quick: results/cpu.json)")
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
