"""Training: mini-batches in a seeded order, epoch after epoch, with a history of the cost."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.group import ALONE, Group, shard_sizes, total
from nncourse.model import plans
from nncourse.model.data_parallel import Together, begin_alike, own_pieces
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import HostSamples
from nncourse.model.network import OF_TOKENS, Network, cost_of, threads_for
from nncourse.model.optimizers import SGD, Optimizer, Schedule, constant
from nncourse.model.task import Plan, Task

# Arguments of train() in earlier versions, and what to write now.
OLD_ARGUMENTS = {
    "schedule": "learning_rate=schedule",
    "epochs_done": "after=history, or after=History(before=…)",
    "progress": "on_epoch=ProgressBar(epochs)",
    "threads": "with nncourse.threads.asked(…): train(…)",
    "record": 'plan="operations"',
    "group": "together=Together(group)",
    "shares": "together=Together(group, shares)",
    "synchronise": "together=Together(group, synchronise=True)",
    "on_rows": "together=Together(group, on_rows=…)",
}


@dataclass(frozen=True)
class Epoch:
    """One epoch of a history. The costs are of all samples after the epoch; `seconds` is the time of its steps."""

    number: int
    cost: float
    validation_cost: float | None
    seconds: float


@dataclass
class History:
    """The course of training, by epoch. `stopped` is the reason if it ended early, `interrupted` whether by Ctrl-C.

    `plan` names the plan that computed the epochs: "operations", "recorded", or one of another package. `note` says why
    it was chosen. `threads` is the number of BLAS threads for the last epoch's products on the CPU. `before` is the
    number of epochs trained earlier.
    """

    epochs: list[Epoch] = field(default_factory=list)
    stopped: str = ""
    interrupted: bool = False
    plan: str = ""
    note: str = ""
    threads: int = 1
    before: int = 0

    @property
    def costs(self) -> list[float]:
        return [epoch.cost for epoch in self.epochs]

    @property
    def validation_costs(self) -> list[float | None]:
        return [epoch.validation_cost for epoch in self.epochs]

    @property
    def seconds(self) -> float:
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def last(self) -> int:
        """The number of the last epoch."""
        return self.epochs[-1].number if self.epochs else self.before


class ProgressBar:
    """A progress bar in the terminal, for train(…, on_epoch=ProgressBar(epochs)). It ends with the last epoch.

    `with ProgressBar(epochs) as bar: …` also removes it if training ends early. If not `shown`, it does nothing.
    """

    def __init__(self, epochs: int, shown: bool = True):
        from tqdm import tqdm

        self.bar = tqdm(total=epochs, unit="epoch", disable=not shown, mininterval=0.2, leave=False)

    def __call__(self, epoch: Epoch) -> None:
        self.bar.set_postfix_str(f"cost {epoch.cost:.4g}", refresh=False)
        self.bar.update()

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()


def _in_todays_words(function: Callable[..., History]) -> Callable[..., History]:
    """The function, which refuses arguments of earlier versions in one line that says what to write now."""

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> History:
        if old := next((name for name in options if name in OLD_ARGUMENTS), ""):
            raise CourseError(f"train() has no argument {old} any more: write {OLD_ARGUMENTS[old]}")
        return function(*arguments, **options)

    return called


@_in_todays_words
@np.errstate(over="ignore", invalid="ignore")  # a cost that is not finite is reported once
def train(
    network: Network,
    X: np.ndarray | HostSamples,
    Y: np.ndarray,
    backend: Calls,
    *,
    epochs: int,
    batch_size: int = 10,
    learning_rate: float | Schedule = 0.1,
    optimizer: Optimizer | None = None,
    seed: int = 0,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    plan: str | None = None,
    together: Together = Together(),  # noqa: B008  (it cannot be changed)
    on_epoch: Callable[[Epoch], None] | None = None,
    after: History | None = None,
) -> History:
    """Train `network` in place.

    X, Y: samples (n, …) and targets (n, n_out), float32, on the CPU. They are sent to the device at once; an X that is
        a HostSamples is sent batch by batch.
    epochs: number of passes over all samples.
    batch_size: rows per step; the last step of an epoch may have fewer.
    learning_rate: one rate for all epochs, or a function of the epoch's number, from 1 on.
    optimizer: SGD(), Adam() …; plain SGD by default. It continues from its state.
    seed: seed of the order of the samples, which in epoch e depends only on seed and e.
    validation: samples and targets whose cost is computed after each epoch.
    plan: how to compute an epoch: "operations", "recorded" …; by default the first plan that fits: see plans.py.
    together: the group whose members share each batch. All get the same parameters; up to rounding, so does one device.
    on_epoch: a function that is called with each Epoch, such as ProgressBar(epochs).
    after: the history of earlier epochs: training continues as if it had never stopped.

    Returns a History: cost and seconds of each epoch. Training ends early if the cost is no longer finite, and on
    Ctrl-C. Then the network keeps the best parameters so far, judged by the validation cost if there is one. A member
    that is interrupted leaves the others waiting. Everything is compiled before the clock starts.

    Raises CourseError for data that do not fit the network, and for options out of range.

    >>> data, network = datasets.moons(), make_network([2, 8, 1])
    >>> history = train(network, data.X, data.Y, choose("numpy"), epochs=20, learning_rate=0.5)
    >>> len(history.costs), history.costs[-1] < history.costs[0]
    (20, True)
    """
    optimizer = optimizer or SGD()
    history = History(before=after.last if after else 0)
    first = history.before + 1
    rate_of = learning_rate if callable(learning_rate) else constant(learning_rate)
    refuse_bad_data(network, X, Y)
    if validation:
        refuse_bad_data(network, *validation)
    refuse_bad_options(epochs, batch_size, rate_of(first))
    _refuse_bad_group(together, backend)

    devices.keep_freed_memory()
    there = network.on(backend)
    X, Y = _sent(X, backend), _sent(Y, backend)
    measured = [(X, Y), *([(_sent(validation[0], backend), _sent(validation[1], backend))] if validation else [])]
    optimizer.state = {name: backend.to_device(array.copy()) for name, array in optimizer.state.items()}
    begin_alike(there, together.group)
    best, best_cost = _snapshot(there, optimizer), math.inf
    task = Task(there, optimizer, backend, X, Y, batch_size, rate_of(first), callable(learning_rate), seed, together)
    try:
        with threads_for(there, batch_size / together.group.size, backend) as blas:
            chosen = _made_ready(task, plan)
            history.plan, history.note = chosen.name, chosen.note
            order = epoch_order(len(X), seed, first)
            for number in range(first, first + epochs):
                history.threads = blas.choose()
                start = time.perf_counter()
                chosen.epoch(_order_for(X, order, backend), rate_of(number), StepPosition(seed, number))
                if number < first + epochs - 1:
                    order = epoch_order(len(X), seed, number + 1)  # while a GPU still computes
                devices.synchronise(backend.device)
                seconds = time.perf_counter() - start
                costs = [
                    evaluate(there, samples, targets, backend, together.group, together.on_rows, blas.count)
                    for samples, targets in measured
                ]
                epoch = Epoch(number, costs[0], costs[1] if validation else None, seconds)
                history.epochs.append(epoch)
                if not math.isfinite(epoch.cost):
                    advice = f"take a learning rate below {rate_of(number):g}, or scale the data"
                    history.stopped = f"the cost is {epoch.cost} after epoch {number}: {advice}"
                    break
                if costs[-1] < best_cost:
                    best, best_cost = _snapshot(there, optimizer), costs[-1]
                if on_epoch:
                    on_epoch(epoch)
    except KeyboardInterrupt:
        history.interrupted = True
        history.stopped = f"interrupted after epoch {history.last}: the best parameters so far are kept"
    _put_back(network, optimizer, best if history.stopped else _state(there, optimizer))
    return history


def evaluate(
    network: Network,
    X: Array,
    Y: Array,
    backend: Calls,
    group: Group = ALONE,
    on_rows: Callable[[int], None] | None = None,
    threads: int | None = None,
) -> float:
    """The cost of all samples, computed for a few thousand at a time.

    X, Y: samples (n, …) and targets (n, n_out), on the backend's device, where the network is too.
    group: every member holds all samples, computes the costs of its shard, and gets the mean over all.
    on_rows: a function that is called with the number of rows that this member computes next.
    threads: number of BLAS threads on the CPU; by default as many as are worthwhile.

    >>> X, Y = np.zeros((5, 4), np.float32), np.ones((5, 1), np.float32)
    >>> evaluate(make_network([4, 1]), X, Y, choose("numpy"))  # each output is sigmoid(0): ½ (½ − 1)²
    0.125
    """
    cost = 0.0
    with threads_for(network, min(len(X) / group.size, network.rows_at_once), backend, threads) as blas:
        for piece in own_pieces(len(X), network.rows_at_once, group, on_rows):
            blas.choose(waits=False)
            rows, targets = X[piece], Y[piece]
            last = network.outputs(rows, backend)
            cost += cost_of(network, [last.Z], [last.A], targets, backend) * len(rows)
    return float(total(np.array([cost]), group)[0]) / len(X)


def epoch_order(samples: int, seed: int, epoch: int) -> np.ndarray:
    """The order of the samples in an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(samples)


Snapshot = tuple[Array, Array, dict[str, Array], int]


def _state(network: Network, optimizer: Optimizer) -> Snapshot:
    """The parameters, the layers' statistics, the optimizer's state, and its steps."""
    return network.flat_parameters, network.flat_statistics, optimizer.state, optimizer.steps


def _snapshot(network: Network, optimizer: Optimizer) -> Snapshot:
    """A copy of all that training changes."""
    parameters, statistics, state, steps = _state(network, optimizer)
    return parameters.copy(), statistics.copy(), {name: array.copy() for name, array in state.items()}, steps


def _put_back(network: Network, optimizer: Optimizer, trained: Snapshot) -> None:
    """Write what was trained to the network, where it is, and to the optimizer."""
    place = "gpu" if devices.on_gpu(network.flat_parameters) else "cpu"
    parameters, statistics, state, optimizer.steps = trained
    network.flat_parameters[...] = devices.to_device(parameters, place)
    network.flat_statistics[...] = devices.to_device(statistics, place)
    optimizer.state = {name: devices.to_device(array, "cpu") for name, array in state.items()}


def _sent(array: Any, backend: Calls) -> Any:
    """An array on the device, contiguous, as kernels need it; samples that the host keeps stay there."""
    return array if isinstance(array, HostSamples) else backend.to_device(np.ascontiguousarray(array))


def _order_for(X: Any, order: np.ndarray, backend: Calls) -> Array:
    """The order of an epoch where the samples are."""
    return order if isinstance(X, HostSamples) else backend.to_device(order)


def _made_ready(task: Task, asked: str | None) -> Plan:
    """The plan of a training, with everything compiled, so that trials do not count in the first epoch's time."""
    plan, group = plans.chosen(task, asked), task.together.group
    if group.size > 1:
        evaluate(task.network, task.X[:1], task.Y[:1], task.backend)
        group.barrier()  # so that the first epoch's seconds do not include waiting for a member that still compiles
    devices.synchronise(task.backend.device)
    return plan


def _refuse_bad_group(together: Together, backend: Calls) -> None:
    """Raise CourseError unless there is a share for each member, and the group is on the backend's device."""
    group = together.group
    shard_sizes(1, group.size, together.shares)
    if group.size > 1 and group.device != backend.device:
        raise CourseError(f"expected a group and a backend on the same device; got {group.device} and {backend.device}")


def refuse_bad_data(network: Network, X: np.ndarray | HostSamples, Y: np.ndarray) -> None:
    """Raise CourseError for samples and targets that do not fit the network."""
    shape, targets = network.input_shape, network.target_shape
    fit = X.size > 0 and X.shape[1:] == shape and Y.shape == (len(X), *targets)
    if not fit or X.dtype != np.float32 or Y.dtype != np.float32:
        inputs = ", ".join(map(str, shape))
        wanted = f"float32 samples of shape (n, {inputs}) and targets of shape (n, {targets[0]})"
        advice = "; take the images of a data set, data.images" if len(shape) == 3 and len(X.shape) == 2 else ""
        raise CourseError(f"expected {wanted}; got {X.dtype} samples {X.shape} and {Y.dtype} targets {Y.shape}{advice}")
    network.refuse_samples(X)
    if network.cost == OF_TOKENS:
        least, most = float(Y.min()), float(Y.max())
        kinds = network.shapes[-1][-1]
        if not (least >= -1 and most < kinds and (np.floor(Y) == Y).all()):
            wanted = f"targets that are whole numbers from -1, which does not count, to {kinds - 1}"
            raise CourseError(f"expected {wanted}; got numbers from {least:g} to {most:g}")


def refuse_bad_options(epochs: int, batch_size: int, learning_rate: float) -> None:
    """Raise CourseError for numbers out of range."""
    if not (epochs >= 1 and batch_size >= 1 and 0 < learning_rate < math.inf):
        got = f"{epochs}, {batch_size} and {learning_rate}"
        raise CourseError(f"expected epochs and batch size of at least 1, and a learning rate above 0; got {got}")
