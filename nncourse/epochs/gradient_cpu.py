"""network_gradient on the CPU: preallocated arrays, and a product of matrices for each layer, by NumPy's BLAS.

The samples of a batch come last in all arrays: (neurons, batch), or (channels, height, width, batch) for images. So a
dense layer is W A, and images are flattened without being copied.

A convolution is W C, where C has a row for each weight of a filter: the pixels that it meets. With the samples last
these are long runs of numbers, which are copied fast. C is k² times as large as the images, so it is made for a few
rows of pixels at a time: such a block stays in the cache until it has been multiplied, and the product until a max-pool
has read it. The way back makes each block again, which takes less time than to fetch it from memory.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from nncourse.architecture import Filters, SequentialArchitecture, Windows
from nncourse.epochs.dense import CROSS_ENTROPIES, refuse_not_known
from nncourse.epochs.gradient import network_gradient
from nncourse.kernels.activations import ALPHA

BLOCK = 1 << 17  # numbers of C in a block: 512 KB
MOST_NUMBERS = 1 << 24  # in the arrays for a batch: 64 MB


@dataclass(frozen=True)
class Functions:
    """What is computed number by number, in place: by NumPy below, by Numba in gradient_compiled.py.

    activation: returns two functions for the name of an activation: activate(Z, b, S), Z ← σ(Z + b) with b (neurons, 1);
        and to_delta(D, A, S), D ← D ⊙ σ'(Z). Arrays are (neurons, …). S is scratch space.
    pool: pool(Z, size, A, places, y, x): the largest number of each window of the block Z, and its place in the window,
        go to A and `places` from row y and column x on.
    unpool: unpool(D, places, size, Z, y, x): Z gets each number of D, from y and x on, at its place, and is 0 elsewhere.
    add: add(C, stride, G, y, x): each number of C, which is arranged as in a Block, is added to the pixel of G that it
        belongs to, from row y and column x on.
    """

    activation: Callable[[str], tuple[Callable, Callable]]
    pool: Callable
    unpool: Callable
    add: Callable


class Stage(Protocol):
    """A layer, and its arrays for batches of one size."""

    def forward(self, A: Any) -> Any:
        """The activations, from those of the layer below."""

    def backward(self, G: Any, below: bool) -> Any:
        """Write dW and db from G = dC/dA, which is overwritten. Return dC/dA of the layer below, if `below`."""


class Dense:
    def __init__(self, weights, gradients, activation: tuple[Callable, Callable], batch: int) -> None:
        (self.W, b), (self.dW, self.db) = weights, gradients
        self.b, (self.activate, self.to_delta) = b[:, None], activation
        self.A, self.S = (np.empty((len(self.W), batch), np.float32) for _ in range(2))
        self.G_below = np.empty((self.W.shape[1], batch), np.float32)
        self.ones = np.ones(batch, np.float32)

    def forward(self, A):
        self.A_below = A.reshape(self.G_below.shape)
        np.matmul(self.W, self.A_below, out=self.A)
        self.activate(self.A, self.b, self.S)
        return self.A

    def backward(self, G, below):
        self.to_delta(G, self.A, self.S)
        product = np.multiply if len(self.ones) == 1 else np.matmul  # BLAS is slow with a column times a row
        product(G, self.A_below.T, out=self.dW)
        np.matmul(G, self.ones, out=self.db)
        return np.matmul(self.W.T, G, out=self.G_below) if below else None


class Block(NamedTuple):
    """Some windows of `size` × `size` pixels of a convolution's result, from row y and column x of the windows on.

    seen: what the filters see there, (channels, k, k, height, width, batch), a view of the image.
    C, columns: the array for a copy of it, and the same as a matrix.
    Z, sums: the array for the result, (filters, height, width, batch), and the same as a matrix.
    windows: where they are in an array of all windows.
    """

    y: int
    x: int
    seen: Any
    C: Any
    columns: Any
    Z: Any
    sums: Any
    windows: tuple[slice, ...]


def blocks(image, filters: Filters, windows: tuple[int, int], size: int) -> Iterator[Block]:
    """The blocks for an image that is padded already. They share the arrays C and Z."""
    (channels, *_, batch), count, k, stride = image.shape, filters.count, filters.k, filters.stride
    seen = np.lib.stride_tricks.sliding_window_view(image, (k, k), (1, 2))[:, ::stride, ::stride]
    seen = seen.transpose(0, 4, 5, 1, 2, 3)
    fitting = max(1, BLOCK // (channels * k * k * size * size * batch))  # windows
    rows, columns = evenly(windows[0], fitting // windows[1]), evenly(windows[1], fitting)
    most = max(map(_length, rows)) * max(map(_length, columns)) * size * size * batch
    seen_there, made_there = np.empty(channels * k * k * most, np.float32), np.empty(count * most, np.float32)
    for row in rows:
        for column in columns:
            down, across = (slice(part.start * size, part.stop * size) for part in (row, column))
            here = seen[:, :, :, down, across]
            C = seen_there[: here.size].reshape(here.shape)
            Z = made_there[: count * prod(here.shape[3:])].reshape(count, *here.shape[3:])
            matrices = C.reshape(channels * k * k, -1), Z.reshape(count, -1)
            yield Block(row.start, column.start, here, C, matrices[0], Z, matrices[1], (slice(None), row, column))


def evenly(n: int, most: int) -> list[slice]:
    """Parts of n, as few and as equal as possible with at most `most` in each, but at least 1."""
    count = ceil(n / max(1, most))
    return [slice(n * part // count, n * (part + 1) // count) for part in range(count)]


def _length(part: slice) -> int:
    return part.stop - part.start


class Convolution:
    """Filters, and the max-pool above them: windows of `size` × `size` pixels, of 1 × 1 if there is no pool."""

    def __init__(
        self,
        weights,
        gradients,
        activation: tuple[Callable, Callable],
        filters: Filters,
        size: int,
        image: tuple[int, ...],
        batch: int,
        functions: Functions,
    ) -> None:
        (W, b), (dW, self.db) = weights, gradients
        (channels, height, width), (count, *made) = image, filters.shape_after(image)
        before, around = filters.before, filters.before + filters.after
        windows = made[0] // size, made[1] // size
        self.W, self.dW, self.b = W.reshape(count, -1), dW.reshape(count, -1), b[:, None]
        self.size, self.functions, (self.activate, self.to_delta) = size, functions, activation
        self.shape = count, *windows, batch
        self.A, self.S = (np.empty((count, prod(windows) * batch), np.float32) for _ in range(2))
        self.places, self.ones = places_for(self.shape, size), np.ones(self.A.shape[1], np.float32)
        self.product = np.empty(self.W.T.shape, np.float32)
        padded = channels, height + around, width + around, batch
        inside = slice(None), slice(before, before + height), slice(before, before + width)
        image, self.G_padded = (np.zeros(padded, np.float32) for _ in range(2))
        self.image, self.G_inside = image[inside], self.G_padded[inside]
        self.G_below = np.empty((channels, height, width, batch), np.float32)
        self.stride, self.blocks = filters.stride, [*blocks(image, filters, windows, size)]

    def forward(self, A):
        self.image[...] = A
        A = self.A.reshape(self.shape)
        for block in self.blocks:
            np.copyto(block.C, block.seen)
            np.matmul(self.W, block.columns, out=block.sums)
            if self.size > 1:
                self.functions.pool(block.Z, self.size, A, self.places, block.y, block.x)
            else:
                np.copyto(A[block.windows], block.Z)
        self.activate(self.A, self.b, self.S)  # it is monotonic, so the largest number may be found before
        return A

    def backward(self, G, below):
        D = G.reshape(self.A.shape)
        self.to_delta(D, self.A, self.S)
        np.matmul(D, self.ones, out=self.db)
        D = D.reshape(self.shape)
        self.dW.fill(0)
        self.G_padded.fill(0)
        for block in self.blocks:
            if self.size > 1:
                self.functions.unpool(D, self.places, self.size, block.Z, block.y, block.x)
            else:
                np.copyto(block.Z, D[block.windows])
            np.copyto(block.C, block.seen)
            np.matmul(block.columns, block.sums.T, out=self.product)
            self.dW += self.product.T
            if below:
                np.matmul(self.W.T, block.sums, out=block.columns)
                y, x = (at * self.size * self.stride for at in (block.y, block.x))
                self.functions.add(block.C, self.stride, self.G_padded, y, x)
        np.copyto(self.G_below, self.G_inside)
        return self.G_below


def places_for(shape: tuple[int, ...], size: int):
    """An array for numbers of pixels in a window."""
    return np.empty(shape, np.min_scalar_type(size * size - 1))


class Pool:
    """A max-pool that is not right above a convolution."""

    def __init__(self, size: int, image: tuple[int, ...], batch: int, functions: Functions) -> None:
        channels, height, width = image
        self.size, self.functions = size, functions
        self.A = np.empty((channels, height // size, width // size, batch), np.float32)
        self.places = places_for(self.A.shape, size)
        self.used = slice(None), slice(height // size * size), slice(width // size * size)
        self.image = np.zeros((channels, height, width, batch), np.float32)[self.used].copy()
        self.G_below = np.zeros((channels, height, width, batch), np.float32)

    def forward(self, A):
        np.copyto(self.image, A[self.used])
        self.functions.pool(self.image, self.size, self.A, self.places, 0, 0)
        return self.A

    def backward(self, G, below):
        if below:
            self.functions.unpool(G.reshape(self.A.shape), self.places, self.size, self.image, 0, 0)
            self.G_below[self.used] = self.image
        return self.G_below


def stages_of(
    weights, gradients, architecture: SequentialArchitecture, batch: int, functions: Functions
) -> list[Stage]:
    """The stages for a batch of this size; `weights` and `gradients` are pairs (W, b)."""
    refuse_not_known(architecture.activations)
    names = list(architecture.activations)
    activations = [functions.activation(name) for name in names]
    if architecture.cost in CROSS_ENTROPIES:
        activations[-1] = activations[-1][0], functions.activation("identity")[1]  # A − Y is the delta itself
    parts = zip(weights, gradients, activations, strict=True)
    stages: list[Stage] = []
    layers = list(zip(architecture.layers, architecture.maps, strict=False))
    for number, (layer, image) in enumerate(layers):
        if isinstance(layer, Filters):
            above = architecture.layers[number + 1]
            size = above.size if isinstance(above, Windows) else 1
            stages.append(Convolution(*next(parts), layer, size, image, batch, functions))
        elif not isinstance(layer, Windows):
            stages.append(Dense(*next(parts), batch))
        elif number == 0 or not isinstance(architecture.layers[number - 1], Filters):
            stages.append(Pool(layer.size, image, batch, functions))
    return stages


def there_and_back(stages: list[Stage], cost: str, batch: int, step: float, below: bool = False) -> Callable:
    """A function of A, the inputs of the first stage, and Y that writes all gradients, each times step.

    It returns dC/dA, if `below`.
    """
    mae, step = cost == "mae", np.array(step, np.float32)

    def gradient(A, Y):
        for stage in stages:
            A = stage.forward(A)
        G = A - Y.T
        if mae:
            np.sign(G, out=G)
        G *= step
        for number in range(len(stages) - 1, -1, -1):
            G = stages[number].backward(G, number > 0 or below)
        return G

    return gradient


def gradient_function(
    parameters, gradients, architecture: SequentialArchitecture, batch: int, step: float, functions: Functions
) -> Callable:
    """A function of X and Y that writes the sums of all samples' gradients, times `step`, for batches of this size."""
    pairs = architecture.views(parameters), architecture.views(gradients)
    stages = stages_of(*pairs, architecture, batch, functions)
    compute, shape = there_and_back(stages, architecture.cost, batch, step), (*architecture.shape, batch)

    def gradient(X, Y):
        compute(X.reshape(batch, -1).T.reshape(shape), Y)

    return gradient


def mean_gradient(gradients, architecture: SequentialArchitecture, make: Callable) -> Callable:
    """A function of X and Y, of any number of rows, that writes their mean gradient.

    make: make(batch, step) is the gradient_function() for that many rows; it is called once for each number of rows. A
        batch whose arrays would take too much memory is divided.
    """
    made = functools.cache(make)
    most = max(1, MOST_NUMBERS // (6 * sum(map(prod, architecture.maps))))

    def gradient(X, Y):
        total = None
        for part in evenly(len(X), most):
            made(part.stop - part.start, 1 / len(X))(X[part], Y[part])
            if part.stop < len(X) or total is not None:
                total = gradients.copy() if total is None else np.add(total, gradients, out=total)
        if total is not None:
            gradients[...] = total

    return gradient


# ---- the functions by NumPy
#
# On small arrays NumPy is twice as slow with a Python number as with an array of zero axes.

ZERO, HALF, ONE, SMALL = (np.array(number, np.float32) for number in (0, 0.5, 1, ALPHA))


def sigmoid(Z, S):
    Z *= HALF
    np.tanh(Z, out=Z)
    Z *= HALF
    Z += HALF


def softmax(Z, S):
    Z -= Z.max(axis=0)
    np.exp(Z, out=Z)
    Z /= Z.sum(axis=0)


def softmax_slope(D, A, S):
    """Its delta is (D − Σ D ⊙ A) ⊙ A."""
    D -= np.multiply(D, A, out=S).sum(axis=0)
    return A


def is_positive(A, S):
    """1 where A > 0; rounded up and capped, because np.sign() is slower."""
    return np.minimum(np.ceil(A, out=S), ONE, out=S)


# For each activation, two functions: Z to A in place; and the slopes σ'(Z) from A, by which dC/dA is multiplied to give
# the delta dC/dZ. S is scratch space.
ARRAYS = {
    "identity": (lambda Z, S: Z, lambda D, A, S: ONE),
    "step": (lambda Z, S: np.heaviside(Z, ZERO, out=Z), lambda D, A, S: ZERO),
    "sigmoid": (sigmoid, lambda D, A, S: np.multiply(np.subtract(ONE, A, out=S), A, out=S)),
    "tanh": (lambda Z, S: np.tanh(Z, out=Z), lambda D, A, S: np.subtract(ONE, np.multiply(A, A, out=S), out=S)),
    "relu": (lambda Z, S: np.maximum(Z, ZERO, out=Z), lambda D, A, S: is_positive(A, S)),
    "leaky_relu": (
        lambda Z, S: np.maximum(Z, np.multiply(Z, SMALL, out=S), out=Z),
        lambda D, A, S: np.maximum(is_positive(A, S), SMALL, out=S),
    ),
    "softplus": (
        lambda Z, S: np.logaddexp(Z, ZERO, out=Z),
        lambda D, A, S: np.subtract(ONE, np.exp(np.negative(A, out=S), out=S), out=S),
    ),
    "softmax": (softmax, softmax_slope),
}


def array_activation(name: str) -> tuple[Callable, Callable]:
    """activate(Z, b, S) and to_delta(D, A, S)."""
    of_z, slope = ARRAYS[name]

    def activate(Z, b, S):
        Z += b
        of_z(Z, S)

    def to_delta(D, A, S):
        if name != "identity":
            np.multiply(D, slope(D, A, S), out=D)

    return activate, to_delta


def pool(Z, size, A, places, y, x):
    """The place of the largest number is the number of pixels of the window before the first one that is equal."""
    pixels = [Z[:, i::size, j::size] for i in range(size) for j in range(size)]
    here = slice(None), slice(y, y + pixels[0].shape[1]), slice(x, x + pixels[0].shape[2])
    largest, place = A[here], places[here]
    np.copyto(largest, pixels[0])
    for pixel in pixels[1:]:
        np.maximum(largest, pixel, out=largest)
    place.fill(0)
    not_yet, differs = np.ones(largest.shape, bool), np.empty(largest.shape, bool)
    for pixel in pixels[:-1]:
        not_yet &= np.not_equal(pixel, largest, out=differs)
        np.add(place, not_yet.view(np.uint8), out=place)


def unpool(D, places, size, Z, y, x):
    down, across = Z.shape[1] // size, Z.shape[2] // size
    here = slice(None), slice(y, y + down), slice(x, x + across)
    delta, place, chosen = D[here], places[here], np.empty(Z[:, ::size, ::size].shape, bool)
    for number in range(size * size):
        np.equal(place, number, out=chosen)
        np.multiply(delta, chosen, out=Z[:, number // size :: size, number % size :: size])


def add(C, stride, G, y, x):
    _, k, _, height, width, _ = C.shape
    for i in range(k):
        rows = slice(y + i, y + i + (height - 1) * stride + 1, stride)
        for j in range(k):
            pixels = G[:, rows, x + j : x + j + (width - 1) * stride + 1 : stride]
            pixels += C[:, i, j]


BY_ARRAYS = Functions(array_activation, pool, unpool, add)


# ---- the kernel


def prepare(parameters, gradients, architecture: SequentialArchitecture) -> Callable:
    """A function of X and Y that writes their mean gradient, with NumPy."""
    return mean_gradient(
        gradients,
        architecture,
        lambda batch, step: gradient_function(parameters, gradients, architecture, batch, step, BY_ARRAYS),
    )


@network_gradient.kernel("numpy", device="cpu", prepare=prepare)
def array(parameters, architecture, X, Y):
    gradients = np.empty_like(parameters)
    prepare(parameters, gradients, architecture)(X, Y)
    return gradients
