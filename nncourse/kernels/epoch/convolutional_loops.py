"""convolutional_sgd_epoch and convolutional_adam_epoch with loops that Numba compiles; the dense layers are NumPy's.

Convolutions and pool are computed sample by sample, while its images are in the cache. convolutional_layout.py says how
these lie: so that a sum over the pixels that a filter sees is, for a whole image, one long loop, which the compiler turns
into SIMD instructions. Four filters share what such a loop reads. What it computes between the rows is set to 0.

Behind a max-pool only one pixel of each window has a delta: the gradients of the last convolution are sums over few.

The inner functions take arrays with the place to begin, as unsigned numbers: a slice would be counted by Numba at each
call, and a signed place compared with 0 for each element.
"""

import functools
from collections.abc import Callable
from math import prod

import numpy as np

from nncourse.architecture import ConvolutionalArchitecture
from nncourse.kernels import jit
from nncourse.kernels.epoch.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch
from nncourse.kernels.epoch.convolutional_cpu import Dense, epoch
from nncourse.kernels.epoch.convolutional_layout import (  # noqa: F401  (Numba finds them by their names)
    ACTIVATION, AT, BACK_AT, BACK_OFFSET_AT, BACK_TAPS, CHANNELS, FIRST, HEIGHT, IN, K, OFFSET_AT, PLANE, STRIDE, TAPS,
    W_AT, WEIGHT_AT, WIDTH, fours, layout,
)  # fmt: skip
from nncourse.kernels.epoch.dense_cpu import (  # noqa: F401
    ALPHA, IDENTITY, LEAKY_RELU, NAMES, RELU, SIGMOID, SOFTMAX, SOFTPLUS, STEP, TANH, _activate, _exp, _sigmoid, _to_delta,
)  # fmt: skip
from nncourse.kernels.update import BETA_1, BETA_2, EPSILON

f32, u = np.float32, np.uint64
SIMD = 32  # numbers that a vectorised loop takes at once


@convolutional_sgd_epoch.kernel("numba", device="cpu")
def sgd(parameters, architecture, X, Y, batch, rate):
    """Compiled once for all networks."""
    gradients, rate, move_by_sgd = np.empty_like(parameters), f32(rate), compiled()["_move_by_sgd"]

    def move():
        move_by_sgd(parameters, gradients, rate)

    epoch(parameters, gradients, architecture, X, Y, batch, move, gradient_function)
    return parameters


@convolutional_adam_epoch.kernel("numba", device="cpu")
def adam(parameters, M, V, architecture, X, Y, batch, rate, steps):
    """Compiled once for all networks; W ← W − η √c₂ / c₁ M / (√V + ε √c₂)."""
    gradients, move_by_adam = np.empty_like(parameters), compiled()["_move_by_adam"]

    def move():
        nonlocal steps
        steps += 1
        root = (1 - BETA_2**steps) ** 0.5
        move_by_adam(parameters, gradients, M, V, f32(rate * root / (1 - BETA_1**steps)), f32(EPSILON * root))

    epoch(parameters, gradients, architecture, X, Y, batch, move, gradient_function)
    return parameters, M, V


def gradient_function(parameters, gradients, architecture: ConvolutionalArchitecture, batch: int) -> Callable:
    """A function of X and Y that writes the mean gradients of a batch of this size."""
    pairs, derivatives = architecture.views(parameters), architecture.views(gradients)
    count, made = len(architecture.convolutions), layout(architecture)
    arrange, forward, backward = (compiled()[name] for name in ("_arrange", "_forward", "_backward"))
    dense = Dense(pairs[count:], derivatives[count:], architecture, batch, compiled_functions)
    last, side = made.table[-1], max(1, architecture.pool)
    P = np.zeros(batch * last[AT] + fours(last[CHANNELS]) * last[PLANE] + SIMD, np.float32)
    windows = last[CHANNELS] * (last[HEIGHT] // side) * (made.pitch + SIMD) + side
    M, K, best, place = (np.zeros(windows, np.float32) for _ in range(4))
    weights = np.zeros(made.weights, np.float32)
    A, seen = dense.A[0], np.zeros(batch * prod(architecture.pooled), np.uint64)
    E = np.zeros(made.numbers, np.float32)
    of_filters = sum(W.size + len(W) for W, _ in pairs[:count])

    def gradient(X, Y):
        arrange(parameters, made.places, made.sources, weights)
        pixels = np.ascontiguousarray(X).reshape(-1)
        forward(made.table, made.offsets, made.pitch, side, weights, pixels, P, M, K, best, place, A, seen)
        dense.forward(A)
        G = dense.backward(Y)
        if count:
            gradients[:of_filters] = 0
            backward(made.table, made.offsets, made.pitch, side, weights, P, A, G, seen, E, gradients)

    return gradient


def compiled_functions(name: str) -> tuple[Callable, Callable]:
    """activate(Z, S) and to_delta(D, A, S), in place."""
    code, activate, to_delta = NAMES.index(name), compiled()["_activate"], compiled()["_to_delta"]
    return lambda Z, S: activate(code, Z), lambda D, A, S: code == IDENTITY or to_delta(code, D, A)


def _arrange(parameters, places, sources, weights):
    for n in range(places.size):
        weights[places[n]] = parameters[sources[n]]


# ---- the inner loops


def _four_filters(z, z_at, plane, n, P, p_at, weights, w_at, taps, offsets, o_at):
    """Four planes of sums: z[q] = bias + Σ over t of weights[t] P[offsets[t] + q]."""
    z0, z1, z2, z3 = z_at, z_at + plane, z_at + u(2) * plane, z_at + u(3) * plane
    step = taps + u(1)
    w0, w1, w2, w3 = w_at, w_at + step, w_at + u(2) * step, w_at + u(3) * step
    bias_0, bias_1, bias_2, bias_3 = weights[w0], weights[w1], weights[w2], weights[w3]
    for t in range(u(0), taps, u(4)):
        p0, p1 = p_at + offsets[o_at + t], p_at + offsets[o_at + t + u(1)]
        p2, p3 = p_at + offsets[o_at + t + u(2)], p_at + offsets[o_at + t + u(3)]
        a0, a1, a2, a3 = weights[w0 + t + u(1)], weights[w0 + t + u(2)], weights[w0 + t + u(3)], weights[w0 + t + u(4)]
        b0, b1, b2, b3 = weights[w1 + t + u(1)], weights[w1 + t + u(2)], weights[w1 + t + u(3)], weights[w1 + t + u(4)]
        c0, c1, c2, c3 = weights[w2 + t + u(1)], weights[w2 + t + u(2)], weights[w2 + t + u(3)], weights[w2 + t + u(4)]
        d0, d1, d2, d3 = weights[w3 + t + u(1)], weights[w3 + t + u(2)], weights[w3 + t + u(3)], weights[w3 + t + u(4)]
        if t == u(0):
            for q in range(n):
                x0, x1, x2, x3 = P[p0 + q], P[p1 + q], P[p2 + q], P[p3 + q]
                z[z0 + q] = bias_0 + a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                z[z1 + q] = bias_1 + b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                z[z2 + q] = bias_2 + c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                z[z3 + q] = bias_3 + d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3
        else:
            for q in range(n):
                x0, x1, x2, x3 = P[p0 + q], P[p1 + q], P[p2 + q], P[p3 + q]
                z[z0 + q] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                z[z1 + q] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                z[z2 + q] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                z[z3 + q] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3


def _with_steps(P, z_at, plane, count, height, width, pitch, p_at, stride, weights, w_at, taps, offsets, o_at):
    """The same sums for filters that move by more than a pixel, one after the other."""
    for o in range(count):
        w = w_at + o * (taps + 1)
        for y in range(height):
            for x in range(width):
                total = weights[w]
                for t in range(taps):
                    total += weights[w + 1 + t] * P[p_at + stride * (y * pitch + x) + np.int64(offsets[o_at + t])]
                P[z_at + o * plane + y * pitch + x] = total


def _copy(X, x_at, count, z, z_at):
    for n in range(count):
        z[z_at + n] = X[x_at + n]


def _clear_around(z, at, plane, count, first, height, width, pitch):
    """Set to 0 all numbers of some planes but those of the images."""
    for c in range(count):
        here = at + c * plane
        z[here : here + first] = f32(0)
        for y in range(height - 1):
            for x in range(here + first + y * pitch + width, here + first + (y + 1) * pitch):
                z[x] = f32(0)
        z[here + first + (height - 1) * pitch + width : here + plane] = f32(0)


def _pool_rows(z, z_at, side, pitch, wide, M, K, at):
    """The largest of `side` pixels below each other, and how many numbers behind the first of them it lies.

    Four rows at a time; where there are fewer, the last one again, which is not larger than itself.
    """
    for i in range(u(0), side, u(4)):
        i1, i2, i3 = min(i + u(1), side - u(1)), min(i + u(2), side - u(1)), min(i + u(3), side - u(1))
        r0, r1, r2, r3 = z_at + i * pitch, z_at + i1 * pitch, z_at + i2 * pitch, z_at + i3 * pitch
        k0, k1, k2, k3 = f32(i * pitch), f32(i1 * pitch), f32(i2 * pitch), f32(i3 * pitch)
        if i == u(0):
            for x in range(wide):
                a, b, c, d = z[r0 + x], z[r1 + x], z[r2 + x], z[r3 + x]
                ab, cd = b if b > a else a, d if d > c else c
                k_ab, k_cd = k1 if b > a else k0, k3 if d > c else k2
                M[at + x] = cd if cd > ab else ab
                K[at + x] = k_cd if cd > ab else k_ab
        else:
            for x in range(wide):
                a, b, c, d = z[r0 + x], z[r1 + x], z[r2 + x], z[r3 + x]
                ab, cd = b if b > a else a, d if d > c else c
                k_ab, k_cd = k1 if b > a else k0, k3 if d > c else k2
                new, here = cd if cd > ab else ab, k_cd if cd > ab else k_ab
                old, there = M[at + x], K[at + x]
                M[at + x] = new if new > old else old
                K[at + x] = here if new > old else there


def _pool_columns(M, K, best, place, side, total):
    """The same for `side` of these beside each other, for all x. Of equal pixels the one before wins."""
    for j in range(u(0), side, u(4)):
        j1, j2, j3 = min(j + u(1), side - u(1)), min(j + u(2), side - u(1)), min(j + u(3), side - u(1))
        n0, n1, n2, n3 = f32(j), f32(j1), f32(j2), f32(j3)
        if j == u(0):
            for x in range(total):
                a, k_a, b, k_b = M[x], K[x], M[x + j1], K[x + j1] + n1
                c, k_c, d, k_d = M[x + j2], K[x + j2] + n2, M[x + j3], K[x + j3] + n3
                later = (b > a) | ((b == a) & (k_b < k_a))
                ab, k_ab = b if later else a, k_b if later else k_a
                later = (d > c) | ((d == c) & (k_d < k_c))
                cd, k_cd = d if later else c, k_d if later else k_c
                later = (cd > ab) | ((cd == ab) & (k_cd < k_ab))
                best[x] = cd if later else ab
                place[x] = k_cd if later else k_ab
        else:
            for x in range(total):
                a, k_a, b, k_b = M[x + j], K[x + j] + n0, M[x + j1], K[x + j1] + n1
                c, k_c, d, k_d = M[x + j2], K[x + j2] + n2, M[x + j3], K[x + j3] + n3
                later = (b > a) | ((b == a) & (k_b < k_a))
                ab, k_ab = b if later else a, k_b if later else k_a
                later = (d > c) | ((d == c) & (k_d < k_c))
                cd, k_cd = d if later else c, k_d if later else k_c
                later = (cd > ab) | ((cd == ab) & (k_cd < k_ab))
                new, here = cd if later else ab, k_cd if later else k_ab
                old, there = best[x], place[x]
                later = (new > old) | ((new == old) & (here < there))
                best[x] = new if later else old
                place[x] = here if later else there


def _spread(G, seen, v_at, windows, P, E, row, offsets, o_at, taps, weights, w_at, dW, dw_at, size, further):
    """What one filter's deltas G contribute to its gradient dW and, if it goes further, to the images E below.

    `row` is where the sample's maps begin in P.
    """
    for t in range(u(0), taps, u(4)):
        o0, o1, o2, o3 = offsets[o_at + t], offsets[o_at + t + u(1)], offsets[o_at + t + u(2)], offsets[o_at + t + u(3)]
        s0 = s1 = s2 = s3 = f32(0)
        if further:
            w0, w1, w2, w3 = (
                weights[w_at + t],
                weights[w_at + t + u(1)],
                weights[w_at + t + u(2)],
                weights[w_at + t + u(3)],
            )
            e0, e1, e2, e3 = o0 - row, o1 - row, o2 - row, o3 - row
            for v in range(v_at, v_at + windows):
                d, here = G[v], seen[v]
                s0 += d * P[here + o0]
                s1 += d * P[here + o1]
                s2 += d * P[here + o2]
                s3 += d * P[here + o3]
                E[here + e0] += d * w0
                E[here + e1] += d * w1
                E[here + e2] += d * w2
                E[here + e3] += d * w3
        else:
            for v in range(v_at, v_at + windows):
                d, here = G[v], seen[v]
                s0 += d * P[here + o0]
                s1 += d * P[here + o1]
                s2 += d * P[here + o2]
                s3 += d * P[here + o3]
        _add_four(dW, dw_at, t, size, s0, s1, s2, s3)
    bias = f32(0)
    for v in range(v_at, v_at + windows):
        bias += G[v]
    return bias


def _spread_all(D, d_at, height, width, pitch, stride, P, p_at, row, offsets, o_at, weights, w_at, dW, dw_at, size):
    """The same for all pixels D of a map, whose filters moved by more than a pixel."""
    bias = f32(0)
    for y in range(height):
        for x in range(width):
            d, here = D[d_at + y * pitch + x], p_at + stride * (y * pitch + x)
            bias += d
            for t in range(size):
                place = here + np.int64(offsets[o_at + t])
                dW[dw_at + t] += d * P[place]
                D[place - row] += d * weights[w_at + t]
    return bias


def _add_four(dW, dw_at, t, size, s0, s1, s2, s3):
    """dW[t] += s0 and so on, as far as there are weights."""
    dW[dw_at + t] += s0
    if t + u(1) < size:
        dW[dw_at + t + u(1)] += s1
    if t + u(2) < size:
        dW[dw_at + t + u(2)] += s2
    if t + u(3) < size:
        dW[dw_at + t + u(3)] += s3


def _products(D, d_at, n, P, p_at, offsets, o_at, taps, dW, dw_at, size):
    """dW[t] += Σ over q of D[q] P[offsets[t] + q], and Σ of D[q]."""
    bias = f32(0)
    for t in range(u(0), taps, u(4)):
        p0, p1 = p_at + offsets[o_at + t], p_at + offsets[o_at + t + u(1)]
        p2, p3 = p_at + offsets[o_at + t + u(2)], p_at + offsets[o_at + t + u(3)]
        bias = s0 = s1 = s2 = s3 = f32(0)
        for q in range(n):
            d = D[d_at + q]
            bias += d
            s0 += d * P[p0 + q]
            s1 += d * P[p1 + q]
            s2 += d * P[p2 + q]
            s3 += d * P[p3 + q]
        _add_four(dW, dw_at, t, size, s0, s1, s2, s3)
    return bias


# ---- forward


def _forward(table, offsets, pitch, side, weights, X, P, M, K, best, place, A, seen):
    """The inputs A of the dense layers, and `seen`: which number of P the filter of each of them saw first."""
    count = len(table) - 1
    row = table[count, AT]  # of P: the maps of a sample; behind those of all samples lies the last map of one sample
    A_flat = A.reshape(-1)
    for s in range(len(A)):
        for number in range(count + 1):
            channels, height, width = table[number, CHANNELS], table[number, HEIGHT], table[number, WIDTH]
            plane, first = table[number, PLANE], table[number, FIRST]
            start = len(A) * row if number == count else s * row + table[number, AT]
            n = (height - 1) * pitch + width
            if number == 0:
                for c in range(channels):
                    for y in range(height):
                        pixels = ((s * channels + c) * height + y) * width
                        _copy(X, u(pixels), u(width), P, u(start + c * plane + first + y * pitch))
                continue
            p_at, w_at = s * row + table[number - 1, AT] + table[number - 1, IN], table[number - 1, WEIGHT_AT]
            taps, o_at, stride = table[number - 1, TAPS], table[number - 1, OFFSET_AT], table[number - 1, STRIDE]
            if stride == 1:
                for o in range(0, channels, 4):
                    z_at = start + first + o * plane
                    _four_filters(P, u(z_at), u(plane), u(n), P, u(p_at), weights, u(w_at), u(taps), offsets, u(o_at))
                    w_at += 4 * (taps + 1)
            else:
                _with_steps(
                    P, start + first, plane, channels, height, width, pitch, p_at, stride,
                    weights, w_at, taps, offsets, o_at,
                )  # fmt: skip
            if number < count:
                end = start + (channels - 1) * plane + first + n
                _activate(table[number - 1, ACTIVATION], P[start + first : end].reshape(1, -1))
                _clear_around(P, start, plane, channels, first, height, width, pitch)
        _pool(table, pitch, side, P, s, len(A), M, K, best, place, A_flat, seen)
    if count > 0:
        _activate(table[count - 1, ACTIVATION], A)


def _pool(table, pitch, side, P, s, samples, M, K, best, place, A, seen):
    """The largest pixel of each window of one sample, before the activation, which does not change their order.

    Without branches, because no processor can foresee which pixel is the largest.
    """
    count = len(table) - 1
    row, channels, plane = table[count, AT], table[count, CHANNELS], table[count, PLANE]
    down, across = table[count, HEIGHT] // side, table[count, WIDTH] // side
    wide = -(-across * side // SIMD) * SIMD
    for c in range(channels):
        for y in range(down):
            z_at = samples * row + c * plane + table[count, FIRST] + y * side * pitch
            _pool_rows(P, u(z_at), u(side), u(pitch), u(wide), M, K, u((c * down + y) * wide))
    _pool_columns(M, K, best, place, u(side), u(channels * down * wide))
    stride, first_seen = 1, s * row
    if count > 0:
        stride, first_seen = table[count - 1, STRIDE], s * row + table[count - 1, AT] + table[count - 1, IN]
    v = s * channels * down * across
    for c in range(channels):
        for y in range(down):
            _pick(
                u(across), u(side), best, place, u((c * down + y) * wide), A, seen, u(v),
                u(first_seen + stride * y * side * pitch), u(stride),
            )  # fmt: skip
            v += across


def _pick(across, side, best, place, at, A, seen, v, first_seen, stride):
    """Of each window of a row the largest pixel, and which number its filter saw first."""
    for x in range(across):
        window = at + x * side
        A[v + x] = best[window]
        seen[v + x] = first_seen + stride * (x * side + u(place[window]))


# ---- backward


def _backward(table, offsets, pitch, side, weights, P, A, G, seen, E, gradients):
    """Add to the gradients of the filters what all samples contribute. G = dC/dA of the dense layers' inputs."""
    count = len(table) - 1
    row = table[count, AT]
    _to_delta(table[count - 1, ACTIVATION], G, A)
    G_flat = G.reshape(-1)
    for s in range(len(G)):
        for number in range(count - 1, -1, -1):
            at, first, plane, channels = (
                table[number, AT],
                table[number, FIRST],
                table[number, PLANE],
                table[number, CHANNELS],
            )
            above_at, above_plane, filters = (
                table[number + 1, AT],
                table[number + 1, PLANE],
                table[number + 1, CHANNELS],
            )
            above_first, height, width = table[number + 1, FIRST], table[number + 1, HEIGHT], table[number + 1, WIDTH]
            w_at, taps, o_at, stride = (
                table[number, W_AT],
                table[number, TAPS],
                table[number, OFFSET_AT],
                table[number, STRIDE],
            )
            size = channels * table[number, K] * table[number, K]
            n = (height - 1) * pitch + width
            p_at, d_at = s * row + at + table[number, IN], above_at + above_first
            last = number == count - 1
            if not last:  # E holds dC/dA, in the places of A
                end = d_at + (filters - 1) * above_plane + n
                A_above = P[s * row + d_at : s * row + end].reshape(1, -1)
                _to_delta(table[number, ACTIVATION], E[d_at:end].reshape(1, -1), A_above)
                _clear_around(E, above_at, above_plane, filters, above_first, height, width, pitch)
            elif side == 1:
                _copy_map(G_flat, s * filters * height * width, filters, height, width, pitch, E, d_at, above_plane)
            few = last and side > 1
            if few or stride > 1:
                E[at : at + channels * plane] = f32(0)
            each = len(G_flat) // len(G) // filters
            for o in range(filters):
                dw_at, from_w = w_at + o * size, table[number, WEIGHT_AT] + o * (taps + 1) + 1
                if few:
                    v = (s * filters + o) * each
                    bias = _spread(
                        G_flat, seen, u(v), u(each), P, E, u(s * row), offsets, u(o_at), u(taps),
                        weights, u(from_w), gradients, u(dw_at), u(size), number > 0,
                    )  # fmt: skip
                elif stride == 1:
                    bias = _products(
                        E, u(d_at + o * above_plane), u(n), P, u(p_at), offsets, u(o_at), u(taps),
                        gradients, u(dw_at), u(size),
                    )  # fmt: skip
                else:
                    bias = _spread_all(
                        E, d_at + o * above_plane, height, width, pitch, stride, P, p_at, s * row, offsets, o_at,
                        weights, from_w, gradients, dw_at, size,
                    )  # fmt: skip
                gradients[w_at + filters * size + o] += bias
            if number > 0 and not few and stride == 1:
                n = (table[number, HEIGHT] - 1) * pitch + table[number, WIDTH]
                taps, o_at = table[number, BACK_TAPS], table[number, BACK_OFFSET_AT]
                for c in range(0, channels, 4):
                    from_w = table[number, BACK_AT] + c * (taps + 1)
                    _four_filters(
                        E, u(at + first + c * plane), u(plane), u(n), E, u(0),
                        weights, u(from_w), u(taps), offsets, u(o_at),
                    )  # fmt: skip


def _copy_map(G, g_at, channels, height, width, pitch, E, e_at, plane):
    """Put the numbers of one sample into a map."""
    for c in range(channels):
        for y in range(height):
            _copy(G, u(g_at + (c * height + y) * width), u(width), E, u(e_at + c * plane + y * pitch))


# ---- update


def _move_by_sgd(W, G, rate):
    for i in range(W.size):
        W[i] -= rate * G[i]


def _move_by_adam(W, G, M, V, rate, epsilon):
    for i in range(W.size):
        m = f32(BETA_1) * M[i] + f32(1 - BETA_1) * G[i]
        v = f32(BETA_2) * V[i] + f32(1 - BETA_2) * G[i] * G[i]
        M[i], V[i] = m, v
        W[i] -= rate * m / (np.sqrt(v) + epsilon)


DENSE = _exp, _sigmoid, _activate, _to_delta
FUNCTIONS = (
    _exp, _sigmoid, _activate, _to_delta, _copy, _copy_map, _four_filters, _with_steps, _clear_around, _pool_rows,
    _pool_columns, _pick, _pool, _add_four, _spread, _spread_all, _products, _arrange, _move_by_sgd, _move_by_adam,
    _forward, _backward,
)  # fmt: skip
compiled = functools.cache(lambda: jit.all_compiled_together(*FUNCTIONS))
