"""convolutional_sgd_epoch and convolutional_adam_epoch with NumPy and preallocated arrays.

A convolution is a product of matrices: W (filters, channels k k), and a column for each output pixel, of the input
pixels that it sees. One product a sample is faster than one a batch, whose matrices would not fit into the cache.
"""

from collections.abc import Callable
from math import ceil, prod

import numpy as np

from nncourse.architecture import ConvolutionalArchitecture, Filters
from nncourse.epochs.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch, windows
from nncourse.epochs.dense import CROSS_ENTROPIES, batches, refuse_not_known
from nncourse.epochs.dense_cpu import ARRAYS

# M of a dead neuron decays for ever, and below 10⁻³⁸ each operation takes a hundred times as long. So numbers far below
# TINY ε are rounded away: divided by ε or more, they move no parameter.
TINY = 1e-20
MOST_NUMBERS = 1 << 24  # in the arrays for a batch: 64 MB


@convolutional_sgd_epoch.kernel("numpy", device="cpu")
def sgd(parameters, architecture, X, Y, batch, rate):
    """W ← W − η G on the flat vectors."""
    gradients, rate = np.empty_like(parameters), np.array(rate, np.float32)

    def move():
        np.multiply(gradients, rate, out=gradients)
        np.subtract(parameters, gradients, out=parameters)

    epoch(parameters, gradients, architecture, X, Y, batch, move, gradient_function)
    return parameters


@convolutional_adam_epoch.kernel("numpy", device="cpu")
def adam(parameters, M, V, architecture, X, Y, batch, rate, steps, beta1, beta2, epsilon):
    """Adam in place on the flat vectors; W ← W − η √c₂ / c₁ M / (√V + ε √c₂), so that M and V are not divided."""
    gradients, S = np.empty_like(parameters), np.empty_like(parameters)
    rest_1, rest_2, tiny = (np.array(number, np.float32) for number in (1 - beta1, 1 - beta2, TINY * epsilon))

    def move():
        nonlocal steps
        steps += 1
        c1, root = 1 - beta1**steps, (1 - beta2**steps) ** 0.5
        np.subtract(gradients, M, out=S)
        np.multiply(S, rest_1, out=S)
        np.add(M, S, out=M)
        np.add(M, tiny, out=M)
        np.subtract(M, tiny, out=M)
        np.multiply(gradients, gradients, out=S)
        np.subtract(S, V, out=S)
        np.multiply(S, rest_2, out=S)
        np.add(V, S, out=V)
        np.sqrt(V, out=S)
        np.add(S, np.array(epsilon * root, np.float32), out=S)
        np.divide(M, S, out=S)
        np.multiply(S, np.array(rate * root / c1, np.float32), out=S)
        np.subtract(parameters, S, out=parameters)

    epoch(parameters, gradients, architecture, X, Y, batch, move, gradient_function)
    return parameters, M, V


def epoch(parameters, gradients, architecture, X, Y, batch, move: Callable, gradient_function: Callable) -> None:
    """For each batch: write its gradients, then move the parameters.

    A batch that would take too much memory is divided, and the gradients of its parts are added. `made` keeps a
    gradient function, and its arrays, for each size of a part.
    """
    made: dict[int, Callable] = {}
    most = samples_at_once(architecture)
    for rows in batches(len(X), batch):
        x, y = X[rows], Y[rows]
        parts = batches(len(x), ceil(len(x) / ceil(len(x) / most)))
        total = np.zeros_like(gradients) if len(parts) > 1 else None
        for part in parts:
            size = part.stop - part.start
            if size not in made:
                made[size] = gradient_function(parameters, gradients, architecture, size)
            made[size](x[part], y[part])
            if total is not None:
                total += gradients * np.float32(size / len(x))
        if total is not None:
            gradients[...] = total
        move()


def samples_at_once(architecture: ConvolutionalArchitecture) -> int:
    """The number of samples whose images and columns have at most MOST_NUMBERS numbers."""
    numbers = 4 * sum(map(prod, architecture.maps)) + 4 * sum(architecture.dense.sizes)
    for f, below, above in zip(architecture.convolutions, architecture.maps, architecture.maps[1:], strict=False):
        numbers += f.k**2 * (below[0] * prod(above[1:]) + above[0] * prod(below[1:]))
    return max(1, MOST_NUMBERS // numbers)


def gradient_function(parameters, gradients, architecture: ConvolutionalArchitecture, batch: int) -> Callable:
    """A function of X and Y that writes the mean gradients of a batch of this size."""
    refuse_not_known(architecture.activations)
    pairs, derivatives = architecture.views(parameters), architecture.views(gradients)
    names, count = architecture.activations, len(architecture.convolutions)
    convolutions = [
        Convolution(*pairs[layer], *derivatives[layer], filters, architecture.maps[layer], names[layer], batch)
        for layer, filters in enumerate(architecture.convolutions)
    ]
    pool = Pool(architecture, batch) if architecture.pool else None
    dense = Dense(pairs[count:], derivatives[count:], architecture, batch, array_functions)

    def gradient(X, Y):
        A = X
        for convolution in convolutions:
            A = convolution.forward(A)
        dense.forward(pool.forward(A) if pool else A.reshape(batch, -1))
        G = dense.backward(Y)
        for layer in range(count - 1, -1, -1):
            if layer == count - 1 and pool:
                D = pool.deltas(G, convolutions[layer].to_delta)
            else:
                D = convolutions[layer].deltas(G)
            G = convolutions[layer].backward(D, layer > 0)

    return gradient


class Convolution:
    """One layer of filters and its arrays.

    Each sample has a matrix of columns, (channels k k, output pixels): the input pixels that each output pixel sees.
    A slice of the images fills the rows of each pixel of the filters; outside the image they stay 0.
    """

    def __init__(self, W, b, dW, db, filters: Filters, image: tuple[int, int, int], name: str, batch: int) -> None:
        (channels, *below), (count, *above), k = image, filters.shape_after(image), filters.k
        self.W, self.b, self.dW, self.db = W.reshape(count, -1), b[:, None], dW.reshape(count, -1), db
        self.activate, self.to_delta = array_functions(name)
        self.A, self.S = (np.empty((batch, count, prod(above)), np.float32) for _ in range(2))
        self.shape_above = batch, count, *above
        self.ones = np.ones(prod(above), np.float32)
        self.sums = np.empty((batch, *self.W.shape), np.float32)
        columns = np.zeros((batch, channels, k, k, *above), np.float32)
        # For dC/dA: the deltas of the output pixels that see each input pixel, and W with a row for each channel.
        seen_by = np.zeros((batch, count, k, k, *below), np.float32)
        self.W_below, self.W_turned = W.transpose(1, 0, 2, 3), np.empty((channels, count, k, k), np.float32)
        self.G_below = np.empty((batch, channels, prod(below)), np.float32)
        self.columns, self.seen_by = columns.reshape(batch, -1, prod(above)), seen_by.reshape(batch, -1, prod(below))
        self.shifted = []
        for i in range(k):
            for j in range(k):
                (y, row), (x, column) = (meeting(filters, at, n) for at, n in zip((i, j), below, strict=True))
                inputs, outputs = (slice(None), slice(None), row, column), (slice(None), slice(None), y, x)
                self.shifted.append((inputs, outputs, columns[:, :, i, j, y, x], seen_by[:, :, i, j, row, column]))
        self.shape_below = batch, channels, *below

    def forward(self, A_below):
        """A = σ(Z) from the images below."""
        images = A_below.reshape(self.shape_below)
        for inputs, _, columns, _ in self.shifted:
            columns[...] = images[inputs]
        Z = np.matmul(self.W, self.columns, out=self.A)
        Z += self.b
        self.activate(Z, self.S)
        return self.A

    def deltas(self, G):
        """dC/dZ from G = dC/dA, in place."""
        D = G.reshape(self.A.shape)
        self.to_delta(D, self.A, self.S)
        return D

    def backward(self, D, below: bool):
        """Write dW and db from D = dC/dZ, and return dC/dA of the images below if `below`."""
        np.matmul(D, self.columns.transpose(0, 2, 1), out=self.sums).sum(axis=0, out=self.dW)
        np.matmul(D, self.ones).sum(axis=0, out=self.db)
        if below:
            images = D.reshape(self.shape_above)
            for _, outputs, _, seen_by in self.shifted:
                seen_by[...] = images[outputs]
            self.W_turned[...] = self.W_below
            np.matmul(self.W_turned.reshape(len(self.W_turned), -1), self.seen_by, out=self.G_below)
        return self.G_below


def meeting(filters: Filters, offset: int, n: int) -> tuple[slice, slice]:
    """The outputs along one axis whose input at this offset of the filter lies in the image, and these inputs."""
    stride, shift = filters.stride, offset - filters.before
    made = (n + filters.before + filters.after - filters.k) // stride + 1
    first = max(0, -(shift // stride))
    end = max(first, min(made, (n - 1 - shift) // stride + 1))
    return slice(first, end), slice(first * stride + shift, end * stride + shift, stride)


class Pool:
    """Max-pooling, which flattens too. Only one pixel of each window gets a delta."""

    def __init__(self, architecture: ConvolutionalArchitecture, batch: int) -> None:
        channels, height, width = architecture.maps[-1]
        cells = windows(architecture.pool, architecture.maps[-1])
        size = architecture.pool**2
        # Row 0: the index of the first pixel of each window of the batch. Row 1: of the second pixel …
        samples = np.arange(batch)[:, None] * channels * height * width
        self.cells = np.ascontiguousarray((samples + cells.reshape(1, -1)).reshape(-1, size).T)
        self.pixels = np.empty(self.cells.shape, np.float32)
        self.is_largest = np.empty(self.cells.shape, bool)
        # Counts down, so that the first of equal pixels has the largest number.
        self.down = np.arange(size, 0, -1, dtype=np.min_scalar_type(size))[:, None]
        self.numbers = np.empty(self.cells.shape, self.down.dtype)
        self.columns = np.arange(self.cells.shape[1])
        self.places = self.cells[0]
        self.A, self.S = (np.empty((batch, prod(architecture.pooled)), np.float32) for _ in range(2))
        self.D = np.zeros((batch, channels, height * width), np.float32)

    def forward(self, images):
        """The largest pixel of each window, flattened: a row for each sample."""
        np.take(images.ravel(), self.cells, out=self.pixels, mode="clip")
        largest = self.pixels.max(axis=0, out=self.A.ravel())
        np.equal(self.pixels, largest, out=self.is_largest)
        first = np.multiply(self.is_largest, self.down, out=self.numbers).max(axis=0, initial=1)
        self.places = self.cells[len(self.cells) - first.astype(np.intp), self.columns]
        return self.A

    def deltas(self, G, to_delta: Callable):
        """dC/dZ of the convolution below from G = dC/dA; slopes are computed for the maxima only."""
        to_delta(G, self.A, self.S)
        self.D.fill(0)
        self.D.ravel()[self.places] = G.ravel()
        return self.D


def array_functions(name: str) -> tuple[Callable, Callable]:
    """activate(Z, S) and to_delta(D, A, S), in place; S is scratch space."""
    activate, slope = ARRAYS[name]

    def to_delta(D, A, S):
        if name != "identity":
            np.multiply(D, slope(D, A, S), out=D)

    return activate, to_delta


class Dense:
    """The dense layers, as in dense_cpu.py. functions(name) returns activate(Z, S) and to_delta(D, A, S), in place."""

    def __init__(
        self, pairs, derivatives, architecture: ConvolutionalArchitecture, batch: int, functions: Callable
    ) -> None:
        W, b = zip(*pairs, strict=True)
        dW, db = zip(*derivatives, strict=True)
        names = list(architecture.dense.activations)
        self.W, self.b, self.dW, self.db = W, b, dW, db
        self.A, self.D, self.S = (
            [np.empty((batch, n), np.float32) for n in architecture.dense.sizes] for _ in range(3)
        )
        self.inputs_T = np.empty((architecture.dense.sizes[0], batch), np.float32)
        self.activate = [functions(name)[0] for name in names]
        if architecture.cost in CROSS_ENTROPIES:
            names[-1] = "identity"  # A − Y is the delta itself
        self.to_delta = [functions(name)[1] for name in names]
        self.ones, self.share = np.ones(batch, np.float32), np.array(1 / batch, np.float32)
        self.mae = architecture.cost == "mae"
        self.deltas_below = len(architecture.convolutions) > 0

    def forward(self, inputs):
        if inputs is not self.A[0]:
            self.A[0][...] = inputs
        self.inputs_T[...] = self.A[0].T
        A = self.inputs_T.T  # the product is faster if both factors are transposed
        for layer, (W, b) in enumerate(zip(self.W, self.b, strict=True)):
            A = Z = np.matmul(A, W.T, out=self.A[layer + 1])
            Z += b
            self.activate[layer](Z, self.S[layer + 1])

    def backward(self, Y):
        """Write dW and db of all layers, and return dC/dA of the inputs, if a convolution lies below."""
        A, D = self.A, self.D
        G = np.subtract(A[-1], Y, out=D[-1])
        if self.mae:
            np.sign(G, out=G)
        G *= self.share
        for layer in range(len(self.W) - 1, -1, -1):
            self.to_delta[layer](D[layer + 1], A[layer + 1], self.S[layer + 1])
            np.matmul(D[layer + 1].T, A[layer], out=self.dW[layer])
            np.matmul(self.ones, D[layer + 1], out=self.db[layer])
            if layer > 0 or self.deltas_below:
                np.matmul(D[layer + 1], self.W[layer], out=D[layer])
        return D[0]
