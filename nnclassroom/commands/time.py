"""`nncourse time`: kernels beside this machine's limits, or training steps of a network beside PyTorch's and JAX's."""

from argparse import ArgumentParser, Namespace

from nnclassroom.arguments import whole
from nnclassroom.commands import check, module_of, networks
from nncourse.errors import CourseError

BATCH = 32  # of a network's step


def add_options(parser: ArgumentParser) -> None:
    check.add_kernels(parser)
    add = parser.add_argument
    add("--size", action="append", default=[], metavar="NAME=N", help="size to time, such as batch=64 or n_in=784")
    add(
        "--network",
        metavar="LAYERS",
        help="network whose training steps to compare with PyTorch's and JAX's: 784,300,100,10, as in train --layers",
    )
    add(
        "--backend",
        help="backend for --network: numpy, numba, cupy or cuda (default cuda, or without a GPU numpy and numba)",
    )
    networks.add_kernels(parser)
    networks.add_steps(parser)
    add("--batch-size", type=whole, help=f"number of samples per step (default {BATCH})")
    add(
        "--threads",
        type=whole,
        metavar="N",
        help="number of threads on a CPU, for all programs (default: each program's own choice)",
    )


def run(options: Namespace) -> int:
    kernels = "operation", "kernel", "size"
    others = [name for name in vars(options) if name not in (*kernels, "network", "run", "arguments", "spellings")]
    if odd := [name for name in (kernels if options.network else others) if getattr(options, name)]:
        got = "an operation" if odd[0] == "operation" else f"--{odd[0].replace('_', '-')}"
        if options.network:
            raise CourseError(f"{got} and --network do not go together: leave one out")
        raise CourseError(f"{got} needs --network, such as --network 784,300,100,10; got none")
    return module_of("time --network").run(options) if options.network else time_kernels(options)


def time_kernels(options: Namespace) -> int:
    from nnclassroom import timing

    sizes = {}
    for text in options.size:
        name, _, count = text.partition("=")
        if not count.isdecimal() or len(count) > 9:
            raise CourseError(f"expected --size NAME=N with N from 0 to 999999999, such as batch=64; got {text!r}")
        sizes[name] = int(count)
    for operation in check.chosen(options):
        rows = timing.time_kernels(operation, sizes, options.kernel)
        print(timing.table(operation, rows, timing.default_sizes(operation) | sizes), end="\n\n", flush=True)
    return 0
