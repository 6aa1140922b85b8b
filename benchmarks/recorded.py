"""Recorded steps beside launched ones and PyTorch's: python -m benchmarks.recorded [--quick] [--out FILE].

All in one process. Dense networks, sigmoid, mean squared error, float32 without TF32, data on the GPU. `naive` has the
naive kernel of every operation, as the exercises ask for it. PyTorch's graph has 20 whole steps, as a recording has.
All are first compared with a float64 reference. Writes results/recorded.json, which notebook 08 shows.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import trainers
from benchmarks.saved import RESULTS, refuse_out, save
from benchmarks.workers import WrongResultError

RECORDED = 20  # steps in one graph
TOLERANCE = 1e-4  # of the parameters' way from their beginning; Adam divides by small numbers


class Case(NamedTuple):
    """A network, its batch, its optimizer, "sgd" or "adam", and how many samples there are."""

    sizes: tuple[int, ...]
    batch: int
    optimizer: str
    samples: int = 0

    @property
    def rate(self) -> float:
        return trainers.RATE if self.optimizer == "sgd" else 0.001


CASES = Case((784, 128, 10), 32, "sgd"), Case((784, 128, 10), 32, "adam"), Case((784, 30, 10), 10, "sgd")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps, to see that everything runs; writes nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "recorded.json")
    options = parser.parse_args(arguments)
    refuse_out(parser, options.out)
    from nncourse import device as devices

    if not devices.gpu_available():
        print(f"benchmarks.recorded: {devices.why_no_gpu()}", file=sys.stderr)
        return 2
    steps, rounds = (200, 1) if options.quick else (1000, 5)
    records = [record for case in CASES for record in measured(case, steps, rounds)]
    for record in records:
        words = f"{record['network']} ({record['batch']}, {record['optimizer']})"
        print(f"{words:26} {record['contender']:16} {1e6 * record['seconds_a_step']:8.1f} µs a step", flush=True)
    if not options.quick:
        head = {"machine": devices.describe("gpu"), "cpu": devices.describe("cpu"), "versions": devices.versions()}
        save(head | {"records": records}, options.out)
    return 0


def measured(case: Case, steps: int, rounds: int) -> list[dict]:
    """A record for each contender, which are asked in turn."""
    architecture, parameters, X, Y = trainers.problem_of(case._replace(samples=steps * case.batch))
    reference = after(case, architecture, parameters, X, Y)
    contenders: dict[str, Callable[[int], None]] = {}
    for name, make in CONTENDERS.items():
        try:
            trainer = make(case, architecture, parameters, X, Y)
        except ImportError:
            continue  # PyTorch is not installed
        trainer.train(RECORDED)
        error = np.linalg.norm(trainer.parameters() - reference) / np.linalg.norm(reference - parameters)
        if not error <= TOLERANCE:
            raise WrongResultError(f"{case}, {name}: off by {error:.1e} after {RECORDED} steps")
        contenders[name] = trainer.train
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):  # the first turn warms up
        for name, train in contenders.items():
            begin = time.perf_counter()
            train(steps)
            if turn:
                times[name].append((time.perf_counter() - begin) / steps)
    head = {"network": "-".join(map(str, case.sizes)), "batch": case.batch, "optimizer": case.optimizer}
    return [
        head | {"contender": name, "seconds_a_step": statistics.median(rounds), "rounds": rounds}
        for name, rounds in times.items()
    ]


def after(case: Case, architecture, parameters, X, Y) -> np.ndarray:
    """The parameters after RECORDED steps, in float64."""
    from nncourse.backend import choose
    from nncourse.model.network import with_parameters
    from nncourse.model.training import train_step_by_step

    network = with_parameters(architecture, parameters.astype(np.float64))
    X, Y = (array[: RECORDED * case.batch].astype(np.float64) for array in (X, Y))
    train_step_by_step(network, X, Y, case.batch, case.rate, choose("numpy"), optimizer_of(case))
    return network.flat_parameters


def optimizer_of(case: Case):
    from nncourse.model.optimizers import make_optimizer

    return make_optimizer(case.optimizer)


def ours(recorded: bool, naive: bool) -> Callable:
    """The course's steps, launched from Python or recorded, by the package's kernels or the naive ones."""

    def make(case: Case, architecture, parameters, X, Y) -> trainers.Trainer:
        import cupy

        from nncourse.group import ALONE
        from nncourse.model.data_parallel import parts_of_epoch
        from nncourse.model.layers import StepPosition
        from nncourse.model.network import with_parameters
        from nncourse.model.recorded_steps import RecordedEpoch
        from nncourse.model.training import train_step_by_step

        backend = naive_backend() if naive else package_backend()
        network = with_parameters(architecture, backend.to_device(parameters.copy()))
        optimizer, X, Y = optimizer_of(case), backend.to_device(X), backend.to_device(Y)
        epochs: dict[int, RecordedEpoch] = {}

        def train(steps: int) -> None:
            n = steps * case.batch
            if recorded:
                if steps not in epochs:
                    parts = parts_of_epoch(n, case.batch, ALONE)
                    epochs[steps] = RecordedEpoch(network, optimizer, backend, X[:n], Y[:n], case.rate, 0, parts)
                epochs[steps](cupy.arange(n), case.rate, StepPosition())
            else:
                train_step_by_step(network, X[:n], Y[:n], case.batch, case.rate, backend, optimizer)
            cupy.cuda.Device().synchronize()

        return trainers.Trainer(train, lambda: network.flat_parameters.get())

    return make


def package_backend():
    from nncourse.backend import choose

    return choose("cuda", dense_sgd_epoch="steps")


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


def pytorch(in_graph: bool) -> Callable:
    """PyTorch with autograd and its optimiser; eagerly, or RECORDED whole steps in a CUDA graph."""

    def make(case: Case, architecture, parameters, X, Y) -> trainers.Trainer:
        import torch

        network = trainers.module(torch, architecture, parameters, "cuda")
        options = {"lr": case.rate} | ({"capturable": True} if in_graph and case.optimizer == "adam" else {})
        optimiser = (torch.optim.Adam if case.optimizer == "adam" else torch.optim.SGD)(network.parameters(), **options)
        pairs = [torch.from_numpy(array).to("cuda").view(-1, case.batch, array.shape[1]) for array in (X, Y)]
        fixed = [torch.zeros_like(pair[:RECORDED]) for pair in pairs]

        def take_steps(x, y) -> None:
            for rows, targets in zip(x, y, strict=True):
                optimiser.zero_grad()
                (((network(rows) - targets) ** 2).sum() / (2 * len(rows))).backward()
                optimiser.step()

        if in_graph:
            replay = trainers.captured(torch, lambda: take_steps(*fixed))
            trainers.load(torch, network, architecture, parameters)  # capturing has already changed them
            for state in optimiser.state.values():
                for tensor in state.values():
                    tensor.zero_()

        def train(steps: int) -> None:
            if in_graph:
                for start in range(0, steps, RECORDED):
                    for there, pair in zip(fixed, pairs, strict=True):
                        there.copy_(pair[start : start + RECORDED])
                    replay()
            else:
                take_steps(*(pair[:steps] for pair in pairs))
            torch.cuda.synchronize()

        return trainers.Trainer(train, lambda: trainers.flat(torch, network))

    return make


CONTENDERS = {
    "launched": ours(recorded=False, naive=False),
    "recorded": ours(recorded=True, naive=False),
    "naive, launched": ours(recorded=False, naive=True),
    "naive, recorded": ours(recorded=True, naive=True),
    "PyTorch eager": pytorch(in_graph=False),
    "PyTorch graph": pytorch(in_graph=True),
}

if __name__ == "__main__":
    sys.exit(main())
