"""Save results files, and name the folder that they are in."""

import argparse
import datetime
import json
from pathlib import Path

from nncourse.errors import CourseError, refuse_unwritable, write_atomically

RESULTS = Path(__file__).parent / "results"


def refuse_out(parser: argparse.ArgumentParser, path: Path) -> None:
    """Exit with an error if `path` cannot be written, before minutes are spent on measuring."""
    try:
        refuse_unwritable(path, "the results")
    except CourseError as error:
        parser.error(str(error))


def dated(result: dict) -> dict:
    """The results of a run, with today's date if they have none."""
    return {"date": datetime.date.today().isoformat()} | result


def save(result: dict, path: Path, said: bool = True) -> None:
    """Write the results of a run with their date, and say so."""
    text = json.dumps(dated(result), indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda new: new.write_text(text, encoding="utf-8"))
    if said:
        print(f"written: {path}")
