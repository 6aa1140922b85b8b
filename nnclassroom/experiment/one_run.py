"""One run of an experiment: train, validate, test, and measure times and energy. Each of its processes calls it."""

import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from nnclassroom.experiment.plan import AUTO, Job, Parts, Plan, is_partial, make_backend, make_experiment_network
from nncourse import datasets
from nncourse import device as devices
from nncourse.backend import Through
from nncourse.calls import Array, Calls
from nncourse.group import Group, total
from nncourse.model.data_parallel import begin_alike, data_parallel_epoch, own_pieces
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import HostSamples, as_floats, bytes_on_device, in_pieces, placed
from nncourse.model.network import Network, threads_for, training_step
from nncourse.model.optimizers import SGD, Optimizer
from nncourse.parallel.energy import LEAST, Meter, idle_power, measured
from nncourse.parallel.hybrid import measured_shares
from nncourse.threads import granted

LARGEST = 31 << 20  # bytes
LEAST_SLEEP = 2e-3  # seconds; shorter sleeps take longer than they should
DIGITS = 6  # of times in a result, and of accuracies

OnRows = Callable[[int], None]


def run_job(
    plan: Plan,
    job: Job,
    parts: Parts,
    group: Group,
    meters: Sequence[Meter],
    progress: bool = False,
    on_rows: OnRows | None = None,
) -> dict[str, Any]:
    """Train, validate after some epochs, and test. Every member of the group calls it.

    Times and energy cover this, but not data, start, compilation and the first steps, which every kind of run takes
    once before, on copies. Energy is that of all `meters`, which only one member should have; the others pass none.
    `on_rows` is called with the number of rows that are computed next.
    """
    from tqdm import tqdm

    keep_memory()
    partial = is_partial(plan, job.devices)
    backend = make_backend(job.devices.each[group.rank])
    if job.devices.kind == "unequal" and group.rank == 0:
        backend = slowed(backend, plan.slow)
    network = make_experiment_network(plan, plan.seed + job.number).on(backend)
    begin_alike(network, group)
    shares = shares_of(plan, job, parts, network, backend, group)
    train = _Training(plan, job, network, SGD(), *_samples(parts.train, plan, backend), backend, group, shares, on_rows)
    held = _Shown(parts.validation, plan, job, backend, group, shares, on_rows)
    test = _Shown(
        _first(parts.test, plan.cpu_steps * job.batch if partial else 0), plan, job, backend, group, shares, on_rows
    )
    epochs = 1 if partial else plan.epochs
    seconds: dict[str, list[float]] = {"train": [], "validation": [], "test": []}
    ends: dict[str, list[float]] = {"train": [], "validation": []}  # since the start, to mark them in the power
    validated, accuracies = [], []
    cores = min(granted(), plan.cores or granted())
    with threads_for(network, job.batch / group.size, backend, plan.threads or None, cores) as blas:
        blas.choose()
        train.try_out()
        for shown in [test] if partial else [held, test]:
            shown.try_out(network)
        devices.synchronise(backend.device)
        group.barrier()
        idle = idle_power(meters) if meters else []
        group.barrier()
        with (
            measured(meters, idle) as found,
            tqdm(total=epochs, unit="epoch", desc=job.name, disable=None if progress else True, leave=False) as bar,
        ):
            began = time.perf_counter()

            @contextmanager
            def clock(phase: str) -> Iterator[None]:
                start = time.perf_counter()
                yield
                now = time.perf_counter()
                seconds[phase].append(round(now - start, DIGITS))
                if phase in ends:
                    ends[phase].append(round(now - began, 3))

            for epoch in range(1, epochs + 1):
                blas.choose()
                with clock("train"):
                    steps, rows = train.epoch(epoch, plan.cpu_steps if partial else 0)
                if not partial and (epoch % plan.validate_every == 0 or epoch == epochs):
                    with clock("validation"):
                        accuracies.append(round(held.accuracy(network), DIGITS))
                    validated.append(epoch)
                    bar.set_postfix_str(f"accuracy {accuracies[-1]:.1%}", refresh=False)
                bar.update()
            with clock("test"):
                reached = test.accuracy(network)
    times, watts = found.power() if meters else ([], [])
    return {
        "name": job.name,
        "kind": job.devices.kind,
        "count": job.devices.count,
        "batch": job.batch,
        "alike": job.alike,
        "shares": shares and [round(share, DIGITS) for share in shares],
        "run": job.number + 1,
        "partial": partial,
        "threads": blas.count,
        "epochs": epochs,
        "steps_an_epoch": steps,
        "images_an_epoch": rows,
        "images_validated": len(held),
        "images_tested": len(test),
        "seconds": seconds,
        "ends": ends,
        "validated": validated,
        "accuracies": accuracies,
        "accuracy": None if partial else round(reached, DIGITS),
        "energies": [asdict(each) for each in found.energies] if meters else [],
        "energy_is_trusted": bool(meters) and found.seconds >= LEAST,
        "power": {
            "seconds": [round(each, 2) for each in times],
            "watts": [[round(each, 1) for each in some] for some in watts],
        },
        "memory": bytes_on_device(parts.train[0], -(-job.batch // job.devices.count)),
        "parameters": network.flat_parameters.size,
        "finite": bool(np.isfinite(float(network.flat_parameters.sum()))),
        "machine": "; ".join(devices.describe(kind) for kind in dict.fromkeys(job.devices.each)),
        "versions": devices.versions(),
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
    }


def keep_memory() -> None:
    """Let this process keep the memory that each step frees, instead of getting it anew from the system, page by page.

    glibc does so for blocks as large as the largest that was freed before, up to 32 MB. A process that happens to have
    freed one, as MPI's have, would else be twice as fast as another.
    """
    np.empty(LARGEST, np.uint8)


def shares_of(plan: Plan, job: Job, parts: Parts, network: Network, backend: Calls, group: Group) -> list[float] | None:
    """Each member's share of a batch where devices differ, the CPU's first: as planned, or by measured speed.

    A measured share is at least one row, so that every device learns. None where all get equal shares.
    """
    if not job.devices.differ:
        return None
    if plan.cpu_share != AUTO:
        return [plan.cpu_share] + [(1 - plan.cpu_share) / (group.size - 1)] * (group.size - 1)
    X, Y = as_floats(parts.train[0][: job.batch], "cpu"), parts.train[1][: job.batch]
    found = [max(share, 1 / job.batch) for share in measured_shares(network, X, Y, backend, group, job.batch)]
    return [share / sum(found) for share in found]


def slowed(backend: Calls, factor: float) -> Calls:
    """A backend whose operations take `factor` times as long, as those of a slower processor would."""
    owed = [0.0]

    def call(kernel: Any, *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = kernel(*arguments, **options)
        owed[0] += (factor - 1) * (time.perf_counter() - start)
        if owed[0] > LEAST_SLEEP:
            start = time.perf_counter()
            time.sleep(owed[0])
            owed[0] -= time.perf_counter() - start
        return result

    return Through(backend, call)


Pair = tuple[np.ndarray, np.ndarray]  # images and one-hot targets


def _first(pair: Pair, most: int) -> Pair:
    """The first images of them, or all if `most` is 0."""
    return pair[0][: most or None], pair[1][: most or None]


def _samples(pair: Pair, plan: Plan, backend: Calls) -> tuple[Array | HostSamples, Array]:
    return placed(pair[0], backend.device, plan.send), backend.to_device(pair[1])


@dataclass(frozen=True)
class _Training:
    """What an epoch of training needs."""

    plan: Plan
    job: Job
    network: Network
    optimizer: Optimizer
    X: Array | HostSamples
    Y: Array
    backend: Calls
    group: Group
    shares: list[float] | None
    on_rows: OnRows | None

    def epoch(self, number: int, most_steps: int = 0) -> tuple[int, int]:
        """Train all batches, or some, in this epoch's order. Returns the numbers of steps and of images."""
        order = np.random.default_rng([self.plan.seed, self.job.number, number]).permutation(len(self.Y))
        order = order[: most_steps * self.job.batch] if most_steps else order
        self._steps(order, self.plan.learning_rate, StepPosition(self.plan.seed, number))
        devices.synchronise(self.backend.device)
        return -(-len(order) // self.job.batch), len(order)

    def try_out(self) -> None:
        """Take a step on a copy of the network, so that all is compiled and the library has chosen its plans.

        The last batch of an epoch may be smaller, and then needs plans of its own.
        """
        rest = 0 if is_partial(self.plan, self.job.devices) else len(self.Y) % self.job.batch
        copy = replace(self, network=self.network.on(self.backend), optimizer=SGD())
        for rows in dict.fromkeys((min(self.job.batch, len(self.Y)), rest or self.job.batch)):
            copy._steps(np.arange(min(rows, len(self.Y))), 1e-9, StepPosition())

    def _steps(self, order: np.ndarray, rate: float, position: StepPosition) -> None:
        # samples that stay on the host are indexed there
        there = order if isinstance(self.X, HostSamples) else self.backend.to_device(order)
        if self.group.size == 1 and self.job.devices.kind != "group":
            self._steps_alone(there, rate, position)
            return
        data_parallel_epoch(
            self.network,
            self.X,
            self.Y,
            there,
            self.job.batch,
            rate,
            self.backend,
            self.optimizer,
            position,
            self.group,
            shares=self.shares,
            on_rows=self.on_rows,
            alike=self.job.alike,
        )

    def _steps_alone(self, order: Array, rate: float, position: StepPosition) -> None:
        """One device trains as it would without any group."""
        for start, samples, targets in in_pieces(self.X, self.Y, order, self.job.batch):
            if self.on_rows:
                self.on_rows(len(targets))
            here = position._replace(first=start)
            training_step(self.network, samples, targets, rate, self.backend, self.optimizer, here)


class _Shown:
    """Images with known classes, to measure the share that a network classifies correctly."""

    def __init__(
        self,
        pair: Pair,
        plan: Plan,
        job: Job,
        backend: Calls,
        group: Group,
        shares: list[float] | None,
        on_rows: OnRows | None,
    ) -> None:
        self.X, self.Y = placed(pair[0], backend.device, plan.send), pair[1]
        self.backend, self.group, self.shares, self.on_rows = backend, group, shares, on_rows
        self.at_once = plan.validation_batch or job.batch

    def __len__(self) -> int:
        return len(self.Y)

    def accuracy(self, network: Network) -> float:
        """Each member counts its rows, `at_once` at a time."""
        right = np.zeros(1)
        for rows in own_pieces(len(self.Y), self.at_once, self.group, self.on_rows, self.shares):
            right += self._right(network, rows)
        return float(total(right, self.group)[0]) / len(self.Y)

    def try_out(self, network: Network) -> None:
        """Classify the first images of each number that come at once."""
        pieces = own_pieces(len(self.Y), self.at_once, self.group, self.on_rows, self.shares)
        for rows in {piece.stop - piece.start: piece for piece in pieces}.values():
            self._right(network, rows)

    def _right(self, network: Network, rows: slice) -> int:
        outputs = network.outputs(self.X[rows], self.backend).A
        predicted = devices.to_device(datasets.predicted_classes(outputs), "cpu")
        return int((predicted == self.Y[rows].argmax(axis=1)).sum())
