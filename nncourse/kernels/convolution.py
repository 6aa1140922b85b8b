"""A convolutional layer: each neuron sees a small window of the image below it, and all windows share their weights.

Images are A[s, c, row, column]: sample, channel, row, column. W[o, c] is filter o's part for channel c, k × k weights.
Before the first row and column lie `before` rows and columns of zeros, behind the last ones `after`. The filter is not
turned around: this is a cross-correlation, which all libraries for neural networks call a convolution.
"""

import numpy as np

from nncourse.kernels.operation import Operation, cuda_beside

MOST_COLUMNS = 1 << 20  # elements of the copied windows that `numpy` and `cupy` hold at a time: 4 MB


def _truth(A, W, b, stride, before, after):
    """All windows of the padded image as one view, multiplied by all filters."""
    k = W.shape[-1]
    padded = np.pad(A, ((0, 0), (0, 0), (before, after), (before, after)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("scyxij,ocij->soyx", windows, W) + b[:, None, None]


def _flops(batch, c_in, h_in, w_in, c_out, k, stride, before, after, h_out, w_out):
    return 2 * batch * c_out * h_out * w_out * c_in * k * k


def _sizes(*sizes):
    """The sizes that are not derived, by name."""
    names = ("batch", "c_in", "h_in", "w_in", "c_out", "k", "stride", "before", "after")
    return dict(zip(names, sizes, strict=True))


def _draw(rng):
    """Sizes of a small convolution; strides of 1, 2 and 3, even and odd filters, other padding in front than behind."""
    batch, c_in, c_out = (int(size) for size in rng.integers(1, 6, 3))
    h_in, w_in = (int(size) for size in rng.integers(1, 21, 2))
    k, stride = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    before, after = (int(size) for size in rng.integers(0, k + 1, 2))
    return _sizes(batch, c_in, h_in, w_in, c_out, k, stride, before, after)


convolution_forward = Operation(
    "convolution_forward",
    "Z[s,o,y,x] = b[o] + Σ_c,i,j W[o,c,i,j] A[s,c, y·stride+i−before, x·stride+j−before], 0 outside",
    contract="A (batch, c_in, h_in, w_in), W (c_out, c_in, k, k), b (c_out,), "
    "stride () int, before () int, after () int -> Z (batch, c_out, h_out, w_out)"
    " where h_out = (h_in + before + after - k) // stride + 1, w_out = (w_in + before + after - k) // stride + 1",
    truth=_truth,
    flops=_flops,
    # Those of the hostile values come first. They have no padding: an infinite weight times a zero of the padding is
    # NaN, and a kernel that leaves out the padding is right too.
    sizes_to_check=[
        _sizes(2, 3, 7, 9, 4, 3, 2, 0, 0),
        _sizes(1, 1, 1, 1, 1, 1, 1, 0, 0),
        _sizes(2, 1, 1, 1, 3, 3, 1, 1, 1),  # one pixel
        _sizes(3, 2, 4, 5, 2, 2, 1, 0, 1),  # "same", an even filter
        _sizes(1, 4, 6, 5, 3, 3, 1, 1, 1),  # "same", an odd one
        _sizes(2, 2, 5, 5, 3, 5, 1, 0, 0),  # a filter as large as the image
        _sizes(1, 1, 3, 2, 2, 5, 2, 2, 3),  # a larger one
        _sizes(1, 2, 2, 3, 1, 2, 1, 3, 2),  # windows that lie in the padding altogether
        _sizes(2, 3, 8, 3, 5, 3, 3, 2, 0),
        _sizes(1, 2, 9, 20, 1, 4, 2, 0, 3),
        _sizes(1, 1, 40, 37, 17, 2, 1, 0, 1),  # more than a tile in each direction
        _sizes(17, 5, 3, 4, 33, 1, 2, 1, 0),
        _sizes(2, 19, 12, 16, 8, 3, 1, 1, 1),
    ],
    draw_sizes=_draw,
    large_sizes=[
        _sizes(65_900, 1, 1, 2, 1, 2, 1, 0, 1),
        _sizes(1, 1, 1, 66_000, 1, 2, 1, 1, 0),
        _sizes(1, 1, 66_100, 1, 1, 1, 1, 0, 0),
        _sizes(1, 66_200, 1, 1, 2, 1, 1, 0, 0),
        _sizes(1, 1, 1, 1, 66_300, 1, 1, 0, 0),
    ],
)


@convolution_forward.loops_kernel
def loops(A, W, b, stride, before, after):
    """The equation written out; places outside the image add nothing."""
    batch, c_in, h_in, w_in = A.shape
    c_out, k = W.shape[0], W.shape[3]
    h_out = (h_in + before + after - k) // stride + 1
    w_out = (w_in + before + after - k) // stride + 1
    Z = np.empty((batch, c_out, h_out, w_out), A.dtype)
    for s in range(batch):
        for o in range(c_out):
            for y in range(h_out):
                for x in range(w_out):
                    z = b[o]
                    for c in range(c_in):
                        for i in range(k):
                            for j in range(k):
                                row, column = y * stride + i - before, x * stride + j - before
                                if 0 <= row < h_in and 0 <= column < w_in:
                                    z += W[o, c, i, j] * A[s, c, row, column]
                    Z[s, o, y, x] = z
    return Z


@convolution_forward.array_kernel
def array(A, W, b, stride, before, after):
    """The windows are copied into columns, k² slices of the image; the filters times the columns are one product.

    The columns have k² times as many elements as the image, so they are made for some samples at a time.
    """
    batch, c_in, h_in, w_in = A.shape
    c_out, k = W.shape[0], W.shape[3]
    h, w = h_in + before + after, w_in + before + after
    h_out, w_out = (h - k) // stride + 1, (w - k) // stride + 1
    Z = np.empty_like(A, shape=(batch, c_out, h_out, w_out))
    some = max(1, min(batch, MOST_COLUMNS // (c_in * k * k * h_out * w_out)))
    padded = np.zeros_like(A, shape=(some, c_in, h, w))
    columns = np.empty_like(A, shape=(some, c_in, k, k, h_out, w_out))
    for s in range(0, batch, some):
        n = min(some, batch - s)
        padded[:n, :, before : before + h_in, before : before + w_in] = A[s : s + n]
        for i in range(k):
            for j in range(k):
                shifted = padded[:n, :, i : i + (h_out - 1) * stride + 1 : stride, j:]
                columns[:n, :, i, j] = shifted[..., : (w_out - 1) * stride + 1 : stride]
        product = np.matmul(W.reshape(c_out, -1), columns[:n].reshape(n, c_in * k * k, h_out * w_out))
        Z[s : s + n] = product.reshape(n, c_out, h_out, w_out)
    Z += b[:, None, None]
    return Z


SOURCE = cuda_beside(__file__)
convolution_forward.cuda_kernel("naive", SOURCE)
