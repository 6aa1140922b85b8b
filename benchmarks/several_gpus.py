"""The command line that all_reduce.py and data_parallel.py share: one process drives several GPUs. Not a command."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.saved import RESULTS, refuse_out, save
from benchmarks.workers import WrongResultError
from nncourse import device as devices
from nncourse.errors import CourseError


def command(
    name: str,
    about: str,
    usual: list[int],
    quick: str,
    run: Callable[[list[int], bool], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
    arguments: list[str] | None,
) -> int:
    """Measure by run(numbers of GPUs, quick), save as results/`name`.json unless --quick is given, and print the table.

    Returns the exit status: 1 after a wrong result, 2 without a GPU or for a mistake, each with one line.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--devices", type=lambda text: [int(number) for number in text.split(",")], default=usual)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help=quick)
    options = parser.parse_args(arguments)
    out = options.out or (None if options.quick else RESULTS / f"{name}.json")
    if out:
        refuse_out(parser, out)
    if reason := devices.why_no_gpu():
        print(f"benchmarks.{name}: {reason}", file=sys.stderr)
        return 2
    try:
        result = run(options.devices, options.quick)
    except (CourseError, WrongResultError) as error:
        print(f"benchmarks.{name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, CourseError) else 1
    if out:
        save(result, out)
    print(table(result))
    return 0
