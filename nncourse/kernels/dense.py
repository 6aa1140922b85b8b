"""A dense layer: every neuron sees every input. The handout's equation (1) for a whole layer and a whole batch.

Rows are samples. W[j, k] joins input k to neuron j, so Z[i, j] = A[i] · W[j] + b[j] is neuron j's sum for sample i.
"""

import numpy as np

from nncourse.kernels.operation import Operation, cuda_beside

dense_forward = Operation(
    "dense_forward",
    "Z = A Wᵀ + b",
    equation="(1)",
    arguments="A (batch, n_in), W (n_out, n_in), b (n_out,)",
    result="Z (batch, n_out)",
    truth=lambda A, W, b: np.einsum("ik,jk->ij", A, W) + b,
    flops=lambda batch, n_in, n_out: 2 * batch * n_in * n_out,
)


@dense_forward.loops_kernel
def loops(A, W, b):
    """As on paper: a sum for each sample and neuron."""
    batch, n_in = A.shape
    n_out = W.shape[0]
    Z = np.empty((batch, n_out), A.dtype)
    for i in range(batch):
        for j in range(n_out):
            z = b[j]
            for k in range(n_in):
                z += A[i, k] * W[j, k]
            Z[i, j] = z
    return Z


@dense_forward.array_kernel
def array(A, W, b):
    """The sums as one matrix product, which the library hands to BLAS; b is added to every row."""
    return A @ W.T + b


SOURCE = cuda_beside(__file__)
dense_forward.cuda_kernel("naive", source=SOURCE, function="dense_forward_naive", block=(32, 8))  # x, y
dense_forward.cuda_kernel("tiled", source=SOURCE, function="dense_forward_tiled", block=(16, 16))  # TILE × TILE
