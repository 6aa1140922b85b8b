"""The functions of gradient_cpu.py as loops that Numba compiles: each is one pass over memory, without branches.

Rows are cut out before the innermost loops: with an offset in an index, LLVM does not vectorise the loop (SIMD).
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fused_epochs import gradient_cpu
from fused_epochs.dense import KNOWN
from fused_epochs.gradient_cpu import Functions
from fused_epochs.network_tiles import prepared_product, why_not
from nncourse.kernels import jit
from nncourse.kernels.activations import ALPHA

# Constants are written f32(1), because Numba's 1 and 0.5 would make a result 64 bits wide.

f32 = np.float32
IDENTITY, STEP, SIGMOID, TANH, RELU, LEAKY_RELU, SOFTPLUS, SOFTMAX = range(len(KNOWN))


def _exp(x: f32) -> f32:
    """exp(x) = 2ⁿ exp(r) with |r| ≤ ln 2 / 2 and 7 terms of the series. math.exp() would prevent SIMD."""
    x = min(max(x, f32(-87)), f32(87))
    n = np.floor(x * f32(1.4426950408889634) + f32(0.5))
    r = x - n * f32(0.6931471805599453)
    series = f32(1)
    for k in (6, 5, 4, 3, 2, 1):
        series = f32(1) + r / f32(k) * series
    power = np.int32((np.int32(n) + 127) << 23).view(np.float32)  # 2ⁿ: a float32 holds n + 127 in its bits from 23 on
    return power * series


def _sigmoid(z: f32) -> f32:
    return f32(1) / (f32(1) + _exp(-z))


def _activate(name: int, Z: np.ndarray) -> None:
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


def _to_delta(name: int, D: np.ndarray, A: np.ndarray) -> None:
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


def _activate_rows(name: int, Z: np.ndarray, b: np.ndarray) -> None:
    """Each row while it is in the cache: a bias, then the activation."""
    for j in range(Z.shape[0]):
        for i in range(Z.shape[1]):
            Z[j, i] += b[j, 0]
        _activate(name, Z[j : j + 1])


def _finish(
    name: int, Z: np.ndarray, b: np.ndarray, size: int, A: np.ndarray, before: int, places: np.ndarray, y_at: int,
    x_at: int,
) -> None:  # fmt: skip
    """No processor can predict which pixel is the largest, so comparisons select one of two values."""
    channels, height, width, batch = Z.shape
    across, left = width // size, before + x_at
    z_rows, a_rows = Z.reshape((channels, height, width * batch)), A.reshape((channels, A.shape[1], -1))
    first, count = left * batch, across * batch
    for c in range(channels):
        for y in range(height // size):
            row = before + y_at + y
            if size == 1:
                z, a = z_rows[c, y], a_rows[c, row, first:]
                for q in range(count):
                    a[q] = z[q]
            else:
                for x in range(across):
                    z, largest, at = Z[c, y * size, x * size], A[c, row, left + x], places[c, y_at + y, x_at + x]
                    for s in range(batch):
                        largest[s] = z[s]
                        at[s] = 0
                    for place in range(1, size * size):
                        z = Z[c, y * size + place // size, x * size + place % size]
                        for s in range(batch):
                            larger = z[s] > largest[s]
                            largest[s] = z[s] if larger else largest[s]
                            at[s] = place if larger else at[s]
            a, bias = a_rows[c, row, first:], b[c]
            for q in range(count):
                a[q] += bias
            _activate(name, A[c, row, left : left + across])


def _deltas(
    name: int, G: np.ndarray, A: np.ndarray, before: int, places: np.ndarray, size: int, Z: np.ndarray, y_at: int,
    x_at: int,
) -> None:  # fmt: skip
    channels, height, width, batch = Z.shape
    across, left = width // size, before + x_at
    z_rows, g_rows = Z.reshape((channels, height, width * batch)), G.reshape((channels, G.shape[1], -1))
    first, count = left * batch, across * batch
    for c in range(channels):
        for y in range(height // size):
            row = before + y_at + y
            _to_delta(name, G[c, row, left : left + across], A[c, row, left : left + across])
            if size == 1:
                z, g = z_rows[c, y], g_rows[c, row, first:]
                for q in range(count):
                    z[q] = g[q]
                continue
            for i in range(size):
                for x in range(width):
                    place = i * size + x % size
                    at, g = places[c, y_at + y, x_at + x // size], G[c, row, left + x // size]
                    z = Z[c, y * size + i, x]
                    for s in range(batch):
                        z[s] = g[s] if at[s] == place else f32(0)


def _see(C: np.ndarray, stride: int, A: np.ndarray, y_at: int, x_at: int) -> None:
    """With a stride of 1 the pixels of a row follow one another in both arrays."""
    channels, k, _, height, width, batch = C.shape
    rows_of_c, a_rows = C.reshape((channels, k, k, height, width * batch)), A.reshape((channels, A.shape[1], -1))
    for c in range(channels):
        for i in range(k):
            for j in range(k):
                for y in range(height):
                    at = y_at + i + y * stride
                    if stride == 1:
                        to, a = rows_of_c[c, i, j, y], a_rows[c, at, (x_at + j) * batch :]
                        for q in range(width * batch):
                            to[q] = a[q]
                    else:
                        for x in range(width):
                            to, a = C[c, i, j, y][x], A[c, at, x_at + j + x * stride]
                            for s in range(batch):
                                to[s] = a[s]


def _add(C: np.ndarray, stride: int, G: np.ndarray, y_at: int, x_at: int) -> None:
    channels, k, _, height, width, batch = C.shape
    c_rows, g_rows = C.reshape((channels, k, k, height, width * batch)), G.reshape((channels, G.shape[1], -1))
    for c in range(channels):
        for y in range(height):
            for i in range(k):
                row = y_at + y * stride + i
                for j in range(k):
                    if stride == 1:
                        g, seen = g_rows[c, row, (x_at + j) * batch :], c_rows[c, i, j, y]
                        for q in range(width * batch):
                            g[q] += seen[q]
                    else:
                        for x in range(width):
                            g, seen = G[c, row, x_at + x * stride + j], C[c, i, j, y, x]
                            for s in range(batch):
                                g[s] += seen[s]


def _forth(
    name: int, Z: np.ndarray, b: np.ndarray, size: int, A: np.ndarray, before: int, places: np.ndarray, y: int, x: int,
    C: np.ndarray, stride: int, A_below: np.ndarray, y_below: int, x_below: int,
) -> None:  # fmt: skip
    _finish(name, Z, b, size, A, before, places, y, x)
    _see(C, stride, A_below, y_below, x_below)


def _back(
    total: np.ndarray, part: np.ndarray, further: bool, C: np.ndarray, stride: int, G_below: np.ndarray, y_at: int,
    x_at: int, name: int, G: np.ndarray, A: np.ndarray, before: int, places: np.ndarray, size: int, Z: np.ndarray,
    y: int, x: int, C_next: np.ndarray, A_below: np.ndarray, y_below: int, x_below: int,
) -> None:  # fmt: skip
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            total[i, j] += part[i, j]
    if further:
        _add(C, stride, G_below, y_at, x_at)
    _deltas(name, G, A, before, places, size, Z, y, x)
    _see(C_next, stride, A_below, y_below, x_below)


FUNCTIONS = _exp, _sigmoid, _activate, _to_delta, _activate_rows, _finish, _deltas, _see, _add, _forth, _back


@functools.cache
def compiled() -> dict[str, Callable[..., Any]]:
    """The compiled functions by name."""
    return jit.all_compiled_together(*FUNCTIONS)


@functools.cache
def by_loops() -> Functions:
    """The functions, compiled at their first call. Softmax, which is for few outputs, is NumPy's."""
    names = "_activate_rows", "_to_delta", "_finish", "_deltas", "_see", "_add", "_forth", "_back"
    activate_rows, delta, finish, deltas, see, add, forth, back = (compiled()[name] for name in names)

    def activate(name: str, Z: np.ndarray, b: np.ndarray) -> None:
        if name == "softmax":
            gradient_cpu.activate(name, Z, b)
        else:
            activate_rows(KNOWN.index(name), Z, b)

    def to_delta(name: str, D: np.ndarray, A: np.ndarray) -> None:
        if name == "softmax":
            gradient_cpu.to_delta(name, D, A)
        elif name != "identity":
            delta(KNOWN.index(name), D, A)

    return Functions(
        activate,
        to_delta,
        lambda name, *rest: finish(KNOWN.index(name), *rest),
        lambda name, *rest: deltas(KNOWN.index(name), *rest),
        see,
        add,
        lambda name, finished, seen: forth(KNOWN.index(name), *finished, *seen),
        lambda total, part, further, added, name, sent, seen: back(
            total, part, further, *added, KNOWN.index(name), *sent, seen[0], *seen[2:]
        ),
        prepared_product if not why_not() else gradient_cpu.product,
        block=1 << 16,  # 256 KB
    )
