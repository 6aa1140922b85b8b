"""Run notebooks in the pseudo language, and print each word on the screen that is in no brackets.

    python tools/pseudo.py                  all notebooks, as handed out and solved; exit status 1 if there is any
    python tools/pseudo.py 01_neurons …     some of them

Every text is in brackets there, so a word without them is in no catalogue. Names of operations, kernels, files, units
and libraries are in locale/allowed.toml.
"""

import sys
from pathlib import Path

from translation import allowed, commands, leftovers, stamp
from translation.commands import PSEUDO

ROOT = Path(__file__).resolve().parents[1]


def main(names: list[str]) -> int:
    """Run the notebooks both ways; returns 1 if a word is in no brackets."""
    if not stamp.is_new(ROOT, PSEUDO):
        commands.write(ROOT, PSEUDO)
    names_there = allowed.read(ROOT)
    found = 0
    for path in sorted((ROOT / "notebooks" / PSEUDO).glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        for solve in ("", "all"):
            lines = leftovers.of_notebook(path, solve, names_there)
            for line in lines:
                print(line, flush=True)
            found += len(lines)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
