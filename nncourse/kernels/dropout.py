"""Dropout: in each training step, some neurons of a layer are left out at random, and the others scaled up.

The random numbers are those of Philox4x32-10 (Salmon et al., 2011): a function of a counter and a key, with no state.
So a mask follows from the seed, the epoch, the sample and the layer; every kernel computes the same one, in any order,
and the backward pass computes it again instead of keeping it.

Unit j of row i gets u = (word >> 8) · 2⁻²⁴, compared with the rate in float32, where word is number j % 4 of the four
words for the counter (j // 4, first + i, epoch, layer) and the key (seed, 0). `first` is the number, within the epoch,
of the batch's first sample. The rate is at least 0 and below 1.
"""

import numpy as np

from nncourse.kernels import jit
from nncourse.kernels.operation import Operation, cuda_beside

WORD = 0xFFFFFFFF
FACTORS = 0xD2511F53, 0xCD9E8D57  # of the first and of the third word
STEPS = 0x9E3779B9, 0xBB67AE85  # what is added to the key between rounds
ROUNDS = 10


def _philox_truth(counter, key):
    """Four random words, each below 2³², from a counter of four words and a key of two. In whole numbers of Python."""
    for turn in range(ROUNDS):
        k = [(word + turn * step) % 2**32 for word, step in zip(key, STEPS, strict=True)]
        (high_0, low_0), (high_2, low_2) = (
            divmod(counter[place] * factor, 2**32) for place, factor in zip((0, 2), FACTORS, strict=True)
        )
        counter = (high_2 ^ counter[1] ^ k[0], low_2, high_0 ^ counter[3] ^ k[1], low_0)
    return counter


def _truth(A, rate, seed, epoch, first, layer):
    batch, n = A.shape
    rate = float(np.float32(rate))
    B = np.zeros_like(A)
    for i in range(batch):
        for unit in range(n):
            if unit % 4 == 0:
                words = _philox_truth((unit // 4, (first + i) % 2**32, epoch, layer), (seed, 0))
            if words[unit % 4] // 2**8 >= rate * 2**24:
                B[i, unit] = A[i, unit] / (1 - rate)
    return B


def _rate(rng, shape, sizes):
    """From 0 to 0.9, such that float32 and float64 agree about it."""
    return float(np.float32((0.5, 0.0, 0.25, rng.uniform(0.01, 0.9))[sizes["turn"] % 4]))


def _number(rng, shape, sizes):
    """A whole number for a counter: small, or any that fits 32 bits with a sign."""
    return int(rng.integers(0, (3, 1000, 2**31)[sizes["turn"] % 3]))


NUMBERS = ("seed", "epoch", "first", "layer")

dropout = Operation(
    "dropout",
    "B = A / (1 − rate) where u ≥ rate, else 0; u is random in [0, 1), from seed, epoch, sample, layer and unit",
    contract="A (batch, n), rate (), seed () int, epoch () int, first () int, layer () int -> B (batch, n)",
    truth=_truth,
    magnitude=lambda A, rate, *numbers: abs(A) / (1 - rate),
    values={"rate": _rate} | dict.fromkeys(NUMBERS, _number),
    sizes_to_check=[
        {"batch": batch, "n": n} | dict.fromkeys(NUMBERS, 0)
        for batch, n in ((5, 7), (1, 1), (1, 4), (3, 2), (4, 16), (17, 33), (2, 131), (33, 128), (1, 1025))
    ],
    flops=lambda batch, n, **others: batch * n,
)


def philox(c0, c1, c2, c3, k0, k1):
    """Four random words from a counter of four words and a key of two, as whole numbers of 64 bits, or of Python."""
    for _ in range(10):
        p0, p2 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c2 = ((p2 >> 32) & 0xFFFFFFFF) ^ c1 ^ k0, ((p0 >> 32) & 0xFFFFFFFF) ^ c3 ^ k1
        c1, c3 = p2 & 0xFFFFFFFF, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


@dropout.kernel("loops", device="cpu")
def loops(A, rate, seed, epoch, first, layer):
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
def array(A, rate, seed, epoch, first, layer):
    batch, n = A.shape
    groups = -(-n // 4)
    # words 0 and 2 of all counters, which are multiplied, and words 1 and 3, which are not
    even = np.empty_like(A, shape=(2, batch, groups), dtype=np.uint64)
    odd = np.empty_like(even)
    even[0] = np.cumsum(np.ones_like(even[0, 0])) - 1
    even[1] = epoch
    odd[0] = ((np.cumsum(np.ones_like(even[0, :, :1]), axis=0) - 1) + np.uint64(first)) & np.uint64(WORD)
    odd[1] = layer
    key = [seed, 0]
    for _ in range(ROUNDS):
        first_product, second_product = even[0] * np.uint64(FACTORS[0]), even[1] * np.uint64(FACTORS[1])
        even[0] = (second_product >> np.uint64(32)) ^ odd[0] ^ np.uint64(key[0])
        even[1] = (first_product >> np.uint64(32)) ^ odd[1] ^ np.uint64(key[1])
        odd[0], odd[1] = second_product & np.uint64(WORD), first_product & np.uint64(WORD)
        key = [(word + step) & WORD for word, step in zip(key, STEPS, strict=True)]
    words = np.stack([even[0], odd[0], even[1], odd[1]], axis=-1).reshape(batch, 4 * groups)[:, :n]
    u = (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    rate = np.float32(rate)
    return np.where(u >= rate, A / (np.float32(1) - rate), np.float32(0))


dropout.cuda_kernel("naive", cuda_beside(__file__))
