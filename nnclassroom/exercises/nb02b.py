"""Operations of the exercises of notebook 02b, in which threads also touch elements other than their own.

    reverse        the thread reads from the other end
    every_second   the input is twice as long as the result: two sizes, and the guard needs only one of them
    saxpy          more elements than threads: each thread takes several, a whole grid apart

No network calls them, and no backend has kernels for them.
"""

from collections.abc import Iterator

import numpy as np

from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Trial, exact

SOURCE = cuda_beside(__file__)
BLOCKS = (32, 64, 128, 256)  # of students


def _not_reversed(place: tuple[int, ...], x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield "this is x in its own order", x
    for width in BLOCKS:
        if len(x) > width:
            pieces = [x[first : first + width][::-1] for first in range(0, len(x), width)]
            yield "each block is reversed on its own here: y[0] is the last number of x", np.hstack(pieces)


reverse = Operation(
    "reverse",
    "y_i = x_(n−1−i): the numbers of x in the opposite order",
    contract="x (n,) -> y (n,)",
    reference=lambda x: x[np.arange(len(x))[::-1]],
    flops=None,
    trial=Trial(error_scale=exact, mistakes=_not_reversed, edge_cases=("zeros", "large", "infinite", "nan")),
)


@reverse.kernel("numpy", device="cpu")
def flipped(x: np.ndarray) -> np.ndarray:
    return x[::-1].copy()


reverse.cuda_kernel("naive", SOURCE)


def _other_numbers(place: tuple[int, ...], x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    m = (len(x) + 1) // 2
    yield "this is the first half of x: element i of y is x[2 * i]", x[:m]
    if len(x) % 2 == 0:
        yield "these are x[1], x[3], x[5], …: every second number, but not from x[0] on", x[1::2]


every_second = Operation(
    "every_second",
    "y_i = x_(2i): every second number of x, from the first on",
    contract="x (n,) -> y (m,) where m = (n + 1) // 2",
    reference=lambda x: x[2 * np.arange((len(x) + 1) // 2)],
    flops=None,
    trial=Trial(error_scale=exact, mistakes=_other_numbers, edge_cases=("zeros", "large", "infinite", "nan")),
)


@every_second.kernel("numpy", device="cpu")
def sliced(x: np.ndarray) -> np.ndarray:
    return x[::2].copy()


every_second.cuda_kernel("naive", SOURCE)


def _other_sums(place: tuple[int, ...], a: float, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield "y is replaced here: add a · x to what it holds", a * x
    yield "x is added here without its factor a", x + y
    yield "a · x is added twice: two threads, or two rounds of the loop, had the same element", 2 * a * x + y


saxpy = Operation(
    "saxpy",
    "y ← a x + y",
    contract="a (), x (n,), y (n,) -> y (n,)",
    reference=lambda a, x, y: a * x + y,
    flops=lambda n: 2 * n,
    trial=Trial(mistakes=_other_sums),
)


@saxpy.kernel("numpy", device="cpu")
def added(a: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    y += a * x
    return y


saxpy.cuda_kernel("grid_stride", SOURCE, block=32, grid=(4,))
