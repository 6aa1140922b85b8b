"""dense_sgd_epoch on the CPU: Algorithm 1 with NumPy, and with loops that Numba compiles.

All arrays are preallocated. A overwrites Z, so slopes are computed from A. The learning rate and the mean over the
batch scale the deltas of the outputs, which are few: all gradients are proportional to these.
"""

import numpy as np

from nncourse.epochs.dense import CROSS_ENTROPIES, KNOWN, codes, dense_sgd_epoch, refuse_not_known
from nncourse.kernels import jit
from nncourse.kernels.activations import ALPHA


def in_whole_batches(steps, parameters, architecture, X, Y, batch, rate):
    """Call `steps` for all full batches, then for the smaller last one: it allocates arrays for one size of batch."""
    refuse_not_known(architecture.activations)
    slopes = list(architecture.activations)
    if architecture.cost in CROSS_ENTROPIES:
        slopes[-1] = "identity"  # A − Y is the delta itself
    whole = len(X) - len(X) % batch
    for rows, size in (slice(whole), batch), (slice(whole, None), len(X) - whole):
        if len(X[rows]) > 0:
            steps(parameters, architecture, slopes, X[rows], Y[rows], size, np.float32(rate / size))
    return parameters


# ---- numpy: preallocated, so that the loop contains only array operations
#
# On small arrays NumPy is twice as slow with a Python number as with an array of zero axes.

ZERO, HALF, ONE, SMALL = (np.array(number, np.float32) for number in (0, 0.5, 1, ALPHA))


def sigmoid(Z, S):
    Z *= HALF
    np.tanh(Z, out=Z)
    Z *= HALF
    Z += HALF


def softmax(Z, S):
    Z -= Z.max(axis=1, keepdims=True)
    np.exp(Z, out=Z)
    Z /= Z.sum(axis=1, keepdims=True)


def softmax_slope(D, A, S):
    """Its delta is (D − Σ D ⊙ A) ⊙ A."""
    D -= np.multiply(D, A, out=S).sum(axis=1, keepdims=True)
    return A


def is_positive(A, S):
    """1 where A > 0; rounded up and capped, because np.sign() is slower."""
    return np.minimum(np.ceil(A, out=S), ONE, out=S)


# For each activation, two functions: Z to A in place; and the slopes σ'(Z) from A, by which dC/dA is multiplied to give
# the delta dC/dZ. S is scratch space.
ARRAYS = {
    "identity": (lambda Z, S: Z, lambda D, A, S: ONE),
    "step": (lambda Z, S: np.heaviside(Z, ZERO, out=Z), lambda D, A, S: ZERO),
    "sigmoid": (sigmoid, lambda D, A, S: np.multiply(np.subtract(ONE, A, out=S), A, out=S)),
    "tanh": (lambda Z, S: np.tanh(Z, out=Z), lambda D, A, S: np.subtract(ONE, np.multiply(A, A, out=S), out=S)),
    "relu": (lambda Z, S: np.maximum(Z, ZERO, out=Z), lambda D, A, S: is_positive(A, S)),
    "leaky_relu": (
        lambda Z, S: np.maximum(Z, np.multiply(Z, SMALL, out=S), out=Z),
        lambda D, A, S: np.maximum(is_positive(A, S), SMALL, out=S),
    ),
    "softplus": (
        lambda Z, S: np.logaddexp(Z, ZERO, out=Z),
        lambda D, A, S: np.subtract(ONE, np.exp(np.negative(A, out=S), out=S), out=S),
    ),
    "softmax": (softmax, softmax_slope),
}


@dense_sgd_epoch.kernel("numpy", device="cpu")
def array(parameters, architecture, X, Y, batch, rate):
    """Algorithm 1 with one array operation a line."""
    return in_whole_batches(_array_steps, parameters, architecture, X, Y, batch, rate)


def _array_steps(parameters, architecture, slopes, X, Y, batch, step):
    layers = range(len(architecture.shapes))
    gradients = np.empty_like(parameters)
    W, b = zip(*architecture.views(parameters), strict=True)
    dW, db = zip(*architecture.views(gradients), strict=True)
    A, D, S = ([np.empty((batch, n), np.float32) for n in architecture.sizes] for _ in range(3))
    W_T, D_T = [w.T for w in W], [d.T for d in D]
    activate = [ARRAYS[name][0] for name in architecture.activations]
    slope = [ARRAYS[name][1] for name in slopes]
    ones, step = np.ones(batch, np.float32), np.array(step)
    for start in range(0, len(X), batch):
        A[0] = X[start : start + batch]
        for layer in layers:
            Z = np.matmul(A[layer], W_T[layer], out=A[layer + 1])
            Z += b[layer]
            activate[layer](Z, S[layer + 1])
        G = np.subtract(A[-1], Y[start : start + batch], out=D[-1])
        if architecture.cost == "mae":
            np.sign(G, out=G)
        G *= step
        for layer in reversed(layers):
            D[layer + 1] *= slope[layer](D[layer + 1], A[layer + 1], S[layer + 1])
            np.matmul(D_T[layer + 1], A[layer], out=dW[layer])
            np.matmul(ones, D[layer + 1], out=db[layer])
            if layer > 0:
                np.matmul(D[layer + 1], W[layer], out=D[layer])
        parameters -= gradients  # of all layers at once


# ---- numba: loops over float32 elements, which the compiler vectorises (SIMD)
#
# Constants are written f32(1), because Numba's 1 and 0.5 would make a result 64 bits wide.

f32 = np.float32
IDENTITY, STEP, SIGMOID, TANH, RELU, LEAKY_RELU, SOFTPLUS, SOFTMAX = range(len(KNOWN))
BLOCK = 5  # samples that share each weight that is read; a batch is padded with samples whose deltas are 0


@dense_sgd_epoch.kernel("numba", device="cpu")
def loops(parameters, architecture, X, Y, batch, rate):
    """Compiled once for all networks."""
    return in_whole_batches(_loops_steps, parameters, architecture, X, Y, batch, rate)


def _loops_steps(parameters, architecture, slopes, X, Y, batch, step):
    activations = np.array(codes(architecture.activations))
    slopes = np.array(codes(slopes))
    mae = architecture.cost == "mae"
    compiled_steps(parameters, np.array(architecture.sizes), activations, slopes, mae, X, Y, batch, step)


def _exp(x):
    """exp(x) = 2ⁿ exp(r) with |r| ≤ ln 2 / 2 and 7 terms of the series. math.exp() would prevent SIMD."""
    x = min(max(x, f32(-87)), f32(87))
    n = np.floor(x * f32(1.4426950408889634) + f32(0.5))
    r = x - n * f32(0.6931471805599453)
    series = f32(1)
    for k in (6, 5, 4, 3, 2, 1):
        series = f32(1) + r / f32(k) * series
    power = np.int32((np.int32(n) + 127) << 23).view(np.float32)  # 2ⁿ: a float32 holds n + 127 in its bits from 23 on
    return power * series


def _sigmoid(z):
    return f32(1) / (f32(1) + _exp(-z))


def _activate(name, Z):
    """A = σ(Z), in place."""
    z = Z.reshape(-1)
    if name == STEP:
        for i in range(z.size):
            z[i] = f32(1) if z[i] > f32(0) else f32(0)
    elif name == SIGMOID:
        for i in range(z.size):
            z[i] = _sigmoid(z[i])
    elif name == TANH:
        for i in range(z.size):
            z[i] = f32(2) * _sigmoid(f32(2) * z[i]) - f32(1)
    elif name == RELU:
        for i in range(z.size):
            z[i] = max(z[i], f32(0))
    elif name == LEAKY_RELU:
        for i in range(z.size):
            z[i] = max(z[i], f32(ALPHA) * z[i])
    elif name == SOFTPLUS:
        for i in range(z.size):
            z[i] = max(z[i], f32(0)) + np.log1p(_exp(-abs(z[i])))
    elif name == SOFTMAX:
        for i in range(Z.shape[0]):
            top, total = Z[i, 0], f32(0)
            for j in range(Z.shape[1]):
                top = max(top, Z[i, j])
            for j in range(Z.shape[1]):
                Z[i, j] = _exp(Z[i, j] - top)
                total += Z[i, j]
            for j in range(Z.shape[1]):
                Z[i, j] /= total


def _to_delta(name, D, A):
    """D = dC/dA ⊙ σ'(Z), in place."""
    d, a = D.reshape(-1), A.reshape(-1)
    if name == STEP:
        d.fill(f32(0))
    elif name == SIGMOID:
        for i in range(d.size):
            d[i] *= a[i] * (f32(1) - a[i])
    elif name == TANH:
        for i in range(d.size):
            d[i] *= f32(1) - a[i] * a[i]
    elif name in (RELU, LEAKY_RELU):
        left = f32(ALPHA) if name == LEAKY_RELU else f32(0)
        for i in range(d.size):
            d[i] *= f32(1) if a[i] > f32(0) else left
    elif name == SOFTPLUS:
        for i in range(d.size):
            d[i] *= f32(1) - _exp(-a[i])
    elif name == SOFTMAX:
        for i in range(D.shape[0]):
            mean = f32(0)
            for j in range(D.shape[1]):
                mean += D[i, j] * A[i, j]
            for j in range(D.shape[1]):
                D[i, j] = A[i, j] * (D[i, j] - mean)


def _forward(A, W, b, Z):
    """Z = A Wᵀ + b."""
    for j in range(W.shape[0]):
        for i in range(0, A.shape[0], BLOCK):
            z0 = z1 = z2 = z3 = z4 = b[j]
            for k in range(W.shape[1]):
                w = W[j, k]
                z0 += A[i, k] * w
                z1 += A[i + 1, k] * w
                z2 += A[i + 2, k] * w
                z3 += A[i + 3, k] * w
                z4 += A[i + 4, k] * w
            Z[i, j], Z[i + 1, j], Z[i + 2, j], Z[i + 3, j], Z[i + 4, j] = z0, z1, z2, z3, z4


def _backward(D, W, G):
    """G = D W: dC/dA of the layer below."""
    G.fill(f32(0))
    for i in range(D.shape[0]):
        for j in range(W.shape[0]):
            d = D[i, j]
            for k in range(W.shape[1]):
                G[i, k] += d * W[j, k]


def _update(D, A, W, b):
    """W ← W − Dᵀ A, b ← b − Σ D, without storing the gradients."""
    for j in range(W.shape[0]):
        for i in range(0, D.shape[0], BLOCK):
            d0, d1, d2, d3, d4 = D[i, j], D[i + 1, j], D[i + 2, j], D[i + 3, j], D[i + 4, j]
            b[j] -= d0 + d1 + d2 + d3 + d4
            for k in range(W.shape[1]):
                g = d0 * A[i, k] + d1 * A[i + 1, k] + d2 * A[i + 2, k] + d3 * A[i + 3, k] + d4 * A[i + 4, k]
                W[j, k] -= g


def _steps(parameters, sizes, activations, slopes, mae, X, Y, batch, step):
    """Algorithm 1 for each batch."""
    rows = -(-batch // BLOCK) * BLOCK
    A = [np.zeros((rows, n), np.float32) for n in sizes]
    D = [np.zeros((rows, n), np.float32) for n in sizes]
    W, b, at = [], [], 0
    for layer in range(len(sizes) - 1):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        end = at + n_out * n_in
        W.append(parameters[at:end].reshape(n_out, n_in))
        b.append(parameters[end : end + n_out])
        at = end + n_out
    inputs, outputs, first_delta = A[0], A[-1], D[-1]
    for start in range(0, len(X), batch):
        for i in range(batch):
            for k in range(X.shape[1]):
                inputs[i, k] = X[start + i, k]
        for layer in range(len(W)):
            _forward(A[layer], W[layer], b[layer], A[layer + 1])
            _activate(activations[layer], A[layer + 1])
        for i in range(batch):
            for j in range(Y.shape[1]):
                g = outputs[i, j] - Y[start + i, j]
                first_delta[i, j] = step * (np.sign(g) if mae else g)
        for layer in range(len(W) - 1, -1, -1):
            _to_delta(slopes[layer], D[layer + 1], A[layer + 1])
            if layer > 0:
                _backward(D[layer + 1], W[layer], D[layer])
            _update(D[layer + 1], A[layer], W[layer], b[layer])


compiled_steps = jit.at_first_call(
    lambda: jit.compiled_together(_exp, _sigmoid, _activate, _to_delta, _forward, _backward, _update, _steps)
)
