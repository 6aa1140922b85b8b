"""Operations of the exercises of notebook 03b: steps towards `dense_forward` in tiles, one idea each.

    add_bias      two axes of threads, and a guard for each
    turn_round    shared memory: after a barrier a thread reads what another one has loaded
    one_sample    shared memory that is refilled: two barriers in each step

No network calls them, and no backend has kernels for them.
"""

import numpy as np

from nncourse.kernels.operation import Operation, cuda_beside
from nncourse.kernels.trial import Budget, Limit, Trial

SOURCE = cuda_beside(__file__)
PIECE = STEP = 64  # as in nb03b.cu

add_bias = Operation(
    "add_bias",
    "Z_ij = A_ij + b_j",
    contract="A (batch, n), b (n,) -> Z (batch, n)",
    reference=lambda A, b: A + np.outer(np.ones(len(A)), b),
    flops=None,
)


@add_bias.kernel("numpy", device="cpu")
def broadcast(A, b):
    return A + b


add_bias.cuda_kernel("naive", SOURCE, block=(32, 8))


def _by_places(x):
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
        edge_cases=("zeros", "large", "infinite", "nan"),
        advice=lambda place, x: (
            f"that is place {place[0] % PIECE} in a piece of {min(PIECE, len(x) - place[0] // PIECE * PIECE)}"
        ),
        budgets={"shared": Budget({"n": 70}, (Limit("shared reads", "n"),))},
    ),
)


@turn_round.kernel("numpy", device="cpu")
def turned(x):
    return np.concatenate([x[first : first + PIECE][::-1] for first in range(0, len(x), PIECE)])


turn_round.cuda_kernel("shared", SOURCE, block=PIECE)


def _of_steps(n_in: int, n_out: int) -> dict[str, int]:
    return {"n_in": STEP * n_in, "n_out": STEP * n_out}


one_sample = Operation(
    "one_sample",
    f"z = W x + b: a layer for one sample; n_in and n_out are multiples of {STEP}",
    contract="x (n_in,), W (n_out, n_in), b (n_out,) -> z (n_out,)",
    reference=lambda x, W, b: np.einsum("k,jk->j", x, W) + b,
    flops=None,
    trial=Trial(
        sizes_to_check=tuple(_of_steps(*steps) for steps in ((1, 1), (2, 1), (1, 3), (3, 2), (5, 4), (16, 1), (1, 16))),
        draw_sizes=lambda rng: _of_steps(*map(int, rng.integers(1, 6, 2))),
        budgets={"shared": Budget(_of_steps(2, 2), (Limit("reads", "n_in * n_out // 8", "x"),))},
    ),
)


@one_sample.kernel("numpy", device="cpu")
def product(x, W, b):
    return W @ x + b


one_sample.cuda_kernel("shared", SOURCE, block=STEP)
