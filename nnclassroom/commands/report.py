"""`nncourse report`: the page that a student hands in."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from nnclassroom.commands import networks
from nncourse.errors import refuse_unwritable


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--out", default="report.html", help="file for the page (default report.html)")
    parser.add_argument("--name", default="", help="your name, for the page")
    parser.add_argument(
        "--dataset",
        help="name of a data set, or a CSV file (default: the credit-card data, or generated data in their place)",
    )
    networks.add_label(parser, "the last")
    parser.add_argument(
        "--epochs", type=int, default=100, help="number of epochs of the training that the page shows (default 100)"
    )


def run(options: Namespace) -> int:
    from nnclassroom.notebook import report

    refuse_unwritable(Path(options.out), "the report")
    report.write(Path(options.out), options.name, options.dataset, options.epochs, options.label)
    print(f"report: {options.out}")
    return 0
