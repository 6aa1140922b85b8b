"""network_gradient on the CPU: preallocated arrays, and a product of matrices for each layer, with NumPy's BLAS.

The samples of a batch are the last axis of all arrays: (neurons, batch), or (channels, height, width, batch) for
images. So a dense layer is W A, and images are flattened without being copied.

A convolution is W C, where C has a row for each weight of a filter: the pixels that it meets. With the samples last
these are long runs of numbers, which can be copied fast. C is k² times as large as the images, so it is made for a few
rows of pixels at a time: such a block stays in the cache until it is multiplied, and the product until a max-pool has
read it. The backward pass makes each block again, which takes less time than fetching it from memory.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from fused_epochs.architecture import ChainArchitecture, Filters, Neurons, Windows
from fused_epochs.dense import refuse_not_known
from fused_epochs.gradient import network_gradient
from nncourse import threads
from nncourse.kernels.activations import ALPHA
from nncourse.kernels.dense_epoch import CROSS_ENTROPIES

BUFFER = 1024  # numbers; NumPy would copy runs of a view that are shorter than its usual buffer, which takes longer
FEWEST, PER_PART = 16, 4e7  # samples and FLOPs of a part that is worth a thread
LEAST = 256  # pixels of all samples in a block; products with fewer columns are slow
LINE = 64
Gradient = Callable[[np.ndarray, np.ndarray], None]  # of X and Y: it writes their gradient
Prepare = Callable[[np.ndarray, np.ndarray, ChainArchitecture], Gradient]  # of parameters and gradients
Pair = tuple[np.ndarray, np.ndarray]  # W and b, or their gradients
MOST_NUMBERS = 1 << 24  # in the arrays for a batch: 64 MB


@dataclass(frozen=True)
class Functions:
    """Functions that compute number by number: NumPy's below, Numba's in gradient_compiled.py. `name`: an activation.

    activate: activate(name, Z, b): Z ← σ(Z + b), for Z (neurons, batch) and b (neurons, 1).
    to_delta: to_delta(name, D, A): D ← D ⊙ σ'(Z).
    finish: finish(name, Z, b, size, A, before, places, y, x): the largest number of each window of the block Z goes to
        A as σ(Z + b), from row before + y and column before + x on, and its place in the window to `places`.
    deltas: deltas(name, G, A, before, places, size, Z, y, x): backward through finish(), from G = dC/dA to the block Z;
        G may be overwritten.
    see: see(C, stride, A, y, x): C, which is arranged as in a Block, becomes what the filters see in A from row y and
        column x on.
    add: add(C, stride, G, y, x): backward through see(): each number of C is added to its pixel of G.
    forth, back: everything between the products of two blocks, in one call. Threads that compute parts of a batch wait
        for each other whenever they return to Python, so they should do it seldom.
        forth(name, finished, seen): finish(name, *finished), then see(*seen) of the next block.
        back(total, part, further, added, name, sent, seen): total += part; add(*added) if `further`, that is, if there
        are layers below; then deltas(name, *sent) and see(*seen) of the next block.
    product: product(A, B, C) makes a function that computes C = A B, from the same arrays each time.
    block: the number of numbers of C in a block.
    """

    activate: Callable[..., None]
    to_delta: Callable[..., None]
    finish: Callable[..., None]
    deltas: Callable[..., None]
    see: Callable[..., None]
    add: Callable[..., None]
    forth: Callable[..., None]
    back: Callable[..., None]
    product: Callable[[np.ndarray, np.ndarray, np.ndarray], Callable[[], Any]]
    block: int


def zeros(shape: tuple[int, ...], kind: Any = np.float32) -> np.ndarray:
    """Zeros that begin at a multiple of 64 bytes, as cache lines do, so that no SIMD instruction touches two lines."""
    count = prod(shape) * np.dtype(kind).itemsize
    memory = np.zeros(count + LINE, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + count].view(kind).reshape(shape)


class Map:
    """The arrays between two layers: activations A and G = dC/dA; for images with the zeros that the layer above needs.

    Images are (channels, height, width, batch), and other samples (numbers, batch). Images can be read as numbers only
    if there are no zeros around them.
    """

    def __init__(self, shape: tuple[int, ...], batch: int, before: int = 0, after: int = 0) -> None:
        self.shape, self.before = (*shape, batch), before
        around = (shape[0], *(side + before + after for side in shape[1:]), batch)
        self.A, self.G = zeros(around), zeros(around)

    def inside(self, array: np.ndarray) -> np.ndarray:
        """An array like A without the zeros around."""
        return array[(slice(None), *(slice(self.before, self.before + side) for side in self.shape[1:-1]))]


class Stage(Protocol):
    """A layer for batches of one size. Its constructor is given the maps below and above."""

    def forward(self) -> None:
        """Compute A above from A below."""

    def backward(self, further: bool) -> None:
        """Write dW and db from G above, which is overwritten, and G below if there are `further` layers."""


class Dense:
    def __init__(
        self, below: Map, above: Map, weights: Pair, gradients: Pair, names: tuple[str, str], functions: Functions
    ) -> None:
        (self.W, b), (self.dW, self.db) = weights, gradients
        self.b, self.below, self.above, self.functions = b[:, None], below, above, functions
        self.activation, self.slope = names
        self.ones = np.ones(above.shape[-1], np.float32)

    def forward(self) -> None:
        self.A_below = self.below.A.reshape(self.W.shape[1], -1)
        np.matmul(self.W, self.A_below, out=self.above.A)
        self.functions.activate(self.activation, self.above.A, self.b)

    def backward(self, further: bool) -> None:
        D = self.above.G
        self.functions.to_delta(self.slope, D, self.above.A)
        product = np.multiply if len(self.ones) == 1 else np.matmul  # BLAS is slow with a column times a row
        product(D, self.A_below.T, out=self.dW)
        np.matmul(D, self.ones, out=self.db)
        if further:
            np.matmul(self.W.T, D, out=self.below.G.reshape(self.A_below.shape))


class Block(NamedTuple):
    """Some windows of `size` × `size` pixels of a convolution's result, from row y and column x of the windows on.

    C, columns: an array for what the filters see there, (channels, k, k, height, width, batch), and it as a matrix.
    with_ones: that matrix with a row of ones above it, the input of the biases.
    Z, sums: an array for the result, (filters, height, width, batch), and it as a matrix.
    """

    y: int
    x: int
    C: np.ndarray
    columns: np.ndarray
    with_ones: np.ndarray
    Z: np.ndarray
    sums: np.ndarray


def blocks(image: np.ndarray, filters: Filters, windows: tuple[int, ...], size: int, numbers: int) -> Iterator[Block]:
    """The blocks, each with about `numbers` numbers of C, for an image with its padding. They share the arrays C, Z."""
    (channels, *_, batch), count, k = image.shape, filters.count, filters.k
    weights = channels * k * k
    at_once = max(1, max(LEAST, numbers // weights) // (size * size * batch))  # windows
    rows, columns = evenly(windows[0], at_once // windows[1]), evenly(windows[1], at_once)
    most = max(map(_length, rows)) * max(map(_length, columns)) * size * size * batch
    seen, made = zeros(((1 + weights) * most,)), zeros((count * most,))
    seen[:most] = 1  # every C begins after these
    for row in rows:
        for column in columns:
            here = _length(row) * size, _length(column) * size, batch
            pixels = prod(here)
            with_ones = seen[most - pixels : most + weights * pixels].reshape(1 + weights, pixels)
            C, sums = with_ones[1:], made[: count * pixels].reshape(count, pixels)
            there = C.reshape(channels, k, k, *here), C, with_ones, sums.reshape(count, *here), sums
            yield Block(row.start, column.start, *there)


def evenly(n: int, most: int) -> list[slice]:
    """Parts of n, as few and as equal as possible with at most `most` in each, but at least 1."""
    count = ceil(n / max(1, most))
    return [slice(n * part // count, n * (part + 1) // count) for part in range(count)]


def _length(part: slice) -> int:
    return part.stop - part.start


class Convolution:
    """Filters, and the max-pool above them: windows of `size` × `size` pixels, of 1 × 1 if there is no pool."""

    def __init__(
        self, below: Map, above: Map, weights: Pair, gradients: Pair, name: str, filters: Filters, size: int,
        functions: Functions,
    ) -> None:  # fmt: skip
        (W, self.b), (dW, self.db) = weights, gradients
        self.W, self.dW = W.reshape(len(W), -1), dW.reshape(len(W), -1)
        self.G_below, self.name, self.functions = below.G, name, functions
        self.blocks = [*blocks(below.A, filters, above.shape[1:3], size, functions.block)]
        self.part, self.total = (zeros((1 + self.W.shape[1], len(W))) for _ in range(2))  # of db and dW
        self.sum_up, self.to_gradients, self.to_columns = (
            [functions.product(*arrays) for arrays in each]
            for each in (
                [(self.W, block.columns, block.sums) for block in self.blocks],
                [(block.with_ones, block.sums.T, self.part) for block in self.blocks],
                [(self.W.T, block.sums, block.columns) for block in self.blocks],
            )
        )
        # The arguments of the functions for each block.
        places, stride = places_for(above.shape, size), filters.stride
        at = [[place * size * stride for place in (block.y, block.x)] for block in self.blocks]
        self.seen, self.added = (
            [(block.C, stride, array, *place) for block, place in zip(self.blocks, at, strict=True)]
            for array in (below.A, below.G)
        )
        self.finished = [
            (block.Z, self.b, size, above.A, above.before, places, block.y, block.x) for block in self.blocks
        ]
        self.sent = [(above.G, above.A, above.before, places, size, block.Z, block.y, block.x) for block in self.blocks]

    def forward(self) -> None:
        last = len(self.blocks) - 1
        self.functions.see(*self.seen[0])
        for number, sum_up in enumerate(self.sum_up):
            sum_up()
            # Activations are monotonic, so the largest number of a window may be found before.
            if number < last:
                self.functions.forth(self.name, self.finished[number], self.seen[number + 1])
        self.functions.finish(self.name, *self.finished[last])

    def backward(self, further: bool) -> None:
        functions, last = self.functions, len(self.blocks) - 1
        self.total.fill(0)
        if further:
            self.G_below.fill(0)
        functions.deltas(self.name, *self.sent[0])
        functions.see(*self.seen[0])
        for number, to_gradients in enumerate(self.to_gradients):
            to_gradients()
            if further:
                self.to_columns[number]()
            if number < last:
                following = self.sent[number + 1], self.seen[number + 1]
                functions.back(self.total, self.part, further, self.added[number], self.name, *following)
        self.total += self.part
        if further:
            functions.add(*self.added[last])
        self.db[...], self.dW[...] = self.total[0], self.total[1:].T


def places_for(shape: tuple[int, ...], size: int) -> np.ndarray:
    """An array for the indices of pixels in a window; it is not used if all windows are pixels."""
    return zeros(shape if size > 1 else (1,) * len(shape), np.min_scalar_type(size * size - 1))


class Pool:
    """A max-pool that is not right above a convolution. All windows are one block."""

    def __init__(self, below: Map, above: Map, size: int, functions: Functions) -> None:
        channels, down, across, batch = above.shape
        self.below, self.above, self.size, self.functions = below, above, size, functions
        self.Z, self.b = zeros((channels, down * size, across * size, batch)), zeros((channels,))
        self.places = places_for(above.shape, size)
        self.used = slice(None), slice(down * size), slice(across * size)

    def forward(self) -> None:
        np.copyto(self.Z, self.below.inside(self.below.A)[self.used])
        above = self.above
        self.functions.finish("identity", self.Z, self.b, self.size, above.A, above.before, self.places, 0, 0)

    def backward(self, further: bool) -> None:
        above = self.above
        if further:
            self.functions.deltas("identity", above.G, above.A, above.before, self.places, self.size, self.Z, 0, 0)
            self.below.inside(self.below.G)[self.used] = self.Z


def stages_of(
    weights: Sequence[Pair], gradients: Sequence[Pair], architecture: ChainArchitecture, batch: int,
    functions: Functions,
) -> tuple[list[Stage], list[Map]]:  # fmt: skip
    """The stages for a batch of this size, and the maps between them; `weights` and `gradients` are pairs (W, b)."""
    refuse_not_known(architecture.names)
    parts = zip(weights, gradients, architecture.names, strict=True)
    layers = _with_pools(architecture.layers)
    shapes = [architecture.shape]
    for layer, size in layers:
        channels, *sides = layer.shape_after(shapes[-1])
        shapes.append((channels, *(side // size for side in sides)))
    around = [(layer.before, layer.after) if isinstance(layer, Filters) else (0, 0) for layer, _ in layers]
    maps = [Map(shape, batch, *sides) for shape, sides in zip(shapes, [*around, (0, 0)], strict=True)]
    stages: list[Stage] = []
    for number, (layer, size) in enumerate(layers):
        below, above = maps[number], maps[number + 1]
        if isinstance(layer, Windows):
            stages.append(Pool(below, above, layer.size, functions))
            continue
        pair, derivative, name = next(parts)
        if isinstance(layer, Filters):
            stages.append(Convolution(below, above, pair, derivative, name, layer, size, functions))
        else:
            is_delta = number == len(layers) - 1 and architecture.cost in CROSS_ENTROPIES  # A − Y is the delta itself
            names = name, "identity" if is_delta else name
            stages.append(Dense(below, above, pair, derivative, names, functions))
    return stages, maps


def _with_pools(layers: tuple[Filters | Windows | Neurons, ...]) -> list[tuple[Filters | Windows | Neurons, int]]:
    """Each layer with the size of the max-pool right above it, which filters take over; 1 for all others."""
    found: list[tuple[Filters | Windows | Neurons, int]] = []
    for layer in layers:
        if isinstance(layer, Windows) and found and isinstance(found[-1][0], Filters) and found[-1][1] == 1:
            found[-1] = found[-1][0], layer.size
        else:
            found.append((layer, 1))
    return found


def there_and_back(
    stages: list[Stage], above: Map, cost: str, step: float | np.float32, further: bool = False
) -> Callable[[np.ndarray], None]:
    """A function of Y that computes all stages' gradients, each times `step`, from A of the lowest map."""
    mae, scale = cost == "mae", np.array(step, np.float32)

    def gradient(Y: np.ndarray) -> None:
        for stage in stages:
            stage.forward()
        G = np.subtract(above.A, Y.T, out=above.G)
        if mae:
            np.sign(G, out=G)
        G *= scale
        for number in range(len(stages) - 1, -1, -1):
            stages[number].backward(number > 0 or further)

    return gradient


def gradient_function(
    parameters: np.ndarray, gradients: np.ndarray, architecture: ChainArchitecture, batch: int,
    step: float | np.float32, functions: Functions,
) -> Gradient:  # fmt: skip
    """A function of X and Y that writes the sums of all samples' gradients, times `step`, for batches of this size."""
    pairs = architecture.views(parameters), architecture.views(gradients)
    stages, maps = stages_of(*pairs, architecture, batch, functions)
    compute = there_and_back(stages, maps[-1], architecture.cost, step)
    inputs, is_dense = maps[0], isinstance(stages[0], Dense)

    def gradient(X: np.ndarray, Y: np.ndarray) -> None:
        samples = X.reshape(batch, -1).T
        if is_dense:
            inputs.A = samples  # a product can read a transposed matrix without a copy
            compute(Y)
            return
        inputs.inside(inputs.A)[...] = samples.reshape(inputs.shape)
        before = np.setbufsize(BUFFER)
        try:
            compute(Y)
        finally:
            np.setbufsize(before)

    return gradient


def mean_gradient(
    gradients: np.ndarray, architecture: ChainArchitecture, make: Callable[[np.ndarray, int, float], Gradient]
) -> Gradient:
    """A function of X and Y, of any number of rows, that writes their mean gradient.

    make: make(gradients, batch, step) is the gradient_function() for that many rows. A batch is divided if its arrays
        would take too much memory and, with filters, so that several threads can compute it.
    """
    most = max(1, MOST_NUMBERS // (6 * sum(map(prod, architecture.maps))))

    @functools.cache
    def parts_of(rows: int, step: float, alone: bool) -> list[tuple[slice, Gradient, np.ndarray]]:
        """The rows of each part, its gradient function, and the vector that this function writes."""
        parts = evenly(rows, ceil(rows / parts_that_pay(architecture, rows)))
        vectors = [gradients if alone and not part.start else np.empty_like(gradients) for part in parts]
        return [(part, make(vector, _length(part), step), vector) for part, vector in zip(parts, vectors, strict=True)]

    def gradient(X: np.ndarray, Y: np.ndarray) -> None:
        together_in_memory = evenly(len(X), most)
        alone = len(together_in_memory) == 1
        total = gradients if alone else np.zeros_like(gradients)
        for some in together_in_memory:
            parts = parts_of(_length(some), 1 / len(X), alone)
            x, y = X[some], Y[some]
            threads.together([functools.partial(compute, x[part], y[part]) for part, compute, _ in parts])
            for _, _, vector in parts[alone:]:
                total += vector
        if not alone:
            gradients[...] = total

    return gradient


def parts_that_pay(architecture: ChainArchitecture, rows: int) -> int:
    """How many threads may each compute a part of `rows` rows. In a dense network BLAS divides its products itself."""
    if not any(isinstance(layer, Filters) for layer in architecture.layers):
        return 1
    work = architecture.flops_a_sample * rows
    return max(1, min(threads.at_most(), rows // FEWEST, int(work / PER_PART)))


# ---- the functions by NumPy
#
# On small arrays NumPy is twice as slow with a Python number as with an array of zero axes.

ZERO, HALF, ONE, SMALL = (np.array(number, np.float32) for number in (0, 0.5, 1, ALPHA))


def sigmoid(Z: np.ndarray, S: np.ndarray) -> None:
    Z *= HALF
    np.tanh(Z, out=Z)
    Z *= HALF
    Z += HALF


def softmax(Z: np.ndarray, S: np.ndarray) -> None:
    Z -= Z.max(axis=0)
    np.exp(Z, out=Z)
    Z /= Z.sum(axis=0)


def softmax_slope(D: np.ndarray, A: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Its delta is (D − Σ D ⊙ A) ⊙ A."""
    D -= np.multiply(D, A, out=S).sum(axis=0)
    return A


# For each activation, two functions: Z to A in place; and the slopes σ'(Z) from A, by which dC/dA is multiplied to give
# the delta dC/dZ. S is scratch space.
ARRAYS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "identity": (lambda Z, S: Z, lambda D, A, S: ONE),
    "step": (lambda Z, S: np.heaviside(Z, ZERO, out=Z), lambda D, A, S: ZERO),
    "sigmoid": (sigmoid, lambda D, A, S: np.multiply(np.subtract(ONE, A, out=S), A, out=S)),
    "tanh": (lambda Z, S: np.tanh(Z, out=Z), lambda D, A, S: np.subtract(ONE, np.multiply(A, A, out=S), out=S)),
    "relu": (lambda Z, S: np.maximum(Z, ZERO, out=Z), lambda D, A, S: A > ZERO),
    "leaky_relu": (
        lambda Z, S: np.maximum(Z, np.multiply(Z, SMALL, out=S), out=Z),
        lambda D, A, S: np.maximum(A > ZERO, SMALL, out=S),
    ),
    "softplus": (
        lambda Z, S: np.logaddexp(Z, ZERO, out=Z),
        lambda D, A, S: np.subtract(ONE, np.exp(np.negative(A, out=S), out=S), out=S),
    ),
    "softmax": (softmax, softmax_slope),
}


def activate(name: str, Z: np.ndarray, b: np.ndarray) -> None:
    Z += b
    ARRAYS[name][0](Z, np.empty_like(Z))


def to_delta(name: str, D: np.ndarray, A: np.ndarray) -> None:
    if name != "identity":
        np.multiply(D, ARRAYS[name][1](D, A, np.empty_like(D)), out=D)


def finish(
    name: str, Z: np.ndarray, b: np.ndarray, size: int, A: np.ndarray, before: int, places: np.ndarray, y: int, x: int
) -> None:
    """One pixel after another, of all windows at once: where it is larger than those before, it replaces them."""
    largest = Z
    if size > 1:
        largest = Z[:, ::size, ::size].copy()
        place, taken = np.zeros(largest.shape, places.dtype), np.empty(largest.shape, bool)
        for number in range(1, size * size):
            pixel = Z[:, number // size :: size, number % size :: size]
            np.greater(pixel, largest, out=taken)
            np.maximum(largest, pixel, out=largest)
            np.maximum(place, np.multiply(taken, number, dtype=place.dtype), out=place)  # numbers increase
        places[_part(largest, y, x)] = place
    activate(name, largest, b[:, None, None, None])
    A[_part(largest, before + y, before + x)] = largest


def deltas(
    name: str, G: np.ndarray, A: np.ndarray, before: int, places: np.ndarray, size: int, Z: np.ndarray, y: int, x: int
) -> None:
    windows = Z[:, ::size, ::size]
    there = _part(windows, before + y, before + x)
    D = Z if size == 1 else np.empty_like(windows, order="C")
    np.copyto(D, G[there])
    to_delta(name, D, A[there])
    if size == 1:
        return
    place, chosen = places[_part(windows, y, x)].copy(), np.empty(D.shape, bool)
    for number in range(size * size):
        np.equal(place, number, out=chosen)
        np.multiply(D, chosen, out=Z[:, number // size :: size, number % size :: size])


def _part(block: np.ndarray, y: int, x: int) -> tuple[slice, ...]:
    """Where a block is in a map, from row y and column x on."""
    return slice(None), slice(y, y + block.shape[1]), slice(x, x + block.shape[2])


def see(C: np.ndarray, stride: int, A: np.ndarray, y: int, x: int) -> None:
    for i, j, pixels in _pixels(C, stride, A, y, x):
        C[:, i, j] = pixels


def add(C: np.ndarray, stride: int, G: np.ndarray, y: int, x: int) -> None:
    for i, j, pixels in _pixels(C, stride, G, y, x):
        pixels += C[:, i, j]


def _pixels(C: np.ndarray, stride: int, image: np.ndarray, y: int, x: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """The pixels of an image that row i, column j of the filters meets: i, j, and the pixels."""
    _, k, _, height, width, _ = C.shape
    for i in range(k):
        rows = slice(y + i, y + i + (height - 1) * stride + 1, stride)
        for j in range(k):
            yield i, j, image[:, rows, x + j : x + j + (width - 1) * stride + 1 : stride]


def forth(name: str, finished: tuple[Any, ...], seen: tuple[Any, ...]) -> None:
    finish(name, *finished)
    see(*seen)


def back(
    total: np.ndarray, part: np.ndarray, further: bool, added: tuple[Any, ...], name: str, sent: tuple[Any, ...],
    seen: tuple[Any, ...],
) -> None:  # fmt: skip
    total += part
    if further:
        add(*added)
    deltas(name, *sent)
    see(*seen)


def product(A: np.ndarray, B: np.ndarray, C: np.ndarray) -> Callable[[], Any]:
    return functools.partial(np.matmul, A, B, out=C)


LARGE_BLOCK = 5 << 16  # 1.3 MB, for few calls
BY_ARRAYS = Functions(activate, to_delta, finish, deltas, see, add, forth, back, product, LARGE_BLOCK)


# ---- the kernel


def prepare(parameters: np.ndarray, gradients: np.ndarray, architecture: ChainArchitecture) -> Gradient:
    """A function of X and Y that writes their mean gradient, with NumPy."""
    return mean_gradient(
        gradients,
        architecture,
        lambda vector, batch, step: gradient_function(parameters, vector, architecture, batch, step, BY_ARRAYS),
    )


@network_gradient.kernel("numpy", device="cpu", prepare=prepare)
def array(parameters: np.ndarray, architecture: ChainArchitecture, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    gradients = np.empty_like(parameters)
    prepare(parameters, gradients, architecture)(X, Y)
    return gradients
