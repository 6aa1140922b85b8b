"""convolutional_sgd_epoch and convolutional_adam_epoch with NumPy: all arrays made beforehand, one product a layer.

Images are held as (channels, batch, height, width). Then a convolution is one product of matrices, W (filters,
channels k k) and `columns`: one column for each output pixel of the batch, with the input pixels that it sees. Behind a
max-pool only one pixel of each window has a delta, so slopes are computed for these alone.
"""

from collections.abc import Callable
from math import prod

import numpy as np

from nncourse.architecture import ConvolutionalArchitecture, Filters
from nncourse.kernels.epoch.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch, windows
from nncourse.kernels.epoch.dense import CROSS_ENTROPIES, batches
from nncourse.kernels.epoch.dense_cpu import ARRAYS
from nncourse.kernels.update import BETA_1, BETA_2, EPSILON


@convolutional_sgd_epoch.kernel("numpy", device="cpu")
def sgd(parameters, architecture, X, Y, batch, rate):
    """W ← W − η G on the flat vectors."""
    gradients, rate = np.empty_like(parameters), np.array(rate, np.float32)

    def move():
        np.multiply(gradients, rate, out=gradients)
        np.subtract(parameters, gradients, out=parameters)

    _epoch(parameters, gradients, architecture, X, Y, batch, move)
    return parameters


@convolutional_adam_epoch.kernel("numpy", device="cpu")
def adam(parameters, M, V, architecture, X, Y, batch, rate, steps):
    """Adam in place on the flat vectors; W ← W − η √c₂ / c₁ M / (√V + ε √c₂), so that M and V are not divided."""
    gradients, S = np.empty_like(parameters), np.empty_like(parameters)
    rest_1, rest_2 = np.array(1 - BETA_1, np.float32), np.array(1 - BETA_2, np.float32)

    def move():
        nonlocal steps
        steps += 1
        c1, root = 1 - BETA_1**steps, (1 - BETA_2**steps) ** 0.5
        np.subtract(gradients, M, out=S)
        np.multiply(S, rest_1, out=S)
        np.add(M, S, out=M)
        np.multiply(gradients, gradients, out=S)
        np.subtract(S, V, out=S)
        np.multiply(S, rest_2, out=S)
        np.add(V, S, out=V)
        np.sqrt(V, out=S)
        np.add(S, np.array(EPSILON * root, np.float32), out=S)
        np.divide(M, S, out=S)
        np.multiply(S, np.array(rate * root / c1, np.float32), out=S)
        np.subtract(parameters, S, out=parameters)

    _epoch(parameters, gradients, architecture, X, Y, batch, move)
    return parameters, M, V


def _epoch(parameters, gradients, architecture, X, Y, batch, move: Callable) -> None:
    """For each batch: write its gradients, then move the parameters. The arrays fit one size of a batch."""
    made: dict[int, Callable] = {}
    for rows in batches(len(X), batch):
        size = rows.stop - rows.start
        if size not in made:
            made[size] = gradient_function(parameters, gradients, architecture, size)
        made[size](X[rows], Y[rows])
        move()


def gradient_function(parameters, gradients, architecture: ConvolutionalArchitecture, batch: int) -> Callable:
    """A function of X and Y that writes the mean gradients of a batch of this size."""
    pairs, derivatives = architecture.views(parameters), architecture.views(gradients)
    names, count = architecture.activations, len(architecture.convolutions)
    convolutions = [
        Convolution(*pairs[layer], *derivatives[layer], filters, architecture.maps[layer], names[layer], batch)
        for layer, filters in enumerate(architecture.convolutions)
    ]
    flattened = Flattened(architecture, batch)
    dense = Dense(pairs[count:], derivatives[count:], architecture, batch)

    def gradient(X, Y):
        A = X.transpose(1, 0, 2, 3)
        for convolution in convolutions:
            A = convolution.forward(A)
        dense.forward(flattened.forward(A))
        G = dense.backward(Y)
        for layer in range(count - 1, -1, -1):
            D = convolutions[layer].deltas(G) if layer < count - 1 else flattened.backward(G)
            G = convolutions[layer].backward(D, layer > 0)

    return gradient


class Convolution:
    """One layer of filters: its arrays, and what is done with them."""

    def __init__(self, W, b, dW, db, filters: Filters, image: tuple[int, int, int], name: str, batch: int) -> None:
        count, *made = filters.shape_after(image)
        pixels = batch * prod(made)
        self.W, self.b, self.dW, self.db = W.reshape(count, -1), b[:, None], dW.reshape(count, -1), db
        self.activate, self.slope = ARRAYS[name]
        columns = np.zeros((image[0], filters.k, filters.k, batch, *made), np.float32)
        G_columns = np.empty_like(columns)
        self.columns, self.G_columns = (array.reshape(-1, pixels) for array in (columns, G_columns))
        self.A, self.S = (np.empty((count, batch, *made), np.float32) for _ in range(2))
        self.G_below = np.empty((image[0], batch, *image[1:]), np.float32)
        self.ones = np.ones(pixels, np.float32)
        self.shifted = []  # for each pixel of the filters: the pixels of the image that it meets, and their columns
        for i in range(filters.k):
            for j in range(filters.k):
                (y, row), (x, column) = (_meeting(filters, at, n) for at, n in ((i, image[1]), (j, image[2])))
                there = slice(None), slice(None), row, column
                self.shifted.append((there, columns[:, i, j, :, y, x], G_columns[:, i, j, :, y, x]))

    def forward(self, below):
        """A = σ(Z) from the images below."""
        for there, columns, _ in self.shifted:
            columns[...] = below[there]
        Z = self.A.reshape(len(self.W), -1)
        np.matmul(self.W, self.columns, out=Z)
        Z += self.b
        self.activate(self.A, self.S)
        return self.A

    def deltas(self, G):
        """dC/dZ from G = dC/dA, in place."""
        G *= self.slope(G, self.A, self.S)
        return G

    def backward(self, D, below: bool):
        """Write dW and db from D = dC/dZ, and return dC/dA of the images below, if they want it."""
        D = D.reshape(len(self.W), -1)
        np.matmul(D, self.columns.T, out=self.dW)
        np.matmul(D, self.ones, out=self.db)
        if below:
            np.matmul(self.W.T, D, out=self.G_columns)
            self.G_below.fill(0)
            for there, _, G_columns in self.shifted:
                self.G_below[there] += G_columns
        return self.G_below


def _meeting(filters: Filters, offset: int, n: int) -> tuple[slice, slice]:
    """The outputs along one axis whose input at this offset of the filter lies in the image, and these inputs."""
    stride, shift = filters.stride, offset - filters.before
    made = (n + filters.before + filters.after - filters.k) // stride + 1
    first = max(0, -(shift // stride))
    end = max(first, min(made, (n - 1 - shift) // stride + 1))
    return slice(first, end), slice(first * stride + shift, end * stride + shift, stride)


class Flattened:
    """The pool, if there is one, and the step from (channels, batch, height, width) to a row for each sample."""

    def __init__(self, architecture: ConvolutionalArchitecture, batch: int) -> None:
        channels, height, width = architecture.maps[-1]
        self.pool = architecture.pool
        self.shape = batch, *architecture.pooled
        count = len(architecture.convolutions)
        self.slope = ARRAYS[architecture.activations[count - 1]][1] if count > 0 else None
        self.A = np.empty((batch, prod(architecture.pooled)), np.float32)
        self.S = np.empty_like(self.A)
        self.D = np.zeros((channels, batch, height, width), np.float32)
        if self.pool:
            # The place of each pixel of each window in an array (channels, batch, height, width).
            cells = windows(self.pool, architecture.maps[-1])
            channel, pixel = cells // (height * width), cells % (height * width)
            sample = np.arange(batch)[:, None, None]
            self.cells = ((channel * batch + sample) * height * width + pixel).reshape(-1, self.pool**2)
            self.rows = np.arange(len(self.cells))
            self.places = self.cells[:, 0]

    def forward(self, images):
        if not self.pool:
            self.A.reshape(self.shape)[...] = images.transpose(1, 0, 2, 3)
            return self.A
        if not images.flags.c_contiguous:
            images = np.ascontiguousarray(images)
        pixels = images.ravel()[self.cells]
        largest = pixels.argmax(axis=1)
        self.places = self.cells[self.rows, largest]
        self.A.ravel()[...] = pixels[self.rows, largest]
        return self.A

    def backward(self, G):
        """The deltas of the convolution below: slopes are computed of the pixels that went through only."""
        G *= self.slope(G, self.A, self.S)
        if not self.pool:
            self.D[...] = G.reshape(self.shape).transpose(1, 0, 2, 3)
        else:
            self.D.fill(0)
            self.D.ravel()[self.places] = G.ravel()
        return self.D


class Dense:
    """The dense layers, as in dense_cpu.py."""

    def __init__(self, pairs, derivatives, architecture: ConvolutionalArchitecture, batch: int) -> None:
        W, b = zip(*pairs, strict=True)
        dW, db = zip(*derivatives, strict=True)
        names = list(architecture.dense.activations)
        self.W, self.b, self.dW, self.db = W, b, dW, db
        self.A, self.D, self.S = (
            [np.empty((batch, n), np.float32) for n in architecture.dense.sizes] for _ in range(3)
        )
        self.activate = [ARRAYS[name][0] for name in names]
        if architecture.cost in CROSS_ENTROPIES:
            names[-1] = "identity"  # A − Y is the delta itself
        self.slope = [ARRAYS[name][1] for name in names]
        self.ones, self.share = np.ones(batch, np.float32), np.array(1 / batch, np.float32)
        self.mae = architecture.cost == "mae"
        self.deltas_below = len(architecture.convolutions) > 0

    def forward(self, inputs):
        self.A[0] = inputs
        for layer, (W, b) in enumerate(zip(self.W, self.b, strict=True)):
            Z = np.matmul(self.A[layer], W.T, out=self.A[layer + 1])
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
            D[layer + 1] *= self.slope[layer](D[layer + 1], A[layer + 1], self.S[layer + 1])
            np.matmul(D[layer + 1].T, A[layer], out=self.dW[layer])
            np.matmul(self.ones, D[layer + 1], out=self.db[layer])
            if layer > 0 or self.deltas_below:
                np.matmul(D[layer + 1], self.W[layer], out=D[layer])
        return D[0]
