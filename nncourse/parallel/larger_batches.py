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
    """The accuracy on the test set after so many epochs of `rows` samples, of each seed, for each way to train.

    `batch_size` is a worker's, `warm` the epochs until the large rate is reached. The workers are those of the group if
    it has several members; one device computes the same, to rounding. Without a remainder, rows % (workers *
    batch_size), the last batch of an epoch is as large as the others.
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
