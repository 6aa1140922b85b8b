"""`nncourse time --network`: time a network's training steps, compared with PyTorch and JAX."""

from argparse import Namespace

from nnclassroom.commands import networks
from nnclassroom.commands.time import BATCH
from nnclassroom.timing import neighbours, network_records
from nncourse import device, threads
from nncourse.backend import Backend
from nncourse.errors import CourseError
from nncourse.model.network import make_network
from nnexperiment.trainers import networks as timed

ROUNDS = 5


def run(options: Namespace) -> int:
    activation, cost = (getattr(options, name) or default for name, default in networks.DEFAULTS.items())
    network = make_network(options.network, networks.one_or_more(activation), cost)
    optimizer, batch = networks.optimizer_of(options), BATCH if options.batch_size is None else options.batch_size
    for name, count in (("--batch-size", batch), ("--threads", options.threads)):
        if count == 0:
            raise CourseError(f"expected {name} of at least 1, got 0")
    if options.backend == "loops":
        raise CourseError("expected --backend numpy, numba, cupy or cuda; loops in Python would take minutes")
    backends = _backends(options)
    where = next(iter(backends.values())).device
    problem = timed.problem_of(network, batch, optimizer, where)
    print(network_records.wrapped(f"{network}; {networks.optimizer_in_words(optimizer)}, batch {batch}"))
    print(network_records.wrapped(device.describe(where)), flush=True)
    before = threads.look()
    contenders = timed.contenders(where, backends, options.threads)
    contenders.pop(network_records.COMPILED, None)  # compiling takes a minute
    found = timed.compare(problem, contenders, where, ROUNDS)
    print(network_records.in_words(found))
    print(f"{len(problem.X):,} random samples per epoch. Each time is the best of {ROUNDS}, taken in turn.")
    said = neighbours.in_words(threads.since(before)), neighbours.gpu_in_words() if where == "gpu" else ""
    for line in filter(None, said):
        print(line)
    return 0


def _backends(options: Namespace) -> dict[str, Backend]:
    """The backend that the options name; otherwise cuda, or numpy and numba without a GPU."""
    names = [options.backend]
    if not options.backend:
        chosen = options.use or options.mine
        names = ["cuda"] if device.gpu_available() else ["numpy"] if chosen else ["numpy", "numba"]
    return {name: networks.backend_for(Namespace(**vars(options) | {"backend": name})) for name in names}
