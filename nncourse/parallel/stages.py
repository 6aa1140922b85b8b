"""A stage of a pipeline: its layers, their part of the parameters, and what it computes and sends."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from math import prod

import numpy as np

from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.group import Group
from nncourse.model.layers import Forward, LayerSequence, Shape, StepPosition, delta_below, views
from nncourse.model.network import Network, first_delta
from nncourse.parallel.subgroup import Subgroup
from nncourse.parallel.timeline import Timeline


def partition(costs: Sequence[float], parts: int) -> list[slice]:
    """The consecutive layers of each stage, chosen so that the most expensive stage is as cheap as possible."""
    if not 1 <= parts <= len(costs):
        raise CourseError(f"expected from 1 to {len(costs)} stages for {len(costs)} layers; got {parts}")
    sums = [0, *accumulate(costs)]

    @cache
    def best(layers: int, parts: int) -> tuple[float, tuple[int, ...]]:
        """For the first `layers` in `parts` parts: the cost of the most expensive part, and where the parts end."""
        if parts == 1:
            return sums[layers], (layers,)
        return min(
            (max(best(start, parts - 1)[0], sums[layers] - sums[start]), (*best(start, parts - 1)[1], layers))
            for start in range(parts - 1, layers)
        )

    return [slice(start, stop) for start, stop in pairwise((0, *best(len(costs), parts)[1]))]


def grid(group: Group, stages: int) -> tuple[Group, Group]:
    """This member's pipeline, and its replicas: the members with the same stage in all pipelines.

    group: all members; the first `stages` of them form the first pipeline, and so on.
    stages: members of a pipeline; must divide the size of the group, otherwise CourseError.

    >>> simulate(lambda group: [each.ranks for each in grid(group, 2)], 4).results[1]
    [[0, 1], [1, 3]]
    """
    if stages < 1 or group.size % stages:
        raise CourseError(f"expected pipelines of equal length for {group.size} members; got {stages} stages")
    number, stage = divmod(group.rank, stages)
    pipeline = Subgroup(group, range(number * stages, (number + 1) * stages))
    return pipeline, Subgroup(group, range(stage, group.size, stages))


class Stage:
    """This member's layers, their part of the parameters, and the micro-batches that await their backward pass."""

    def __init__(self, network: Network, parts: Sequence[slice], backend: Calls, pipeline: Group, timeline: Timeline):
        self.network, self.backend, self.pipeline, self.timeline = network, backend, pipeline, timeline
        self.part = parts[pipeline.rank]
        self.layers = LayerSequence(network.layers[self.part])
        self.is_first, self.is_last = pipeline.rank == 0, pipeline.rank == pipeline.size - 1
        below = network.layers[: self.part.start]
        self.first_layer = LayerSequence(below).count if below else 0  # its number, as dropout counts them
        self.shape_below, self.shape = network.shapes[self.part.start], network.shapes[self.part.stop]
        self.cuts = _cuts(LayerSequence(network.layers[part]).parameters for part in parts)
        self.statistics_cuts = _cuts(LayerSequence(network.layers[part]).statistics for part in parts)
        self.parameters = network.flat_parameters[self.cuts[pipeline.rank]]
        self.statistics = network.flat_statistics[self.statistics_cuts[pipeline.rank]]
        self.gradient = np.zeros_like(self.parameters)
        self.gradients = views(self.gradient, [array.shape for array in self.layers.parameters])
        self.inputs: dict[int, Array] = {}
        self.passes: dict[int, Forward] = {}

    def take_input(self, number: int, X: Array) -> None:
        """Get the activations of a micro-batch from the stage below; the first stage takes the samples themselves."""
        if not self.is_first and number not in self.inputs:
            self.inputs[number] = self._receive((len(X), *self.shape_below), self.pipeline.rank - 1, number)
        elif self.is_first:
            self.inputs[number] = X

    def forward(self, number: int, position: StepPosition) -> None:
        with self.timeline.span("forward", number):
            here = self.layers.forward(self.inputs[number], self.backend, position._replace(layer=self.first_layer))
        self.passes[number] = here
        if not self.is_last:
            self._send(here.A, self.pipeline.rank + 1, number)

    def backward(self, number: int, Y: Array, weight: float) -> Array | None:
        """Add the micro-batch's gradient times `weight`. Returns dC/dA of the inputs; None in the first stage."""
        here, A_below, G = self.passes.pop(number), self.inputs.pop(number), None
        if not self.is_last:
            G = self._receive((len(Y), *self.shape), self.pipeline.rank + 1, number)
        with self.timeline.span("backward", number):
            if self.is_last:
                D = first_delta(self.network, [here.Z], [here.A], Y, self.backend)
            else:
                D = delta_below(G, self.layers.slope(here.Z, self.backend), self.backend)
            G_below, gradients = self.layers.backward(D, here, A_below, None, self.backend, below=not self.is_first)
            for place, gradient in zip(self.gradients, gradients, strict=True):
                place += weight * gradient
        return G_below

    def give_back(self, number: int, G_below: Array | None) -> None:
        """Send dC/dA of the inputs to the stage below."""
        if not self.is_first:
            self._send(G_below, self.pipeline.rank - 1, number)

    def share_out(self, replicas: Group) -> None:
        """Send all parameters, and the mean of the replicas' statistics, to every member."""
        if self.statistics.size:
            self.statistics /= replicas.size
            replicas.all_reduce(self.statistics)
        vectors = (self.network.flat_parameters, self.cuts), (self.network.flat_statistics, self.statistics_cuts)
        for vector, cuts in vectors:
            for member, cut in enumerate(cuts):
                if cut.start < cut.stop:
                    self.pipeline.broadcast(vector[cut], root=member)

    def _send(self, array: Array, to: int, number: int) -> None:
        with self.timeline.span("exchange", number):
            self.pipeline.send(array.ravel(), to, tag=number)

    def _receive(self, shape: Shape, source: int, number: int) -> Array:
        vector = np.empty_like(self.network.flat_parameters, shape=prod(shape))
        with self.timeline.span("wait", number):
            self.pipeline.receive(vector, source, tag=number)
        return vector.reshape(shape)


def _cuts(arrays_of_parts: Iterable[Sequence[Array]]) -> list[slice]:
    """The slice of each part's arrays in a flat vector of all."""
    sizes = [sum(array.size for array in arrays) for arrays in arrays_of_parts]
    return [slice(start, stop) for start, stop in pairwise((0, *accumulate(sizes)))]
