"""An epoch of the digits CNN with nncourse, PyTorch and JAX: the same network, weights, batches and order for all.

Two convolutions, a max-pool, two dense layers; ReLU, softmax and cross-entropy, Adam; float32 with TF32 off; the data
lie on the device. The last batch is smaller where the samples do not divide.

A contender has one form or several: functions make(problem) -> Trainer. Before they are timed, the parameters of each
after CHECKED steps are compared with the float64 reference of convolutional_adam_epoch; on a GPU each also trains
an epoch from the beginning, for its accuracy on the test set. The fastest of those that are right is timed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

NAME = "digits CNN"
WORDS = "image1x28x28,conv4x2same,conv4x2same,pool4,128,10"
SAMPLES, BATCH, RATE = 50_000, 32, 0.001
CHECKED = 20  # steps; also the number of steps in each CUDA graph of PyTorch
# Relative to the change of the parameters. Errors: float32 2e-6, more where rounding decides which pixel of a window is
# the largest; with pixels rounded as TF32 does at least 3e-3.
TOLERANCE = 5e-4


class DisagreesError(Exception):
    """The parameters are not those of the reference."""


@dataclass(frozen=True)
class Problem:
    """What all contenders are given, in NumPy arrays. Without a test set X_test and its labels are empty."""

    network: Any
    X: np.ndarray
    Y: np.ndarray
    batch: int
    X_test: np.ndarray
    test_labels: np.ndarray

    @property
    def architecture(self):
        return self.network.architecture

    @property
    def parameters(self) -> np.ndarray:
        return self.network.flat_parameters

    @property
    def steps(self) -> int:
        """Of an epoch, the last and smaller one included."""
        return ceil(len(self.X) / self.batch)


@dataclass(frozen=True)
class Trainer:
    """begin() goes back to the first parameters; train(steps) makes this many steps, beginning with the first batch,
    and returns when they are done."""

    begin: Callable[[], None]
    train: Callable[[int], None]
    parameters: Callable[[], np.ndarray]


def problem_of(case) -> Problem:
    """MNIST, standardised by one mean and one deviation, for images of its size; without its files random pixels."""
    from benchmarks import learning, workers
    from nncourse.epochs.dense import random_targets
    from nncourse.model.network import make_network

    network = make_network(case.words, "relu", "categorical_cross_entropy", seed=1)
    if network.input_shape == (1, 28, 28):
        try:
            X, Y, X_test, labels = learning.standardised_mnist()
            return Problem(network, X[: case.samples], Y[: case.samples], case.batch, X_test, labels)
        except workers.FailedError:
            pass
    rng = np.random.default_rng(0)
    X = rng.standard_normal((case.samples, *network.input_shape), dtype=np.float32)
    Y = random_targets(rng, (case.samples, network.sizes[-1]))
    return Problem(network, X, Y, case.batch, X[:0], np.empty(0, np.int64))


def contender(forms: dict[str, Callable], steps: int | None = None, with_accuracy: bool = True) -> Callable:
    """A contender for compare.py: a function that trains an epoch, or `steps` steps of it; their number; facts.

    Facts: `difference`, the largest of a parameter from the reference; `error`, relative; `accuracy`, None without a
    test set; `form`. All forms are prepared; at the first call, when nothing else runs, the fastest is chosen.
    """

    def prepare(case) -> tuple[Callable, int, dict]:
        problem = problem_of(case)
        trainers, noted, failed = {}, {}, []
        for form, make in forms.items():
            try:
                trainers[form] = make(problem)
                noted[form] = {"form": form} | examined(trainers[form], problem, with_accuracy)
            except Exception as error:  # libraries may raise anything; another form may still do
                trainers.pop(form, None)
                failed.append(error)
        if not trainers:
            raise failed[0]
        times = min(steps or problem.steps, problem.steps)
        facts: dict = {}

        def work() -> None:
            if not facts:
                facts.update(noted[min(trainers, key=lambda form: elapsed(trainers[form], times))])
            trainers[facts["form"]].train(times)

        return work, times, facts

    return prepare


def elapsed(trainer: Trainer, steps: int) -> float:
    """The seconds of these steps, the second time."""
    trainer.train(steps)
    start = time.perf_counter()
    trainer.train(steps)
    return time.perf_counter() - start


def examined(trainer: Trainer, problem: Problem, with_accuracy: bool = True) -> dict:
    """`difference`, `error` and `accuracy`. Raises DisagreesError where the first steps are wrong."""
    trainer.begin()
    trainer.train(CHECKED)
    difference, error = difference_of(trainer.parameters(), problem)
    if not error <= TOLERANCE:
        raise DisagreesError(
            f"after {CHECKED} steps the parameters are off by {error:.1e} of the way they went from their beginning; "
            f"wanted at most {TOLERANCE:.0e}"
        )
    accuracy = None
    if with_accuracy and len(problem.X_test):
        trainer.begin()
        trainer.train(problem.steps)
        accuracy = accuracy_of(trainer.parameters(), problem)
    trainer.begin()
    return {"difference": difference, "error": error, "accuracy": accuracy}


def difference_of(found: np.ndarray, problem: Problem) -> tuple[float, float]:
    """After the first steps: the largest |found − expected|, and ‖found − expected‖ / ‖expected − initial‖."""
    from nncourse.calls import ADAM
    from nncourse.epochs.convolutional import convolutional_adam_epoch

    before = problem.parameters.astype(np.float64)
    X, Y = (array[: CHECKED * problem.batch].astype(np.float64) for array in (problem.X, problem.Y))
    state = before, np.zeros_like(before), np.zeros_like(before)
    given = problem.architecture, X, Y, problem.batch, RATE, 0, *ADAM.values()
    reference, *_ = convolutional_adam_epoch.reference(*state, *given)
    off = found - reference
    return float(abs(off).max()), float(np.linalg.norm(off) / np.linalg.norm(reference - before))


def accuracy_of(parameters: np.ndarray, problem: Problem) -> float:
    """The share of the test set that is right, by the same forward pass for all contenders: nncourse's, with NumPy."""
    from nncourse.backend import choose

    outputs = problem.network.with_flat_parameters(parameters).predict(problem.X_test, choose("numpy"))
    return float((outputs.argmax(axis=1) == problem.test_labels).mean())


def ours(backend_name: str, kernel: str) -> Callable:
    """The package: convolutional_adam_epoch by this kernel, one call for all steps; or step by step, for "steps"."""

    def make(problem: Problem) -> Trainer:
        from nncourse import device as devices
        from nncourse.backend import choose
        from nncourse.calls import ADAM
        from nncourse.model.optimizers import Adam
        from nncourse.model.training import train_step_by_step

        backend = choose(backend_name, convolutional_adam_epoch=kernel)
        network, optimizer = problem.network.on(backend), Adam()
        there, X, Y = network.flat_parameters, backend.to_device(problem.X), backend.to_device(problem.Y)
        optimizer.state = {name: backend.to_device(np.zeros_like(problem.parameters)) for name in optimizer.remembers}

        def begin() -> None:
            there[...] = backend.to_device(problem.parameters)
            for array in optimizer.state.values():
                array.fill(0)
            optimizer.steps = 0

        def train(steps: int) -> None:
            rows = slice(steps * problem.batch)
            if kernel == "steps":
                train_step_by_step(network, X[rows], Y[rows], problem.batch, RATE, backend, optimizer)
            else:
                state = [optimizer.state[name] for name in optimizer.remembers]
                given = problem.architecture, X[rows], Y[rows], problem.batch, RATE, optimizer.steps, *ADAM.values()
                backend.convolutional_adam_epoch(there, *state, *given)
                optimizer.steps += steps
            if backend.device == "gpu":
                import cupy

                cupy.cuda.Device().synchronize()  # all streams: a kernel may use its own

        return Trainer(begin, train, lambda: devices.to_device(there, "cpu"))

    return make
