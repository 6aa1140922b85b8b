"""The experiment of the Cantabria thesis: one network trained on a CPU, on one GPU and on several.

jobs() lists the runs; run_job() does one of them, called in each of its processes. runs.py starts them one after the
other and keeps a file of each, and numbers.py computes results from these files.
"""

import datetime
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nncourse import datasets, datasets_silhouettes
from nncourse import device as devices
from nncourse.backend import choose
from nncourse.calls import Array, Calls
from nncourse.catalogue import operations
from nncourse.errors import CourseError, refuse_unknown
from nncourse.group import Group, total
from nncourse.model.data_parallel import begin_alike, data_parallel_epoch, own_pieces
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import WAYS, HostSamples, bytes_on_device, placed
from nncourse.model.network import Network, make_network, threads_for
from nncourse.model.optimizers import SGD, Optimizer
from nncourse.parallel.energy import LEAST, Meter, idle_power, measured

NETWORKS = "resnet34", "resnet18", "small"
VALIDATION, TEST = 0.02, 0.13  # of each class: of 9,000 images 180 and 1,170, which leaves 7,650


@dataclass(frozen=True)
class Plan:
    """Options common to all runs. The defaults are the thesis's, except `cpu_steps`."""

    network: str = "resnet34"
    runs: int = 3
    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 0.05
    images: int = 1000  # of each class
    height: int = 148
    width: int = 197
    seed: int = 0
    cpu_steps: int = 3  # the CPU trains only so many steps; 0: all, as the GPUs do
    send: str = "all"
    pause: float = 0.0  # seconds between two runs
    threads: int = 0  # of BLAS on the CPU, in each process; 0: as many as pay

    def __post_init__(self) -> None:
        refuse_unknown("a network", self.network, NETWORKS)
        refuse_unknown("a way to send samples", self.send, WAYS)
        ones = dict.fromkeys(("runs", "epochs", "batch_size", "height", "width"), 1)
        for name, number in (ones | {"images": 3, "seed": 0, "cpu_steps": 0, "threads": 0}).items():
            if (got := getattr(self, name)) < number:
                raise CourseError(f"wanted at least {number} for {name.replace('_', ' ')}; got {got}")
        if not 0 < self.learning_rate < math.inf:
            raise CourseError(f"wanted a learning rate above 0; got {self.learning_rate:g}")
        if not 0 <= self.pause < 1e6:
            raise CourseError(f"wanted a pause from 0 to 1e6 seconds; got {self.pause:g}")


@dataclass(frozen=True)
class Devices:
    """A number of devices of one kind, with a process for each."""

    kind: str  # "cpu" or "gpu"
    count: int


@dataclass(frozen=True)
class Job:
    """One run: its devices, the batch of all devices together, and its number among the runs of the same kind."""

    devices: Devices
    batch: int
    number: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.devices.kind}{self.devices.count}-batch{self.batch}-run{self.number + 1}"


def parsed_devices(text: str) -> list[Devices]:
    """The devices of "cpu,1,2": the CPU, one GPU, two GPUs; cpu2 are two processes on the CPU. CourseError for others.

    >>> [(each.kind, each.count) for each in parsed_devices("cpu,2")]
    [('cpu', 1), ('gpu', 2)]
    """
    found = []
    for word in text.split(","):
        if not (match := re.fullmatch(r"(cpu)?(\d{0,4})", word.strip())) or not word.strip():
            raise CourseError(f"wanted devices such as cpu,1,2 (numbers of GPUs) or cpu,cpu2; got {word!r}")
        count = int(match[2] or 1)
        if count < 1:
            raise CourseError(f"wanted at least 1 device; got {word!r}")
        found.append(Devices(match[1] or "gpu", count))
    return list(dict.fromkeys(found))


def jobs(plan: Plan, wanted: Sequence[Devices]) -> list[Job]:
    """All runs, the first of each kind before the second, so that a slow phase of the machine affects all kinds.

    plan: what all runs have in common.
    wanted: the choices of devices. On several devices each gets a batch of its own, as large as that of one device;
        then they share one such batch.

    >>> [job.name for job in jobs(Plan(runs=1), parsed_devices("cpu,2"))]
    ['cpu1-batch128-run1', 'gpu2-batch256-run1', 'gpu2-batch128-run1']
    """
    found = []
    for number in range(plan.runs):
        for each in wanted:
            if is_partial(plan, each) and number:
                continue
            for batch in dict.fromkeys((plan.batch_size * each.count, plan.batch_size)):
                found.append(Job(each, batch, number))
    return found


def is_partial(plan: Plan, wanted: Devices) -> bool:
    """Whether only some steps are trained, in one run, to measure the time of a step."""
    return wanted.kind == "cpu" and plan.cpu_steps > 0


# ---- data, network, backend


@dataclass(frozen=True)
class Parts:
    """Images (n, 1, height, width) uint8 and one-hot targets, to train, validate and test with."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def image_counts(plan: Plan) -> tuple[int, int, int]:
    """The numbers of images to train, validate and test with: the same share of each class."""
    classes = len(datasets_silhouettes.CLASSES)
    tests, held = max(1, round(TEST * plan.images)), max(1, round(VALIDATION * plan.images))
    return (plan.images - tests - held) * classes, held * classes, tests * classes


def make_parts(plan: Plan) -> Parts:
    """The silhouettes, 85, 2 and 13 % of each class: 7,650, 180 and 1,170 of 9,000."""
    data = datasets.silhouettes(plan.images, plan.seed, plan.height, plan.width, np.uint8)
    trained, held, tests = image_counts(plan)
    rest, test = datasets.split(data, tests / len(data.X), plan.seed)
    train, validation = datasets.split(rest, held / (trained + held), plan.seed)
    return Parts((train.images, train.Y), (validation.images, validation.Y), (test.images, test.Y))


def save_parts(parts: Parts, path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, **{f"{name}_{k}": array for name, pair in vars(parts).items() for k, array in enumerate(pair)})


def load_parts(path: Path) -> Parts:
    with np.load(path, allow_pickle=False) as file:
        return Parts(*((file[f"{name}_0"], file[f"{name}_1"]) for name in ("train", "validation", "test")))


def make_experiment_network(plan: Plan, seed: int) -> Network:
    """The network of the plan for its images; "small" is one for trying, of two convolutions."""
    classes = len(datasets_silhouettes.CLASSES)
    if plan.network == "small":
        pool = max(1, min(plan.height, plan.width) // 6)
        words = f"image1x{plan.height}x{plan.width},conv4x3same,conv4x3same,pool{pool},{classes}"
        return make_network(words, "relu", "categorical_cross_entropy", "he", seed)
    from nncourse.model.resnet import resnet

    return resnet(int(plan.network.removeprefix("resnet")), classes, 1, seed, plan.height, plan.width)


def make_backend(kind: str) -> Calls:
    """NumPy on the CPU; on a GPU the convolutions by cuDNN, or by CuPy without it."""
    if kind == "cpu":
        return choose("numpy")
    library = {}
    for name, operation in operations().items():
        if name.startswith("convolution"):
            ours = operation.kernels.get("cudnn")
            library[name] = "cudnn" if ours and not ours.missing() else "cupy"
    return choose("cuda", **library)


# ---- one run


def run_job(
    plan: Plan,
    job: Job,
    parts: Parts,
    group: Group,
    meters: Sequence[Meter],
    progress: bool = False,
    on_rows: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train, validate after each epoch, and test. Every member of the group calls it.

    Times and energy cover this, but not data, start and compilation. Energy is that of all `meters`, which only one
    member should have; the others pass none. `on_rows` is called with the number of rows that are computed next.
    """
    from tqdm import tqdm

    partial = is_partial(plan, job.devices)
    backend = make_backend(job.devices.kind)
    network = make_experiment_network(plan, plan.seed + job.number).on(backend)
    begin_alike(network, group)
    X, Y = placed(parts.train[0], backend.device, plan.send), backend.to_device(parts.train[1])
    train = _Training(plan, job, network, SGD(), X, Y, backend, group, on_rows)
    held = _Shown(parts.validation, plan, backend, group, 0, on_rows)
    test = _Shown(parts.test, plan, backend, group, plan.cpu_steps * job.batch if partial else 0, on_rows)
    if backend.device == "gpu":
        train.try_out()
        held.accuracy(network), test.accuracy(network)
        devices.synchronise(backend.device)
    group.barrier()
    idle = idle_power(meters) if meters else []
    group.barrier()
    epochs = 1 if partial else plan.epochs
    seconds: dict[str, list[float]] = {"train": [], "validation": [], "test": []}
    accuracies = []
    with (
        measured(meters, idle) as found,
        threads_for(network, job.batch / group.size, backend, plan.threads or None) as blas,
        tqdm(total=epochs, unit="epoch", desc=job.name, disable=None if progress else True, leave=False) as bar,
    ):
        for epoch in range(1, epochs + 1):
            blas.choose()
            start = time.perf_counter()
            steps, rows = train.epoch(epoch, plan.cpu_steps if partial else 0)
            seconds["train"].append(time.perf_counter() - start)
            if not partial:
                start = time.perf_counter()
                accuracies.append(held.accuracy(network))
                seconds["validation"].append(time.perf_counter() - start)
                bar.set_postfix_str(f"accuracy {accuracies[-1]:.1%}", refresh=False)
            bar.update()
        start = time.perf_counter()
        reached = test.accuracy(network)
        seconds["test"].append(time.perf_counter() - start)
    times, watts = found.power() if meters else ([], [])
    return {
        "name": job.name,
        "kind": job.devices.kind,
        "count": job.devices.count,
        "batch": job.batch,
        "run": job.number + 1,
        "partial": partial,
        "threads": blas.count,
        "epochs": epochs,
        "steps_an_epoch": steps,
        "images_an_epoch": rows,
        "images_tested": len(test),
        "seconds": seconds,
        "accuracies": accuracies,
        "accuracy": None if partial else reached,
        "energies": [asdict(each) for each in found.energies] if meters else [],
        "energy_is_trusted": bool(meters) and found.seconds >= LEAST,
        "power": {"seconds": times, "watts": watts},
        "memory": bytes_on_device(parts.train[0], -(-job.batch // job.devices.count)),
        "parameters": network.flat_parameters.size,
        "finite": bool(np.isfinite(float(network.flat_parameters.sum()))),
        "machine": devices.describe(backend.device),
        "versions": devices.versions(),
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
    }


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
    on_rows: Callable[[int], None] | None

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
        rest = len(self.Y) % self.job.batch
        copy = replace(self, network=self.network.on(self.backend), optimizer=SGD())
        for rows in dict.fromkeys((min(self.job.batch, len(self.Y)), rest or self.job.batch)):
            copy._steps(np.arange(min(rows, len(self.Y))), 1e-9, StepPosition())

    def _steps(self, order: np.ndarray, rate: float, position: StepPosition) -> None:
        # samples that stay on the host are indexed there
        there = order if isinstance(self.X, HostSamples) else self.backend.to_device(order)
        batch, more = self.job.batch, {"on_rows": self.on_rows}
        data_parallel_epoch(
            self.network, self.X, self.Y, there, batch, rate, self.backend, self.optimizer, position, self.group, **more
        )


class _Shown:
    """Images with known classes, to measure the share that a network classifies correctly."""

    def __init__(
        self, pair: tuple[np.ndarray, np.ndarray], plan: Plan, backend: Calls, group: Group, most: int, on_rows: Any
    ) -> None:
        images, targets = (array[: most or None] for array in pair)
        self.X, self.Y = placed(images, backend.device, plan.send), targets
        self.backend, self.group, self.on_rows = backend, group, on_rows
        self.at_once = plan.batch_size

    def __len__(self) -> int:
        return len(self.Y)

    def accuracy(self, network: Network) -> float:
        """Each member counts its rows, `at_once` at a time."""
        right = np.zeros(1)
        for rows in own_pieces(len(self.Y), self.at_once, self.group, self.on_rows):
            outputs = network.outputs(self.X[rows], self.backend).A
            predicted = devices.to_device(datasets.predicted_classes(outputs), "cpu")
            right += (predicted == self.Y[rows].argmax(axis=1)).sum()
        return float(total(right, self.group)[0]) / len(self.Y)
