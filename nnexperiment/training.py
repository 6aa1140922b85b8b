"""The timed parts of a run: an epoch of training, alone or with other processes, and the classification of images."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nncourse import datasets
from nncourse import device as devices
from nncourse.calls import Array, Calls
from nncourse.group import Group, total
from nncourse.model.data_parallel import Together, data_parallel_epoch, own_pieces
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import HostSamples, in_pieces, placed
from nncourse.model.network import Network, training_step
from nncourse.model.optimizers import SGD, Optimizer
from nnexperiment.plan import Job, Plan, is_partial

OnRows = Callable[[int], None]
Pair = tuple[np.ndarray, np.ndarray]  # images and one-hot targets


def first_of(pair: Pair, most: int) -> Pair:
    """The first `most` of these images, or all if `most` is 0."""
    return pair[0][: most or None], pair[1][: most or None]


def samples_of(pair: Pair, plan: Plan, backend: Calls) -> tuple[Array | HostSamples, Array]:
    return placed(pair[0], backend.device, plan.send), backend.to_device(pair[1])


@dataclass(frozen=True)
class Training:
    """Training of one run: the network, the data, and everything else that an epoch needs."""

    plan: Plan
    job: Job
    network: Any  # a Network, or an object with the same methods
    optimizer: Optimizer
    X: Array | HostSamples
    Y: Array
    backend: Calls
    group: Group
    shares: list[float] | None
    on_rows: OnRows | None

    def epoch(self, number: int, most_steps: int = 0) -> tuple[int, int]:
        """Train all batches, or `most_steps` of them, in this epoch's order. Returns numbers of steps and of images."""
        order = np.random.default_rng([self.plan.seed, self.job.number, number]).permutation(len(self.Y))
        order = order[: most_steps * self.job.batch] if most_steps else order
        self.steps(order, self.plan.learning_rate, StepPosition(self.plan.seed, number))
        devices.synchronise(self.backend.device)
        return -(-len(order) // self.job.batch), len(order)

    def try_out(self) -> None:
        """Take a step on a copy of the network, so that everything is compiled and the library has chosen its plans.

        The last batch of an epoch may be smaller, and then needs its own plans.
        """
        rest = 0 if is_partial(self.plan, self.job.devices) else len(self.Y) % self.job.batch
        copy = replace(self, network=self.network.on(self.backend), optimizer=SGD())
        for rows in dict.fromkeys((min(self.job.batch, len(self.Y)), rest or self.job.batch)):
            copy.steps(np.arange(min(rows, len(self.Y))), 1e-9, StepPosition())

    def steps(self, order: np.ndarray, rate: float, position: StepPosition) -> None:
        """Take a step for each batch of all processes, with the samples in this order."""
        # samples that stay on the host are indexed there
        there = order if isinstance(self.X, HostSamples) else self.backend.to_device(order)
        if self.group.size == 1 and self.job.devices.kind != "group":
            self._steps_alone(there, rate, position)
            return
        data_parallel_epoch(
            self.network,
            self.X,
            self.Y,
            there,
            self.job.batch,
            rate,
            self.backend,
            self.optimizer,
            position,
            Together(self.group, self.shares, on_rows=self.on_rows),
            alike=self.job.alike,
        )

    def _steps_alone(self, order: Array, rate: float, position: StepPosition) -> None:
        """Train on one device, as it does outside any group."""
        for start, samples, targets in in_pieces(self.X, self.Y, order, self.job.batch):
            if self.on_rows:
                self.on_rows(len(targets))
            here = position._replace(first=start)
            training_step(self.network, samples, targets, rate, self.backend, self.optimizer, here)


class Shown:
    """Images with known classes, which measure the share that a network classifies correctly."""

    def __init__(
        self,
        pair: Pair,
        plan: Plan,
        job: Job,
        backend: Calls,
        group: Group,
        shares: list[float] | None,
        on_rows: OnRows | None,
    ) -> None:
        self.X, self.Y = placed(pair[0], backend.device, plan.send), pair[1]
        self.backend, self.group, self.shares, self.on_rows = backend, group, shares, on_rows
        self.at_once = plan.validation_batch or job.batch

    def __len__(self) -> int:
        return len(self.Y)

    def accuracy(self, network: Network) -> float:
        """The share of correctly classified images. Each member counts its rows, `at_once` at a time."""
        right = np.zeros(1)
        for rows in own_pieces(len(self.Y), self.at_once, self.group, self.on_rows, self.shares):
            right += self._right(network, rows)
        return float(total(right, self.group)[0]) / len(self.Y)

    def try_out(self, network: Network) -> None:
        """Classify some images for each number of images that occurs in a piece, to compile everything."""
        pieces = own_pieces(len(self.Y), self.at_once, self.group, self.on_rows, self.shares)
        for rows in {piece.stop - piece.start: piece for piece in pieces}.values():
            self._right(network, rows)

    def _right(self, network: Network, rows: slice) -> int:
        outputs = network.outputs(self.X[rows], self.backend).A
        predicted = devices.to_device(datasets.predicted_classes(outputs), "cpu")
        return int((predicted == self.Y[rows].argmax(axis=1)).sum())
