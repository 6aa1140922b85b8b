"""What warps ask memory for: the accesses of a trace put together into requests, and the sectors that each touches."""

import numpy as np

from cuda_on_cpu.trace import Memory

WARP, SECTOR = 32, 32  # threads per warp; bytes per sector of global memory
BANKS = 32  # of shared memory, for words of 4 bytes


def numbered(*columns: np.ndarray) -> np.ndarray:
    """A number for each row; equal rows have equal numbers."""
    number, most = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        above = column.astype(np.int64)
        above -= above.min(initial=0)
        span = int(above.max(initial=0)) + 1
        if most * span >= 1 << 62:
            number = np.unique(number, return_inverse=True)[1]
            most = len(number)
        number, most = number * span + above, most * span
    return number


def requests_of(rows: np.ndarray) -> np.ndarray:
    """For each access, the number of its request: an instruction's accesses to a memory in one visit of a warp."""
    of = numbered(rows["block"], rows["thread"] // WARP, rows["code"], rows["memory"], rows["visit"])
    return np.unique(of, return_inverse=True)[1]


def spread(first: np.ndarray, count: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Expand each row into `count` rows: first, first + 1, …, with the other columns repeated."""
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(first, count) + within, *(np.repeat(other, count) for other in others)


def _different(requests: np.ndarray, things: np.ndarray) -> np.ndarray:
    """The number of different `things` in each request, indexed by the request's number."""
    _, first = np.unique(numbered(requests, things), return_index=True)
    return np.bincount(requests[first])


def sectors_of(
    memory: Memory, rows: np.ndarray, requests: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """For each row its request, numbered from 0; for each request the number of sectors touched, and the fewest that
    could hold the same elements; and the number of the request with the largest ratio of the two.
    """
    request = np.unique(requests, return_inverse=True)[1]
    cell, of = spread(rows["cell"], rows["cells"], request)
    sectors = _different(of, cell * memory.itemsize // SECTOR)
    fewest = -(-_different(of, cell) * memory.itemsize // SECTOR)
    return request, sectors, fewest, int(np.argmax(sectors / fewest))


def turns_of(memory: Memory, rows: np.ndarray, requests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row its request, numbered from 0; for each request to shared memory the turns that its banks take.

    A bank gives out one word in a turn, so these are the most different words that a request wants of one bank.
    Accesses of 8 or 16 bytes are made in 2 or 4 parts, of which the slowest counts.
    """
    request = np.unique(requests, return_inverse=True)[1]
    words = np.maximum(rows["cells"] * memory.itemsize // 4, 1)
    part = rows["thread"] % WARP * words // WARP
    word, of, part = spread(rows["offset"] // 4, words, request, part)
    _, wanted = np.unique(numbered(of, part, word), return_index=True)
    of = of[wanted]
    _, bank, different = np.unique(
        numbered(of, part[wanted], word[wanted] % BANKS), return_index=True, return_counts=True
    )
    turns = np.zeros(int(request.max()) + 1, int)
    np.maximum.at(turns, of[bank], different)
    return request, turns
