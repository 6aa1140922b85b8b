"""An epoch of a dense network with SGD, as one operation: every sample once, in the order given.

In a small network calling an operation takes longer than computing it. So the kernels of this one make no calls between
steps. They work on one flat vector of all parameters: W and b of each layer in turn, row after row. They are in the
package fused_epochs, with those for other networks and optimizers; the plans of train() use them.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.errors import CourseError
from nncourse.kernels import activations
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

CROSS_ENTROPIES = ("binary_cross_entropy", "categorical_cross_entropy")


@dataclass(frozen=True)
class DenseArchitecture:
    """Neurons of each layer, the inputs first; the activation of each layer after the inputs; the cost."""

    sizes: tuple[int, ...]
    activations: tuple[str, ...]
    cost: str

    @classmethod
    def of(cls, network: Any) -> "DenseArchitecture":
        """The architecture of a Network of dense layers. Raises CourseError for any other network."""
        if not network.is_dense:
            raise CourseError(f"expected dense layers only, for dense_sgd_epoch; got {network.in_words}")
        return cls(network.sizes, network.activations, network.cost)

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
        """FLOPs of Algorithm 1: per weight 2 forward, 2 for its gradient, 2 for the deltas of a layer below."""
        weights = [n_out * n_in for n_out, n_in in self.shapes]
        return 6 * sum(weights) - 2 * weights[0]

    def views(self, parameters: Array) -> list[tuple[Array, Array]]:
        """(W, b) of each layer, as views into the flat vector."""
        return views(parameters, self.shapes)

    def __str__(self) -> str:
        return f"{'-'.join(map(str, self.sizes))} {' '.join(self.activations)} {self.cost}"


def views(parameters: Array, shapes: Iterable[tuple[int, ...]]) -> list[tuple[Array, Array]]:
    """(W, b) for each of these shapes of W, in a vector in which every W is followed by its b."""
    pairs, at = [], 0
    for shape in shapes:
        end = at + prod(shape)
        pairs.append((parameters[at:end].reshape(shape), parameters[end : end + shape[0]]))
        at = end + shape[0]
    return pairs


def batches(n: int, batch: int) -> list[slice]:
    """The rows of each step; the last batch may be smaller."""
    return [slice(start, min(start + batch, n)) for start in range(0, n, batch)]


# ---- the reference, in float64, sample by sample


def activated(name: str, z: Array) -> Array:
    return getattr(activations, name).reference(z[None])[0]


def cost_gradient(cost: str, a: Array, y: Array) -> Array:
    """dC/da of one sample."""
    return np.sign(a - y) if cost == "mae" else a - y


def delta_of(name: str, G: Array, z: Array, a: Array) -> Array:
    """dC/dz from G = dC/da."""
    if name == "softmax":
        return activations.softmax_delta.reference(G[None], a[None])[0]
    return G * getattr(activations, f"{name}_derivative").reference(z)


def _truth(parameters: Array, architecture: DenseArchitecture, X: Array, Y: Array, batch: int, rate: float) -> Array:
    new = parameters.copy()
    for rows in batches(len(X), batch):
        total = np.zeros_like(new)
        for x, y in zip(X[rows], Y[rows], strict=True):
            total += _gradient_of_one(new, architecture, x, y)
        new -= rate * total / len(X[rows])
    return new


def _gradient_of_one(parameters: Array, architecture: DenseArchitecture, x: Array, y: Array) -> Array:
    pairs, a, z = architecture.views(parameters), [x], []
    for (W, b), name in zip(pairs, architecture.activations, strict=True):
        z.append(np.array([w @ a[-1] for w in W]) + b)
        a.append(activated(name, z[-1]))
    G = cost_gradient(architecture.cost, a[-1], y)
    gradient = np.zeros_like(parameters)
    for layer, (W_gradient, b_gradient) in reversed(list(enumerate(architecture.views(gradient)))):
        delta = delta_of(architecture.activations[layer], G, z[layer], a[layer + 1])
        if layer == len(pairs) - 1 and architecture.cost in CROSS_ENTROPIES:
            delta = G
        W_gradient[:], b_gradient[:] = np.outer(delta, a[layer]), delta
        G = pairs[layer][0].T @ delta
    return gradient


# ---- the contract


def _sizes(layers: tuple[int, ...], activation_names: str, cost: str = "mse", n: int = 7, batch: int = 3) -> Sizes:
    architecture = DenseArchitecture(layers, tuple(activation_names.split()), cost)
    return {"architecture": architecture, **architecture.contract_sizes, "n": n, "batch": batch}


def random_targets(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes | None = None) -> Array:
    """Random targets (n, n_out): a single 1 in each row; 0 or 1 for a single output."""
    n, n_out = shape
    if n_out == 1:
        return rng.integers(0, 2, shape).astype(np.float32)
    return np.eye(n_out, dtype=np.float32)[rng.integers(0, n_out, n)]


def rate_near_a_half(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    return float(rng.uniform(0.2, 0.8)) if sizes["turn"] else 0.5


def _sizes_to_time(device: str) -> Sizes:
    """The handout's network, with samples for an epoch of some milliseconds."""
    return _sizes((30, 60, 10, 1), "sigmoid sigmoid sigmoid", n=50_000 if device == "gpu" else 2_000, batch=10)


dense_sgd_epoch = Operation(
    "dense_sgd_epoch",
    "for each batch: W ← W − η dC/dW, b ← b − η dC/db",
    equation="Algorithm 1",
    contract="parameters (p,), architecture () object, X (n, n_in), Y (n, n_out), batch () int, rate ()"
    " -> parameters (p,)",
    reference=_truth,
    flops=lambda architecture, n, **_: n * architecture.flops_a_sample,
    trial=Trial(
        error_scale=lambda parameters, architecture, X, Y, batch, rate: np.full(parameters.shape, 4.0),
        values={
            "parameters": lambda rng, shape, sizes: (0.5 * rng.standard_normal(shape)).astype(np.float32),
            "Y": random_targets,
            "rate": rate_near_a_half,
        },
        edge_cases=("zeros",),
        sizes_to_check=(
            _sizes((3, 4, 2), "sigmoid sigmoid"),
            _sizes((1, 1), "sigmoid", n=1, batch=1),
            _sizes((4, 3), "identity", "mae", n=5, batch=5),
            _sizes((2, 3, 1), "tanh sigmoid", "binary_cross_entropy", n=4, batch=9),
            _sizes((5, 7, 6, 3), "relu tanh softmax", "categorical_cross_entropy", n=11, batch=4),
            _sizes((6, 5, 3), "leaky_relu softmax", n=6, batch=6),
            _sizes((3, 9, 2), "softplus identity", "mae", n=5, batch=2),
            _sizes((4, 5, 4, 1), "step sigmoid tanh", n=3, batch=2),
            _sizes((33, 17, 10), "sigmoid sigmoid", n=21, batch=10),
            _sizes((30, 60, 10, 1), "sigmoid sigmoid sigmoid", n=25, batch=10),
            _sizes((70, 33, 9, 5, 2), "sigmoid relu tanh sigmoid", n=40, batch=17),
        ),
        sizes_to_time=_sizes_to_time,
        iterates=True,
    ),
)
