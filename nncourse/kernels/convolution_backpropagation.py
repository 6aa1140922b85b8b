"""Backpropagation through a convolution: three gradients from the deltas D = dC/dZ.

Images are (batch, channels, height, width). The mean over the batch is taken only in the gradients of the weights and
of the biases; the gradient with respect to the input is a sum, which the layer below multiplies by its slope.
"""

import numpy as np

from nncourse.kernels.operation import Operation, cuda_beside

OUT = (
    "where h_out = (h_in + before + after - k) // stride + 1, "
    "w_out = (w_in + before + after - k) // stride + 1"
)  # fmt: skip


def _case(batch, c_in, c_out, h_in, w_in, k, stride=1, before=0, after=0) -> dict[str, int]:
    sizes = (batch, c_in, c_out, h_in, w_in, k, stride, before, after)
    return dict(zip(("batch", "c_in", "c_out", "h_in", "w_in", "k", "stride", "before", "after"), sizes, strict=True))


CASES = (
    _case(2, 3, 2, 5, 4, 3, 1, 1, 1),  # those of hostile values: sums of 40 terms
    _case(1, 1, 1, 1, 1, 1),
    _case(1, 1, 1, 3, 3, 3),  # a filter as large as the image
    _case(2, 2, 3, 4, 6, 2, 1, 0, 1),  # even, same
    _case(3, 1, 2, 5, 4, 4, 1, 1, 2),
    _case(2, 2, 3, 9, 7, 3, 2, 1, 1),
    _case(2, 1, 3, 9, 8, 2, 3),  # pixels that no window holds
    _case(1, 2, 1, 6, 7, 3, 2, 2, 0),
    _case(1, 1, 2, 2, 3, 2, 1, 3, 4),  # windows outside the image
    _case(1, 2, 2, 1, 70, 1, 1),
    _case(2, 1, 1, 70, 1, 3, 1, 1, 1),
    _case(1, 17, 33, 2, 3, 1),
    _case(1, 33, 17, 2, 2, 2, 1, 0, 1),
    _case(17, 1, 2, 4, 4, 2, 2),
    _case(1, 1, 4, 28, 28, 2, 1, 0, 1),
)

BIAS_SIZES = ("batch", "c_out", "h_out", "w_out")
BIAS_CASES = tuple(
    dict(zip(BIAS_SIZES, sizes, strict=True))
    for sizes in (
        (2, 3, 5, 4),  # those of hostile values: sums of 40 terms
        (1, 1, 1, 1),
        (3, 1, 2, 5),
        (1, 3, 7, 1),
        (16, 16, 4, 4),
        (17, 33, 3, 2),
        (33, 2, 5, 3),
        (1, 257, 1, 2),
        (1025, 2, 1, 1),
        (2, 1, 1, 1025),
        (2, 1, 1025, 1),
        (4, 4, 28, 28),
    )
)


def _padded(A: np.ndarray, before: int, after: int) -> np.ndarray:
    return np.pad(A, ((0, 0), (0, 0), (before, after), (before, after)))


def _weight_gradient_truth(D, A, k, stride, before, after):
    """All windows of the padded images as a view of six axes."""
    views = np.lib.stride_tricks.sliding_window_view(_padded(A, before, after), (k, k), axis=(2, 3))
    return np.einsum("soyx,scyxij->ocij", D, views[:, :, ::stride, ::stride]) / len(D)


def _input_gradient_truth(D, W, h_in, w_in, stride, before, after):
    """The deltas with stride − 1 zeros between them, correlated with the flipped filters."""
    k, (h_out, w_out) = W.shape[-1], D.shape[2:]
    height, width = h_in + before + after, w_in + before + after
    apart = np.zeros((*D.shape[:2], height + k - 1, width + k - 1))
    apart[:, :, k - 1 : k + stride * (h_out - 1) : stride, k - 1 : k + stride * (w_out - 1) : stride] = D
    views = np.lib.stride_tricks.sliding_window_view(apart, (k, k), axis=(2, 3))
    G = np.einsum("soyxij,ocij->scyx", views, W[:, :, ::-1, ::-1])
    return G[:, :, before : before + h_in, before : before + w_in]


def _flops(batch, c_in, c_out, h_out, w_out, k, **_):
    return 2 * batch * c_out * c_in * k * k * h_out * w_out


def _sizes_to_time(device: str) -> dict[str, int]:
    """The second convolution of the digits CNN; on a GPU one of ResNet-34's."""
    return _case(128, 64, 64, 37, 50, 3, 1, 1, 1) if device == "gpu" else _case(32, 4, 4, 28, 28, 2, 1, 0, 1)


def _bias_sizes_to_time(device: str) -> dict[str, int]:
    return dict(zip(BIAS_SIZES, (128, 64, 37, 50) if device == "gpu" else (32, 4, 28, 28), strict=True))


convolution_weight_gradient = Operation(
    "convolution_weight_gradient",
    "dW[o,c,i,j] = mean over s of Σ_y,x D[s,o,y,x] A[s,c, y·stride+i−before, x·stride+j−before]",
    contract="D (batch, c_out, h_out, w_out), A (batch, c_in, h_in, w_in), k () int, stride () int, before () int, "
    f"after () int -> dW (c_out, c_in, k, k) {OUT}",
    truth=_weight_gradient_truth,
    tolerance=16.0,
    hostile=("zeros", "large"),
    flops=_flops,
    sizes_to_check=CASES,
    sizes_to_time=_sizes_to_time,
)

convolution_bias_gradient = Operation(
    "convolution_bias_gradient",
    "db[o] = mean over s of Σ_y,x D[s,o,y,x]",
    contract="D (batch, c_out, h_out, w_out) -> db (c_out,)",
    truth=lambda D: np.einsum("soyx->o", D) / len(D),
    tolerance=16.0,
    sizes_to_check=BIAS_CASES,
    flops=lambda batch, c_out, h_out, w_out: batch * c_out * h_out * w_out,
    sizes_to_time=_bias_sizes_to_time,
)

convolution_input_gradient = Operation(
    "convolution_input_gradient",
    "G[s,c,row,column] = Σ D[s,o,y,x] W[o,c,i,j], row = y·stride+i−before, column = x·stride+j−before",
    contract="D (batch, c_out, h_out, w_out), W (c_out, c_in, k, k), h_in () int, w_in () int, stride () int, "
    f"before () int, after () int -> G (batch, c_in, h_in, w_in) {OUT}",
    truth=_input_gradient_truth,
    tolerance=16.0,
    hostile=("zeros", "large"),
    flops=_flops,
    sizes_to_check=CASES,
    sizes_to_time=_sizes_to_time,
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
