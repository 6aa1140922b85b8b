"""Print how long each cell of a notebook takes, and its longest silence: tools/cells.py --beside 2 FILE …

With --beside N each notebook runs twice: alone, and together with N processes that never end, as on a shared machine.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from notebooks import client

SHOWN = ("stream", "display_data", "update_display_data", "execute_result", "error", "comm_open", "comm_msg")
ENDLESS = [sys.executable, "-c", "while True: pass"]
Cell = tuple[float, float]  # seconds from its start to its end, and the longest without anything new on the screen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--beside", type=int, default=0, help="number of endless processes (default 0)")
    parser.add_argument("--solved", action="store_true", help="fill in the course's own answers")
    parser.add_argument("--least", type=float, default=0.5, help="leave out cells that take fewer seconds")
    options = parser.parse_args()
    for path in options.files:
        found = []
        for count in dict.fromkeys((0, options.beside)):
            with endless(count):
                found.append(run(path, options.solved))
        report(path, found, options.least)


@contextlib.contextmanager
def endless(count: int) -> Iterator[None]:
    """So many processes that keep a core busy each during the block."""
    running = [subprocess.Popen(ENDLESS, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run(path: Path, solved: bool = False) -> dict[int, Cell]:
    """The times of each code cell, by its number in the notebook. Cells that fail end it."""
    notebook = nbformat.read(path, as_version=4)
    runner = client(notebook, path.parent, timeout=900)
    times: dict[int, list[float]] = {}
    known = runner.process_message

    def note(cell: Any, cell_index: int, **_: object) -> None:
        if cell.cell_type == "code":
            times.setdefault(cell_index, []).append(time.perf_counter())

    def process_message(message: dict, cell: Any, cell_index: int) -> Any:
        if message["msg_type"] in SHOWN:
            note(cell, cell_index)
        return known(message, cell, cell_index)

    runner.process_message = process_message
    runner.on_cell_execute = runner.on_cell_executed = note
    with tempfile.TemporaryDirectory() as kept:
        runner.execute(env=os.environ | {"NNCOURSE_MY_KERNELS": kept, "NNCOURSE_SOLVE": "all" if solved else ""})
    return {
        number: (stamps[-1] - stamps[0], max(b - a for a, b in zip(stamps, stamps[1:], strict=False)))
        for number, stamps in times.items()
    }


def report(path: Path, found: list[dict[int, Cell]], least: float) -> None:
    """Print a line a cell, with the times of one run or of both."""
    print(f"{path.stem}: " + " and ".join(f"{sum(cell[0] for cell in cells.values()):.1f} s" for cells in found))
    for number in found[0]:
        cells = [cells[number] for cells in found]
        if max(seconds for seconds, _ in cells) >= least:
            times = "  ".join(f"{seconds:7.2f} s, silent {silent:6.2f} s" for seconds, silent in cells)
            slower = f"  {cells[1][0] / cells[0][0]:5.2f} times as long" if len(cells) > 1 else ""
            print(f"  [{number:3}]  {times}{slower}")


if __name__ == "__main__":
    main()
