"""Generate the notebooks and the package in other languages, from the English sources and locale/LANGUAGE/*.po.

    python tools/translate.py update es    updates the catalogues: new texts are empty, changed ones fuzzy
    python tools/translate.py status es    lists what is missing or wrong, by catalogue; exit status 1 if anything is
    python tools/translate.py write es     writes notebooks/es and nncourse/languages/es, which are not kept in git
    python tools/translate.py read es 01_neurons    copies changes in notebooks/es back into the catalogues

`update`, `status` and `write` take the names of catalogues too: `write es 01_neurons` writes one notebook.
"""

import argparse
import sys
from pathlib import Path

from translation import commands, stamp

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {"update": commands.update, "status": commands.status, "write": commands.write, "read": commands.read}


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("language", help="language, such as es")
    parser.add_argument("catalogue", nargs="*", help="catalogues, such as 01_neurons (default: all; read needs names)")
    parser.add_argument("--if-old", action="store_true", help="write only if a source has changed")
    options = parser.parse_args(arguments)
    if options.command == "read" and not options.catalogue:
        parser.error("expected names of notebooks for read, such as 01_neurons; got none")
    if options.if_old and stamp.is_new(ROOT, options.language):
        return 0
    return COMMANDS[options.command](ROOT, options.language, options.catalogue)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
