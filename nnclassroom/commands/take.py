"""`nncourse take`: work from another machine."""

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="ADA.ZIP", help="file that `nncourse submit` wrote on the other machine"
    )


def run(options: Namespace) -> int:
    from nnclassroom.handing_in import taking

    print("\n".join(taking.take(options.file)))
    return 0
