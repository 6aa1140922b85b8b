"""Measure the overheads of a GPU, for notebook 08: python -m benchmarks.overheads writes results/overheads.json."""

import argparse
import sys
from pathlib import Path

from benchmarks.saved import RESULTS, refuse_out, save
from nnclassroom.figures import overheads
from nncourse import device as devices
from nncourse.errors import CourseError


def main(name: str = "overheads", about: str = __doc__) -> None:
    """Measure what belongs into results/NAME.json, and write it."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json")
    options = parser.parse_args()
    refuse_out(parser, options.out)
    try:
        found = overheads.measure(name)
    except CourseError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    head = {"machine": devices.describe("gpu"), "cpu": devices.describe("cpu")}
    save(head | {"versions": devices.versions()} | found, options.out)


if __name__ == "__main__":
    main()
