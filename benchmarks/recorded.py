"""Compare recorded steps with launched ones and with PyTorch's: python -m benchmarks.recorded [--quick] [--out FILE].

Everything runs in one process: dense networks, sigmoid, mean squared error, float32 without TF32, data on the GPU.
`naive` uses the naive kernel of every operation, as the exercises ask for it. PyTorch's graph has 20 whole steps, as a
recording of nncourse has. All contenders are first compared with a float64 reference. Writes results/recorded.json,
which README.md, docs/speed.md and notebook 08 show.
"""

import argparse
import statistics
import sys
from pathlib import Path

from benchmarks.saved import RESULTS, refuse_out, save
from benchmarks.workers import WrongResultError
from nnclassroom.timing.network_records import OURS
from nncourse.model.network import make_network
from nncourse.model.optimizers import SGD, Adam
from nnexperiment.trainers import networks, pytorch_training
from nnexperiment.trainers.training import DisagreesError, drawn, own

CASES = ("784,128,10", 32, SGD), ("784,128,10", 32, Adam), ("784,30,10", 10, SGD)  # network, batch, optimizer


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps, to test that everything runs; writes nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "recorded.json")
    options = parser.parse_args(arguments)
    refuse_out(parser, options.out)
    from nncourse import device as devices

    if not devices.gpu_available():
        print(f"benchmarks.recorded: {devices.why_no_gpu()}", file=sys.stderr)
        return 2
    steps, rounds = (200, 1) if options.quick else (1000, 5)
    records = [record for case in CASES for record in measured(*case, steps, rounds)]
    for record in records:
        words = f"{record['network']} ({record['batch']}, {record['optimizer']})"
        print(f"{words:26} {record['contender']:16} {1e6 * record['seconds_a_step']:8.1f} µs a step", flush=True)
    if not options.quick:
        head = {"machine": devices.describe("gpu"), "cpu": devices.describe("cpu"), "versions": devices.versions()}
        save(head | {"records": records}, options.out)
    return 0


def measured(layers: str, batch: int, optimizer: type, steps: int, rounds: int) -> list[dict]:
    """A record for each contender, which are asked in turn."""
    problem = drawn(make_network(layers), batch, optimizer(), steps * batch)
    makers = contenders()
    missing = networks.not_installed(makers)
    try:
        ready = {
            name: networks.prepared(name, make, problem, "gpu", check=True)
            for name, make in makers.items()
            if name not in missing
        }
    except DisagreesError as error:
        raise WrongResultError(f"{layers}, {batch}: {error}") from None
    times: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, (trainer, count) in ready.items():
            times[name].append(networks.seconds_a_step(trainer, count))
    head = {"network": layers.replace(",", "-"), "batch": batch, "optimizer": problem.optimizer.kind}
    return [
        head
        | {
            "contender": name.removeprefix(OURS),
            "seconds_a_step": statistics.median(each),
            "rounds": each,
        }
        for name, each in times.items()
    ]


def contenders() -> dict:
    """By name: the course's steps, launched from Python and recorded, by two backends; PyTorch's."""
    found = {}
    for prefix, backend in (("", package_backend()), ("naive, ", naive_backend())):
        for word, plan in (("launched", "operations"), ("recorded", "recorded")):
            found[f"{OURS}{prefix}{word}"] = own(backend, plan=plan)
    graph = pytorch_training.graph(pytorch_training.eager_step)
    return found | {"PyTorch eager": pytorch_training.eager("cuda"), "PyTorch graph": graph}


def package_backend():
    from nncourse.backend import choose

    return choose("cuda")


def naive_backend():
    """The first CUDA kernel of every operation of a dense network: the naive one."""
    from nncourse.backend import choose
    from nncourse.catalogue import operations

    topics = ("dense.py", "activations.py", "backpropagation.py", "update.py", "cost.py")
    first = {
        name: next(kernel.name for kernel in operation.kernels.values() if kernel.cuda)
        for name, operation in operations().items()
        if any(kernel.cuda and topic[:-3] in kernel.where for kernel in operation.kernels.values() for topic in topics)
    }
    return choose("cuda", **first)


if __name__ == "__main__":
    sys.exit(main())
