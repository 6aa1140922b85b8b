"""Operations of the exercises of notebook 03b: steps towards `dense_forward` in tiles, one idea each.

    add_bias           two axes of threads, and a guard for each
    dense_transposed   weights stored so that neighbouring threads read neighbouring ones
    turn_round         shared memory: after a barrier a thread reads what another one has loaded
    one_step           shared memory that a sum reads, filled once
    one_sample         shared memory that is refilled: two barriers in each step
    whole_tiles        two tiles, of sizes that need no guard

No network calls them, and no backend has kernels for them.
"""

from collections.abc import Iterator

import numpy as np

from nncourse.kernels.dense import BLOCKS, OF_ITS_OWN_BLOCK, dense_forward, of_other_rows
from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Trial, exact

SOURCE = cuda_beside(__file__)
PIECE = STEP = 64  # as in nb03b.cu
TILE = 16


def _of_another(place: tuple[int, ...], A: np.ndarray, b: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    batch, n = A.shape
    for width in BLOCKS:
        if n > width:
            yield OF_ITS_OWN_BLOCK, A + b[np.arange(n) % width]
    if batch <= n:
        yield "b is added along the batch, b[i] to row i: add b[j] to column j", A + b[:batch, None]


add_bias = Operation(
    "add_bias",
    "Z_ij = A_ij + b_j",
    contract="A (batch, n), b (n,) -> Z (batch, n)",
    reference=lambda A, b: A + np.outer(np.ones(len(A)), b),
    flops=None,
    trial=Trial(mistakes=_of_another),
)


@add_bias.kernel("numpy", device="cpu")
def broadcast(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    return A + b


add_bias.cuda_kernel("naive", SOURCE, block=(32, 8))


def _as_rows(place: tuple[int, ...], A: np.ndarray, W_t: np.ndarray, b: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    n_in, n_out = W_t.shape
    yield "W_t is read as W was, by rows: neuron j has column j of W_t", A @ W_t.reshape(n_out, n_in).T + b


dense_transposed = Operation(
    "dense_transposed",
    "Z = A W_t + b: a dense layer whose weights are transposed, a column for each neuron",
    contract="A (batch, n_in), W_t (n_in, n_out), b (n_out,) -> Z (batch, n_out)",
    reference=lambda A, W_t, b: np.einsum("ik,kj->ij", A, W_t) + b,
    flops=lambda batch, n_in, n_out: 2 * batch * n_in * n_out,
    trial=Trial(
        mistakes=_as_rows,
        budgets={
            "coalesced": Budget(
                {"batch": 32, "n_in": 32, "n_out": 32},
                tuple(Limit("sectors", "batch * n_in * n_out // 8", name) for name in ("A", "W_t")),
                {"batch": 16, "n_out": 96},
            )
        },
    ),
)


@dense_transposed.kernel("numpy", device="cpu")
def of_columns(A: np.ndarray, W_t: np.ndarray, b: np.ndarray) -> np.ndarray:
    return A @ W_t + b


dense_transposed.cuda_kernel("coalesced", SOURCE, block=(32, 8))


def _by_places(x: np.ndarray) -> np.ndarray:
    """Each place gets the number as far from the end of its piece as the place is from the start."""
    place = np.arange(len(x))
    first = place - place % PIECE
    last = np.minimum(first + PIECE, len(x)) - 1
    return x[first + last - place]


turn_round = Operation(
    "turn_round",
    f"each {PIECE} numbers of x in the opposite order; the last piece may be shorter",
    contract="x (n,) -> y (n,)",
    reference=_by_places,
    flops=None,
    trial=Trial(
        error_scale=exact,
        edge_cases=("zeros", "large", "infinite", "nan"),
        advice=lambda place, x: (
            f"that is position {place[0] % PIECE} in a piece of {min(PIECE, len(x) - place[0] // PIECE * PIECE)}"
        ),
        budgets={
            "shared": Budget(
                {"n": 70}, (Limit("shared reads", "3 * n // 4"), Limit("reads", "3 * n // 2", "x")), {"n": 230}
            )
        },
    ),
)


@turn_round.kernel("numpy", device="cpu")
def turned(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x[first : first + PIECE][::-1] for first in range(0, len(x), PIECE)])


turn_round.cuda_kernel("shared", SOURCE, block=PIECE)


def _of_steps(n_in: int, n_out: int) -> dict[str, int]:
    return {"n_in": STEP * n_in, "n_out": STEP * n_out}


def _of_one_sample(
    place: tuple[int, ...], x: np.ndarray, W: np.ndarray, b: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    n_out, n_in = W.shape
    yield "this is W x: add b", W @ x
    if n_out > STEP:
        yield OF_ITS_OWN_BLOCK, W @ x + b[np.arange(n_out) % STEP]
    words = f"only the last {STEP} products are in z: set the sum to 0 once, before the first step"
    yield words, W[:, -STEP:] @ x[-STEP:] + b
    cells = STEP * np.arange(n_out)[:, None] + np.arange(n_in)
    yield f"W is read as if its rows had {STEP} numbers: row j begins at W[j * n_in]", W.reshape(-1)[cells] @ x + b


def _for_one_sample(name: str, said: str, steps: tuple[tuple[int, int], ...], most_steps: int) -> Operation:
    """A layer for one sample, for sizes that are multiples of STEP: `steps` of them are checked, and random ones.

    With several steps the tile is what the exercise is about, so all threads have to fill it.
    """
    filled = (Limit("reads by a thread", "n_in // 16", "x"),) if most_steps > 1 else ()
    limits = (Limit("reads", "n_in * n_out // 8", "x"), *filled)
    return Operation(
        name,
        f"z = W x + b: a layer for one sample; {said}",
        contract="x (n_in,), W (n_out, n_in), b (n_out,) -> z (n_out,)",
        reference=lambda x, W, b: np.einsum("k,jk->j", x, W) + b,
        flops=None,
        trial=Trial(
            mistakes=_of_one_sample,
            sizes_to_check=tuple(_of_steps(*each) for each in steps),
            draw_sizes=lambda rng: _of_steps(int(rng.integers(1, most_steps + 1)), int(rng.integers(1, 6))),
            large_sizes=(_of_steps(STEP, 1),) if most_steps > 1 else (),  # n_in // 63 is a step too many from here on
            budgets={"shared": Budget(_of_steps(min(2, most_steps), 2), limits, _of_steps(min(4, most_steps), 3))},
        ),
    )


one_step = _for_one_sample(
    "one_step", f"n_in is {STEP}, n_out a multiple of it", ((1, 1), (1, 3), (1, 2), (1, 16)), most_steps=1
)
one_sample = _for_one_sample(
    "one_sample",
    f"n_in and n_out are multiples of {STEP}",
    ((1, 1), (2, 1), (1, 3), (3, 2), (5, 4), (16, 1), (1, 16)),
    most_steps=5,
)


@one_step.kernel("numpy", device="cpu")
@one_sample.kernel("numpy", device="cpu")
def product(x: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    return W @ x + b


one_step.cuda_kernel("shared", SOURCE, block=STEP)
one_sample.cuda_kernel("shared", SOURCE, block=STEP)


def _of_tiles(*counts: int) -> dict[str, int]:
    return {name: TILE * count for name, count in zip(("batch", "n_in", "n_out"), counts, strict=True)}


def _of_whole_tiles(
    place: tuple[int, ...], A: np.ndarray, W: np.ndarray, b: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    of_w, of_a = of_other_rows(A, W)
    yield "row y of W_tile is read: the weights of the thread's neuron are in row x", of_w + b
    yield "row x of A_tile is read: the inputs of the thread's sample are in row y", of_a + b
    assert dense_forward.trial.mistakes
    yield from dense_forward.trial.mistakes(place, A, W, b)


whole_tiles = Operation(
    "whole_tiles",
    f"Z = A Wᵀ + b, where batch, n_in and n_out are multiples of {TILE}",
    contract=dense_forward.contract,
    reference=dense_forward.reference,
    flops=None,
    trial=Trial(
        mistakes=_of_whole_tiles,
        sizes_to_check=tuple(
            _of_tiles(*counts) for counts in ((1, 1, 1), (1, 2, 1), (2, 1, 1), (1, 1, 2), (2, 3, 2), (3, 2, 1))
        ),
        draw_sizes=lambda rng: _of_tiles(*map(int, rng.integers(1, 4, 3))),
        budgets={"tiled": dense_forward.trial.budgets["tiled"]},
    ),
)


@whole_tiles.kernel("numpy", device="cpu")
def of_tiles(A: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    return A @ W.T + b


whole_tiles.cuda_kernel("tiled", SOURCE, block=(TILE, TILE))
