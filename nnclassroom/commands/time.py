"""`nncourse time`: kernels beside this machine's limits, or training steps of a network beside PyTorch's and JAX's."""

from argparse import ArgumentParser, Namespace

from nnclassroom.arguments import whole
from nnclassroom.commands import check, networks
from nncourse.errors import CourseError

ROUNDS, BATCH = 5, 32


def add_options(parser: ArgumentParser) -> None:
    check.add_kernels(parser)
    add = parser.add_argument
    add("--size", action="append", default=[], metavar="NAME=N", help="size to time, such as batch=64 or n_in=784")
    add(
        "--network",
        metavar="LAYERS",
        help="network whose training steps to compare with PyTorch's and JAX's: 784,300,100,10, as for train",
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
        raise CourseError(f"{got} goes with --network, such as --network 784,300,100,10; got none")
    return time_network(options) if options.network else time_kernels(options)


def time_kernels(options: Namespace) -> int:
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


def time_network(options: Namespace) -> int:
    from nnclassroom.timing import neighbours
    from nnclassroom.timing import networks as timing
    from nncourse import device, threads
    from nncourse.model.network import make_network

    activation, cost = (getattr(options, name) or default for name, default in networks.DEFAULTS.items())
    network = make_network(options.network, networks.one_or_more(activation), cost)
    optimizer, batch = networks.optimizer_of(options), BATCH if options.batch_size is None else options.batch_size
    for name, count in (("--batch-size", batch), ("--threads", options.threads)):
        if count == 0:
            raise CourseError(f"wanted {name} of at least 1, got 0")
    if options.backend == "loops":
        raise CourseError("wanted --backend numpy, numba, cupy or cuda; loops in Python would take minutes")
    backends = _backends(options)
    where = next(iter(backends.values())).device
    problem = timing.problem_of(network, batch, optimizer, where)
    print(timing.wrapped(f"{network}; {networks.optimizer_in_words(optimizer)}, batch {batch}"))
    print(timing.wrapped(device.describe(where)), flush=True)
    before = threads.look()
    contenders = timing.contenders(where, backends, options.threads)
    contenders.pop(timing.COMPILED, None)  # compiling takes a minute
    found = timing.compare(problem, contenders, where, ROUNDS)
    print(timing.in_words(found))
    print(f"{len(problem.X):,} random samples an epoch; the best of {ROUNDS} rounds, in turn.")
    said = neighbours.in_words(threads.since(before)), neighbours.gpu_in_words() if where == "gpu" else ""
    for line in filter(None, said):
        print(line)
    return 0


def _backends(options: Namespace) -> dict:
    """The backend that the options name, else cuda, or numpy and numba."""
    from nncourse import device

    names = [options.backend]
    if not options.backend:
        chosen = options.use or options.mine
        names = ["cuda"] if device.gpu_available() else ["numpy"] if chosen else ["numpy", "numba"]
    return {name: networks.backend_for(Namespace(**vars(options) | {"backend": name})) for name in names}
