"""One neuron: its weighted sum z, equation (1), and the perceptron's update rule.

To update the bias with the same rule, treat it as the weight of an input that is always 1.
"""

import numpy as np

from nncourse.device import Array
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Mistakes, Trial

SOURCE = cuda_beside(__file__)
SUM_TOLERANCE = 64.0  # for sums of thousands of float32 numbers; a missing summand is a larger error


# Targets and outputs of a perceptron, used in turn: mostly different, so that there is something to learn.
PAIRS = ((1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 1), (1, 0), (0, 1), (0, 0), (0, 1))


def _target(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    return float(PAIRS[sizes["turn"] % len(PAIRS)][0])


def _output(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    return float(PAIRS[sizes["turn"] % len(PAIRS)][1])


# ---- the weighted sum


def _mistakes(place: tuple[int, ...], x: Array, w: Array, b: float) -> Mistakes:
    products = w * x
    yield "b is left out: add it to the sum of the products", products.sum()
    yield "the products are not added up: z is their sum plus b", products + b
    yield "b is subtracted: equation (1) adds it", products.sum() - b
    if z := float(products.sum() + b > 0):
        yield "this is 1 or 0, whether z is above 0 or not: return z itself, the sum", np.float64(z)
    if len(x) == 1:
        yield (
            "this is b alone, without a product: does the loop leave out the first input, or the last?",
            b + 0 * x[0],
        )
        return
    yield "b is added to each product: add it once, to their sum", products.sum() + len(x) * b
    yield "only the last product is in z: does the sum start again with each input?", products[-1] + b
    yield "only the first product is in z: does the function return inside the loop?", products[0] + b
    yield "this is the mean of the products plus b: equation (1) has their sum", products.mean() + b


neuron = Operation(
    "neuron",
    "z = Σ w_i x_i + b",
    equation="(1)",
    contract="x (n,), w (n,), b () -> z ()",
    reference=lambda x, w, b: np.sum(x * w) + b,
    flops=lambda n: 2 * n,
    trial=Trial(tolerance=SUM_TOLERANCE, sums=True, mistakes=_mistakes),
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
