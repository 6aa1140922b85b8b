"""The plan of the Cantabria thesis's experiment: a network is trained on a CPU, on one GPU and on several GPUs.

jobs() lists the runs. one_run.py does one of them, runs.py starts them one after the other and saves a file for each,
and numbers.py computes results from these files.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nncourse import datasets, datasets_silhouettes
from nncourse.backend import choose
from nncourse.calls import Calls
from nncourse.catalogue import operations
from nncourse.errors import CourseError, refuse_unknown
from nncourse.model.loaders import WAYS
from nncourse.model.network import Network, make_network

MNIST = "mnist"  # the thesis's first, small network: 784-192-10 on MNIST
NETWORKS = "resnet34", "resnet18", "small", MNIST
MNIST_COUNTS = 50_000, 10_000, 10_000
TEST = 0.13  # of each class: of 9,000 images 1,170; validation takes 180, which leaves 7,650
AUTO = 0.0  # the CPU's share is measured
WORDS = {
    "cpu": r"cpu(\d{0,4})",
    "gpu": r"(\d{1,4})",
    "group": r"group1",
    "hybrid": r"cpu\+(\d{1,4})",
    "unequal": r"cpu\+cpu",
    "pytorch": r"pytorch(\d{1,4})",
}


@dataclass(frozen=True)
class Plan:
    """Options common to all runs. The defaults are the thesis's, except `cpu_steps`."""

    network: str = "resnet34"
    runs: int = 3
    epochs: int = 100
    batch_sizes: tuple[int, ...] = (128,)
    learning_rate: float = 0.05
    images: int = 1000  # of each class
    folder: str = ""  # of photographs, a folder for each class; without it generated silhouettes
    classes: int = len(datasets_silhouettes.CLASSES)
    height: int = 148
    width: int = 197
    seed: int = 0
    validation: float = 0.02  # share of each class
    validate_every: int = 1  # epochs
    validation_batch: int = 0  # images at once, in validation and test; 0: as many as in training
    cpu_steps: int = 3  # steps that the CPU trains; 0: all, as the GPUs do
    cpu_share: float = AUTO  # of a batch, if the CPU trains with others
    slow: float = 3.0  # factor by which the first of two unequal processes is slower than the second
    send: str = "all"
    pause: float = 0.0  # seconds between two runs
    threads: int = 0  # of BLAS on the CPU, in each process; 0: as many as make it faster, up to `cores`
    cores: int = 0  # of a process on the CPU, the same in all runs, so that speedups are fair; 0: all

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_sizes", tuple(self.batch_sizes))
        refuse_unknown("a network", self.network, NETWORKS)
        refuse_unknown("a way to send samples", self.send, WAYS)
        least = dict.fromkeys(("runs", "epochs", "height", "width", "validate_every"), 1) | {"images": 3}
        least |= dict.fromkeys(("seed", "cpu_steps", "threads", "cores", "validation_batch"), 0)
        for name, number in least.items():
            if (got := getattr(self, name)) < number:
                raise CourseError(f"expected at least {number} for {name.replace('_', ' ')}; got {got}")
        if min(self.batch_sizes, default=0) < 1:
            raise CourseError(f"expected batches of at least 1 image; got {list(self.batch_sizes)}")
        if not 0 < self.learning_rate < math.inf:
            raise CourseError(f"expected a learning rate above 0; got {self.learning_rate:g}")
        if not 0 < self.validation < 1 - TEST:
            raise CourseError(f"expected a share from 0 to {1 - TEST:g} for validation; got {self.validation:g}")
        if not 0 <= self.cpu_share < 1:
            raise CourseError(f"expected a share from 0 to 1 for the CPU, or auto; got {self.cpu_share:g}")
        if not 1 <= self.slow <= 100:
            raise CourseError(f"expected a process from 1 to 100 times as slow; got {self.slow:g}")
        if not 0 <= self.pause < 1e6:
            raise CourseError(f"expected a pause from 0 to 1e6 seconds; got {self.pause:g}")


@dataclass(frozen=True)
class Devices:
    """Some devices, with a process for each. `count` is the number of processes.

    kind: "cpu" or "gpu"; "group", one GPU in a group of one, in the training loop of several: the thesis's wrapper;
        "hybrid", the CPU and GPUs; "unequal", two processes on the CPU, the first slowed down on purpose; "pytorch",
        GPUs on which PyTorch trains, with DistributedDataParallel.
    """

    kind: str
    count: int = 1

    @property
    def each(self) -> list[str]:
        """The device of every process."""
        if self.kind == "hybrid":
            return ["cpu"] + ["gpu"] * (self.count - 1)
        return ["gpu" if self.kind in ("gpu", "group", "pytorch") else "cpu"] * self.count

    @property
    def gpus(self) -> int:
        return self.each.count("gpu")

    @property
    def differ(self) -> bool:
        """Whether they get shares of a batch by their speeds."""
        return self.kind in ("hybrid", "unequal")


@dataclass(frozen=True)
class Job:
    """One run: its devices, the batch of all devices together, and its number among the runs of the same kind.

    alike: the gradients of devices with unequal shares are averaged as if the shares were equal, as in the thesis.
    """

    devices: Devices
    batch: int
    number: int
    alike: bool = False

    @property
    def name(self) -> str:
        """The name of its file."""
        alike = "-alike" if self.alike else ""
        return f"{self.devices.kind}{self.devices.count}{alike}-batch{self.batch}-run{self.number + 1}"


def parsed_devices(text: str) -> list[Devices]:
    """The devices in a text: "cpu,1,group1,2,cpu+1" is the CPU, a GPU, one in a group of one, two, the CPU and a GPU.

    "cpu2" is two processes on the CPU, "cpu+cpu" two unequal ones; "pytorch2" is two GPUs on which PyTorch trains.
    CourseError for other words.

    >>> [(each.kind, each.count) for each in parsed_devices("cpu,2,cpu+1")]
    [('cpu', 1), ('gpu', 2), ('hybrid', 2)]
    """
    found = []
    for word in text.split(","):
        matches = ((kind, re.fullmatch(pattern, word.strip())) for kind, pattern in WORDS.items())
        kind, match = next((each for each in matches if each[1]), ("", None))
        if not match:
            wanted = "devices such as cpu,1,group1,2,cpu+1,pytorch2 (numbers of GPUs) or cpu,cpu2,cpu+cpu"
            raise CourseError(f"expected {wanted}; got {word!r}")
        number = int(match[1] or 1) if match.groups() else 1
        if number < 1:
            raise CourseError(f"expected at least 1 device; got {word!r}")
        found.append(Devices(kind, number + (kind == "hybrid") if kind != "unequal" else 2))
    return list(dict.fromkeys(found))


def jobs(plan: Plan, wanted: Sequence[Devices]) -> list[Job]:
    """All runs, the first of each kind before the second, so that a slow phase of the machine affects all kinds.

    plan: the options common to all runs.
    wanted: the choices of devices. Several devices first get a whole batch each, as large as that of one device; then
        they share one such batch. Unequal devices share one, their gradients first weighted by rows, then alike.

    >>> [job.name for job in jobs(Plan(runs=1), parsed_devices("cpu,2"))]
    ['cpu1-batch128-run1', 'gpu2-batch256-run1', 'gpu2-batch128-run1']
    """
    found = []
    for number in range(plan.runs):
        for each in wanted:
            if is_partial(plan, each) and number:
                continue
            for batch in plan.batch_sizes:
                if each.differ:
                    found += [Job(each, batch, number, alike) for alike in (False, True)]
                else:
                    found += [Job(each, some, number) for some in (batch * each.count, batch)]
    return list(dict.fromkeys(found))


def job_called(plan: Plan, name: str) -> Job:
    """The job with a name such as cpu1-batch128-run1."""
    match = re.fullmatch(r"([a-z]+)(\d+)(-alike)?-batch(\d+)-run(\d+)", name)
    job = None
    if match and match[1] in WORDS:
        job = Job(Devices(match[1], int(match[2])), int(match[4]), int(match[5]) - 1, bool(match[3]))
    if job is None or job.name != name or job.number not in range(plan.runs):
        raise CourseError(f"expected a run such as gpu2-batch256-run1, up to run{plan.runs}; got {name!r}")
    return job


def is_partial(plan: Plan, wanted: Devices) -> bool:
    """Whether a single run trains only some steps, to measure the time of a step."""
    return wanted.kind == "cpu" and plan.cpu_steps > 0


# ---- data, network, backend


@dataclass(frozen=True)
class Parts:
    """Images (n, 1, height, width) uint8, or MNIST's (n, 784), and one-hot targets: for training, validation, test."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def image_counts(plan: Plan) -> tuple[int, int, int]:
    """The numbers of images for training, validation and test: the same share of each class."""
    if plan.network == MNIST:
        return MNIST_COUNTS
    tests, held = max(1, round(TEST * plan.images)), max(1, round(plan.validation * plan.images))
    return (plan.images - tests - held) * plan.classes, held * plan.classes, tests * plan.classes


def make_parts(plan: Plan) -> Parts:
    """The images, by default 85, 2 and 13 % of each class: 7,650, 180 and 1,170 of 9,000 silhouettes; or MNIST."""
    if plan.network == MNIST:
        train, validation = datasets.split(datasets.mnist("train"), MNIST_COUNTS[1] / sum(MNIST_COUNTS[:2]), plan.seed)
        return Parts(*((part.X, part.Y) for part in (train, validation, datasets.mnist("test"))))
    if plan.folder:
        data = datasets.photos(plan.folder, plan.height, plan.width, most=plan.images, dtype=np.uint8)
        data = replace(data, Y=np.eye(plan.classes, dtype=np.float32)[data.labels])  # of two classes, too
    else:
        data = datasets.silhouettes(plan.images, plan.seed, plan.height, plan.width, np.uint8)
    trained, held, tests = image_counts(plan)
    rest, test = datasets.split(data, tests / len(data.X), plan.seed)
    train, validation = datasets.split(rest, held / (trained + held), plan.seed)
    return Parts((train.images, train.Y), (validation.images, validation.Y), (test.images, test.Y))


def of_folder(plan: Plan) -> tuple[Plan, tuple[str, ...]]:
    """The plan with the folder's classes, and as many images of each as its smallest class has; notes on the folder."""
    data = datasets.photos(plan.folder, 1, 1)
    least = int(np.bincount(data.labels).min())
    return replace(plan, classes=len(data.classes), images=min(plan.images, least)), data.notes


def save_parts(parts: Parts, path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, **{f"{name}_{k}": array for name, pair in vars(parts).items() for k, array in enumerate(pair)})


def load_parts(path: Path) -> Parts:
    with np.load(path, allow_pickle=False) as file:
        return Parts(*((file[f"{name}_0"], file[f"{name}_1"]) for name in ("train", "validation", "test")))


def make_experiment_network(plan: Plan, seed: int) -> Network:
    """The network of the plan, for its images; "small" has two convolutions, to try things out."""
    if plan.network == MNIST:
        return make_network("784,192,10", seed=seed)
    if plan.network == "small":
        words = f"image1x{plan.height}x{plan.width},conv8x5same,pool2,conv16x5same,pool2,{plan.classes}"
        return make_network(words, "relu", "categorical_cross_entropy", "he", seed)
    from nncourse.model.resnet import resnet

    return resnet(int(plan.network.removeprefix("resnet")), plan.classes, 1, seed, plan.height, plan.width)


def make_backend(kind: str) -> Calls:
    """NumPy on the CPU; on a GPU our kernels, with convolutions from cuDNN or, if it is missing, from CuPy."""
    if kind == "cpu":
        return choose("numpy")
    library: dict[str, Any] = {}
    for name, operation in operations().items():
        if name.startswith("convolution"):
            ours = operation.kernels.get("cudnn")
            library[name] = "cudnn" if ours and not ours.missing() else "cupy"
    return choose("cuda", **library)
