"""The end of a training step: every parameter is updated from its gradient.

The operations work on arrays of any shape; networks call them once for the flat vector of all parameters.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.kernels import jit
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Mistakes, Trial

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # the usual ones for Adam
BLOCK = 1 << 15  # numbers of each array that stay in a CPU's cache while a formula is computed
# M of a dead neuron decays for ever, and below 10⁻³⁸ each operation takes a hundred times as long. So numbers far below
# TINY ε are rounded away: divided by ε or more, they would move no parameter.
TINY = 1e-20
f32 = np.float32
Number = float | np.float32
Kernel = Callable[..., Any]
DEFAULTS = BETA_1, BETA_2, EPSILON
SOURCE = cuda_beside(__file__, f"BETA_1={BETA_1}f", f"BETA_2={BETA_2}f", f"EPSILON={EPSILON}f")


def in_blocks(operation: Operation) -> Callable[[Kernel], Kernel]:
    """Decorator: the formula for arrays below is the kernel `cupy` and, a block at a time, the kernel `numpy`.

    Each operation of the formula then finds the results of the previous one in the cache.
    """
    count = sum(argument.any_shape for argument in operation.arguments)
    in_place = [operation.names.index(result.name) for result in operation.results]

    def register(formula: Kernel) -> Kernel:
        def kernel(*arguments: Any) -> Any:
            arrays, numbers = arguments[:count], arguments[count:]
            if arrays[0].size <= BLOCK:
                return formula(*arguments)
            rows = [array.reshape(-1) for array in arrays]  # the same numbers in one row
            for start in range(0, rows[0].size, BLOCK):
                formula(*(row[start : start + BLOCK] for row in rows), *numbers)
            results = tuple(arguments[place] for place in in_place)
            return results if len(results) > 1 else results[0]

        operation.kernel("numpy", device="cpu", written=formula)(kernel)
        operation.kernel("cupy", device="gpu")(formula)
        return formula

    return register


sgd_update = Operation(
    "sgd_update",
    "W ← W − η G",
    equation="Algorithm 1",
    contract="W (*n), G (*n), rate () -> W (*n)",
    reference=lambda W, G, rate: W - rate * G,
    flops=lambda n: 2 * n,
    trial=Trial(error_scale=lambda W, G, rate: abs(W) + abs(rate * G)),
)


@sgd_update.loops_kernel
def loops(W: Array, G: Array, rate: Number) -> Array:
    w, g = W.reshape(-1), G.reshape(-1)  # the same numbers in one row
    rate = f32(rate)  # with 64 bits SIMD instructions would take half as many numbers
    for i in range(w.size):
        w[i] -= rate * g[i]
    return W


@in_blocks(sgd_update)
def array(W: Array, G: Array, rate: float) -> Array:
    W -= rate * G
    return W


sgd_update.cuda_kernel("naive", SOURCE)

# ---- L2: the cost λ/2 Σ W² is added, so that W shrinks a little in every step


def _mistakes_of_l2(place: tuple[int, ...], G: Array, W: Array, l2: float) -> Mistakes:
    yield "this is G + 2 λ W: the slope of λ/2 W² is λ W", G + 2 * l2 * W
    yield "this is G + λ/2 W: the slope of λ/2 W² is λ W", G + l2 / 2 * W
    yield "this adds λ/2 W² itself: add its slope, λ W", G + l2 / 2 * W**2
    yield "this is G + λ W²: the slope of λ/2 W² is λ W", G + l2 * W**2
    yield "this is λ W alone: add it to G", l2 * W
    yield "this is G − λ W: add λ W", G - l2 * W


l2_gradient = Operation(
    "l2_gradient",
    "G ← G + λ W",
    contract="G (*n), W (*n), l2 () -> G (*n)",
    reference=lambda G, W, l2: G + l2 * W,
    flops=lambda n: 2 * n,
    trial=Trial(mistakes=_mistakes_of_l2),
)


@l2_gradient.loops_kernel
def l2_loops(G: Array, W: Array, l2: Number) -> Array:
    g, w, l2 = G.reshape(-1), W.reshape(-1), f32(l2)
    for i in range(g.size):
        g[i] += l2 * w[i]
    return G


@in_blocks(l2_gradient)
def l2_array(G: Array, W: Array, l2: float) -> Array:
    G += l2 * W
    return G


l2_gradient.cuda_kernel("naive", SOURCE)

# ---- momentum (Polyak, 1964): V remembers gradients, and fades by the factor μ in each step


def _momentum_truth(W: Array, G: Array, V: Array, rate: float, momentum: float) -> tuple[Array, Array]:
    V = momentum * V + G
    return W - rate * V, V


def _momentum_magnitude(W: Array, G: Array, V: Array, rate: float, momentum: float) -> tuple[Array, Array]:
    """With all of |V|: V + (G − (1 − μ) V) is right too."""
    V = max(abs(momentum), 1) * abs(V) + abs(G)
    return abs(W) + abs(rate) * V, V


def _mistakes_of_momentum(
    place: tuple[int, ...], W: Array, G: Array, V: Array, rate: float, momentum: float
) -> Mistakes:
    new = momentum * V + G
    yield "W moves by V as it was before the step: update V first", (W - rate * V, new)
    weighted = momentum * V + (1 - momentum) * G
    yield "V gets (1 − μ) G: it should get all of G", (W - rate * weighted, weighted)
    with_rate = momentum * V + rate * G
    yield "V gets η G: add G itself, since η belongs to the step of W alone", (W - with_rate, with_rate)
    yield "V gets η G, and W moves by η V, so η counts twice: add G itself to V", (W - rate * with_rate, with_rate)
    yield "W moves by G + μ V with the new V, so μ V counts twice: move it by V", (W - rate * (momentum * new + G), new)
    yield "W moves by V: move it by η V", (W - new, new)


momentum_update = Operation(
    "momentum_update",
    "V ← μ V + G, W ← W − η V",
    contract="W (*n), G (*n), V (*n), rate (), momentum () -> W (*n), V (*n)",
    reference=_momentum_truth,
    flops=lambda n: 4 * n,
    trial=Trial(
        error_scale=_momentum_magnitude,
        advice=lambda place, W, G, V, rate, momentum: f"there V must become {momentum * V[place] + G[place]:.7g}",
        mistakes=_mistakes_of_momentum,
    ),
)


@momentum_update.loops_kernel
def momentum_loops(W: Array, G: Array, V: Array, rate: Number, momentum: Number) -> tuple[Array, Array]:
    w, g, v = W.reshape(-1), G.reshape(-1), V.reshape(-1)
    rate, momentum = f32(rate), f32(momentum)
    for i in range(w.size):
        v[i] = momentum * v[i] + g[i]
        w[i] -= rate * v[i]
    return W, V


@in_blocks(momentum_update)
def momentum_array(W: Array, G: Array, V: Array, rate: float, momentum: float) -> tuple[Array, Array]:
    V *= momentum
    V += G
    W -= rate * V
    return W, V


momentum_update.cuda_kernel("naive", SOURCE)

# ---- Adam (Kingma and Ba, 2015): each parameter has a rate of its own, from the mean size of its gradients
#
# M and V are running means of G and of G². They start at 0, so after t steps they are too small by the factors
# c₁ = 1 − β₁ᵗ and c₂ = 1 − β₂ᵗ, which are arguments. adam_update, an exercise, contains the usual β₁, β₂ and ε;
# general_adam_update has them as arguments.


def _adam_truth(W: Array, G: Array, M: Array, V: Array, *numbers: float) -> tuple[Array, Array, Array]:
    rate, c1, c2, beta1, beta2, epsilon = (*numbers, *DEFAULTS)[:6]
    M = beta1 * M + (1 - beta1) * G
    V = beta2 * V + (1 - beta2) * G**2
    return W - rate * (M / c1) / (np.sqrt(V / c2) + epsilon), M, V


def _adam_magnitude(W: Array, G: Array, M: Array, V: Array, *numbers: float) -> tuple[Array, Array, Array]:
    rate, c1, c2, beta1, beta2, epsilon = (*numbers, *DEFAULTS)[:6]
    M = beta1 * abs(M) + (1 - beta1) * abs(G)
    V = beta2 * V + (1 - beta2) * G**2
    step = abs(rate) * (M / c1) / (np.sqrt(V / c2) + epsilon)
    return abs(W) + step * (1 + _rounded(G) / (2 * np.maximum(V, 1e-30))), M, V + _rounded(G)


def _rounded(G: Array) -> Array:
    """1 − β in float32 is off by up to 2⁻²⁵, which matters if V is small: 1/32 of the tolerance of 8 roundings."""
    return G**2 / 32


def _adam_advice(place: tuple[int, ...], W: Array, G: Array, M: Array, V: Array, *numbers: float) -> str:
    rate, c1, c2, beta1, beta2, epsilon = (*numbers, *DEFAULTS)[:6]
    m, v = (beta1 * M + (1 - beta1) * G)[place], (beta2 * V + (1 - beta2) * G**2)[place]
    return f"there M must become {m:.7g}, and V {v:.7g}"


def _adam_mistakes(place: tuple[int, ...], W: Array, G: Array, M: Array, V: Array, *numbers: float) -> Mistakes:
    rate, c1, c2, beta1, beta2, epsilon = (*numbers, *DEFAULTS)[:6]
    old_m, old_v = M, V
    _, M, V = _adam_truth(W, G, M, V, rate, c1, c2, beta1, beta2, epsilon)
    m, v = M / c1, V / c2
    yield "ε is inside the root: add it after the root", (W - rate * m / np.sqrt(v + epsilon), M, V)
    yield f"ε is left out, or far too small: add {epsilon:g} after the root", (W - rate * m / np.sqrt(v), M, V)
    early = (np.sqrt(V) + epsilon) / math.sqrt(c2)
    yield "ε is added before V is divided by c₂: add it to √(V / c₂)", (W - rate * m / early, M, V)
    for other in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        if other != epsilon:
            yield f"expected ε = {epsilon:g}, got {other:g}", (_stepped(W, rate, m, v, other), M, V)
    words = "M and V are not divided by c₁ and c₂: the step takes M / c₁ and V / c₂"
    yield words, (_stepped(W, rate, M, V, epsilon), M, V)
    yield "M is not divided by c₁: the step takes M / c₁", (_stepped(W, rate, M, v, epsilon), M, V)
    yield "V is not divided by c₂: the step takes V / c₂", (_stepped(W, rate, m, V, epsilon), M, V)
    yield "c₁ and c₂ are swapped: the step takes M / c₁ and V / c₂", (_stepped(W, rate, M / c2, V / c1, epsilon), M, V)
    yield "M and V are multiplied by c₁ and c₂: divide by them", (_stepped(W, rate, M * c1, V * c2, epsilon), M, V)
    yield "the root is missing: divide by √(V / c₂) + ε", (W - rate * m / (v + epsilon), M, V)
    yield (
        "W moves by M and V as they were before the step: update them first",
        (_stepped(W, rate, old_m / c1, old_v / c2, epsilon), M, V),
    )
    yield "M and V keep M / c₁ and V / c₂: divide for the step alone", (_stepped(W, rate, m, v, epsilon), m, v)
    yield "W moves by G: move it by M", (_stepped(W, rate, G / c1, v, epsilon), M, V)
    turned = (1 - beta1) * old_m + beta1 * G, (1 - beta2) * old_v + beta2 * G**2
    for new_m, new_v in ((turned[0], turned[1]), (turned[0], V), (M, turned[1])):
        words = "β and 1 − β are swapped: the old mean counts β times, the new number 1 − β times"
        yield words, (_stepped(W, rate, new_m / c1, new_v / c2, epsilon), new_m, new_v)
    plain = beta2 * old_v + (1 - beta2) * G
    yield "V is a mean of G: take the mean of G²", (_stepped(W, rate, m, plain / c2, epsilon), M, plain)


def _stepped(W: Array, rate: float, m: Array, v: Array, epsilon: float) -> Array:
    return W - rate * m / (np.sqrt(v) + epsilon)


def _mean_squares(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Values of V: usual ones, zeros, and some so small that ε matters where G is 0."""
    usual, small = rng.random(shape) ** 5, 10 ** rng.uniform(-18, -12, shape)
    kinds = rng.permutation(math.prod(shape)).reshape(shape) % 3
    return np.choose(kinds, (usual, np.zeros(shape), small)).astype(np.float32)


def one_of(*numbers: float) -> Callable[..., float]:
    """For the `values` of a trial: an argument that is one of these numbers."""
    return lambda rng, shape, sizes: float(rng.choice(numbers))


def _correction(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    """From 1 − 0.999, as in the first step, to 1."""
    return float(10 ** rng.uniform(-3, 0))


ADAM_FORMULA = "M ← β₁ M + (1 − β₁) G, V ← β₂ V + (1 − β₂) G², W ← W − η (M / c₁) / (√(V / c₂) + ε)"
ADAM_VALUES = {"V": _mean_squares, **dict.fromkeys(("c1", "c2"), _correction)}
FINITE = ("zeros", "large", "one of zeros")  # edge cases for division by √V: an infinite gradient gives ∞ / ∞
BETAS, EPSILONS = one_of(0, 0.5, 0.9, 0.99, 0.999), one_of(1e-8, 1e-6, 1e-3)

adam_update = Operation(
    "adam_update",
    ADAM_FORMULA,
    contract="W (*n), G (*n), M (*n), V (*n), rate (), c1 (), c2 () -> W (*n), M (*n), V (*n)",
    reference=_adam_truth,
    flops=lambda n: 14 * n,
    trial=Trial(
        error_scale=_adam_magnitude, values=ADAM_VALUES, edge_cases=FINITE, advice=_adam_advice, mistakes=_adam_mistakes
    ),
)

general_adam_update = Operation(
    "general_adam_update",
    ADAM_FORMULA,
    contract="W (*n), G (*n), M (*n), V (*n), rate (), c1 (), c2 (), beta1 (), beta2 (), epsilon ()"
    " -> W (*n), M (*n), V (*n)",
    reference=_adam_truth,
    flops=lambda n: 14 * n,
    trial=Trial(
        error_scale=_adam_magnitude,
        values=ADAM_VALUES | {"beta1": one_of(0, 0.5, 0.9), "beta2": BETAS, "epsilon": EPSILONS},
        edge_cases=FINITE,
        advice=_adam_advice,
        mistakes=_adam_mistakes,
    ),
)


@adam_update.kernel("loops", device="cpu")
@general_adam_update.kernel("loops", device="cpu")
def adam_loops(
    W: Array, G: Array, M: Array, V: Array, rate: float, c1: float, c2: float, beta1: float = BETA_1,
    beta2: float = BETA_2, epsilon: float = EPSILON,
) -> tuple[Array, Array, Array]:  # fmt: skip
    w, g, m, v = W.reshape(-1), G.reshape(-1), M.reshape(-1), V.reshape(-1)
    for i in range(w.size):
        m[i] = beta1 * m[i] + (1 - beta1) * g[i]
        v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i]
        w[i] -= rate * (m[i] / c1) / (math.sqrt(v[i] / c2) + epsilon)
    return W, M, V


@in_blocks(adam_update)
@in_blocks(general_adam_update)
def adam_array(
    W: Array, G: Array, M: Array, V: Array, rate: float, c1: float, c2: float, beta1: float = BETA_1,
    beta2: float = BETA_2, epsilon: float = EPSILON,
) -> tuple[Array, Array, Array]:  # fmt: skip
    M *= beta1
    M += (1 - beta1) * G
    M += TINY * epsilon  # what is far smaller is rounded away
    M -= TINY * epsilon
    V *= beta2
    V += (1 - beta2) * G * G
    W -= (rate / c1) * M / (np.sqrt(V / c2) + epsilon)
    return W, M, V


def _adam_in_one_pass(
    W: Array, G: Array, M: Array, V: Array, rate: float, c1: float, c2: float, beta1: float, beta2: float,
    epsilon: float,
) -> None:  # fmt: skip
    """All numbers have 32 bits, so that SIMD instructions take twice as many: W ← W − η √c₂ / c₁ M / (√V + ε √c₂)."""
    w, g, m, v = W.reshape(-1), G.reshape(-1), M.reshape(-1), V.reshape(-1)
    step, small, tiny = f32(rate * math.sqrt(c2) / c1), f32(epsilon * math.sqrt(c2)), f32(TINY * epsilon)
    keep_m, add_m, keep_v, add_v = f32(beta1), f32(1 - beta1), f32(beta2), f32(1 - beta2)
    for i in range(w.size):
        mean = keep_m * m[i] + add_m * g[i]
        m[i] = mean if abs(mean) > tiny else f32(0)
        v[i] = keep_v * v[i] + add_v * g[i] * g[i]
        w[i] -= step * m[i] / (math.sqrt(v[i]) + small)


_compiled_adam = jit.at_first_call(lambda: jit.jit(_adam_in_one_pass))


@adam_update.kernel("numba", device="cpu", written=_adam_in_one_pass)
@general_adam_update.kernel("numba", device="cpu", written=_adam_in_one_pass)
def adam_numba(
    W: Array, G: Array, M: Array, V: Array, rate: float, c1: float, c2: float, beta1: float = BETA_1,
    beta2: float = BETA_2, epsilon: float = EPSILON,
) -> tuple[Array, Array, Array]:  # fmt: skip
    _compiled_adam(W, G, M, V, rate, c1, c2, beta1, beta2, epsilon)  # Numba is slow to fill in what is left out
    return W, M, V


adam_update.cuda_kernel("naive", SOURCE)
general_adam_update.cuda_kernel("naive", SOURCE)

# ---- RMSProp (Hinton, 2012): the gradient divided by the root of the running mean of its squares


def _rmsprop_truth(W: Array, G: Array, V: Array, rate: float, beta: float, epsilon: float) -> tuple[Array, Array]:
    V = beta * V + (1 - beta) * G**2
    return W - rate * G / (np.sqrt(V) + epsilon), V


def _rmsprop_magnitude(W: Array, G: Array, V: Array, rate: float, beta: float, epsilon: float) -> tuple[Array, Array]:
    V = beta * V + (1 - beta) * G**2
    step = abs(rate * G) / (np.sqrt(V) + epsilon)
    return abs(W) + step * (1 + _rounded(G) / (2 * np.maximum(V, 1e-30))), V + _rounded(G)


rmsprop_update = Operation(
    "rmsprop_update",
    "V ← β V + (1 − β) G², W ← W − η G / (√V + ε)",
    contract="W (*n), G (*n), V (*n), rate (), beta (), epsilon () -> W (*n), V (*n)",
    reference=_rmsprop_truth,
    flops=lambda n: 9 * n,
    trial=Trial(
        error_scale=_rmsprop_magnitude,
        values={"V": _mean_squares, "beta": BETAS, "epsilon": EPSILONS},
        edge_cases=FINITE,
        advice=lambda place, *arguments: f"there V must become {_rmsprop_truth(*arguments)[1][place]:.7g}",
    ),
)


@rmsprop_update.loops_kernel
def rmsprop_loops(W: Array, G: Array, V: Array, rate: Number, beta: Number, epsilon: Number) -> tuple[Array, Array]:
    w, g, v = W.reshape(-1), G.reshape(-1), V.reshape(-1)
    rate, beta, rest, epsilon = f32(rate), f32(beta), f32(1 - beta), f32(epsilon)
    for i in range(w.size):
        v[i] = beta * v[i] + rest * g[i] * g[i]
        w[i] -= rate * g[i] / (math.sqrt(v[i]) + epsilon)
    return W, V


@in_blocks(rmsprop_update)
def rmsprop_array(W: Array, G: Array, V: Array, rate: float, beta: float, epsilon: float) -> tuple[Array, Array]:
    V *= beta
    V += (1 - beta) * G * G
    W -= rate * G / (np.sqrt(V) + epsilon)
    return W, V


rmsprop_update.cuda_kernel("naive", SOURCE)

# ---- AdaGrad (Duchi, Hazan and Singer, 2011): divided by the root of the sum of all squares, so steps get shorter


def _adagrad_truth(W: Array, G: Array, V: Array, rate: float, epsilon: float) -> tuple[Array, Array]:
    V = V + G**2
    return W - rate * G / (np.sqrt(V) + epsilon), V


adagrad_update = Operation(
    "adagrad_update",
    "V ← V + G², W ← W − η G / (√V + ε)",
    contract="W (*n), G (*n), V (*n), rate (), epsilon () -> W (*n), V (*n)",
    reference=_adagrad_truth,
    flops=lambda n: 7 * n,
    trial=Trial(
        error_scale=lambda W, G, V, rate, epsilon: (abs(W) + abs(rate * G) / (np.sqrt(V + G**2) + epsilon), V + G**2),
        values={"V": _mean_squares, "epsilon": EPSILONS},
        edge_cases=FINITE,
        advice=lambda place, *arguments: f"there V must become {_adagrad_truth(*arguments)[1][place]:.7g}",
    ),
)


@adagrad_update.loops_kernel
def adagrad_loops(W: Array, G: Array, V: Array, rate: Number, epsilon: Number) -> tuple[Array, Array]:
    w, g, v = W.reshape(-1), G.reshape(-1), V.reshape(-1)
    rate, epsilon = f32(rate), f32(epsilon)
    for i in range(w.size):
        v[i] += g[i] * g[i]
        w[i] -= rate * g[i] / (math.sqrt(v[i]) + epsilon)
    return W, V


@in_blocks(adagrad_update)
def adagrad_array(W: Array, G: Array, V: Array, rate: float, epsilon: float) -> tuple[Array, Array]:
    V += G * G
    W -= rate * G / (np.sqrt(V) + epsilon)
    return W, V


adagrad_update.cuda_kernel("naive", SOURCE)
