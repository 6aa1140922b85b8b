"""One run of an experiment: train, validate, test, and measure times and energy. Each process of the run calls it."""

import datetime
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from nncourse import device as devices
from nncourse.backend import Through
from nncourse.calls import Calls
from nncourse.group import Group
from nncourse.model.data_parallel import begin_alike
from nncourse.model.loaders import as_floats, bytes_on_device
from nncourse.model.network import Network, threads_for
from nncourse.model.optimizers import SGD
from nncourse.parallel.energy import LEAST, Meter, idle_power, measured
from nncourse.parallel.hybrid import measured_shares
from nncourse.threads import granted
from nnexperiment.plan import AUTO, Job, Parts, Plan, is_partial, make_backend, make_experiment_network
from nnexperiment.training import OnRows, Shown, Training, first_of, samples_of

LARGEST = 31 << 20  # bytes
LEAST_SLEEP = 2e-3  # seconds; shorter sleeps take longer than they should
DIGITS = 6  # of times in a result, and of accuracies


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

    Times and energy cover these phases, but not data, start-up and compilation, nor the first steps of each kind, which
    are taken on copies before. Energy is that of all `meters`, which only one member should have; the others pass none.
    `on_rows` is called with the number of rows that are computed next.
    """
    from tqdm import tqdm

    keep_memory()
    partial = is_partial(plan, job.devices)
    backend = make_backend(job.devices.each[group.rank])
    if job.devices.kind == "unequal" and group.rank == 0:
        backend = slowed(backend, plan.slow)
    first = make_experiment_network(plan, plan.seed + job.number)
    network, make_training = to_train(first, job, backend, group)
    shares = shares_of(plan, job, parts, network, backend, group)
    data = samples_of(parts.train, plan, backend)
    train = make_training(plan, job, network, SGD(), *data, backend, group, shares, on_rows)
    held = Shown(parts.validation, plan, job, backend, group, shares, on_rows)
    test = Shown(
        first_of(parts.test, plan.cpu_steps * job.batch if partial else 0), plan, job, backend, group, shares, on_rows
    )
    epochs = 1 if partial else plan.epochs
    seconds: dict[str, list[float]] = {"train": [], "validation": [], "test": []}
    ends: dict[str, list[float]] = {"train": [], "validation": []}  # since the start, to mark them in the power
    validated, accuracies = [], []
    cores = min(granted(), plan.cores or granted())
    with threads_for(first, job.batch / group.size, backend, plan.threads or None, cores) as blas:
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


def to_train(first: Network, job: Job, backend: Calls, group: Group) -> tuple[Any, type[Training]]:
    """The network on the device, the same in all processes, and the class that trains it, ours or PyTorch's."""
    if job.devices.kind == "pytorch":
        from nnexperiment.pytorch_run import PyTorchNetwork, PyTorchTraining

        return PyTorchNetwork(first, backend, group), PyTorchTraining
    network = first.on(backend)
    begin_alike(network, group)
    return network, Training


def keep_memory() -> None:
    """Let this process keep the memory that each step frees, instead of getting it from the system again page by page.

    glibc keeps blocks as large as the largest that was freed before, up to 32 MB. A process that happens to have freed
    such a block, as processes under MPI have, would otherwise be twice as fast as another.
    """
    np.empty(LARGEST, np.uint8)


def shares_of(plan: Plan, job: Job, parts: Parts, network: Network, backend: Calls, group: Group) -> list[float] | None:
    """Each member's share of a batch if devices differ, the CPU's first: as planned, or by measured speed.

    A measured share is at least one row, so that every device learns. None if all get equal shares.
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
