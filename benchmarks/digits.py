"""Train an epoch of the digits CNN with nncourse, PyTorch and JAX: with the same network, weights, batches and order.

Two convolutions, a max-pool, two dense layers; ReLU, softmax and cross-entropy, Adam; float32 with TF32 off; the data
are on the device. If the samples cannot be divided into equal batches, the last batch is smaller.

A contender has one form or several, each a function make(problem) -> Trainer. Before the forms are timed, the
parameters of each after CHECKED steps are compared with a float64 reference. On a GPU each form also trains an epoch
from the beginning, for its accuracy on the test set. A contender's time is that of its fastest correct form.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nncourse.model.optimizers import Adam
from nnexperiment.trainers import training
from nnexperiment.trainers.training import Trainer

NAME = "digits CNN"
WORDS = "image1x28x28,conv4x2same,conv4x2same,pool4,128,10"
BATCH, RATE = 32, 0.001


@dataclass(frozen=True)
class Problem(training.Problem):
    """With a test set; without one X_test and its labels are empty."""

    X_test: np.ndarray
    test_labels: np.ndarray


def problem_of(case) -> Problem:
    """MNIST, standardised by one mean and one deviation, for images of its size; without its files random pixels."""
    from benchmarks import data, workers
    from nncourse.kernels.dense_epoch import random_targets
    from nncourse.model.network import make_network

    network = make_network(case.words, "relu", "categorical_cross_entropy", seed=1)
    if network.input_shape == (1, 28, 28):
        try:
            X, Y, X_test, labels = data.standardised_mnist()
            return Problem(network, X[: case.samples], Y[: case.samples], case.batch, Adam(), RATE, X_test, labels)
        except workers.FailedError:
            pass
    rng = np.random.default_rng(0)
    X = rng.standard_normal((case.samples, *network.input_shape), dtype=np.float32)
    Y = random_targets(rng, (case.samples, network.sizes[-1]))
    return Problem(network, X, Y, case.batch, Adam(), RATE, X[:0], np.empty(0, np.int64))


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
    return trainer.train(steps)


def examined(trainer: Trainer, problem: Problem, with_accuracy: bool = True) -> dict:
    """`difference`, `error` and `accuracy`. Raises DisagreesError where the first steps are wrong."""
    error = training.error_of(trainer, problem)
    difference = float(abs(trainer.parameters() - problem.reference).max())
    accuracy = None
    if with_accuracy and len(problem.X_test):
        trainer.begin()
        trainer.train(problem.steps)
        accuracy = accuracy_of(trainer.parameters(), problem)
    trainer.begin()
    return {"difference": difference, "error": error, "accuracy": accuracy}


def accuracy_of(parameters: np.ndarray, problem: Problem) -> float:
    """The share of the test set that is right, by the same forward pass for all contenders: nncourse's, with NumPy."""
    from nncourse.backend import choose

    outputs = problem.network.with_flat_parameters(parameters).predict(problem.X_test, choose("numpy"))
    return float((outputs.argmax(axis=1) == problem.test_labels).mean())
