"""A fused epoch of a dense network by SGD as one operation: every sample once, in the order given.

In a small network the call of an operation takes longer than its computation. So these kernels make no calls between
steps. They work on one flat vector of all parameters: W and b of each layer in turn, row after row.

    numpy, numba    Algorithm 1 on the CPU, with preallocated arrays: dense_cpu.py
    one_kernel      one launch for the epoch; the weights never leave the chip: dense_one_kernel.py

Other optimizers, and other networks, train by the gradient of a whole network: gradient.py. Without a kernel for that,
model/training.py trains step by step, with one call for each operation.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cuda_on_cpu.text import CudaSource
from nncourse.architecture import DenseArchitecture
from nncourse.errors import DoesNotFitError
from nncourse.kernels import activations
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

CROSS_ENTROPIES = ("binary_cross_entropy", "categorical_cross_entropy")
COSTS = {"mse": 0, "mae": 1} | dict.fromkeys(CROSS_ENTROPIES, 2)  # their numbers in C and CUDA C
# The activations that the kernels of epochs know, in the order of their enumerations in Python, C and CUDA C. A network
# with another one is trained step by step.
KNOWN = ("identity", "step", "sigmoid", "tanh", "relu", "leaky_relu", "softplus", "softmax")
MATHEMATICS = CudaSource.read(Path(__file__).with_name("mathematics.cu"))  # for all CUDA kernels of an epoch


def batches(n: int, batch: int) -> list[slice]:
    """The rows of each step; the last batch may be smaller."""
    return [slice(start, min(start + batch, n)) for start in range(0, n, batch)]


def refuse_not_known(activations: Iterable[str]) -> None:
    """DoesNotFitError for activations that the kernels of epochs do not know."""
    for name in activations:
        if name not in KNOWN:
            raise DoesNotFitError(f"the kernels of epochs know the activations {', '.join(KNOWN)}; got {name}")


def codes(activations: Sequence[str]) -> list[int]:
    """The numbers of these activations in the kernels' enumerations; DoesNotFitError for one that they do not know."""
    refuse_not_known(activations)
    return [KNOWN.index(name) for name in activations]


# ---- the reference, in float64, sample by sample


def activated(name: str, z):
    return getattr(activations, name).reference(z[None])[0]


def cost_gradient(cost: str, a, y):
    """dC/da of one sample."""
    return np.sign(a - y) if cost == "mae" else a - y


def delta_of(name: str, G, z, a):
    """dC/dz from G = dC/da."""
    if name == "softmax":
        return activations.softmax_delta.reference(G[None], a[None])[0]
    return G * getattr(activations, f"{name}_derivative").reference(z)


def _truth(parameters, architecture: DenseArchitecture, X, Y, batch, rate):
    new = parameters.copy()
    for rows in batches(len(X), batch):
        total = np.zeros_like(new)
        for x, y in zip(X[rows], Y[rows], strict=True):
            total += _gradient_of_one(new, architecture, x, y)
        new -= rate * total / len(X[rows])
    return new


def _gradient_of_one(parameters, architecture: DenseArchitecture, x, y):
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


def _sizes(sizes, activation_names, cost="mse", n=7, batch=3):
    architecture = DenseArchitecture(tuple(sizes), tuple(activation_names.split()), cost)
    return {"architecture": architecture, **architecture.contract_sizes, "n": n, "batch": batch}


def random_targets(rng, shape, sizes=None):
    """Random targets (n, n_out): a single 1 in each row; 0 or 1 for a single output."""
    n, n_out = shape
    if n_out == 1:
        return rng.integers(0, 2, shape).astype(np.float32)
    return np.eye(n_out, dtype=np.float32)[rng.integers(0, n_out, n)]


def _sizes_to_time(device: str):
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
            "rate": lambda rng, shape, sizes: 0.5,
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
