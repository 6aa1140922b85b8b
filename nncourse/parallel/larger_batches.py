"""Why K workers with B samples each act as one with a batch of K·B, what that costs, and two remedies.

The gradient is the mean over all K·B samples: that of one device with a batch of K·B, to rounding. An epoch has a K-th
of the steps, none of them longer than before at the same rate, and so less is learnt in as many epochs. (In the thesis
80 % with 128 samples a step, 74 % with two GPUs and 128 each, 80 % with 64 each.) Either the batch stays what it was,
B/K a worker, and that is one device with B again. Or the rate grows with the batch, step by step at first, since so
large a rate may leap out at the start: a warm-up.
"""

from collections.abc import Sequence

from nncourse.calls import Calls
from nncourse.datasets import Dataset
from nncourse.group import ALONE, Group
from nncourse.model import metrics
from nncourse.model.network import make_network
from nncourse.model.optimizers import Schedule, constant, warm_up
from nncourse.model.training import train


def larger_batches(
    data: Dataset,
    test: Dataset,
    backend: Calls,
    group: Group = ALONE,
    *,
    workers: int = 16,
    batch_size: int = 16,
    rate: float = 0.1,
    epochs: int = 4,
    warm: int = 2,
    rows: int = 10_240,
    seeds: Sequence[int] = (0, 1, 2),
) -> dict[str, list[float]]:
    """The accuracy on the test set of each way to train with larger batches.

    data, test: to train with, and to test with.
    group: the workers are its members if it has several; one device computes the same, to rounding.
    workers, batch_size: how many there are, and rows of a worker's batch.
    rate: learning rate of one worker alone.
    epochs, warm: how many, and after how many the large rate is reached.
    rows: samples of an epoch. Without a remainder, rows % (workers * batch_size), the last batch is as large as others.
    seeds: of the first weights, one for each training.

    Returns, for each way, the accuracy of each seed, from 0 to 1.

    >>> data, test = datasets.split(datasets.blobs(), 0.2)
    >>> found = larger_batches(data, test, choose("numpy"), workers=4, batch_size=8, rows=320, epochs=1, seeds=(0,))
    >>> [len(shares) for shares in found.values()]
    [1, 1, 1, 1]
    """
    together, large = workers * batch_size, workers * rate
    ways: dict[str, tuple[int, Schedule]] = {
        f"1 worker with {batch_size}, or {workers} with {batch_size / workers:g} each": (batch_size, constant(rate)),
        f"{workers} workers with {batch_size} each": (together, constant(rate)),
        f"{workers} workers with {batch_size} each, rate {large:g}": (together, constant(large)),
        f"{workers} workers with {batch_size} each, rate {large:g}, warm-up": (together, warm_up(large, warm)),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    for seed in seeds:
        for way, (size, schedule) in ways.items():
            X, Y = data.X[:rows], data.Y[:rows]
            network = make_network([X.shape[1], 30, Y.shape[1]], "tanh", "categorical_cross_entropy", seed=seed)
            options = {"epochs": epochs, "batch_size": size, "schedule": schedule, "seed": seed}
            train(network, X, Y, backend, group=group, **options)
            M = metrics.confusion(network, test.X, test.Y, backend, group)
            found[way].append(metrics.accuracy(M))
    return found
