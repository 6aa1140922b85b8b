"""`nncourse report`: the page that a student hands in."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from nnclassroom.commands import networks
from nncourse.errors import refuse_unwritable


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--out", default="report.html", help="the page's file (default report.html)")
    parser.add_argument("--name", default="", help="who hands it in")
    parser.add_argument("--dataset", help="a CSV file or a name (default: the CC data, else their stand-in)")
    networks.add_label(parser, "the last")
    parser.add_argument("--epochs", type=int, default=100, help="of the training whose results are shown (default 100)")


def run(options: Namespace) -> int:
    from nnclassroom.notebook import report

    refuse_unwritable(Path(options.out), "the report")
    report.write(Path(options.out), options.name, options.dataset, options.epochs, options.label)
    print(f"report: {options.out}")
    return 0
