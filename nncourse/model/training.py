"""Training: mini-batches in a seeded order, epoch after epoch, with a history of the cost."""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np

from nncourse import device as devices
from nncourse.architecture import DenseArchitecture, Rule
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.group import ALONE, Group, shard_sizes, total
from nncourse.model.data_parallel import (
    Part,
    begin_alike,
    data_parallel_epoch,
    mean_statistics,
    own_pieces,
    parts_of_epoch,
)
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import HostSamples, in_pieces
from nncourse.model.network import Network, cost_of, threads_for, training_step
from nncourse.model.optimizers import SGD, Adam, Optimizer, Schedule, constant, remembered

GRADIENT, STEPS = "network_gradient", "steps"
MOST_COPIED = 1 << 22  # numbers of X that are reordered at a time: 16 MB
MOST_IN_CACHE = 1 << 19  # on a CPU: 2 MB, which are still in its cache when they are read
LEAST_BATCHES = 16  # for which a fused kernel is worth its call; it is tried on so many

TrainEpoch = Callable[[Array, float, StepPosition], None]  # train_epoch(order, rate, position)


@dataclass(frozen=True)
class Epoch:
    """One line of a history. Costs are those of the whole set after the epoch; seconds are those of its steps."""

    number: int
    cost: float
    validation_cost: float | None
    seconds: float


@dataclass
class History:
    """What happened, epoch by epoch. `stopped` says in one line why training ended early, `interrupted` if by Ctrl-C.

    `kernel` is the kernel that computed fused epochs or whole gradients, or "steps" for one call an operation, or
    "recorded_steps" where these calls were recorded and replayed. `note` says why it was not the backend's own kernel,
    and why nothing was recorded on a GPU. `threads` is how many of BLAS computed the last epoch's products on the CPU.
    """

    epochs: list[Epoch] = field(default_factory=list)
    stopped: str = ""
    interrupted: bool = False
    kernel: str = ""
    note: str = ""
    threads: int = 1

    @property
    def costs(self) -> list[float]:
        return [epoch.cost for epoch in self.epochs]

    @property
    def validation_costs(self) -> list[float | None]:
        return [epoch.validation_cost for epoch in self.epochs]

    @property
    def seconds(self) -> float:
        return sum(epoch.seconds for epoch in self.epochs)


@np.errstate(over="ignore", invalid="ignore")  # a cost that is not finite is reported once
def train(
    network: Network,
    X: np.ndarray | HostSamples,
    Y: np.ndarray,
    backend: Calls,
    *,
    epochs: int,
    batch_size: int = 10,
    learning_rate: float = 0.1,
    optimizer: Optimizer | None = None,
    schedule: Schedule | None = None,
    seed: int = 0,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    epochs_done: int = 0,
    progress: bool = False,
    on_epoch: Callable[[Epoch], None] | None = None,
    group: Group = ALONE,
    synchronise: bool = False,
    shares: Sequence[float] | None = None,
    on_rows: Callable[[int], None] | None = None,
    threads: int | None = None,
    record: bool = True,
) -> History:
    """Train `network` in place.

    X, Y: samples (n, …) and targets (n, n_out), float32, on the CPU. They are sent to the device at once, unless X are
        HostSamples: then batch by batch, and no kernel computes fused epochs.
    epochs: number of passes over all samples.
    batch_size: rows of a step; the last of an epoch may have fewer.
    learning_rate, schedule: the rate of every epoch, or a function of the epoch's number, from 1 on.
    optimizer: SGD(), Adam() …; plain SGD by default. It continues from its state.
    seed: of the order of the samples, which in epoch e depends on seed and e only.
    validation: samples and targets whose cost is computed after each epoch.
    epochs_done: training continues after these as if it had never stopped.
    progress, on_epoch: show a bar; call this with each epoch.
    group, shares: every member calls this with the same arguments. A batch is cut into a shard for each, in proportion
        to shares. All members get the same parameters, to rounding those of one device.
    synchronise: layers with statistics of the batch compute them over the group, otherwise each member over its shard.
    on_rows: is called with the number of rows that this member computes next.
    threads: of BLAS on the CPU, for each member; by default as many as pay, chosen anew for each epoch. One thread and
        several may differ in the last bits of a product.
    record: on a GPU, record the kernels of some steps and replay them; False launches each kernel from Python.

    Returns the costs and seconds of each epoch. Training ends early if the cost is no longer finite, and on Ctrl-C.
    Then the network keeps the best parameters so far, by the validation cost if there is one. A member that is
    interrupted leaves the others waiting. A kernel for fused epochs is used if the backend has one for this network
    and optimizer. Everything is compiled before the clock starts.

    Raises CourseError for data that do not fit the network, and for options out of range.

    >>> data, network = datasets.moons(), make_network([2, 8, 1])
    >>> history = train(network, data.X, data.Y, choose("numpy"), epochs=20, learning_rate=0.5)
    >>> len(history.costs), history.costs[-1] < history.costs[0]
    (20, True)
    """
    from tqdm import tqdm

    refuse_bad_data(network, X, Y)
    if validation:
        refuse_bad_data(network, *validation)
    numbers = range(epochs_done + 1, epochs_done + epochs + 1)
    rate_of = schedule or constant(learning_rate)
    refuse_bad_options(epochs, batch_size, rate_of(epochs_done + 1))
    shard_sizes(1, group.size, shares)  # refuses shares that are not one for each member
    if group.size > 1 and group.device != backend.device:
        raise CourseError(f"wanted a group and a backend on the same device; got {group.device} and {backend.device}")
    history = History()
    optimizer = optimizer or SGD()
    there = network.on(backend)
    optimizer.state = {name: backend.to_device(array.copy()) for name, array in optimizer.state.items()}
    # Kernels need contiguous arrays; some columns of a larger array are not contiguous.
    kept_by_host = isinstance(X, HostSamples)
    X = X if isinstance(X, HostSamples) else backend.to_device(np.ascontiguousarray(X))
    Y = backend.to_device(np.ascontiguousarray(Y))
    held = [backend.to_device(np.ascontiguousarray(array)) for array in validation or ()]
    X_validation, Y_validation = held or (X, Y)
    begin_alike(there, group)
    best, best_cost = _snapshot(there, optimizer), math.inf
    progress = progress and group.rank == 0
    try:
        with (
            threads_for(there, batch_size / group.size, backend, threads) as blas,
            tqdm(numbers, total=epochs, unit="epoch", disable=not progress, mininterval=0.2, leave=False) as bar,
        ):
            first = rate_of(epochs_done + 1)
            recorded = None
            if record and backend.device == "gpu" and not isinstance(X, HostSamples):
                from nncourse.model.recorded_steps import RecordedEpoch

                changes = schedule is not None
                recorded = partial(RecordedEpoch, there, optimizer, backend, X, Y, first, seed, rate_changes=changes)
            if group.size == 1:
                train_epoch = _made_ready(backend, history, there, optimizer, X, Y, batch_size, first, recorded)
            else:
                train_epoch = _made_ready_together(
                    backend, history, there, optimizer, X, Y, batch_size, group, synchronise, shares, on_rows, recorded
                )
            if history.note and progress:
                bar.write(history.note)
            order = epoch_order(len(X), seed, numbers[0])
            devices.synchronise(backend.device)  # what was tried is not part of the first epoch's time
            for number in bar:
                history.threads = blas.choose()
                start = time.perf_counter()
                train_epoch(
                    order if kept_by_host else backend.to_device(order), rate_of(number), StepPosition(seed, number)
                )
                if number != numbers[-1]:  # while a GPU still computes
                    order = epoch_order(len(X), seed, number + 1)
                devices.synchronise(backend.device)
                seconds = time.perf_counter() - start
                cost = evaluate(there, X, Y, backend, group, on_rows, blas.count)
                validation_cost = (
                    evaluate(there, X_validation, Y_validation, backend, group, on_rows, blas.count)
                    if validation
                    else None
                )
                epoch = Epoch(number, cost, validation_cost, seconds)
                history.epochs.append(epoch)
                if not math.isfinite(cost):
                    advice = f"take a learning rate below {rate_of(number):g}, or scale the data"
                    history.stopped = f"the cost is {cost} after epoch {number}: {advice}"
                    break
                judged = cost if validation_cost is None else validation_cost
                if judged < best_cost:
                    best, best_cost = _snapshot(there, optimizer), judged
                bar.set_postfix_str(f"cost {cost:.4g}", refresh=False)
                if on_epoch:
                    on_epoch(epoch)
    except KeyboardInterrupt:
        done = history.epochs[-1].number if history.epochs else epochs_done
        history.interrupted = True
        history.stopped = f"interrupted after epoch {done}: the best parameters so far are kept"
    last = there.flat_parameters, there.flat_statistics, optimizer.state, optimizer.steps
    trained, statistics, state, optimizer.steps = best if history.stopped else last
    place = "gpu" if devices.on_gpu(network.flat_parameters) else "cpu"
    network.flat_parameters[...] = devices.to_device(trained, place)
    network.flat_statistics[...] = devices.to_device(statistics, place)
    optimizer.state = {name: devices.to_device(array, "cpu") for name, array in state.items()}
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
    """The cost of all samples, computed for some thousand at a time.

    X, Y: samples (n, …) and targets (n, n_out), on the backend's device, where the network is too.
    group: every member holds all samples, computes the costs of its shard, and gets the mean over all.
    on_rows: is called with the number of rows that this member computes next.
    threads: of BLAS on the CPU; by default as many as pay.

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


def fused_epochs(network: Network, optimizer: Optimizer) -> tuple[list[str], str]:
    """The operations of a fused epoch for this network and optimizer, the best first; why there is none, or ""."""
    names: list[str] = []
    reason = ""
    try:
        dense = isinstance(network.architecture, DenseArchitecture)
        if isinstance(optimizer, SGD) and optimizer.is_plain:
            names.append("dense_sgd_epoch" if dense else "convolutional_sgd_epoch")
        elif isinstance(optimizer, Adam) and not optimizer.l2 and not dense:
            names.append("convolutional_adam_epoch")
    except CourseError as error:
        reason = f"trained step by step: {error}"
    if network.is_chain:
        names.append("network_epoch")
    return names, reason


def _snapshot(network: Network, optimizer: Optimizer) -> tuple[Array, Array, dict[str, Array], int]:
    """Copies of the parameters, of the layers' statistics and of the optimizer's state, and its steps."""
    state = {name: array.copy() for name, array in optimizer.state.items()}
    return network.flat_parameters.copy(), network.flat_statistics.copy(), state, optimizer.steps


def _made_ready(
    backend: Calls,
    history: History,
    network: Network,
    optimizer: Optimizer,
    X: Array | HostSamples,
    Y: Array,
    batch_size: int,
    rate: float,
    recorded: Callable[..., TrainEpoch] | None = None,
) -> TrainEpoch:
    """train_epoch(order, rate, position): by the backend's kernel for fused epochs, by its fallback, or step by step.

    It is tried on a few batches with a copy of the parameters, so that nothing is compiled later. The reason for a
    fallback goes to history.note. `recorded` makes a RecordedEpoch.
    """
    names, reason = fused_epochs(network, optimizer)
    if isinstance(X, HostSamples):
        names, reason = [], "trained step by step, since the samples are sent batch by batch"
    usable = [*names, GRADIENT] if network.is_chain else names
    for other in backend.asked:
        if not (other == GRADIENT or other.endswith("_epoch")):
            continue
        if other not in backend.epochs:  # "steps" was chosen
            names = []
        elif other not in usable:
            asked = f"{other} ({backend.epochs[other].name})"
            kind = optimizer.describe()["kind"]
            raise CourseError(f"{asked} does not compute such a {kind} on {network}: leave it out")
        else:
            names = [other]
    first = slice(LEAST_BATCHES * batch_size)
    kernels = (backend.epochs[name] for name in names if name != GRADIENT and name in backend.epochs)
    kernel = next(kernels, None)
    tried = network.with_flat_parameters(network.flat_parameters.copy())
    note = ""
    while kernel:
        try:
            _fused(kernel, tried, batch_size, copy.deepcopy(optimizer), X[first], Y[first], rate)
        except DoesNotFitError as error:
            if kernel.operation.name in backend.asked:
                raise
            kernel = kernel.operation.kernels.get(kernel.otherwise) or next(kernels, None)
            note = reason = f"trained {f'by {kernel.name}' if kernel else 'step by step'}: {error}"
            continue
        history.note = note
        history.kernel = kernel.name
        compute = partial(_fused, kernel, network, batch_size, optimizer)
        return _reordered(
            X, Y, batch_size, compute, MOST_IN_CACHE if backend.device == "cpu" else X.size, LEAST_BATCHES
        )
    gradient = backend.epochs.get(GRADIENT) if GRADIENT in usable else None
    make_step = _step_by_operations
    if gradient:
        try:
            gradient.prepare(tried.flat_parameters, tried.flat_gradient, tried.chain)(X[:1], Y[:1])
            make_step, history.kernel = partial(_step_by_gradient, gradient), gradient.name
        except DoesNotFitError as error:
            if GRADIENT in backend.asked:
                raise
            reason = f"trained step by step: {error}"
    if not history.kernel:
        history.kernel, history.note = STEPS, reason if backend.epochs or isinstance(X, HostSamples) else ""
        if recorded and (made := _made_recorded(history, recorded, parts_of_epoch(len(X), batch_size, ALONE))):
            return made
    first = slice(batch_size)
    make_step(tried, backend, copy.deepcopy(optimizer))(X[first], Y[first], rate, StepPosition())
    compute = partial(_in_batches, make_step(network, backend, optimizer), batch_size)
    return _reordered(X, Y, batch_size, compute, MOST_IN_CACHE if backend.device == "cpu" else MOST_COPIED)


def _reordered(
    X: Array | HostSamples,
    Y: Array,
    batch_size: int,
    compute: Callable[[Array, Array, float, StepPosition], None],
    most: int,
    least: int = 1,
) -> TrainEpoch:
    """train_epoch(order, rate, position): `compute` gets some batches at a time, one after the other in memory.

    most: numbers of X, but at least so many batches. Not all rows at once: the copy would be as large as X.
    """
    some = len(X) if X.size <= most else batch_size * max(least, most // (batch_size * prod(X.shape[1:])))

    def train_epoch(order: Array, rate: float, position: StepPosition) -> None:
        for start, samples, targets in in_pieces(X, Y, order, some):
            compute(samples, targets, rate, position._replace(first=start))

    return train_epoch


def _made_ready_together(
    backend: Calls,
    history: History,
    network: Network,
    optimizer: Optimizer,
    X: Array | HostSamples,
    Y: Array,
    batch_size: int,
    group: Group,
    synchronise: bool,
    shares: Sequence[float] | None,
    on_rows: Callable[[int], None] | None,
    recorded: Callable[..., TrainEpoch] | None = None,
) -> TrainEpoch:
    """The same for a group: step by step, since the gradients of each batch are added over its members."""
    for name, kernel in backend.epochs.items():
        if name in backend.asked:
            alone = "computes fused epochs, which a process can only do alone"
            raise CourseError(f"{name} ({kernel.name}) {alone}; these are {group.size}: leave it out")
    history.kernel = STEPS
    history.note = f"trained step by step, since {group.size} processes add their gradients" if backend.epochs else ""
    parts = parts_of_epoch(len(X), batch_size, group, synchronise, shares)
    made = None
    if recorded and getattr(group, "queued", False):
        group.all_reduce(network.flat_gradient)  # its first exchange connects the members, which cannot be recorded
        made = _made_recorded(history, partial(recorded, group=group, on_rows=on_rows), parts)
    elif recorded:
        _not_recorded(history, "its processes exchange through the host's memory")
    if parts[0].size and not made:
        own, tried = parts[0].rows, network.with_flat_parameters(network.flat_parameters.copy())
        training_step(tried, X[own], Y[own], 0.0, backend, copy.deepcopy(optimizer), StepPosition())
    evaluate(network, X[:1], Y[:1], backend)
    group.barrier()  # so that the first epoch's seconds do not include waiting for a member that still compiles

    def train_epoch(order: Array, rate: float, position: StepPosition) -> None:
        if made:
            made(order, rate, position)
            mean_statistics(network, group, parts)
        else:
            more = (group, synchronise, shares, on_rows)
            data_parallel_epoch(network, X, Y, order, batch_size, rate, backend, optimizer, position, *more)

    return train_epoch


def _made_recorded(history: History, recorded: Callable[..., TrainEpoch], parts: Sequence[Part]) -> TrainEpoch | None:
    """An epoch of these parts by recorded steps; None, and the reason in history.note, if they cannot be recorded."""
    try:
        made = recorded(parts=parts)
    except DoesNotFitError as error:
        _not_recorded(history, str(error))
        return None
    history.kernel = "recorded_steps"
    return made


def _not_recorded(history: History, reason: str) -> None:
    history.note = "; ".join(filter(None, (history.note, f"steps are not recorded: {reason}")))


def _fused(
    kernel: Any,
    network: Network,
    batch_size: int,
    optimizer: Optimizer,
    X: Array,
    Y: Array,
    rate: float,
    position: StepPosition | None = None,
) -> None:
    """A step for each batch by one kernel; the optimizer counts them."""
    parameters = network.flat_parameters
    state = {name: remembered(optimizer.state, name, parameters) for name in optimizer.remembers}
    if kernel.operation.name == "network_epoch":
        M, V = (state.get(name, parameters[:0]) for name in "MV")
        rule = Rule(optimizer.kind, tuple(optimizer.options.items()))
        X = X.reshape(len(X), -1)
        kernel(parameters, M, V, network.chain, rule, X, Y, batch_size, rate, optimizer.steps)
    else:
        more: tuple[float, ...] = ()
        if isinstance(optimizer, Adam):
            more = optimizer.steps, optimizer.beta1, optimizer.beta2, optimizer.epsilon
        kernel(parameters, *state.values(), network.architecture, X, Y, batch_size, rate, *more)
    optimizer.steps += math.ceil(len(X) / batch_size)


Step = Callable[[Array, Array, float, StepPosition | None], None]  # of samples, targets, the rate and the position


def _step_by_gradient(kernel: Any, network: Network, backend: Calls, optimizer: Optimizer) -> Step:
    """A step in two calls: the gradient by a kernel of network_gradient, and the optimizer's move."""
    gradient = kernel.prepare(network.flat_parameters, network.flat_gradient, network.chain)

    def step(X: Array, Y: Array, rate: float, position: StepPosition | None) -> None:
        gradient(X, Y)
        optimizer.step(network.flat_parameters, network.flat_gradient, rate, backend)

    return step


def _step_by_operations(network: Network, backend: Calls, optimizer: Optimizer) -> Step:
    """A training step by one call for each operation."""

    def step(X: Array, Y: Array, rate: float, position: StepPosition | None) -> None:
        training_step(network, X, Y, rate, backend, optimizer, position)

    return step


def train_step_by_step(
    network: Network,
    X: Array,
    Y: Array,
    batch_size: int,
    rate: float,
    backend: Calls,
    optimizer: Optimizer,
    position: StepPosition | None = None,
) -> None:
    """One epoch: a training step for each batch, in the order of the rows; the last batch may be smaller.

    A network with dropout needs the position of the first row.
    """
    _in_batches(_step_by_operations(network, backend, optimizer), batch_size, X, Y, rate, position)


def _in_batches(step: Step, batch_size: int, X: Array, Y: Array, rate: float, position: StepPosition | None) -> None:
    for start in range(0, len(X), batch_size):
        rows = slice(start, start + batch_size)
        of_batch = StepPosition(position.seed, position.epoch, position.first + start) if position else None
        step(X[rows], Y[rows], rate, of_batch)


def refuse_bad_data(network: Network, X: np.ndarray | HostSamples, Y: np.ndarray) -> None:
    """Raise CourseError for samples and targets that do not fit the network."""
    shape, n_out = network.input_shape, network.sizes[-1]
    fit = X.size > 0 and X.shape[1:] == shape and Y.shape == (len(X), n_out)
    if not fit or X.dtype != np.float32 or Y.dtype != np.float32:
        inputs = ", ".join(map(str, shape))
        wanted = f"float32 samples of shape (n, {inputs}) and targets of shape (n, {n_out})"
        advice = "; take the images of a data set, data.images" if len(shape) == 3 and len(X.shape) == 2 else ""
        raise CourseError(f"wanted {wanted}; got {X.dtype} samples {X.shape} and {Y.dtype} targets {Y.shape}{advice}")


def refuse_bad_options(epochs: int, batch_size: int, learning_rate: float) -> None:
    """Raise CourseError for numbers out of range."""
    if not (epochs >= 1 and batch_size >= 1 and 0 < learning_rate < math.inf):
        got = f"{epochs}, {batch_size} and {learning_rate}"
        raise CourseError(f"wanted epochs and batch size of at least 1, and a learning rate above 0; got {got}")
