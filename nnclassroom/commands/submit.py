"""`nncourse submit`: a student's kept kernels in one file."""

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="ADA.ZIP", help="file to write and hand in")
    parser.add_argument("--name", default="", help="your name, for the file")


def run(options: Namespace) -> int:
    from nnclassroom.handing_in import packing

    count = packing.pack(options.out, options.name)
    print(f"{options.out}: {count} {'kernel' if count == 1 else 'kernels'} to hand in")
    return 0
