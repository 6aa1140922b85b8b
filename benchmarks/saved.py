"""Where results are kept, and how a run is saved there."""

import argparse
import datetime
import json
from pathlib import Path

from nncourse.errors import CourseError, refuse_unwritable

RESULTS = Path(__file__).parent / "results"


def refuse_out(parser: argparse.ArgumentParser, path: Path) -> None:
    """What cannot be written is refused before minutes are spent on measuring."""
    try:
        refuse_unwritable(path, "the results")
    except CourseError as error:
        parser.error(str(error))


def save(result: dict, path: Path) -> None:
    """Write a run, and the day."""
    dated = {"date": datetime.date.today().isoformat()} | result
    path.write_text(json.dumps(dated, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {path}")
