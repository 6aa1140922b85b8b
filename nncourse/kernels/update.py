"""The step of gradient descent (the end of Algorithm 1): every weight and bias moves a little against its gradient."""

from nncourse.kernels.operation import Operation, cuda_beside

sgd_update = Operation(
    "sgd_update",
    "W ← W − η G",
    equation="Algorithm 1",
    contract="W (*n), G (*n), rate () -> W (*n)",
    truth=lambda W, G, rate: W - rate * G,
    magnitude=lambda W, G, rate: abs(W) + abs(rate * G),
    flops=lambda n: 2 * n,
)


@sgd_update.loops_kernel
def loops(W, G, rate):
    w, g = W.reshape(-1), G.reshape(-1)  # the same numbers in one row
    for i in range(w.size):
        w[i] -= rate * g[i]
    return W


@sgd_update.array_kernel
def array(W, G, rate):
    W -= rate * G
    return W


sgd_update.cuda_kernel("naive", cuda_beside(__file__))
