"""`nncourse update`: a new hand-out into a student's copy."""

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("handout", type=Path, help="new hand-out, a .zip file")
    parser.add_argument("--folder", type=Path, default=Path(), help="folder of your copy (default: this folder)")


def run(options: Namespace) -> int:
    from nnclassroom.handing_out import update

    print("\n".join(update.update(options.handout, options.folder)))
    return 0
