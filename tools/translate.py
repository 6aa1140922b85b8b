"""Other languages: the notebooks and the package are generated from the English sources and locale/LANGUAGE/*.po.

    python tools/translate.py update es    the catalogues anew: what is new is empty, what changed is fuzzy
    python tools/translate.py status es    what is missing or wrong, by catalogue; exit status 1 if anything is
    python tools/translate.py write es     notebooks/es and nncourse/languages/es; never edit these

Catalogues can be named after the language: then `update` and `status` look at these alone. `write pseudo` needs no
catalogue: it brackets each text, so that one sees which are missing.
"""

import argparse
import sys
from pathlib import Path

from translation import commands, stamp

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("update", "status", "write"))
    parser.add_argument("language", help="such as es; pseudo, which brackets every text, for write")
    parser.add_argument("catalogue", nargs="*", help="such as 01_neurons (default: all)")
    parser.add_argument("--if-old", action="store_true", help="write only if anything it is made from has changed")
    options = parser.parse_args(arguments)
    if options.command == "write":
        if options.if_old and stamp.is_new(ROOT, options.language):
            return 0
        return commands.write(ROOT, options.language)
    known = commands.update if options.command == "update" else commands.status
    return known(ROOT, options.language, options.catalogue)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
