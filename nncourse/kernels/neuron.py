"""One neuron: its weighted sum z, equation (1), and the perceptron's update rule.

To update the bias with the same rule, treat it as the weight of an input that is always 1.
"""

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Trial

SOURCE = cuda_beside(__file__)
SUM_TOLERANCE = 64.0  # for sums of thousands of float32 numbers; a missing summand is a larger error


# Targets and outputs of a perceptron, used in turn: mostly different, so that there is something to learn.
PAIRS = ((1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 1), (1, 0), (0, 1), (0, 0), (0, 1))


def _target(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    return float(PAIRS[sizes["turn"] % len(PAIRS)][0])


def _output(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    return float(PAIRS[sizes["turn"] % len(PAIRS)][1])


# ---- the weighted sum

neuron = Operation(
    "neuron",
    "z = Σ w_i x_i + b",
    equation="(1)",
    contract="x (n,), w (n,), b () -> z ()",
    reference=lambda x, w, b: np.sum(x * w) + b,
    flops=lambda n: 2 * n,
    trial=Trial(tolerance=SUM_TOLERANCE),
)


@neuron.loops_kernel
def neuron_loops(x: Array, w: Array, b: float) -> float:
    z = b
    for i in range(len(x)):
        z += w[i] * x[i]
    return float(z)


@neuron.array_kernel
def neuron_array(x: Array, w: Array, b: float) -> float:
    return w @ x + b


neuron.cuda_kernel("tree", SOURCE, block=512, grid=(1,))

# ---- the perceptron's update rule

perceptron_update = Operation(
    "perceptron_update",
    "w ← w + η (y − a) x",
    contract="w (n,), x (n,), y (), a (), rate () -> w (n,)",
    reference=lambda w, x, y, a, rate: w + rate * (y - a) * x,
    flops=lambda n: 2 * n,
    trial=Trial(values={"y": _target, "a": _output}, error_scale=lambda w, x, y, a, rate: abs(w) + abs(rate * x)),
)


@perceptron_update.loops_kernel
def perceptron_update_loops(w: Array, x: Array, y: float, a: float, rate: float) -> Array:
    for i in range(len(w)):
        w[i] += rate * (y - a) * x[i]
    return w


@perceptron_update.array_kernel
def perceptron_update_array(w: Array, x: Array, y: float, a: float, rate: float) -> Array:
    w += rate * (y - a) * x
    return w


perceptron_update.cuda_kernel("naive", SOURCE)
