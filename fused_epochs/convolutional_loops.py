"""The gradient of a convolutional network with few filters, in loops that Numba compiles; dense layers are NumPy's.

Convolutions and pool are computed sample by sample, while its images are in the cache. In the layout of
convolutional_layout.py one term of all sums of an image is one long loop, which the compiler vectorises (SIMD). Four
filters share the numbers that such a loop reads. Its results between the rows are set to 0.

After a max-pool only the maximum of each window has a delta, so the gradients of the last convolution are short sums.

The inner functions take whole arrays and an unsigned offset: Numba would count references to a slice at each call, and
compare a signed offset with 0 for each element.
"""

import functools
from math import prod

import numpy as np

from fused_epochs import convolutional_layout as its
from fused_epochs.architecture import ConvolutionalArchitecture, chain_of_dense
from fused_epochs.convolutional_layout import fours, layout
from fused_epochs.gradient_compiled import _activate, _exp, _sigmoid, _to_delta, by_loops
from fused_epochs.gradient_cpu import Gradient, stages_of, there_and_back
from nncourse.kernels import jit

f32 = np.float32
u = np.uint64
SIMD = 32  # numbers that a vectorised loop computes at once


def gradient_function(
    parameters: np.ndarray, gradients: np.ndarray, architecture: ConvolutionalArchitecture, batch: int, step: float
) -> Gradient:
    """A function of X and Y that writes the sums of all samples' gradients, times `step`, for batches of this size."""
    pairs, derivatives = architecture.views(parameters), architecture.views(gradients)
    count, made = len(architecture.convolutions), layout(architecture)
    arrange, forward, backward = (compiled()[name] for name in ("_arrange", "_forward", "_backward"))
    stages, maps = stages_of(pairs[count:], derivatives[count:], chain_of_dense(architecture.dense), batch, by_loops())
    dense, inputs = there_and_back(stages, maps[-1], architecture.cost, step, further=count > 0), maps[0]
    last, side = made.table[-1], max(1, architecture.pool)
    P = np.zeros(batch * last[its.AT] + fours(last[its.CHANNELS]) * last[its.PLANE] + SIMD, np.float32)
    windows = last[its.CHANNELS] * (last[its.HEIGHT] // side) * (made.pitch + SIMD) + side
    M, K, best, place = (np.zeros(windows, np.float32) for _ in range(4))
    weights = np.zeros(made.weights, np.float32)
    A, G = (np.empty((batch, prod(architecture.pooled)), np.float32) for _ in range(2))
    inputs.A = A.T
    seen, E = np.zeros(A.size, np.uint64), np.zeros(made.numbers, np.float32)
    of_filters = sum(W.size + len(W) for W, _ in pairs[:count])

    def gradient(X: np.ndarray, Y: np.ndarray) -> None:
        arrange(parameters, made.places, made.sources, weights)
        pixels = np.ascontiguousarray(X).reshape(-1)
        forward(made.table, made.offsets, made.pitch, side, weights, pixels, P, M, K, best, place, A, seen)
        dense(Y)
        if count:
            G[...] = inputs.G.T
            gradients[:of_filters] = 0
            backward(made.table, made.offsets, made.pitch, side, weights, P, A, G, seen, E, gradients)

    return gradient


def _arrange(parameters: np.ndarray, places: np.ndarray, sources: np.ndarray, weights: np.ndarray) -> None:
    for n in range(places.size):
        weights[places[n]] = parameters[sources[n]]


# ---- the inner loops


def _four_filters(
    z: np.ndarray, z_at: u, plane: u, n: u, P: np.ndarray, p_at: u, weights: np.ndarray, w_at: u, taps: u,
    offsets: np.ndarray, o_at: u,
) -> None:  # fmt: skip
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


def _with_steps(
    P: np.ndarray, z_at: int, plane: int, count: int, height: int, width: int, pitch: int, p_at: int, stride: int,
    weights: np.ndarray, w_at: int, taps: int, offsets: np.ndarray, o_at: int,
) -> None:  # fmt: skip
    """The same sums for filters that move by more than a pixel, one after the other."""
    for o in range(count):
        w = w_at + o * (taps + 1)
        for y in range(height):
            for x in range(width):
                total = weights[w]
                for t in range(taps):
                    total += weights[w + 1 + t] * P[p_at + stride * (y * pitch + x) + np.int64(offsets[o_at + t])]
                P[z_at + o * plane + y * pitch + x] = total


def _copy(X: np.ndarray, x_at: u, count: u, z: np.ndarray, z_at: u) -> None:
    for n in range(count):
        z[z_at + n] = X[x_at + n]


def _copy_map(
    X: np.ndarray, x_at: int, channels: int, height: int, width: int, pitch: int, z: np.ndarray, z_at: int, plane: int
) -> None:
    """Put the numbers of one sample, which follow one another, into a map."""
    for c in range(channels):
        for y in range(height):
            _copy(X, u(x_at + (c * height + y) * width), u(width), z, u(z_at + c * plane + y * pitch))


def _clear_around(
    z: np.ndarray, at: int, plane: int, count: int, first: int, height: int, width: int, pitch: int
) -> None:
    """Set all numbers of some planes to 0, except the images."""
    for c in range(count):
        here = at + c * plane
        z[here : here + first] = f32(0)
        for y in range(height - 1):
            for x in range(here + first + y * pitch + width, here + first + (y + 1) * pitch):
                z[x] = f32(0)
        z[here + first + (height - 1) * pitch + width : here + plane] = f32(0)


def _pool_rows(z: np.ndarray, z_at: u, side: u, pitch: u, wide: u, M: np.ndarray, K: np.ndarray, at: u) -> None:
    """M: the largest of `side` pixels in a column. K: its offset from the first of them.

    Four rows at a time; if there are fewer, the last one is repeated, which changes nothing.
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


def _pool_columns(M: np.ndarray, K: np.ndarray, best: np.ndarray, place: np.ndarray, side: u, total: u) -> None:
    """The same for `side` adjacent columns, for all x. The first of equal pixels wins."""
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


def _spread(
    G: np.ndarray, seen: np.ndarray, v_at: u, windows: u, P: np.ndarray, row: u, E: np.ndarray, offsets: np.ndarray,
    o_at: u, taps: u, weights: np.ndarray, w_at: u, dW: np.ndarray, dw_at: u, size: u, further: bool,
) -> f32:  # fmt: skip
    """Add one filter's deltas G to its gradient dW and, if `further`, to dC/dA of the maps below, E; return Σ G.

    `row` is where the maps of the sample begin in P.
    """
    for t in range(u(0), taps, u(4)):
        o0, o1, o2, o3 = offsets[o_at + t], offsets[o_at + t + u(1)], offsets[o_at + t + u(2)], offsets[o_at + t + u(3)]
        p0, p1, p2, p3 = row + o0, row + o1, row + o2, row + o3
        s0 = s1 = s2 = s3 = f32(0)
        if further:
            w0, w1 = weights[w_at + t], weights[w_at + t + u(1)]
            w2, w3 = weights[w_at + t + u(2)], weights[w_at + t + u(3)]
            for v in range(v_at, v_at + windows):
                d, here = G[v], seen[v]
                s0 += d * P[here + p0]
                s1 += d * P[here + p1]
                s2 += d * P[here + p2]
                s3 += d * P[here + p3]
                E[here + o0] += d * w0
                E[here + o1] += d * w1
                E[here + o2] += d * w2
                E[here + o3] += d * w3
        else:
            for v in range(v_at, v_at + windows):
                d, here = G[v], seen[v]
                s0 += d * P[here + p0]
                s1 += d * P[here + p1]
                s2 += d * P[here + p2]
                s3 += d * P[here + p3]
        _add_four(dW, dw_at, t, size, s0, s1, s2, s3)
    bias = f32(0)
    for v in range(v_at, v_at + windows):
        bias += G[v]
    return bias


def _spread_all(
    D: np.ndarray, d_at: int, height: int, width: int, pitch: int, stride: int, P: np.ndarray, row: int, p_at: int,
    offsets: np.ndarray, o_at: int, weights: np.ndarray, w_at: int, dW: np.ndarray, dw_at: int, size: int,
) -> f32:  # fmt: skip
    """The same for all pixels of a map whose filters move by more than a pixel. D also holds the maps below."""
    bias = f32(0)
    for y in range(height):
        for x in range(width):
            d, here = D[d_at + y * pitch + x], p_at + stride * (y * pitch + x)
            bias += d
            for t in range(size):
                place = here + np.int64(offsets[o_at + t])
                dW[dw_at + t] += d * P[row + place]
                D[place] += d * weights[w_at + t]
    return bias


def _add_four(dW: np.ndarray, dw_at: u, t: int, size: u, s0: f32, s1: f32, s2: f32, s3: f32) -> None:
    """dW[t] += s0, dW[t + 1] += s1 …, up to the last weight."""
    dW[dw_at + t] += s0
    if t + u(1) < size:
        dW[dw_at + t + u(1)] += s1
    if t + u(2) < size:
        dW[dw_at + t + u(2)] += s2
    if t + u(3) < size:
        dW[dw_at + t + u(3)] += s3


def _products(
    D: np.ndarray, d_at: u, n: u, P: np.ndarray, p_at: u, offsets: np.ndarray, o_at: u, taps: u, dW: np.ndarray,
    dw_at: u, size: u,
) -> f32:  # fmt: skip
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


def _map(table: np.ndarray, number: int) -> tuple[int, int, int, int, int, int]:
    """Channels, height, width, the numbers between planes, and where the map and its image begin."""
    return (
        table[number, its.CHANNELS], table[number, its.HEIGHT], table[number, its.WIDTH],
        table[number, its.PLANE], table[number, its.AT], table[number, its.FIRST],
    )  # fmt: skip


def _filters(table: np.ndarray, number: int) -> tuple[int, int, int, int]:
    """The filters that see a map: where they begin, the numbers of each, where the offsets begin, the stride."""
    return (
        table[number, its.WEIGHT_AT], table[number, its.TAPS], table[number, its.OFFSET_AT], table[number, its.STRIDE]
    )  # fmt: skip


def _forward(
    table: np.ndarray, offsets: np.ndarray, pitch: int, side: int, weights: np.ndarray, X: np.ndarray, P: np.ndarray,
    M: np.ndarray, K: np.ndarray, best: np.ndarray, place: np.ndarray, A: np.ndarray, seen: np.ndarray,
) -> None:  # fmt: skip
    """The inputs A of the dense layers, and `seen`: for each, the index in its row of its filter's first pixel.

    P has a row of maps for each sample, then the last map, of one sample at a time.
    """
    count, samples, A_flat = len(table) - 1, len(A), A.reshape(-1)
    row = table[count, its.AT]
    for s in range(samples):
        for number in range(count + 1):
            channels, height, width, plane, at, first = _map(table, number)
            z_at = (samples if number == count else s) * row + (0 if number == count else at)
            n = (height - 1) * pitch + width
            if number == 0:
                _copy_map(X, s * channels * height * width, channels, height, width, pitch, P, z_at + first, plane)
                continue
            w_at, taps, o_at, stride = _filters(table, number - 1)
            p_at = s * row + table[number - 1, its.AT] + table[number - 1, its.IN]
            if stride == 1:
                for o in range(0, channels, 4):
                    _four_filters(
                        P, u(z_at + first + o * plane), u(plane), u(n), P, u(p_at),
                        weights, u(w_at + o * (taps + 1)), u(taps), offsets, u(o_at),
                    )  # fmt: skip
            else:
                _with_steps(
                    P, z_at + first, plane, channels, height, width, pitch, p_at, stride,
                    weights, w_at, taps, offsets, o_at,
                )  # fmt: skip
            if number < count:
                end = z_at + (channels - 1) * plane + first + n
                _activate(table[number - 1, its.ACTIVATION], P[z_at + first : end].reshape(1, -1))
                _clear_around(P, z_at, plane, channels, first, height, width, pitch)
        _pool(table, pitch, side, P, samples * row, M, K, best, place, A_flat, seen, s)
    if count > 0:
        _activate(table[count - 1, its.ACTIVATION], A)


def _pool(
    table: np.ndarray, pitch: int, side: int, P: np.ndarray, z_at: int, M: np.ndarray, K: np.ndarray, best: np.ndarray,
    place: np.ndarray, A: np.ndarray, seen: np.ndarray, s: int,
) -> None:  # fmt: skip
    """The largest pixel of each window of one sample, before the activation, which is monotonic.

    Without branches, because no processor can predict which pixel is the largest.
    """
    count = len(table) - 1
    channels, height, width, plane, _, first = _map(table, count)
    down, across = height // side, width // side
    wide = -(-across * side // SIMD) * SIMD
    for c in range(channels):
        for y in range(down):
            rows = z_at + first + c * plane + y * side * pitch
            _pool_rows(P, u(rows), u(side), u(pitch), u(wide), M, K, u((c * down + y) * wide))
    _pool_columns(M, K, best, place, u(side), u(channels * down * wide))
    stride, seen_first = 1, 0
    if count > 0:
        stride, seen_first = table[count - 1, its.STRIDE], table[count - 1, its.AT] + table[count - 1, its.IN]
    for c in range(channels):
        for y in range(down):
            line = c * down + y
            from_here = seen_first + stride * y * side * pitch
            v = (s * channels * down + line) * across
            _pick(u(across), u(side), best, place, u(line * wide), A, seen, u(v), u(from_here), u(stride))


def _pick(
    across: u, side: u, best: np.ndarray, place: np.ndarray, at: u, A: np.ndarray, seen: np.ndarray, v: u,
    seen_first: u, stride: u,
) -> None:  # fmt: skip
    """The largest pixel of each window of a row, and the index of its filter's first pixel."""
    for x in range(across):
        window = at + x * side
        A[v + x] = best[window]
        seen[v + x] = seen_first + stride * (x * side + u(place[window]))


# ---- backward


def _backward(
    table: np.ndarray, offsets: np.ndarray, pitch: int, side: int, weights: np.ndarray, P: np.ndarray, A: np.ndarray,
    G: np.ndarray, seen: np.ndarray, E: np.ndarray, gradients: np.ndarray,
) -> None:  # fmt: skip
    """Add the contributions of all samples to the gradients of the filters. G = dC/dA of the dense layers' inputs.

    E holds dC/dA, then dC/dZ, of the maps of one sample.
    """
    count, samples, G_flat = len(table) - 1, len(G), G.reshape(-1)
    _to_delta(table[count - 1, its.ACTIVATION], G, A)
    for s in range(samples):
        row = s * table[count, its.AT]
        for number in range(count - 1, -1, -1):
            filters, height, width, plane_above, above, first_above = _map(table, number + 1)
            channels, height_below, width_below, plane, at, first = _map(table, number)
            last, n, d_at = number == count - 1, (height - 1) * pitch + width, above + first_above
            if not last:
                end = d_at + (filters - 1) * plane_above + n
                A_above = P[row + d_at : row + end].reshape(1, -1)
                _to_delta(table[number, its.ACTIVATION], E[d_at:end].reshape(1, -1), A_above)
                _clear_around(E, above, plane_above, filters, first_above, height, width, pitch)
            elif side == 1:
                _copy_map(G_flat, s * filters * height * width, filters, height, width, pitch, E, d_at, plane_above)
            w_at, taps, o_at, stride = _filters(table, number)
            seen_first, size = at + table[number, its.IN], channels * table[number, its.K] * table[number, its.K]
            few = last and side > 1
            if few or stride > 1:
                E[at : at + channels * plane] = f32(0)
            windows = G.shape[1] // filters
            for o in range(filters):
                from_w, dw_at = w_at + o * (taps + 1) + 1, table[number, its.W_AT] + o * size
                if few:
                    v = (s * filters + o) * windows
                    bias = _spread(
                        G_flat, seen, u(v), u(windows), P, u(row), E, offsets, u(o_at), u(taps),
                        weights, u(from_w), gradients, u(dw_at), u(size), number > 0,
                    )  # fmt: skip
                elif stride == 1:
                    bias = _products(
                        E, u(d_at + o * plane_above), u(n), P, u(row + seen_first), offsets, u(o_at), u(taps),
                        gradients, u(dw_at), u(size),
                    )  # fmt: skip
                else:
                    bias = _spread_all(
                        E, d_at + o * plane_above, height, width, pitch, stride, P, row, seen_first, offsets, o_at,
                        weights, from_w, gradients, dw_at, size,
                    )  # fmt: skip
                gradients[table[number, its.W_AT] + filters * size + o] += bias
            if number > 0 and not few and stride == 1:
                n = (height_below - 1) * pitch + width_below
                w_at, taps, o_at = (
                    table[number, its.BACK_AT], table[number, its.BACK_TAPS], table[number, its.BACK_OFFSET_AT]
                )  # fmt: skip
                for c in range(0, channels, 4):
                    _four_filters(
                        E, u(at + first + c * plane), u(plane), u(n), E, u(0),
                        weights, u(w_at + c * (taps + 1)), u(taps), offsets, u(o_at),
                    )  # fmt: skip


FUNCTIONS = (
    _exp, _sigmoid, _activate, _to_delta, _copy, _copy_map, _four_filters, _with_steps, _clear_around, _pool_rows,
    _pool_columns, _add_four, _spread, _spread_all, _products, _map, _filters, _pick, _pool, _arrange,
    _forward, _backward,
)  # fmt: skip
compiled = functools.cache(lambda: jit.all_compiled_together(*FUNCTIONS))
