"""Dropout: Philox's known answers, the statistics of the masks, and wrong kernels."""

from itertools import combinations

import numpy as np
import pytest

from nnclassroom.judge.check import check
from nncourse.kernels import jit
from nncourse.kernels.dropout import AT_HALF, BELOW_HALF, dropout, philox, words_in_python

CPU = ("loops", "numpy", "numba")

# Counter and key, and the four words that Random123 (Salmon et al., 2011) gives as known answers of philox4x32-10.
ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def test_known_answers():
    counters, keys, answers = zip(*ANSWERS, strict=True)
    assert [words_in_python(*pair) for pair in zip(counters, keys, strict=True)] == list(answers)
    assert [philox(*counter, *key) for counter, key in zip(counters, keys, strict=True)] == list(answers)
    compiled = jit.jit(philox)
    assert [compiled(*counter, *key) for counter, key in zip(counters, keys, strict=True)] == list(answers)
    at_once = philox(*np.array(counters).T, *np.array(keys).T)  # in int64
    assert [tuple(map(int, words)) for words in zip(*at_once, strict=True)] == list(answers)


@pytest.mark.parametrize("name", CPU)
def test_what_is_left_out_is_0_whatever_it_was(name):
    kept = dropout[name](np.ones((4, 40), np.float32), 0.5, 9, 0, 0, 0) != 0
    for value in (np.nan, np.inf, -np.inf):
        B = dropout[name](np.full((4, 40), value, np.float32), 0.5, 9, 0, 0, 0)
        assert not B[~kept].any()
        np.testing.assert_array_equal(B[kept], np.float32(value))


def test_the_seeds_at_the_edge_of_a_half_are_there():
    half, below = (words_in_python((0, 0, 0, 0), (seed, 0))[0] for seed in (AT_HALF, BELOW_HALF))
    assert half >> 8 == 2**23
    assert below >> 8 == 2**23 - 1 and np.float32(below) * np.float32(2.0**-32) == 0.5


# ---- is it random? Numbers are fixed, so these tests do not depend on luck; bounds are five standard deviations.


def mask(rate=0.3, shape=(200, 500), seed=1, epoch=2, first=0, layer=3):
    return dropout["numba"](np.ones(shape, np.float32), rate, seed, epoch, first, layer) != 0


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_the_share_that_is_kept_and_the_mean(rate):
    kept = mask(rate)
    spread = np.sqrt(rate * (1 - rate))
    assert abs(kept.mean() - (1 - rate)) < 5 * spread / np.sqrt(kept.size)
    assert (abs(kept.mean(axis=0) - (1 - rate)) < 5 * spread / np.sqrt(len(kept))).all(), "of each unit"
    assert (abs(kept.mean(axis=1) - (1 - rate)) < 5 * spread / np.sqrt(kept.shape[1])).all(), "of each sample"
    B = dropout["numba"](np.ones((200, 500), np.float32), rate, 1, 2, 0, 3)
    assert abs(B.mean() - 1) < 5 * np.sqrt(rate / (1 - rate) / B.size), "what is kept makes up for what is not"


def test_seeds_epochs_samples_layers_and_units_have_masks_of_their_own():
    """Two independent masks agree in a share of p² + q²."""
    masks = {"usual": mask(), "seed": mask(seed=2), "epoch": mask(epoch=3), "layer": mask(layer=4)}
    masks |= {"samples": mask(first=200), "one sample on": np.roll(mask(), 1, axis=0)}
    masks |= {f"{units} units on": np.roll(mask(), units, axis=1) for units in (1, 2, 3, 4, 8)}
    masks |= {"epoch and layer exchanged": mask(epoch=3, layer=2), "seed and epoch exchanged": mask(seed=2, epoch=1)}
    share = 0.3**2 + 0.7**2
    for one, other in combinations(masks, 2):
        agree = masks[one] == masks[other]
        assert abs(agree.mean() - share) < 5 * np.sqrt(share * (1 - share) / agree.size), f"{one}, {other}"


# ---- wrong kernels


def dropout_with(words=philox, factor=lambda rate: 1 - rate, keep=lambda word, rate: (word >> 8) * 2.0**-24 >= rate):
    """dropout with a mistake: other words, another factor, or another comparison."""

    def kernel(A, rate, seed, epoch, first, layer):
        B = np.zeros_like(A)
        for i, unit in np.ndindex(A.shape):
            of = words(unit // 4, (first + i) % 2**32, epoch, layer, seed, 0)
            if keep(of[unit % 4], np.float32(rate)):
                B[i, unit] = A[i, unit] / factor(np.float32(rate))
        return B

    return kernel


def by_mask(A, rate, *numbers):
    """Right for finite A, and so right: NaN · 0 and ∞ · 0, which are NaN, do not count."""
    return A * dropout["numpy"](np.ones_like(A), rate, *numbers)


def one_row_of_words(A, rate, seed, epoch, first, layer):
    """Numbers the words across rows, which is wrong unless a row has a multiple of four units."""
    flat = A.reshape(1, -1)
    return dropout["numpy"](flat, rate, seed, epoch, first, layer).reshape(A.shape)


def own_numbers(A, rate, seed, epoch, first, layer):
    kept = np.random.default_rng((seed, epoch, first, layer)).random(A.shape) >= rate
    return np.where(kept, A / (1 - rate), 0).astype(np.float32)


masked = dropout["numpy"].function
WRONG = {
    "right, for comparison": dropout_with(),
    "no factor": dropout_with(factor=lambda rate: np.float32(1)),
    "the wrong factor": dropout_with(factor=lambda rate: rate if rate else np.float32(1)),
    "keeps the others": dropout_with(keep=lambda word, rate: (word >> 8) * 2.0**-24 < rate),
    "u > rate": dropout_with(keep=lambda word, rate: (word >> 8) * 2.0**-24 > rate),
    "all 32 bits, rounded": dropout_with(keep=lambda word, rate: np.float32(word) * np.float32(2.0**-32) >= rate),
    "lowest bits": dropout_with(keep=lambda word, rate: (word & 0xFFFFFF) * 2.0**-24 >= rate),
    "words backwards": dropout_with(words=lambda *all: philox(*all)[::-1]),
    "word of another unit": dropout_with(words=lambda *all: (lambda a, b, c, d: (b, c, d, a))(*philox(*all))),
    "first word for all four": dropout_with(words=lambda *all: philox(*all)[:1] * 4),
    "epoch and layer exchanged": lambda A, rate, seed, epoch, first, layer: masked(A, rate, seed, layer, first, epoch),
    "seed and epoch exchanged": lambda A, rate, seed, epoch, first, layer: masked(A, rate, epoch, seed, first, layer),
    "no epoch": lambda A, rate, seed, epoch, first, layer: masked(A, rate, seed, 0, first, layer),
    "no layer": lambda A, rate, seed, epoch, first, layer: masked(A, rate, seed, epoch, first, 0),
    "no seed": lambda A, rate, seed, *others: masked(A, rate, 0, *others),
    "first is left out": lambda A, rate, seed, epoch, first, layer: masked(A, rate, seed, epoch, 0, layer),
    "one mask for all samples": lambda A, rate, *numbers: np.where(
        masked(np.ones_like(A[:1]), rate, *numbers) != 0, A / np.float32(1 - rate), np.float32(0)
    ),
    "31 bits for a sample's number": lambda A, rate, seed, epoch, first, layer: np.concatenate(
        [masked(A[i : i + 1], rate, seed, epoch, (first + i) % 2**31, layer) for i in range(len(A))]
    ),
    "16 bits for a seed": lambda A, rate, seed, *others: masked(A, rate, seed % 2**16, *others),
    "right for finite numbers": by_mask,
    "words numbered through": one_row_of_words,
    "other random numbers": own_numbers,
    "nothing left out": lambda A, *others: A.copy(),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_dropout_is_rejected(mistake):
    verdict = check(dropout, WRONG[mistake])
    assert bool(verdict) == mistake.startswith("right"), str(verdict)
