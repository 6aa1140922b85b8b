"""Training: mini-batches in a seeded order, epoch after epoch, with a history of the cost."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from nncourse import device as devices
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.model.network import Network, cost_of, forward, with_parameters

ROWS_AT_ONCE = 8192  # how many samples an evaluation pushes through the network together
FIRST_BATCHES = 64  # how many a fused kernel is tried on: enough that a graph is recorded


@dataclass(frozen=True)
class Epoch:
    """One line of a history. Costs are those of the whole set after the epoch; seconds are those of its steps."""

    number: int
    cost: float
    validation_cost: float | None
    seconds: float


@dataclass
class History:
    """What happened, epoch by epoch; `stopped` is "" after the last epoch, else one line on why it ended early.

    `kernel` is the kernel of train_epoch that computed, `note` why it was not the backend's own.
    """

    epochs: list[Epoch] = field(default_factory=list)
    stopped: str = ""
    kernel: str = ""
    note: str = ""

    @property
    def costs(self) -> list[float]:
        return [epoch.cost for epoch in self.epochs]

    @property
    def validation_costs(self) -> list[float | None]:
        return [epoch.validation_cost for epoch in self.epochs]

    @property
    def seconds(self) -> float:
        return sum(epoch.seconds for epoch in self.epochs)


@np.errstate(over="ignore", invalid="ignore")  # a cost that is not finite is noticed, and said once
def train(
    network: Network,
    X: np.ndarray,
    Y: np.ndarray,
    backend,
    *,
    epochs: int,
    batch_size: int = 10,
    learning_rate: float = 0.1,
    seed: int = 0,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    epochs_done: int = 0,
    progress: bool = False,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> History:
    """Train `network` in place by stochastic gradient descent on samples X (n, n_in) with targets Y (n, n_out).

    An epoch is one call of backend.train_epoch; what has to be compiled for it is compiled before the clock runs.
    The order of the samples in epoch e depends on `seed` and e alone, so that training goes on after `epochs_done`
    epochs as if it had never stopped. It ends early where the cost is no longer finite, and on Ctrl-C; then the network
    keeps the best parameters so far (by the validation cost where there is a validation set, else by the cost).
    """
    from tqdm import tqdm

    _refuse_bad_data(network, X, Y)
    if validation:
        _refuse_bad_data(network, *validation)
    refuse_bad_options(epochs, batch_size, learning_rate)
    history = History()
    architecture = network.architecture
    parameters = backend.to_device(network.flat_parameters)
    there = with_parameters(architecture, parameters)
    X, Y = map(backend.to_device, (X, Y))
    X_validation, Y_validation = map(backend.to_device, validation or (X, Y))
    best, best_cost = parameters.copy(), math.inf
    numbers = range(epochs_done + 1, epochs_done + epochs + 1)
    try:
        with tqdm(numbers, total=epochs, unit="epoch", disable=not progress, mininterval=0.2, leave=False) as bar:
            train_epoch = _made_ready(backend, history, parameters, architecture, X, Y, batch_size, learning_rate)
            if history.note and progress:
                bar.write(history.note)
            for number in bar:
                start = time.perf_counter()
                # The rows are shuffled once, so that each batch is a slice and not another gathering.
                order = backend.to_device(np.random.default_rng([seed, number]).permutation(len(X)))
                train_epoch(parameters, architecture, X[order], Y[order], batch_size, learning_rate)
                devices.synchronise(backend.device)
                seconds = time.perf_counter() - start
                cost = evaluate(there, X, Y, backend)
                validation_cost = evaluate(there, X_validation, Y_validation, backend) if validation else None
                epoch = Epoch(number, cost, validation_cost, seconds)
                history.epochs.append(epoch)
                if not math.isfinite(cost):
                    advice = f"take a learning rate below {learning_rate:g}, or scale the data"
                    history.stopped = f"the cost is {cost} after epoch {number}: {advice}"
                    break
                judged = cost if validation_cost is None else validation_cost
                if judged < best_cost:
                    best, best_cost = parameters.copy(), judged
                bar.set_postfix_str(f"cost {cost:.4g}", refresh=False)
                if on_epoch:
                    on_epoch(epoch)
    except KeyboardInterrupt:
        done = history.epochs[-1].number if history.epochs else epochs_done
        history.stopped = f"interrupted after epoch {done}: the best parameters so far are kept"
    trained = devices.to_device(best if history.stopped else parameters, "cpu")
    for layer, (W, b) in zip(network.layers, architecture.views(trained), strict=True):
        layer.W, layer.b = W.copy(), b.copy()
    return history


def evaluate(network: Network, X, Y, backend) -> float:
    """The cost of all samples, some thousand at a time; network, X and Y lie on the backend's device."""
    total = 0.0
    for start in range(0, len(X), ROWS_AT_ONCE):
        rows, targets = X[start : start + ROWS_AT_ONCE], Y[start : start + ROWS_AT_ONCE]
        Z, A = forward(network, rows, backend)
        total += cost_of(network, Z, A, targets, backend) * len(rows)
    return total / len(X)


def _made_ready(backend, history: History, parameters, architecture, X, Y, batch_size: int, learning_rate: float):
    """The backend's kernel of train_epoch, or where it does not fit the one that then takes over, which is noted.

    One that is compiled for the network is tried on a copy of the parameters. `steps` needs no trial: it fits always.
    """
    kernel, call = backend.kernels["train_epoch"], backend.train_epoch
    first = slice(FIRST_BATCHES * batch_size)
    while not kernel.with_backend:
        try:
            call(parameters.copy(), architecture, X[first], Y[first], batch_size, learning_rate)
            break
        except DoesNotFitError as error:
            if not kernel.otherwise or backend.notes.get("train_epoch") == "asked for":
                raise
            kernel = call = kernel.operation[kernel.otherwise]
            history.note = f"trained by {kernel.name}: {error}"
    history.kernel = kernel.name
    return call


def _refuse_bad_data(network: Network, X, Y) -> None:
    """CourseError for samples and targets that are not for this network."""
    n_in, n_out = network.sizes[0], network.sizes[-1]
    fit = X.size > 0 and X.shape[1:] == (n_in,) and Y.shape == (len(X), n_out)
    if not fit or X.dtype != np.float32 or Y.dtype != np.float32:
        wanted = f"float32 samples of shape (n, {n_in}) and targets of shape (n, {n_out})"
        raise CourseError(f"wanted {wanted}; got {X.dtype} samples {X.shape} and {Y.dtype} targets {Y.shape}")


def refuse_bad_options(epochs: int, batch_size: int, learning_rate: float) -> None:
    """CourseError for numbers with which nothing can be trained."""
    if not (epochs >= 1 and batch_size >= 1 and 0 < learning_rate < math.inf):
        got = f"{epochs}, {batch_size} and {learning_rate}"
        raise CourseError(f"wanted epochs and batch size of at least 1, and a learning rate above 0; got {got}")
