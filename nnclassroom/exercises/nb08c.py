"""Operations of the exercises of notebook 08c: what a request of a warp costs, as a GPU counts it.

warp_sectors   the sectors of 32 bytes that a warp's addresses touch in global memory
bank_turns     the turns that the banks of shared memory need for a warp's addresses
"""

from collections.abc import Callable, Iterator

import numpy as np

from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

SECTOR, WORD, BANKS, IDLE = 32, 4, 32, -1  # bytes; bytes; of shared memory; a lane that asks for nothing
Counts = Iterator[tuple[str, np.ndarray]]


def _patterns(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Addresses as kernels have them: along a row, with a stride, one for all, two rows, any; and idle lanes."""
    requests, lanes = shape
    lane = np.arange(lanes)
    rows = []
    for _ in range(requests):
        stride = int(rng.choice([1, 2, 8, 16, 17, 32, 33]))
        words = (
            lane,
            stride * lane,
            np.zeros_like(lane),
            lane // 16 * stride * 16 + lane % 16,
            stride * (lane % 4) + lane // 4,
            rng.permutation(lane),
            rng.integers(0, 4096, lanes),
            rng.integers(0, 4, lanes) * stride,
        )[rng.integers(8)]
        addresses = WORD * (words + rng.integers(0, 40))
        some = (lane < rng.integers(1, lanes + 1), rng.random(lanes) < 0.6, np.zeros(lanes, bool), True, True)
        rows.append(np.where(some[rng.integers(5)], addresses, IDLE))
    return np.array(rows, np.int32).reshape(shape)


def _of_rows(count: Callable[[np.ndarray], int]) -> Callable[[np.ndarray], np.ndarray]:
    """A count for each warp, from the addresses of the lanes that ask for something."""
    return lambda addresses: np.array([count(row[row >= 0].astype(int)) for row in addresses], np.int32)


def _most_in_a_bank(words: np.ndarray) -> int:
    return int(np.bincount(words % BANKS, minlength=BANKS).max()) if len(words) else 0


_sectors = _of_rows(lambda row: len(np.unique(row // SECTOR)))
_turns = _of_rows(lambda row: _most_in_a_bank(np.unique(row // WORD)))


def _mistakes_of_sectors(place: tuple[int, ...], addresses: np.ndarray) -> Counts:
    words = "this counts single numbers: all in the same 32 bytes, which begin at a multiple of 32, are one sector"
    yield words, _of_rows(lambda row: len(np.unique(row)))(addresses)
    yield words, _of_rows(len)(addresses)
    words = "−1 is counted as an address: such a lane asks for nothing"
    yield words, np.array([len(np.unique(row // SECTOR)) for row in addresses], np.int32)
    words = "all sectors from the first to the last are counted: leave out those that no lane touches"
    yield words, _of_rows(lambda row: int(row.max() // SECTOR - row.min() // SECTOR) + 1 if len(row) else 0)(addresses)
    words = "addresses are bytes, not numbers of elements: a sector has 32 of them"
    yield words, _of_rows(lambda row: len(np.unique(row * WORD // SECTOR)))(addresses)


def _mistakes_of_turns(place: tuple[int, ...], addresses: np.ndarray) -> Counts:
    words = "lanes that want the same word are counted one by one: the bank sends it to all of them at once"
    yield words, _of_rows(lambda row: _most_in_a_bank(row // WORD))(addresses)
    words = "addresses are bytes: a bank is 4 bytes wide, so divide by 4 first"
    yield words, _of_rows(lambda row: _most_in_a_bank(np.unique(row)))(addresses)
    words = "this counts the different words: only words in the same bank need turns of their own"
    yield words, _of_rows(lambda row: len(np.unique(row // WORD)))(addresses)
    words = "this counts the banks: what counts is the most different words that one of them must send"
    yield words, _of_rows(lambda row: len(np.unique(row // WORD % BANKS)))(addresses)
    yield "a warp in which no lane asks needs 0 turns", np.maximum(_turns(addresses), 1)
    words = "−1 is counted as an address: such a lane asks for nothing"
    yield words, np.array([_most_in_a_bank(np.unique(row // WORD)) for row in addresses.astype(int)], np.int32)


def _there(place: tuple[int, ...], addresses: np.ndarray) -> str:
    row = addresses[place[0]]
    return f"the warp there asks for the addresses {', '.join(map(str, row[:8]))}{' …' if len(row) > 8 else ''}"


def _trial(mistakes: Callable[..., Counts]) -> Trial:
    return Trial(
        values={"addresses": _patterns},
        edge_cases=(),
        mistakes=mistakes,
        advice=_there,
        sizes_to_check=tuple(
            {"requests": requests, "lanes": lanes} for requests, lanes in ((1, 32), (40, 32), (5, 7), (3, 1))
        ),
        draw_sizes=lambda rng: {"requests": int(rng.integers(1, 60)), "lanes": int(rng.choice([32, 32, 32, 16]))},
    )


CONTRACT = "addresses (requests, lanes) int -> {} (requests,) int"

warp_sectors = Operation(
    "warp_sectors",
    "the number of different sectors of 32 bytes among a warp's addresses",
    contract=CONTRACT.format("sectors"),
    reference=_sectors,
    flops=None,
    trial=_trial(_mistakes_of_sectors),
)

bank_turns = Operation(
    "bank_turns",
    "the largest number of different words that a warp wants from one of 32 banks",
    contract=CONTRACT.format("turns"),
    reference=_turns,
    flops=None,
    trial=_trial(_mistakes_of_turns),
)


@warp_sectors.kernel("numpy", device="cpu")
def different_sectors(addresses: np.ndarray) -> np.ndarray:
    return np.array([len(set(row[row >= 0] // SECTOR)) for row in addresses], np.int32)


@bank_turns.kernel("numpy", device="cpu")
def largest_bank(addresses: np.ndarray) -> np.ndarray:
    turns = np.zeros(len(addresses), np.int32)
    for warp, row in enumerate(addresses):
        words = np.unique(row[row >= 0] // WORD)
        turns[warp] = np.bincount(words % BANKS, minlength=BANKS).max()
    return turns
