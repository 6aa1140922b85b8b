"""Backpropagation through a convolution: three gradients from the deltas D = dC/dZ.

Images are (batch, channels, height, width). The mean over the batch is taken only in the gradients of the weights and
of the biases; the gradient with respect to the input is a sum, which the layer below multiplies by its slope.
"""

import numpy as np

from nncourse.kernels.convolution import convolution_forward as forward
from nncourse.kernels.operation import Operation, cuda_beside

# The sizes are those of the forward pass.
OUT = "where h_out = (h_in + before + after - k) // stride + 1, w_out = (w_in + before + after - k) // stride + 1"
SIZES = {
    "flops": forward.flops,
    "sizes_to_check": forward.sizes_to_check,
    "draw_sizes": forward.draw_sizes,
    "large_sizes": forward.large_sizes,
    "sizes_to_time": forward.sizes_to_time,
}


def _weight_gradient_truth(D, A, k, stride, before, after):
    """For each weight, all deltas times all pixels that they met through it."""
    h_out, w_out = D.shape[2:]
    padded = np.pad(A, ((0, 0), (0, 0), (before, after), (before, after)))
    dW = np.empty((D.shape[1], A.shape[1], k, k))
    for i, j in np.ndindex(k, k):
        met = padded[:, :, i:, j:][:, :, ::stride, ::stride][:, :, :h_out, :w_out]
        dW[:, :, i, j] = np.einsum("soyx,scyx->oc", D, met)
    return dW / len(D)


def _input_gradient_truth(D, W, h_in, w_in, stride, before, after):
    """The deltas with stride − 1 zeros between them and k − 1 around, correlated with the filters turned around."""
    k, (h_out, w_out) = W.shape[-1], D.shape[2:]
    apart = np.zeros((*D.shape[:2], h_in + before + after + k - 1, w_in + before + after + k - 1))
    apart[:, :, k - 1 :, k - 1 :][:, :, ::stride, ::stride][:, :, :h_out, :w_out] = D
    windows = np.lib.stride_tricks.sliding_window_view(apart, (k, k), axis=(2, 3))
    G = np.einsum("soyxij,ocij->scyx", windows, W[:, :, ::-1, ::-1])
    return G[:, :, before : before + h_in, before : before + w_in]


def _bias_sizes(batch, c_out, h_out, w_out):
    return {"batch": batch, "c_out": c_out, "h_out": h_out, "w_out": w_out}


convolution_weight_gradient = Operation(
    "convolution_weight_gradient",
    "dW[o,c,i,j] = mean over s of Σ_y,x D[s,o,y,x] A[s,c, y·stride+i−before, x·stride+j−before]",
    contract="D (batch, c_out, h_out, w_out), A (batch, c_in, h_in, w_in), k () int, stride () int, before () int, "
    f"after () int -> dW (c_out, c_in, k, k) {OUT}",
    truth=_weight_gradient_truth,
    tolerance=16.0,
    **SIZES,
)

convolution_bias_gradient = Operation(
    "convolution_bias_gradient",
    "db[o] = mean over s of Σ_y,x D[s,o,y,x]",
    contract="D (batch, c_out, h_out, w_out) -> db (c_out,)",
    truth=lambda D: np.einsum("soyx->o", D) / len(D),
    flops=lambda batch, c_out, h_out, w_out: batch * c_out * h_out * w_out,
    tolerance=16.0,
    # those of the hostile values come first: a few terms, since the roundings of equal ones add up
    sizes_to_check=[_bias_sizes(*sizes) for sizes in ((3, 4, 2, 5), (1, 1, 1, 1), (1, 3, 1, 7), (2, 1, 9, 1))]
    + [
        _bias_sizes(*sizes)
        for sizes in ((16, 16, 4, 4), (17, 33, 3, 2), (33, 5, 17, 2), (3, 257, 1, 2), (4, 4, 28, 28))
    ],
    draw_sizes=lambda rng: _bias_sizes(*(int(size) for size in rng.integers(1, 21, 4))),
    large_sizes=[
        _bias_sizes(*sizes) for sizes in ((65_900, 1, 1, 1), (1, 66_000, 1, 1), (1, 2, 66_100, 1), (1, 1, 1, 66_200))
    ],
    sizes_to_time=lambda device: _bias_sizes(*((128, 64, 37, 50) if device == "gpu" else (32, 4, 28, 28))),
)

convolution_input_gradient = Operation(
    "convolution_input_gradient",
    "G[s,c,row,column] = Σ D[s,o,y,x] W[o,c,i,j], row = y·stride+i−before, column = x·stride+j−before",
    contract="D (batch, c_out, h_out, w_out), W (c_out, c_in, k, k), h_in () int, w_in () int, stride () int, "
    f"before () int, after () int -> G (batch, c_in, h_in, w_in) {OUT}",
    truth=_input_gradient_truth,
    tolerance=16.0,
    hostile=("zeros", "large"),  # an infinite weight times a zero between the deltas is NaN, which not all kernels have
    **SIZES,
)


# ---- on paper


@convolution_weight_gradient.loops_kernel
def weight_gradient_loops(D, A, k, stride, before, after):
    """Each delta times the window that it came from, added up, averaged over the batch."""
    batch, c_out, h_out, w_out = D.shape
    _, c_in, h_in, w_in = A.shape
    dW = np.zeros((c_out, c_in, k, k), D.dtype)
    for s in range(batch):
        for o in range(c_out):
            for y in range(h_out):
                for x in range(w_out):
                    for c in range(c_in):
                        for i in range(k):
                            for j in range(k):
                                row, column = y * stride + i - before, x * stride + j - before
                                if 0 <= row < h_in and 0 <= column < w_in:
                                    dW[o, c, i, j] += D[s, o, y, x] * A[s, c, row, column]
    w = dW.reshape(-1)
    for n in range(w.size):
        w[n] /= batch
    return dW


@convolution_bias_gradient.loops_kernel
def bias_gradient_loops(D):
    batch, c_out, h_out, w_out = D.shape
    db = np.zeros(c_out, D.dtype)
    for s in range(batch):
        for o in range(c_out):
            for y in range(h_out):
                for x in range(w_out):
                    db[o] += D[s, o, y, x]
    for o in range(c_out):
        db[o] /= batch
    return db


@convolution_input_gradient.loops_kernel
def input_gradient_loops(D, W, h_in, w_in, stride, before, after):
    """Each delta goes back to the pixels of its window, times the weights that these had."""
    batch, c_out, h_out, w_out = D.shape
    _, c_in, k, _ = W.shape
    G = np.zeros((batch, c_in, h_in, w_in), D.dtype)
    for s in range(batch):
        for o in range(c_out):
            for y in range(h_out):
                for x in range(w_out):
                    for c in range(c_in):
                        for i in range(k):
                            for j in range(k):
                                row, column = y * stride + i - before, x * stride + j - before
                                if 0 <= row < h_in and 0 <= column < w_in:
                                    G[s, c, row, column] += D[s, o, y, x] * W[o, c, i, j]
    return G


# ---- arrays


def _strided(first: int, count: int, stride: int) -> slice:
    """`count` places from `first` on, `stride` apart."""
    return slice(first, first + stride * (count - 1) + 1, stride)


@convolution_weight_gradient.array_kernel
def weight_gradient_array(D, A, k, stride, before, after):
    """For each place (i, j) of the filter one matrix product: the deltas times the pixels that they met there."""
    batch, c_out, h_out, w_out = D.shape
    c_in, h_in, w_in = A.shape[1:]
    P = np.zeros_like(A, shape=(batch, c_in, h_in + before + after, w_in + before + after))
    P[:, :, before : before + h_in, before : before + w_in] = A
    rows = D.transpose(1, 0, 2, 3).reshape(c_out, -1)
    dW = np.empty_like(D, shape=(c_out, c_in, k, k))
    for i in range(k):
        for j in range(k):
            met = P[:, :, _strided(i, h_out, stride), _strided(j, w_out, stride)]
            dW[:, :, i, j] = rows @ met.transpose(0, 2, 3, 1).reshape(-1, c_in)
    dW /= batch
    return dW


@convolution_bias_gradient.array_kernel
def bias_gradient_array(D):
    return D.sum(axis=(0, 2, 3)) / len(D)


@convolution_input_gradient.array_kernel
def input_gradient_array(D, W, h_in, w_in, stride, before, after):
    """The products first, then each of the k · k of them to its place."""
    batch, c_out, h_out, w_out = D.shape
    c_in, k = W.shape[1:3]
    products = (W.reshape(c_out, -1).T @ D.reshape(batch, c_out, -1)).reshape(batch, c_in, k, k, h_out, w_out)
    G = np.zeros_like(D, shape=(batch, c_in, h_in + before + after, w_in + before + after))
    for i in range(k):
        for j in range(k):
            G[:, :, _strided(i, h_out, stride), _strided(j, w_out, stride)] += products[:, :, i, j]
    return G[:, :, before : before + h_in, before : before + w_in].copy()


# ---- CUDA C

SOURCE = cuda_beside(__file__)
convolution_weight_gradient.cuda_kernel("naive", SOURCE)
convolution_bias_gradient.cuda_kernel("naive", SOURCE)
convolution_input_gradient.cuda_kernel("naive", SOURCE)
