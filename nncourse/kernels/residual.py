"""Shortcuts: the output of one or more layers is added to their input, so that a deep chain begins as the identity.

A block of a ResNet ends with a sum and ReLU: A_above = max(0, body(A) + shortcut(A)). In the backward pass the deltas
go through both the body and the shortcut, and the two results are added.
"""

import numpy as np

from nncourse.device import Array
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Trial

shortcut_sum = Operation(
    "shortcut_sum",
    "C = A + B",
    contract="A (*n), B (*n) -> C (*n)",
    reference=lambda A, B: np.einsum("ij->j", np.stack([A.ravel(), B.ravel()])).reshape(A.shape),
    flops=lambda n: n,
    trial=Trial(error_scale=lambda A, B: abs(A) + abs(B)),
)

relu_delta = Operation(
    "relu_delta",
    "D = G where A > 0, else 0: the deltas before a ReLU from what it gave, A = max(0, Z)",
    contract="G (*n), A (*n) -> D (*n)",
    reference=lambda G, A: np.where(A > 0, G, 0.0),
    flops=lambda n: n,
    trial=Trial(error_scale=lambda G, A: abs(G), edge_cases=("zeros", "large")),
)


@shortcut_sum.loops_kernel
def shortcut_sum_loops(A: Array, B: Array) -> Array:
    C = np.empty_like(A)
    a, b, c = A.reshape(-1), B.reshape(-1), C.reshape(-1)
    for i in range(c.size):
        c[i] = a[i] + b[i]
    return C


@shortcut_sum.array_kernel
def shortcut_sum_array(A: Array, B: Array) -> Array:
    return A + B


@relu_delta.loops_kernel
def relu_delta_loops(G: Array, A: Array) -> Array:
    D = np.empty_like(G)
    g, a, d = G.reshape(-1), A.reshape(-1), D.reshape(-1)
    for i in range(d.size):
        d[i] = g[i] if a[i] > 0 else 0.0
    return D


@relu_delta.array_kernel
def relu_delta_array(G: Array, A: Array) -> Array:
    return np.where(A > 0, G, np.float32(0))


SOURCE = cuda_beside(__file__)
for _operation in (shortcut_sum, relu_delta):
    _operation.cuda_kernel("naive", SOURCE)
    _operation.cuda_kernel("eights", SOURCE, tile=(8 * 256,), default=True)
