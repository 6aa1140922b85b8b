"""Measure complete trainings: a dense network and the digits CNN on MNIST, with accuracy; the credit-card network."""

import numpy as np

from benchmarks.data import MNIST_SAMPLES, data_folder, standardised_mnist
from benchmarks.digits import BATCH as DIGITS_BATCH
from benchmarks.digits import WORDS as DIGITS_WORDS
from benchmarks.workers import FailedError, WrongResultError
from nncourse import datasets
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.network import make_network
from nncourse.model.optimizers import Adam, make_schedule
from nncourse.model.training import History, train

MNIST = {"epochs": 30, "batch_size": 10, "learning_rate": 3.0}  # as in Nielsen's book, except the initial weights
# The digits CNN by Adam: the rate, and the schedule as make_schedule() reads it, of two trainings of that many epochs.
DIGITS_EPOCHS = 10
DIGITS = ((0.001, "constant"), (0.003, f"cosine,{DIGITS_EPOCHS}"))
CREDIT_CARD = {"epochs": 300, "batch_size": 10, "learning_rate": 0.01}  # as the handout trains 30-60-10-1
SLOW = 1.0  # seconds per epoch: an epoch that takes longer was not computed by one kernel, so stop


def mnist(seeds: int, epochs: int, backend_name: str = "cuda", kernel: str = "one_kernel") -> list[dict]:
    """A record for each seed, with the accuracy on the test set and the seconds of training."""
    folder = data_folder("mnist")
    training, test = (datasets.mnist(part, folder) for part in ("train", "test"))
    X, Y = training.X[:MNIST_SAMPLES], training.Y[:MNIST_SAMPLES]
    backend = choose(backend_name)
    options = MNIST | {"epochs": epochs, "plan": kernel, "on_epoch": refuse_slow if backend.device == "gpu" else None}
    found = []
    for seed in range(seeds):
        network = make_network((784, 30, 10), seed=seed)
        history = train(network, X, Y, backend, seed=seed, **options)
        outputs = network.predict(test.X, backend)
        right = outputs.argmax(axis=1) == backend.to_device(test.labels)
        found.append(
            {
                "seed": seed,
                "epochs": epochs,
                "samples": len(X),
                "accuracy": float(right.mean()),
                "seconds": history.seconds,
                "rate": options["learning_rate"],
                "kernel": kernel,
            }
        )
    return found


def digits(seeds: int, epochs: int, backend_name: str = "cuda", kernel: str = "one_kernel", samples=None) -> list[dict]:
    """A record for each seed and training of the digits CNN, with the accuracy on the test set and the seconds.

    The first training is also stopped after one epoch. `samples` limits both sets. Raises FailedError where the kernel
    does not compute the epochs.
    """
    X, Y, X_test, labels = (array[:samples] for array in standardised_mnist())
    backend = choose(backend_name)
    found = []
    for rate, schedule in DIGITS:
        stops = sorted({1, epochs}) if schedule == "constant" else [epochs]
        for seed in range(seeds):
            network = make_network(DIGITS_WORDS, "relu", "categorical_cross_entropy", seed=seed)
            optimizer, done, seconds = Adam(), 0, 0.0
            for stop in stops:
                history = train(
                    network, X, Y, backend, epochs=stop - done, batch_size=DIGITS_BATCH, optimizer=optimizer,
                    learning_rate=make_schedule(schedule, rate), seed=seed, plan=kernel, after=History(before=done),
                )  # fmt: skip
                if history.plan != kernel:
                    raise FailedError(f"expected epochs by {kernel}, got {history.plan}: {history.note}")
                done, seconds = stop, seconds + history.seconds
                outputs = network.predict(X_test, backend)
                right = outputs.argmax(axis=1) == backend.to_device(labels)
                record = {"seed": seed, "epochs": stop, "rate": rate, "schedule": schedule, "samples": len(X)}
                found.append(record | {"accuracy": float(right.mean()), "seconds": seconds, "kernel": kernel})
    return found


def refuse_slow(epoch) -> None:
    """Raise FailedError if an epoch on the GPU takes as long as with separate operations."""
    if epoch.seconds > SLOW:
        raise FailedError(f"epoch {epoch.number} took {epoch.seconds:.1f} s; expected less than {SLOW:.0f} s")


BACKENDS = (("numpy", None), ("numba", None), ("cuda", "one_kernel"))  # and the plan, or the first that fits


def credit_card(epochs: int, backends=BACKENDS) -> list:
    """A record for each backend, for the same training; the real data if they are there, else the synthetic stand-in.

    Raises WrongResultError if the final costs of the backends differ.
    """
    try:
        data = datasets.read_csv(data_folder("cc") / "CC_train.csv")
    except (FailedError, CourseError):
        data = datasets.generate("credit_card_standin")
    X = datasets.fit_scaling(data.X, "standardization").apply(data.X)
    found = []
    for name, plan in backends:
        backend, options = choose(name), CREDIT_CARD | {"plan": plan}
        train(make_network((30, 60, 10, 1)), X[:100], data.Y[:100], backend, **options | {"epochs": 1})  # compiles
        network = make_network((30, 60, 10, 1))
        history = train(network, X, data.Y, backend, **options | {"epochs": epochs})
        found.append(
            {
                "backend": " ".join(filter(None, (name, plan))),
                "data": data.name,
                "samples": len(X),
                "epochs": epochs,
                "seconds": history.seconds,
                "cost": history.costs[-1],
            }
        )
    costs = [record["cost"] for record in found]
    if not np.ptp(costs) <= 1e-3 * max(costs):
        raise WrongResultError(f"the credit-card network ends with different costs: {costs}")
    return found
