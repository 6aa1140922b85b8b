"""Activation functions and their derivatives, equations (2a) to (2e): z is the weighted sum, a the neuron's output.

Each function is written three times: for one number (the kernels `loops` and `numba`), for a whole array (`numpy` and
`cupy`), and as a CUDA kernel in activations.cu. All are finite at z = ±1000. At a kink the left derivative is used.

Networks accept two kinds of operation as activations: those with a `…_derivative`, such as sigmoid, and those with a
`…_delta`, such as softmax. Each output of the second kind is computed from a whole row.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from cuda_on_cpu.text import CudaSource
from nncourse.device import Array
from nncourse.kernels import jit
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Mistakes, Trial

BLOCK = 1 << 16  # numbers that stay in a CPU's cache while a formula is computed
ALPHA = 0.01  # the slope of leaky ReLU below zero
Formula = Callable[[float], float]  # of one number
SOURCE = cuda_beside(__file__, f"ALPHA={ALPHA}f")


def activations_among(operations: Mapping[str, Operation]) -> dict[str, str]:
    """The activations among operations, by name: "number" or "row".

    number: each output is computed from one number; there is an operation S = <name>_derivative(Z).
    row: each output is computed from a whole row; there is an operation D = <name>_delta(G, A).
    """
    ends = {"delta": "row", "derivative": "number"}  # relu has both: it counts as the last
    return {name: kind for name in operations for end, kind in ends.items() if f"{name}_{end}" in operations}


def elementwise(
    name: str,
    formula: str,
    reference: Callable[[Array], Array],
    equation: str = "",
    flops: int = 1,
    source: CudaSource = SOURCE,
    straight: bool = False,
) -> Operation:
    """An operation that computes a from z element by element; its CUDA kernel is <name>_naive in the .cu file.

    straight: the function consists of straight lines, so that small results are as exact as large ones.
    """
    operation = Operation(
        name,
        formula,
        equation=equation,
        contract="z (*n) -> a (*n)",
        reference=reference,
        flops=lambda n: flops * n,
        trial=Trial(
            error_scale=lambda z: np.maximum(0 if straight else 1, np.abs(reference(z))),
            edge_cases=("zeros", "large", "special"),
        ),
    )
    operation.cuda_kernel("naive", source)
    return operation


def over_elements(formula: Formula) -> Callable[[Array], Array]:
    """A kernel that applies the formula to each element in turn."""

    def loops(z: Array) -> Array:
        a = np.empty_like(z)
        numbers, results = z.reshape(-1), a.reshape(-1)
        for i in range(numbers.size):
            results[i] = formula(numbers[i])
        return a

    return loops


def on_numbers(operation: Operation) -> Callable[[Formula], Formula]:
    """Decorator that registers a formula for one number as the kernels `loops` and, compiled, `numba`."""

    def register(formula: Formula) -> Formula:
        compiled = jit.at_first_call(lambda: jit.jit(over_elements(jit.jit(formula))))
        operation.kernel("loops", device="cpu", written=formula)(over_elements(formula))
        operation.kernel("numba", device="cpu", written=formula)(compiled)
        return formula

    return register


def in_blocks(operation: Operation) -> Callable[[Callable[[Array], Array]], Callable[[Array], Array]]:
    """Decorator that registers a formula for arrays as the kernels `cupy` and, a block at a time, `numpy`.

    In a long formula each operation then finds the results of the previous one in the cache.
    """

    def register(formula: Callable[[Array], Array]) -> Callable[[Array], Array]:
        def kernel(z: Array) -> Array:
            if z.size <= BLOCK:
                return formula(z)
            a = np.empty_like(z)
            numbers, results = z.reshape(-1), a.reshape(-1)
            for start in range(0, z.size, BLOCK):
                results[start : start + BLOCK] = formula(numbers[start : start + BLOCK])
            return a

        operation.kernel("numpy", device="cpu", written=formula)(kernel)
        operation.kernel("cupy", device="gpu")(formula)
        return formula

    return register


# ---- identity: the output activation for regression

identity = elementwise("identity", "a = z", reference=np.array, flops=0, straight=True)
identity_derivative = elementwise("identity_derivative", "a = 1", reference=np.ones_like, flops=0, straight=True)


@on_numbers(identity)
def identity_of(z: float) -> float:
    return z


@identity.array_kernel
def identity_array(z: Array) -> Array:
    return z.copy()


@on_numbers(identity_derivative)
def identity_slope(z: float) -> float:
    return 1.0


@identity_derivative.array_kernel
def identity_slope_array(z: Array) -> Array:
    return np.ones_like(z)


# ---- step: the perceptron's threshold; gradients cannot train it, because its derivative is zero wherever it exists

step = elementwise("step", "a = 1 if z > 0, else 0", reference=lambda z: np.where(z > 0, 1.0, 0.0), straight=True)
step_derivative = elementwise("step_derivative", "a = 0", reference=np.zeros_like, flops=0, straight=True)


@on_numbers(step)
def step_of(z: float) -> float:
    return 1.0 if z > 0 else 0.0


@step.array_kernel
def step_array(z: Array) -> Array:
    return (z > 0).astype(z.dtype)


@on_numbers(step_derivative)
def step_slope(z: float) -> float:
    return 0.0


@step_derivative.array_kernel
def step_slope_array(z: Array) -> Array:
    return np.zeros_like(z)


# ---- sigmoid (2a): exp(−z) overflows for very negative z, so each sign has a formula of its own; tanh needs none


def _sigmoid_reference(z: Array) -> Array:
    small = np.exp(-np.abs(z))  # at most 1
    return np.where(z >= 0, 1, small) / (1 + small)


sigmoid = elementwise("sigmoid", "a = 1 / (1 + exp(−z))", equation="(2a)", reference=_sigmoid_reference, flops=4)
sigmoid_derivative = elementwise(
    "sigmoid_derivative",
    "a = σ(z) (1 − σ(z))",
    reference=lambda z: np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))) ** 2,
    flops=6,
)


@on_numbers(sigmoid)
def sigmoid_of(z: float) -> float:
    if z >= 0:
        return 1 / (1 + math.exp(-z))
    return math.exp(z) / (1 + math.exp(z))


@sigmoid.array_kernel
def sigmoid_array(z: Array) -> Array:
    return 0.5 * np.tanh(0.5 * z) + 0.5


@on_numbers(sigmoid_derivative)
def sigmoid_slope(z: float) -> float:
    small = math.exp(-abs(z))
    return small / ((1 + small) * (1 + small))


@sigmoid_derivative.array_kernel
def sigmoid_slope_array(z: Array) -> Array:
    a = 0.5 * np.tanh(0.5 * z) + 0.5
    return a * (1 - a)


# ---- hyperbolic tangent (2b): a sigmoid from −1 to 1

tanh = elementwise("tanh", "a = 2 / (1 + exp(−2z)) − 1", equation="(2b)", reference=np.tanh, flops=6)
tanh_derivative = elementwise("tanh_derivative", "a = 1 − tanh²(z)", reference=lambda z: 1 - np.tanh(z) ** 2, flops=8)


@on_numbers(tanh)
def tanh_of(z: float) -> float:
    return math.tanh(z)


@tanh.array_kernel
def tanh_array(z: Array) -> Array:
    return np.tanh(z)


@on_numbers(tanh_derivative)
def tanh_slope(z: float) -> float:
    return 1 - math.tanh(z) ** 2


@tanh_derivative.array_kernel
def tanh_slope_array(z: Array) -> Array:
    a = np.tanh(z)
    return 1 - a * a


# ---- rectified linear unit (2c)

relu = elementwise("relu", "a = max(0, z)", equation="(2c)", reference=lambda z: np.where(z > 0, z, 0.0), straight=True)
relu_derivative = elementwise(
    "relu_derivative", "a = 1 if z > 0, else 0", reference=lambda z: np.where(z > 0, 1.0, 0.0), straight=True
)


@on_numbers(relu)
def relu_of(z: float) -> float:
    return max(z, 0.0)


@relu.array_kernel
def relu_array(z: Array) -> Array:
    return np.maximum(z, 0)


on_numbers(relu_derivative)(step_of)  # the slope of ReLU is the step function
relu_derivative.array_kernel(step_array)

# ---- leaky ReLU (2d): a small slope below zero keeps the gradient nonzero, so the neuron can recover

leaky_relu = elementwise(
    "leaky_relu",
    f"a = z if z > 0, else {ALPHA} z",
    equation="(2d)",
    reference=lambda z: np.where(z > 0, z, ALPHA * z),
    straight=True,
)
leaky_relu_derivative = elementwise(
    "leaky_relu_derivative",
    f"a = 1 if z > 0, else {ALPHA}",
    reference=lambda z: np.where(z > 0, 1, ALPHA),
    straight=True,
)


@on_numbers(leaky_relu)
def leaky_relu_of(z: float) -> float:
    return z if z > 0 else ALPHA * z


@leaky_relu.array_kernel
def leaky_relu_array(z: Array) -> Array:
    return np.maximum(z, ALPHA * z)


@on_numbers(leaky_relu_derivative)
def leaky_relu_slope(z: float) -> float:
    return 1.0 if z > 0 else ALPHA


@leaky_relu_derivative.array_kernel
def leaky_relu_slope_array(z: Array) -> Array:
    return (1 - ALPHA) * (z > 0).astype(z.dtype) + ALPHA


# ---- softplus (2e): a smooth ReLU; for large z, where log(1 + exp(z)) would overflow, it equals z

softplus = elementwise(
    "softplus", "a = log(1 + exp(z))", equation="(2e)", reference=lambda z: np.logaddexp(0, z), flops=5
)
softplus_derivative = elementwise("softplus_derivative", "a = σ(z)", reference=_sigmoid_reference, flops=4)


@on_numbers(softplus)
def softplus_of(z: float) -> float:
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


@softplus.array_kernel
def softplus_array(z: Array) -> Array:
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))


on_numbers(softplus_derivative)(sigmoid_of)  # the slope of softplus is the sigmoid
softplus_derivative.array_kernel(sigmoid_array)

# ---- Gaussian error linear unit, in the tanh form of GPT-2: a smooth ReLU that is slightly negative below zero. With
# 1 + tanh(u) = 2 σ(2u) it is z σ(2u). From z = −10 down it is 0 in float32, and e^(−2u) would overflow.

GELU_SCALE, GELU_CUBE, GELU_END = math.sqrt(2 / math.pi), 0.044715, 10.0


def _gelu_reference(z: Array) -> Array:
    ends = np.clip(z, -1e9, 1e9)
    return np.where(z > 30, z, 0.5 * ends * (1 + np.tanh(GELU_SCALE * (ends + GELU_CUBE * ends**3))))


def _gelu_slope_reference(z: Array) -> Array:
    ends = np.clip(z, -30, 30)
    t = np.tanh(GELU_SCALE * (ends + GELU_CUBE * ends**3))
    return 0.5 * (1 + t) + 0.5 * ends * (1 - t * t) * GELU_SCALE * (1 + 3 * GELU_CUBE * ends**2)


gelu = elementwise("gelu", "a = z/2 (1 + tanh(√(2/π) (z + 0.044715 z³)))", reference=_gelu_reference, flops=9)
gelu_derivative = elementwise(
    "gelu_derivative",
    "a = s + z s (1 − s) 2u′, with s = σ(2u), u = √(2/π) (z + 0.044715 z³)",
    reference=_gelu_slope_reference,
    flops=16,
)


@on_numbers(gelu)
def gelu_of(z: float) -> float:
    if z < -GELU_END:
        return 0.0
    return z / (1 + math.exp(-2 * GELU_SCALE * (z + GELU_CUBE * z * z * z)))


@in_blocks(gelu)
def gelu_array(z: Array) -> Array:
    z = np.maximum(z, -GELU_END)
    e = z * z
    e *= -2 * GELU_SCALE * GELU_CUBE
    e -= 2 * GELU_SCALE
    e *= z
    np.exp(e, out=e)
    e += 1
    z /= e
    return z


@on_numbers(gelu_derivative)
def gelu_slope(z: float) -> float:
    if abs(z) > GELU_END:
        return 1.0 if z > 0 else 0.0
    s = 1 / (1 + math.exp(-2 * GELU_SCALE * (z + GELU_CUBE * z * z * z)))
    return s + z * s * (1 - s) * 2 * GELU_SCALE * (1 + 3 * GELU_CUBE * z * z)


@in_blocks(gelu_derivative)
def gelu_slope_array(z: Array) -> Array:
    """s (1 − s) = e s², with e = e^(−2u) and s = 1 / (1 + e), has all its digits where s is nearly 1."""
    z = np.clip(z, -GELU_END, GELU_END)
    squares = z * z
    e = squares * (-2 * GELU_SCALE * GELU_CUBE)
    e -= 2 * GELU_SCALE
    e *= z
    np.exp(e, out=e)
    s = e + 1
    np.divide(1, s, out=s)
    e *= s
    e *= z
    squares *= 6 * GELU_SCALE * GELU_CUBE
    squares += 2 * GELU_SCALE
    e *= squares
    e += 1
    e *= s
    return e


# ---- softmax: each sample's outputs are positive and sum to 1; subtracting the largest z first avoids overflow


def _softmax_reference(Z: Array) -> Array:
    return np.exp(Z - np.logaddexp.reduce(Z, axis=1)[:, None])


def _mistakes_of_softmax(place: tuple[int, ...], Z: Array) -> Mistakes:
    yield "this is softmax along the columns: each row, a sample, must sum to 1", _softmax_reference(Z.T).T
    E = np.exp(Z - Z.max(axis=1, keepdims=True))
    yield "the exponentials are not divided: divide each by the sum of its row", E
    yield "the exponentials are divided by the sums of the columns: take the sum of each row", E / E.sum(axis=0)
    whole = "the exponentials are divided by the sum of the whole array: take the sum of each row"
    yield whole, E / E.sum()
    yield whole, _softmax_reference(Z.reshape(1, -1)).reshape(Z.shape)
    yield "each z is divided by the sum of its row: take exp of each z first", Z / Z.sum(axis=1, keepdims=True)
    single = Z.astype(np.float32)  # in which exp overflows
    E = np.exp(single)
    yield "exp overflows for large z: subtract the largest z of the row first", E / E.sum(axis=1, keepdims=True)
    E = np.exp(single - single.max())
    yield (
        "the largest z of the whole array is subtracted, and whole rows become 0: subtract the largest of each row",
        E / E.sum(axis=1, keepdims=True),
    )
    E = np.exp(single - single.sum(axis=1, keepdims=True))
    yield (
        "the sum of the row is subtracted: subtract its largest z, so that exp cannot overflow",
        E / E.sum(axis=1, keepdims=True),
    )


softmax = Operation(
    "softmax",
    "A[i, j] = exp(Z[i, j]) / Σ_k exp(Z[i, k])",
    contract="Z (batch, n) -> A (batch, n)",
    reference=_softmax_reference,
    flops=lambda batch, n: 5 * batch * n,
    # exp(z − log Σ exp z) is right too: a logarithm as large as the largest |z| is rounded.
    trial=Trial(
        error_scale=lambda Z: 1 + abs(_softmax_reference(Z)) * abs(Z).max(axis=1, keepdims=True),
        edge_cases=("zeros", "large", "low"),
        mistakes=_mistakes_of_softmax,
    ),
)


@softmax.loops_kernel
def softmax_loops(Z: Array) -> Array:
    batch, n = Z.shape
    A = np.empty_like(Z)
    for i in range(batch):
        top = Z[i, 0]
        for j in range(n):
            top = max(top, Z[i, j])
        total = 0.0
        for j in range(n):
            A[i, j] = math.exp(Z[i, j] - top)
            total += A[i, j]
        for j in range(n):
            A[i, j] /= total
    return A


@softmax.array_kernel
def softmax_array(Z: Array) -> Array:
    exponentials = np.exp(Z - Z.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


softmax.cuda_kernel("naive", SOURCE, block=128, over=("batch",))
softmax.cuda_kernel("tree", SOURCE, block=128, grid=("batch",))

# Every output of a softmax depends on every z of its row, so its derivative is a matrix. Backpropagation only needs the
# product of that matrix with a gradient: the delta, which (4a) gives for the other activations.


def _softmax_delta_reference(G: Array, A: Array) -> Array:
    """G[i] times the slope of softmax, the matrix diag(A[i]) − A[i] A[i]ᵀ."""
    return np.einsum("ij,ij->ij", A, G) - np.einsum("ij,ik,ik->ij", A, A, G, optimize=True)


softmax_delta = Operation(
    "softmax_delta",
    "D[i] = A[i] ⊙ (G[i] − Σ_k G[i, k] A[i, k]), the slope of softmax times a gradient",
    equation="(4a)",
    contract="G (batch, n), A (batch, n) -> D (batch, n)",
    reference=_softmax_delta_reference,
    flops=lambda batch, n: 4 * batch * n,
    trial=Trial(
        error_scale=lambda G, A: abs(A) * (abs(G) + np.sum(abs(G * A), axis=1, keepdims=True)),
        edge_cases=("zeros", "large"),
    ),
)


@softmax_delta.loops_kernel
def softmax_delta_loops(G: Array, A: Array) -> Array:
    batch, n = G.shape
    D = np.empty_like(G)
    for i in range(batch):
        mean = 0.0
        for k in range(n):
            mean += G[i, k] * A[i, k]
        for j in range(n):
            D[i, j] = A[i, j] * (G[i, j] - mean)
    return D


@softmax_delta.array_kernel
def softmax_delta_array(G: Array, A: Array) -> Array:
    return A * (G - (G * A).sum(axis=1, keepdims=True))


softmax_delta.cuda_kernel("naive", SOURCE, block=128, over=("batch",))
