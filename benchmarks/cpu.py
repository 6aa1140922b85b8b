"""Training steps on the CPU beside PyTorch and scikit-learn: python -m benchmarks.cpu [--rounds N] [--out FILE].

One thread each, every contender a process of its own, in turn; who is timed stands in contenders.py. All raw seconds go
to results/cpu.json, with the machine, the versions and the date.
"""

import argparse
import datetime
import json
from pathlib import Path

from benchmarks.compare import compare, show

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu.json")
    options = parser.parse_args()
    from nncourse import device as devices

    compared = compare("cpu", options.rounds)
    show(compared)
    result = {
        "machine": devices.describe("cpu"),
        "limits": devices.limits("cpu"),
        "date": datetime.date.today().isoformat(),
        "threads": 1,
        **compared,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
