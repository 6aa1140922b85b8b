"""Dropout: in each training step, some neurons of a layer are left out at random, and the others scaled up.

The random numbers come from Philox4x32-10 (Salmon et al., 2011), a function of a counter and a key, without any state.
So a mask depends only on the seed, the epoch, the sample and the layer: every kernel computes the same one, in any
order, and the backward pass computes it again instead of storing it.

Unit j of row i gets u = (word >> 8) · 2⁻²⁴, which is compared with the rate in float32. The word is number j % 4 of the
four words for the counter (j // 4, first + i, epoch, layer) and the key (seed, 0). `first` is the index, within the
epoch, of the batch's first sample. The rate is at least 0 and below 1.
"""

import functools
import math

import numpy as np

from nncourse.device import Array
from nncourse.kernels import jit
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Trial, sizes_named

WORD = 0xFFFFFFFF
FACTORS = 0xD2511F53, 0xCD9E8D57  # of the first and of the third word
STEPS = 0x9E3779B9, 0xBB67AE85  # what is added to the key between rounds
ROUNDS = 10


def words_in_python(counter: tuple[Array, ...], key: tuple[int, int]) -> tuple[Array, ...]:
    """Four random words below 2³² from a counter of four and a key of two: Python integers, or arrays of these."""
    (a, b, c, d), (key_a, key_c) = counter, key
    for turn in range(ROUNDS):
        of_a, of_c = a * FACTORS[0], c * FACTORS[1]
        a, b = of_c // 2**32 ^ b ^ (key_a + turn * STEPS[0]) % 2**32, of_c % 2**32
        c, d = of_a // 2**32 ^ d ^ (key_c + turn * STEPS[1]) % 2**32, of_a % 2**32
    return a, b, c, d


@functools.lru_cache(maxsize=8)
def _words(batch: int, n: int, seed: int, epoch: int, first: int, layer: int) -> Array:
    """A word for each unit; cached, since Python integers are slow and the large cases always have the same numbers."""
    groups = np.arange(-(-n // 4)).astype(object)
    samples = (first + np.arange(batch).astype(object)[:, None]) % 2**32
    words = words_in_python((groups, samples, epoch, layer), (seed, 0))
    return np.stack(words, axis=-1).reshape(batch, -1)[:, :n].astype(np.uint32)


def _truth(A: Array, rate: float, seed: int, epoch: int, first: int, layer: int) -> Array:
    """rate · 2²⁴ is exact, because the rate in float32 has 24 bits."""
    rate = float(np.float32(rate))
    dropped = _words(*A.shape, seed, epoch, first, layer) // 256 < rate * 2**24
    return np.where(dropped, 0, A / (1 - rate))


# ---- the trial

# Seeds for which unit 0 of sample 0, with 0 for the other numbers, is at the edge of a rate of 0.5. With the first u is
# 0.5; with the second u is the largest number below, but word · 2⁻³² rounds to 0.5.
AT_HALF, BELOW_HALF = 515_707, 4_613_456
MOST = 2**31 - 1
_sizes = sizes_named("batch n seed epoch first layer")


def _rate(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
    """A rate from 0 to 0.9 that is the same number in float32 and float64."""
    at_edge = sizes["seed"] in (AT_HALF, BELOW_HALF)
    return 0.5 if at_edge else float(np.float32((0.5, 0.0, 0.25, rng.uniform(0.01, 0.9))[sizes["turn"] % 4]))


def _draw(rng: np.random.Generator) -> Sizes:
    """A small batch; the other numbers are below 3, below 1,000, or any that fit."""
    return _sizes(*rng.integers(1, 41, 2).tolist(), *rng.integers(0, rng.choice([3, 1000, MOST], 4)).tolist())


dropout = Operation(
    "dropout",
    "B = A / (1 − rate) where u ≥ rate, else 0; u is random in [0, 1), from seed, epoch, sample, layer and unit",
    contract="A (batch, n), rate (), seed () int, epoch () int, first () int, layer () int -> B (batch, n)",
    reference=_truth,
    flops=lambda batch, n, **others: batch * n,
    trial=Trial(
        error_scale=lambda A, rate, *numbers: abs(A) / (1 - rate),
        values={"rate": _rate},
        edge_cases=("zeros", "large", "infinite", "nan"),
        sizes_to_check=[
            _sizes(5, 19, 1, 2, 64, 3),
            _sizes(1, 1, AT_HALF, 0, 0, 0),
            _sizes(1, 4, BELOW_HALF, 0, 0, 0),
            _sizes(3, 2, 0, 0, 0, 0),
            _sizes(4, 16, MOST, MOST, MOST, MOST),  # the samples' numbers need the sign bit too
            _sizes(17, 33, 70_000, 70_001, 70_002, 70_003),
            _sizes(33, 131, 12, 0, 32, 0),
        ],
        draw_sizes=_draw,
        large_sizes=[_sizes(1, 66_100, 1, 2, 3, 4), _sizes(65_919, 1, 4, 3, 2, 1)],
        sizes_to_time=lambda device: _sizes(*((65_536, 1024) if device == "gpu" else (32, 128)), 1, 1, 0, 1),
    ),
)

# ---- kernels


def philox(a: Array, b: Array, c: int, d: int, key_a: int, key_c: int) -> tuple[Array, ...]:
    """Four random words from a counter of four words and a key of two: integers, or int64 arrays.

    In int64 a product may overflow and be negative; its two words are right all the same.
    """
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b = ((q >> 32) & 0xFFFFFFFF) ^ b ^ key_a, q & 0xFFFFFFFF
        c, d = ((p >> 32) & 0xFFFFFFFF) ^ d ^ key_c, p & 0xFFFFFFFF
        key_a, key_c = (key_a + 0x9E3779B9) & 0xFFFFFFFF, (key_c + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


@dropout.kernel("loops", device="cpu")
def loops(A: Array, rate: float | np.float32, seed: int, epoch: int, first: int, layer: int) -> Array:
    batch, n = A.shape
    B = np.empty_like(A)
    rate = np.float32(rate)
    kept = np.float32(1) - rate
    for i in range(batch):
        for unit in range(0, n, 4):
            words = philox(unit // 4, (first + i) & 0xFFFFFFFF, epoch, layer, seed, 0)
            for j in range(min(4, n - unit)):
                u = np.float32(words[j] >> 8) * np.float32(2.0**-24)
                if u >= rate:
                    B[i, unit + j] = A[i, unit + j] / kept
                else:
                    B[i, unit + j] = 0
    return B


dropout.kernel("numba", device="cpu", written=loops)(jit.at_first_call(lambda: jit.compiled_together(philox, loops)))


@dropout.array_kernel
def array(A: Array, rate: float | np.float32, seed: int, epoch: int, first: int, layer: int) -> Array:
    """All counters at once: a row for each sample, a column for each four units. u ≥ rate as a comparison of words."""
    batch, n = A.shape
    rate = np.float32(rate)
    smallest = math.ceil(rate * 2**24) << 8
    samples = (np.arange(batch, like=A)[:, None] + first) & WORD
    words = philox(np.arange(-(-n // 4), like=A), samples, epoch, layer, seed, 0)
    kept = np.empty_like(A, shape=(batch, words[0].shape[1], 4), dtype=bool)
    for j in range(4):
        kept[..., j] = words[j] >= smallest
    return np.where(kept.reshape(batch, -1)[:, :n], A / (1 - rate), np.float32(0))


PHILOX = cuda_beside(__file__, name="philox")
dropout.cuda_kernel("naive", cuda_beside(__file__, before=(PHILOX,)))
