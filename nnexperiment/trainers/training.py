"""Training one network with nncourse, PyTorch and JAX: the common problem, and the test that all agree.

    problem = drawn(make_network("784,128,10", "relu", "categorical_cross_entropy"), 32, Adam(), samples=50_000)
    trainer = own("cuda")(problem)     # or pytorch_training.eager("cuda")(problem), jax_training.scan("gpu")(problem)
    trainer.begin()
    seconds = trainer.train(100)       # of 100 steps

All begin with the same weights, and take the same batches in the same order. They compute in float32 with TF32 off, and
the data are on the device.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, log
from types import ModuleType
from typing import Any

import numpy as np

from nncourse.backend import choose
from nncourse.kernels.dense_epoch import random_targets
from nncourse.model.network import Network
from nncourse.model.optimizers import SGD, AdaGrad, Adam, Optimizer, RMSProp, make_optimizer
from nncourse.model.plans import train_step_by_step
from nncourse.model.training import train
from nncourse.threads import asked

CHECKED = 20  # steps after which parameters are compared; also the number of steps in a CUDA graph of PyTorch
# Relative to the change of the parameters. Errors: float32 1e-6 to 1e-5, more where rounding decides which pixel of a
# window is the largest; with pixels rounded as TF32 does at least 3e-3.
TOLERANCE = 5e-4


Tensor = Any  # an array of PyTorch or of JAX


class DisagreesError(Exception):
    """The parameters are not those of the reference."""


@dataclass(frozen=True)
class Problem:
    """The problem for all contenders: a network with initial weights, samples, targets, an optimizer; on the CPU."""

    network: Network
    X: np.ndarray
    Y: np.ndarray
    batch: int
    optimizer: Optimizer
    rate: float

    @property
    def parameters(self) -> np.ndarray:
        return self.network.flat_parameters

    @property
    def steps(self) -> int:
        """Number of steps in an epoch, including a smaller last one."""
        return ceil(len(self.X) / self.batch)

    @property
    def new_optimizer(self) -> Optimizer:
        """The optimizer before its first step."""
        about = self.optimizer.describe()
        return make_optimizer(about.pop("kind"), **about)

    @cached_property
    def reference(self) -> np.ndarray:
        """The parameters after CHECKED steps, in float64."""
        there = self.network.with_flat_parameters(self.parameters.astype(np.float64))
        X, Y = (array[: CHECKED * self.batch].astype(np.float64) for array in (self.X, self.Y))
        train_step_by_step(there, X, Y, self.batch, self.rate, choose("numpy"), self.new_optimizer)
        return there.flat_parameters


@dataclass(frozen=True)
class Trainer:
    """How a contender trains. `facts` has what a record should say about it, such as the kernel that train() chose.

    begin() goes back to the initial parameters. train(steps) takes this many steps, beginning with the first batch, and
    returns their seconds when they are done.
    """

    begin: Callable[[], None]
    train: Callable[[int], float]
    parameters: Callable[[], np.ndarray]
    facts: dict[str, Any] = field(default_factory=dict)


def timed(work: Callable[[int], None]) -> Callable[[int], float]:
    """work(steps) as a function that returns its seconds."""

    def train(steps: int) -> float:
        start = time.perf_counter()
        work(steps)
        return time.perf_counter() - start

    return train


def drawn(network: Network, batch: int, optimizer: Optimizer, samples: int) -> Problem:
    """A problem of random samples, numbers from 0 to 1 like pixels, and random targets.

    The rate is a tenth of the usual one, at which some networks diverge and rounding errors grow without limit.
    """
    rng = np.random.default_rng(0)
    X = rng.random((samples, *network.input_shape), dtype=np.float32)
    Y = random_targets(rng, (samples, network.sizes[-1]))
    return Problem(network, X, Y, batch, optimizer, optimizer.usual_rate / 10)


def error_of(trainer: Trainer, problem: Problem, tolerance: float = TOLERANCE) -> float:
    """‖found − reference‖ / ‖reference − initial parameters‖ after CHECKED steps. Raises DisagreesError if large."""
    trainer.begin()
    trainer.train(CHECKED)
    found, before = trainer.parameters(), problem.parameters.astype(np.float64)
    error = float(np.linalg.norm(found - problem.reference) / np.linalg.norm(problem.reference - before))
    if not error <= tolerance:
        raise DisagreesError(
            f"after {CHECKED} steps the parameters are off by {error:.1e} of the distance from their initial values; "
            f"expected at most {tolerance:.0e}"
        )
    return error


def own(backend: Any, threads: int | None = None, **options: Any) -> Callable[[Problem], Trainer]:
    """nncourse's train() with these options, on this backend or the one of this name.

    `facts`: the `kernel` that it chose, and its `note`.

    Seconds are those of the history. As in any training, they include shuffling the samples for the epoch, but not the
    cost after it.
    """

    def make(problem: Problem) -> Trainer:
        chosen = choose(backend) if isinstance(backend, str) else backend
        network = problem.network.with_flat_parameters(problem.parameters.copy())
        optimizers = [problem.new_optimizer]
        orders: dict[int, list[np.ndarray]] = {}
        facts: dict[str, Any] = {}

        def begin() -> None:
            network.flat_parameters[...] = problem.parameters
            optimizers[0] = problem.new_optimizer

        def in_order(count: int) -> list[np.ndarray]:
            """This many samples and targets, in an order that train()'s own shuffling undoes."""
            if count not in orders:
                places = np.argsort(np.random.default_rng([0, 1]).permutation(count))
                orders.clear()
                orders[count] = [array[:count][places] for array in (problem.X, problem.Y)]
            return orders[count]

        def steps(count: int) -> float:
            X, Y = in_order(min(count * problem.batch, len(problem.X)))
            with asked(threads):
                history = train(
                    network, X, Y, chosen, epochs=1, batch_size=problem.batch, learning_rate=problem.rate,
                    optimizer=optimizers[0], seed=0, **options,
                )  # fmt: skip
            if history.interrupted:
                raise KeyboardInterrupt
            facts.update(kernel=history.plan, note=history.note)
            return history.seconds

        return Trainer(begin, steps, lambda: network.flat_parameters, facts)

    return make


def written_out(xp: ModuleType, optimizer: Optimizer, rate: float) -> Callable[..., tuple[Tensor, tuple[Tensor, ...]]]:
    """move(W, G, state, t) -> (W, state): an optimizer's step t for one array, written with torch or jax.numpy.

    t is an array with one number; `state` has an array for each name in optimizer.remembers.
    """

    def move(W: Tensor, G: Tensor, state: Sequence[Tensor], t: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        G = G + optimizer.l2 * W if optimizer.l2 else G
        match optimizer:
            case SGD(momentum=0):
                return W - rate * G, ()
            case SGD():
                V = optimizer.momentum * state[0] + G
                return W - rate * V, (V,)
            case Adam():
                M = optimizer.beta1 * state[0] + (1 - optimizer.beta1) * G
                V = optimizer.beta2 * state[1] + (1 - optimizer.beta2) * G * G
                c1, c2 = (-xp.expm1(t * log(beta)) for beta in (optimizer.beta1, optimizer.beta2))  # 1 − βᵗ
                return W - rate * (M / c1) / (xp.sqrt(V / c2) + optimizer.epsilon), (M, V)
            case RMSProp():
                V = optimizer.beta * state[0] + (1 - optimizer.beta) * G * G
            case AdaGrad():
                V = state[0] + G * G
            case _:
                raise ValueError(f"no counterpart of the optimizer {optimizer.kind}")
        return W - rate * G / (xp.sqrt(V) + optimizer.epsilon), (V,)

    return move
