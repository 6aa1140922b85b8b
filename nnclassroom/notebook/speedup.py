"""How fast the handout's network trains with different kernels and devices, on the same data.

The data are on the device before timing starts; transfers are timed separately.
"""

import math
import os
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnclassroom.exercises.own_backend import choose
from nnclassroom.formats import duration, times_as_fast
from nnclassroom.notebook.exercise import strict
from nnclassroom.timing.anatomy import calls_of_step
from nncourse import datasets
from nncourse import device as devices
from nncourse.backend import DEVICES, Backend
from nncourse.datasets import Dataset
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.model import metrics
from nncourse.model.network import Network, make_network
from nncourse.model.training import History, train

HIDDEN, BATCH, RATE = (60, 10), 10, 0.01  # the handout's
BATCHES = (10, 100, 1000)
EPOCHS = 5  # timed epochs, unless the two limits below say otherwise
LONGEST = 10.0  # seconds: fewer epochs are timed if they would take longer
MOST_EPOCHS, ENOUGH = 50, 0.3  # up to so many are timed until they take so many seconds, as other work disturbs some
HELD_OUT = 0.2  # share of the rows to test with, if the data set has no test rows


@dataclass(frozen=True)
class Contender:
    """A way to train: the name of a backend, options for choose(), and a plan, or not `fused`, for train().

    `tests` and `over_batches` say whether it is measured testing, and with larger batches.
    """

    label: str
    backend: str
    options: dict[str, Any] = field(default_factory=dict)
    tests: bool = True
    over_batches: bool = True
    plan: str | None = None
    fused: bool = True


def _in_c(label: str, kernel: str, over_batches: bool = False) -> Contender:
    """The plain C program, which trains and does not test."""
    return Contender(label, "numpy", {}, False, over_batches, plan=kernel)


C = "C"  # the handout's base: a plain C program, in double, gcc -O3
CONTENDERS = (
    Contender("loops", "loops"),
    _in_c(C, "c", over_batches=True),
    _in_c("C, float", "c_float"),
    _in_c("C, fast", "c_fast"),
    _in_c("C, float, fast", "c_float_fast"),
    Contender("numpy", "numpy", fused=False),
    Contender("numba", "numba", fused=False),
    Contender("yours, CPU", "numpy", {"mine": True}),
    Contender("cupy", "cupy", fused=False),
    Contender("cuda", "cuda", fused=False),
    Contender("yours, GPU", "cuda", {"mine": True}),
    # Those above but C call one kernel per operation, as your kernels are called; those below compute fused epochs.
    Contender("numpy, fused", "numpy", plan="numpy"),
    Contender("numba, fused", "numba", plan="numba"),
    Contender("cuda, one kernel", "cuda", plan="one_kernel"),
)


@dataclass(frozen=True)
class Time:
    """A contender's times in seconds. `note` lists the operations of a training step computed by your kernels.

    If `step` is None, nothing was timed, and `note` says why. `epoch` is None if only the first `rows` rows were used,
    `test` if testing would have taken too long, or the contender does not test.
    """

    contender: Contender
    batch_size: int
    backend: Backend | None = field(default=None, repr=False)
    rows: int = 0
    step: float | None = None
    epoch: float | None = None
    test: float | None = None
    note: str = ""

    @property
    def device(self) -> str:
        return DEVICES[self.contender.backend]

    @property
    def seconds_a_step(self) -> float:
        """NaN if nothing was timed."""
        return math.nan if self.step is None else self.step


def load_sets(name: str | None = None, label: str | None = None) -> tuple[Dataset, Dataset, str]:
    """Training rows and test rows, unscaled, and a description of where the test rows come from.

    For a file …train.csv, the test rows are those of …test.csv in the same folder, if there is one; `label` is the
    column of the classes in both. Without a name, the CC data are loaded if they are in NNCOURSE_DATA, else the
    synthetic stand-in.
    """
    if name is None:
        real = Path(os.environ.get("NNCOURSE_DATA", "")) / "cc" / "CC_train.csv"
        name = str(real) if os.environ.get("NNCOURSE_DATA") and real.is_file() else "credit_card_standin"
    data = datasets.load(name, label=label)
    datasets.refuse_single_class(data)
    beside = Path(name).with_name(Path(name).name.replace("train", "test"))
    if name in datasets.MNIST_SETS:
        return data, datasets.load(name, part="test"), "its test part"
    if beside != Path(name) and beside.is_file():
        test = datasets.load(beside, inputs=data.X.shape[1], outputs=data.Y.shape[1], label=label)
        return data, test, test.name
    return *datasets.split(data, HELD_OUT), "held out"


def scaled(data: Dataset, test: Dataset) -> tuple[Dataset, Dataset]:
    """Both sets, scaled by the scaling fitted to the training rows."""
    scaling = datasets.fit_scaling(data.X, "standardization")
    return replace(data, X=scaling.apply(data.X)), replace(test, X=scaling.apply(test.X))


def network_for(data: Dataset) -> Network:
    """A network with the handout's hidden layers and the data's numbers of inputs and outputs."""
    return make_network([data.X.shape[1], *HIDDEN, data.Y.shape[1]])


def operations_of_a_step(network: Network) -> set[str]:
    """The operations that a training step of such a network calls."""
    X, Y = (np.zeros((1, size), np.float32) for size in (network.sizes[0], network.sizes[-1]))
    return {name for name, _ in calls_of_step(network, X, Y, choose("numpy"))}


def backend_of(contender: Contender, network: Network, refused: Collection[str] = ()) -> Backend:
    """The contender's backend. Your `refused` kernels, such as "sigmoid.numpy", are replaced by the course's.

    Raises CourseError, with the reason, if there is nothing to measure: a time is yours only where a kernel of yours
    takes part in a training step of the network.
    """
    device = DEVICES[contender.backend]
    if device == "gpu" and not devices.gpu_available():
        raise CourseError("not measured: no GPU here")
    backend = choose(contender.backend, **contender.options)
    backend = backend if contender.fused else replace(backend, fusable=False)
    if not contender.options.get("mine"):
        return backend
    course = choose(contender.backend).kernels
    wrong = {name for name in yours(backend) if f"{name}.{backend.kernels[name].name}" in refused}
    right = {name: kernel for name, kernel in backend.kernels.items() if name not in wrong}
    notes = {name: note for name, note in backend.notes.items() if name not in wrong}
    replaced = {name: kernel for name, kernel in course.items() if name in wrong}  # not all: algorithm_1 is yours alone
    backend = replace(backend, kernels=right | replaced, notes=notes, yours=backend.yours - wrong)
    if not yours(backend):
        raise CourseError(f"not measured: you have no correct kernel for the {device.upper()}")
    of_a_step = operations_of_a_step(network)
    if of_a_step.isdisjoint(yours(backend)):
        wanted = ", ".join(sorted(of_a_step))
        raise CourseError(f"not measured: none of your correct kernels takes part in a training step ({wanted})")
    return backend


def yours(backend: Backend) -> list[str]:
    """The operations that the backend computes with your kernels."""
    return [name for name in backend.notes if name in backend.yours]


def measure(
    contender: Contender, data: Dataset, test: Dataset, refused: Collection[str] = (), longest: float = LONGEST
) -> Time:
    """Train and test with a contender. To stay within about `longest` seconds, use fewer epochs, then fewer rows."""
    try:
        return timed(Time(contender, BATCH, backend_of(contender, network_for(data), refused)), data, test, longest)
    except Exception as error:  # your own kernels may raise anything; the rest of the page must not be lost
        if strict() and not isinstance(error, CourseError):
            raise
        said = str(error) if isinstance(error, CourseError) else f"stopped: {type(error).__name__}: {error}"
        return Time(contender, BATCH, note=said)


def timed(untimed: Time, data: Dataset, test: Dataset, longest: float) -> Time:
    """Measure the times, after a trial run on a few rows, which triggers compilation and gives an estimate."""
    size, backend, rows = untimed.batch_size, untimed.backend, len(data.X)
    assert backend
    plan = untimed.contender.plan
    few = min(rows, 2 * size)
    step = fit(network_for(data), data, backend, 3, size, few, plan).epochs[-1].seconds / math.ceil(few / size)
    if step * rows / size > longest:
        rows = min(rows, size * max(1, int(longest / step)))
    estimate = step * rows / size  # seconds of an epoch
    epochs = min(max(EPOCHS, int(ENOUGH / estimate)), MOST_EPOCHS, max(1, int(longest / estimate)))
    network = network_for(data)
    history = fit(network, data, backend, epochs, size, rows, plan)
    epoch = statistics.median(each.seconds for each in history.epochs)
    seconds = None
    if untimed.contender.tests and step * len(test.X) / size <= longest:
        there, X, Y = network.on(backend), backend.to_device(test.X), backend.to_device(test.Y)
        seconds = devices.seconds(lambda: metrics.confusion(there, X, Y, backend), backend.device)
    whole = epoch if rows == len(data.X) else None
    of_a_step = operations_of_a_step(network)
    words = ", ".join(name for name in yours(backend) if name in of_a_step)
    return replace(untimed, rows=rows, step=epoch / math.ceil(rows / size), epoch=whole, test=seconds, note=words)


def fit(
    network: Network,
    data: Dataset,
    backend: Backend,
    epochs: int,
    batch_size: int = BATCH,
    rows: int | None = None,
    plan: str | None = None,
) -> History:
    """Train on the first `rows` rows. Raises KeyboardInterrupt if interrupted, so that the caller stops too."""
    options = {"epochs": epochs, "batch_size": batch_size, "learning_rate": RATE, "plan": plan}
    history = train(network, data.X[:rows], data.Y[:rows], backend, **options)
    if history.interrupted:
        raise KeyboardInterrupt
    return history


def over_batches(times: Sequence[Time], data: Dataset, test: Dataset) -> tuple[dict[str, dict[int, float]], list[str]]:
    """For each contender that takes at most one second per epoch: its speedup over numpy at several batch sizes.

    Also returns a line with the reason for each batch size that failed.
    """
    one = replace(test, X=test.X[:1], Y=test.Y[:1])
    steps: dict[str, dict[int, float]] = {}
    stopped = []
    for time in (time for time in times if time.epoch and time.epoch <= 1 and time.contender.over_batches):
        by_size = steps[time.contender.label] = {time.batch_size: time.seconds_a_step}
        for size in (size for size in BATCHES if size not in by_size and size <= len(data.X)):
            try:
                by_size[size] = timed(replace(time, batch_size=size), data, one, longest=1.0).seconds_a_step
            except DoesNotFitError:
                stopped.append(f"{time.contender.label}: batches of {size} do not fit on the chip.")
            except Exception as error:  # as in measure()
                stopped.append(f"{time.contender.label}: batches of {size} stopped: {type(error).__name__}: {error}")
    base = steps.get("numpy", {})
    speedups = {
        label: {size: base[size] / step for size, step in by.items() if size in base} for label, by in steps.items()
    }
    return {label: by for label, by in speedups.items() if by}, stopped


def transfer_seconds(data: Dataset) -> float:
    """Seconds to transfer all training rows to the GPU."""
    return devices.seconds(lambda: (devices.to_device(data.X, "gpu"), devices.to_device(data.Y, "gpu")), "gpu")


def ratio(times: Sequence[Time], base: str, time: Time) -> float | None:
    """The speedup of a step over that of the contender `base`; None if either was not timed."""
    found = [other.step for other in times if other.contender.label == base and other.step]
    return found[0] / time.step if found and time.step else None


def fastest(times: Sequence[Time], device: str = "") -> Time:
    """The contender with the shortest step, on any device or on one. Raises CourseError if none was timed."""
    timed = [time for time in times if time.step and device in ("", time.device)]
    if not timed:
        raise CourseError("nothing could be trained here")
    return min(timed, key=lambda time: time.seconds_a_step)


def table(times: Sequence[Time], steps: int, base: str = "numpy") -> str:
    """A line for each contender: times of a step and of an epoch of so many steps, and the speedup over `base`."""
    lines = [f"{'':16} on    a step      an epoch   × {base}"]
    for time in times:
        name = f"{time.contender.label:16} {time.device}"
        if time.step:
            faster = times_as_fast(ratio(times, base, time) or math.nan)
            lines.append(f"{name} {duration(time.step):>9} {duration(time.step * steps):>13} {faster:>9}")
        else:
            lines.append(f"{name}  {time.note}")
    return "\n".join(lines)
