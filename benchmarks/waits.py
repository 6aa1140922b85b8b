"""Measure what waits for memory cost, for notebook 03b: python -m benchmarks.waits writes results/waits.json.

Copies by more and more threads, each with one read under way; and a dense layer with its weights stored either way.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.saved import RESULTS, refuse_out, save
from nnclassroom.figures import overheads
from nncourse import device as devices
from nncourse.errors import CourseError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS / "waits.json")
    options = parser.parse_args()
    refuse_out(parser, options.out)
    try:
        found = overheads.measure("waits")
    except CourseError as error:
        print(f"waits: {error}", file=sys.stderr)
        sys.exit(2)
    head = {"machine": devices.describe("gpu"), "cpu": devices.describe("cpu")}
    save(head | {"versions": devices.versions()} | found, options.out)


if __name__ == "__main__":
    main()
