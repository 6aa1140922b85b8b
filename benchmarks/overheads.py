"""What a GPU costs beside computing, for notebook 08: python -m benchmarks.overheads writes results/overheads.json."""

import argparse
import sys

from benchmarks.saved import RESULTS, file_to_write, save
from nncourse import device as devices
from nncourse.classroom import overheads
from nncourse.errors import CourseError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=file_to_write, default=str(RESULTS / "overheads.json"))
    options = parser.parse_args()
    try:
        found = overheads.measure()
    except CourseError as error:
        print(f"overheads: {error}", file=sys.stderr)
        sys.exit(2)
    head = {"machine": devices.describe("gpu"), "cpu": devices.describe("cpu")}
    save(head | {"versions": devices.versions()} | found, options.out)


if __name__ == "__main__":
    main()
