"""`nncourse notebooks`: a copy of the notebooks without outputs, for any Jupyter."""

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, help="folder of your copy, to make or to update; your own work in it stays"
    )


def run(options: Namespace) -> int:
    import sys

    from nnclassroom.handing_out import own_copy
    from nncourse import language

    folder = options.folder.absolute()
    said = own_copy.bring(language.COURSE, folder, language.current())
    if said or sys.stdout.isatty():  # a script that runs daily logs only news
        print("\n".join(said or [f"{folder} is up to date"]))
    return 0
