"""`nncourse time`: kernels beside this machine's limits."""

from argparse import ArgumentParser, Namespace

from nnclassroom.commands import check
from nncourse.errors import CourseError


def add_options(parser: ArgumentParser) -> None:
    check.add_kernels(parser)
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N", help="batch=64, n_in=784, …")


def run(options: Namespace) -> int:
    from nnclassroom import timing

    sizes = {}
    for text in options.size:
        name, _, count = text.partition("=")
        if not count.isdecimal() or len(count) > 9:
            raise CourseError(f"wanted --size NAME=N with N from 0 to 999999999, such as batch=64; got {text!r}")
        sizes[name] = int(count)
    for operation in check.chosen(options):
        rows = timing.time_kernels(operation, sizes, options.kernel)
        print(timing.table(operation, rows, timing.default_sizes(operation) | sizes), end="\n\n", flush=True)
    return 0
