"""Run notebooks in the pseudo language, and print each word on the screen that is in no brackets.

    python tools/pseudo.py                  all notebooks, as handed out and solved; exit status 1 if there is any
    python tools/pseudo.py 01_neurons …     some of them

Every text is in brackets there, so a word without them is in no catalogue. Names of operations, kernels, files, units
and libraries are in locale/allowed.toml.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from translation import allowed, commands, on_screen, stamp
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
            lines = findings(path, solve, names_there)
            for line in lines:
                print(line, flush=True)
            found += len(lines)
    return int(found > 0)


def findings(path: Path, solve: str, names: allowed.Allowed) -> list[str]:
    """The words without brackets of one notebook: the cell, the words, and where they stand."""
    with tempfile.TemporaryDirectory() as kernels:
        environment = os.environ | {"NNCOURSE_LANG": PSEUDO, "NNCOURSE_MY_KERNELS": kernels, "NNCOURSE_SOLVE": solve}
        environment |= {"PYTHONPATH": str(path.parents[2])}
        notebook = on_screen.run(nbformat.read(path, as_version=4), str(path.parent), environment)
    said = f"{path.stem}{' solved' if solve else ''}"
    lines = [line for cell, text in on_screen.texts(notebook) for line in allowed.lines(f"{said}: {cell}", text, names)]
    return list(dict.fromkeys(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
