"""The four equations of backpropagation, each as one operation on a whole batch.

The deltas D are dC/dZ of each sample; S = σ'(Z) are the derivatives of the activations. Only (4c) and (4d), which
compute gradients from deltas, take the mean over the batch.
"""

import numpy as np

from nncourse.device import Array
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Mistakes, Trial

output_delta = Operation(
    "output_delta",
    "D = G ⊙ S",
    equation="(4a)",
    contract="G (*n), S (*n) -> D (*n)",
    reference=np.multiply,
    flops=lambda n: n,
)


def _mistakes_on_the_way_down(place: tuple[int, ...], D: Array, W: Array, S: Array) -> Mistakes:
    yield "this is D W: multiply it by S", D @ W
    if W.shape[0] == W.shape[1]:
        yield "this is (D Wᵀ) ⊙ S: do not transpose W, since neuron k gets D[i, j] W[j, k]", (D @ W.T) * S
    else:
        along = W.reshape(W.shape[::-1]).T
        words = "W is read as if its rows had n_out numbers: they have n_in, and neuron k's weights are in column k"
        yield words, (D @ along) * S


hidden_delta = Operation(
    "hidden_delta",
    "D_below = (D W) ⊙ S",
    equation="(4b)",
    contract="D (batch, n_out), W (n_out, n_in), S (batch, n_in) -> D_below (batch, n_in)",
    reference=lambda D, W, S: np.einsum("ij,jk->ik", D, W) * S,
    flops=lambda batch, n_out, n_in: 2 * batch * n_out * n_in + batch * n_in,
    trial=Trial(mistakes=_mistakes_on_the_way_down, anywhere=("W",)),
)


def _mistakes_of_biases(place: tuple[int, ...], D: Array) -> Mistakes:
    batch, n_out = D.shape
    along = "this is the mean along a row: db[j] is the mean of column j, over the batch"
    yield along, D.mean(axis=1)
    yield along, D.reshape(n_out, batch).mean(axis=1)
    if batch != n_out:
        yield "the sum is divided by n_out: divide it by the batch", D.sum(axis=0) / n_out


bias_gradient = Operation(
    "bias_gradient",
    "db = mean of D over the batch",
    equation="(4c)",
    contract="D (batch, n_out) -> db (n_out,)",
    reference=lambda D: np.einsum("ij->j", D) / len(D),
    flops=lambda batch, n_out: batch * n_out,
    trial=Trial(mistakes=_mistakes_of_biases),
)


def _mistakes_of_weights(place: tuple[int, ...], D: Array, A: Array) -> Mistakes:
    batch, n_out = D.shape
    words = "D is read as if its rows were as long as the batch: row i holds the n_out deltas of sample i"
    yield words, D.reshape(n_out, batch) @ A / batch


weight_gradient = Operation(
    "weight_gradient",
    "dW = Dᵀ A / batch",
    equation="(4d)",
    trial=Trial(mistakes=_mistakes_of_weights),
    contract="D (batch, n_out), A (batch, n_in) -> dW (n_out, n_in)",
    reference=lambda D, A: np.einsum("ij,ik->jk", D, A) / len(D),
    flops=lambda batch, n_out, n_in: 2 * batch * n_out * n_in,
)


@output_delta.loops_kernel
def output_delta_loops(G: Array, S: Array) -> Array:
    D = np.empty_like(G)
    g, s, d = G.reshape(-1), S.reshape(-1), D.reshape(-1)
    for i in range(d.size):
        d[i] = g[i] * s[i]
    return D


@output_delta.array_kernel
def output_delta_array(G: Array, S: Array) -> Array:
    return G * S


@hidden_delta.loops_kernel
def hidden_delta_loops(D: Array, W: Array, S: Array) -> Array:
    """Neuron k of the layer below gets Σ_j D[i, j] W[j, k], its share of the deltas above."""
    batch, n_out = D.shape
    n_in = W.shape[1]
    D_below = np.zeros_like(S)
    for i in range(batch):
        for j in range(n_out):
            for k in range(n_in):
                D_below[i, k] += D[i, j] * W[j, k]
        for k in range(n_in):
            D_below[i, k] *= S[i, k]
    return D_below


@hidden_delta.array_kernel
def hidden_delta_array(D: Array, W: Array, S: Array) -> Array:
    D_below = D @ W
    D_below *= S
    return D_below


@bias_gradient.loops_kernel
def bias_gradient_loops(D: Array) -> Array:
    batch, n_out = D.shape
    db = np.zeros(n_out, D.dtype)
    for i in range(batch):
        for j in range(n_out):
            db[j] += D[i, j]
    for j in range(n_out):
        db[j] /= batch
    return db


@bias_gradient.array_kernel
def bias_gradient_array(D: Array) -> Array:
    return D.sum(axis=0) / len(D)


@weight_gradient.loops_kernel
def weight_gradient_loops(D: Array, A: Array) -> Array:
    """The delta of neuron j times the activation of neuron k below, averaged over the batch."""
    batch, n_out = D.shape
    n_in = A.shape[1]
    dW = np.zeros((n_out, n_in), D.dtype)
    for i in range(batch):
        for j in range(n_out):
            for k in range(n_in):
                dW[j, k] += D[i, j] * A[i, k]
    for j in range(n_out):
        for k in range(n_in):
            dW[j, k] /= batch
    return dW


@weight_gradient.array_kernel
def weight_gradient_array(D: Array, A: Array) -> Array:
    dW = D.T @ A
    dW /= len(D)
    return dW


SOURCE = cuda_beside(__file__)
output_delta.cuda_kernel("naive", SOURCE)
hidden_delta.cuda_kernel("naive", SOURCE, block=(32, 8))
hidden_delta.cuda_kernel("tiled", SOURCE, block=(16, 16))
bias_gradient.cuda_kernel("naive", SOURCE, block=128)
bias_gradient.cuda_kernel("tree", SOURCE, block=1024, grid=("(n_out + 7) // 8",), default=True)
weight_gradient.cuda_kernel("naive", SOURCE, block=(32, 8))
weight_gradient.cuda_kernel("tiled", SOURCE, block=(16, 16))
