"""A dense network without its weights: what kernels and models both have to know of it."""

import functools
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class DenseArchitecture:
    """Neurons of each layer, the inputs first; the activation of each layer after the inputs; the cost."""

    sizes: tuple[int, ...]
    activations: tuple[str, ...]
    cost: str

    @functools.cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(neurons, inputs) of each layer after the inputs: the shapes of the weights."""
        return tuple((n_out, n_in) for n_in, n_out in pairwise(self.sizes))

    @functools.cached_property
    def contract_sizes(self) -> dict[str, int]:
        """The sizes that the contract of dense_sgd_epoch calls p, n_in and n_out: parameters, inputs, outputs."""
        p = sum(n_out * (n_in + 1) for n_out, n_in in self.shapes)
        return {"p": p, "n_in": self.sizes[0], "n_out": self.sizes[-1]}

    @property
    def flops_a_sample(self) -> int:
        """FLOPs of Algorithm 1: 2 a weight forward, 2 for its gradient, 2 for deltas below it, if there are any."""
        weights = [n_out * n_in for n_out, n_in in self.shapes]
        return 6 * sum(weights) - 2 * weights[0]

    def views(self, parameters) -> list[tuple]:
        """(W, b) of each layer, as views into the flat vector."""
        pairs, at = [], 0
        for n_out, n_in in self.shapes:
            end = at + n_out * n_in
            pairs.append((parameters[at:end].reshape(n_out, n_in), parameters[end : end + n_out]))
            at = end + n_out
        return pairs

    def __str__(self) -> str:
        return f"{'-'.join(map(str, self.sizes))} {' '.join(self.activations)} {self.cost}"
