"""Why K workers with B samples each act as one with a batch of K·B, what that costs, and two remedies.

The gradient is the mean over all K·B samples: up to rounding, that of one device with a batch of K·B. An epoch has 1/K
of the steps. At the same rate these are no larger than before, so the network learns less per epoch. (In the thesis:
80 % with 128 samples per step, 74 % with two GPUs and 128 each, 80 % with 64 each.) One remedy keeps the batch of all
workers at B, B/K each, which equals one device with B. The other lets the rate grow with the batch, gradually at first,
because training may diverge at so large a rate: a warm-up.
"""

from collections.abc import Sequence

from nncourse.calls import Calls
from nncourse.datasets import Dataset
from nncourse.group import ALONE, Group
from nncourse.model import metrics
from nncourse.model.data_parallel import Together
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
    """The test accuracy of four ways to train with larger batches.

    data, test: training and test set.
    group: its members are the workers, if it has several; one device computes the same, up to rounding.
    workers, batch_size: number of workers, and rows of a worker's batch.
    rate: learning rate of one worker alone.
    epochs, warm: number of epochs, and after how many of them the large rate is reached.
    rows: samples per epoch, best a multiple of workers * batch_size: then all batches have the same size.
    seeds: seeds of the initial weights, one for each training.

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
            options = {"epochs": epochs, "batch_size": size, "learning_rate": schedule, "seed": seed}
            train(network, X, Y, backend, together=Together(group), **options)
            found[way].append(metrics.accuracy(metrics.confusion(network, test.X, test.Y, backend, group)))
    return found
