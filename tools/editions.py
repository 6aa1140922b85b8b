"""Run notebooks in English and in another language, and print what differs but for the words.

    python tools/editions.py es                  all notebooks, as handed out and solved; exit status 1 if anything does
    python tools/editions.py es 01_neurons …     some of them

No cell may fail. Equal must be: the kept kernels, but for comments and docstrings; the states of the exercises; the
data of each figure (lines, patches, collections, pictures, limits of axes); the numbers that each cell prints and each
widget holds. Where anything differs both are run again: what varies in one language, as measured times do, is no fault.
"""

import argparse
import sys
from pathlib import Path

from translation import commands, editions, stamp

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    """Run the notebooks both ways; returns 1 if anything but the words and measured times differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("language", help="such as es")
    parser.add_argument("notebook", nargs="*", help="such as 01_neurons (default: all)")
    options = parser.parse_args(arguments)
    if not stamp.is_new(ROOT, options.language):
        commands.write(ROOT, options.language)
    found = 0
    for name in options.notebook or sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb")):
        for solved in (False, True):
            comparison = editions.compared(ROOT, name, options.language, solved)
            print(f"{name}, {'solved' if solved else 'as handed out'}: {comparison}", flush=True)
            found += len(comparison.failed) + len(comparison.faults)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
