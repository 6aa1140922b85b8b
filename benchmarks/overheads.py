"""What a GPU costs beside computing, for notebook 08: python -m benchmarks.overheads writes results/overheads.json."""

import argparse
import datetime
import json
import sys
from pathlib import Path

from nncourse import device as devices
from nncourse.classroom import overheads
from nncourse.errors import CourseError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=overheads.RESULTS / "overheads.json")
    options = parser.parse_args()
    try:
        found = overheads.measure()
    except CourseError as error:
        print(f"overheads: {error}", file=sys.stderr)
        sys.exit(2)
    head = {"machine": devices.describe("gpu"), "cpu": devices.describe("cpu")}
    head |= {"date": datetime.date.today().isoformat(), "versions": devices.versions()}
    options.out.write_text(json.dumps(head | found, indent=1) + "\n")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
