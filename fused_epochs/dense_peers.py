"""dense_sgd_epoch on several GPUs: each computes the gradient of its rows of a batch, and all_reduce.py adds them.

Every GPU holds all samples and the same parameters. These stay the same because the sums are bitwise equal.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil
from types import SimpleNamespace
from typing import Any

import numpy as np

from fused_epochs.all_reduce import GPUs, Simulated
from fused_epochs.dense import COSTS, MATHEMATICS, codes
from nncourse import device as devices
from nncourse.cuda.launch import launch
from nncourse.device import Array
from nncourse.errors import CourseError
from nncourse.group import shard
from nncourse.kernels.activations import ALPHA
from nncourse.kernels.dense_epoch import DenseArchitecture, batches, dense_sgd_epoch
from nncourse.kernels.operation import cuda_beside

# Constants of dense_peers.cu. A thread computes SIDE × SIDE elements of a product: 4 reuses more of what is read; 2
# makes more blocks, which keeps more of the GPU busy if a product has fewer than LARGE multiplications.
THREADS, AHEAD, LARGE = 128, 4, 1 << 20
SOURCES = {
    side: cuda_beside(
        __file__, f"THREADS={THREADS}", f"SIDE={side}", f"AHEAD={AHEAD}", f"ALPHA={ALPHA}f", before=(MATHEMATICS,)
    )
    for side in (2, 4)
}


def deltas_function(parameters: Array, architecture: DenseArchitecture, batch: int, **emulator: Any) -> SimpleNamespace:
    """`to_deltas(X, Y)` launches the kernels for activations A and deltas D of all layers. It allocates no arrays.

    `run` launches one kernel; `largest` is the grid of `gradients`, `table` its `layers` argument.
    """
    xp = devices.array_module(parameters)
    widths = architecture.sizes[1:]
    last = len(widths) - 1
    activations = codes(architecture.activations)
    softmax, cost = architecture.activations[-1] == "softmax", COSTS[architecture.cost]
    weights = architecture.views(parameters)
    starts = [batch * sum(widths[:layer]) for layer in range(len(widths) + 1)]
    all_A, all_D = (xp.empty(starts[-1], np.float32) for _ in range(2))
    A, D = ([array[start:end] for start, end in pairwise(starts)] for array in (all_A, all_D))
    table, place = [], 0
    for layer, (n_out, n_in) in enumerate(architecture.shapes):
        table.append((n_in, n_out, place, starts[layer], starts[layer - 1] if layer > 0 else 0))
        place += n_out * (n_in + 1)
    table = xp.array(table, np.int32)
    side = 4 if batch * max(n_out * n_in for n_out, n_in in architecture.shapes) >= LARGE else 2
    largest = ceil(max(widths) / side), ceil((max(architecture.sizes[:-1]) + 1) / (32 * side)), len(widths)

    def run(function: str, grid: tuple[int, ...], *arguments: Any, threads: int = THREADS) -> None:
        launch(SOURCES[side], function, grid, (threads,), arguments, **emulator)

    def to_deltas(X: Array, Y: Array) -> None:
        rows = len(X)
        below = X
        for layer, (n_out, n_in) in enumerate(architecture.shapes):
            grid, sizes = (ceil(rows / side), ceil(n_out / side)), (rows, n_in, n_out)
            if layer < last:
                run("forward", grid, below, *weights[layer], A[layer], *sizes, activations[layer])
            elif softmax:  # z is written without the activation
                run("forward", grid, below, *weights[layer], D[layer], *sizes, activations[layer])
                run("softmax_to_deltas", (rows,), D[layer], Y, n_out, cost, threads=32)
            else:
                run("forward_to_deltas", grid, below, *weights[layer], Y, D[layer], *sizes, activations[layer], cost)
            below = A[layer]
        for layer in range(last, 0, -1):
            n_out, n_in = architecture.shapes[layer]
            grid, sizes = (ceil(rows / side), ceil(n_in / (32 * side))), (rows, n_in, n_out)
            W, below = weights[layer][0], layer - 1
            run("hidden_deltas", grid, D[layer], W, A[below], D[below], *sizes, activations[below])

    return SimpleNamespace(A=all_A, D=all_D, to_deltas=to_deltas, run=run, largest=largest, table=table)


def epoch_function(
    peers: GPUs | Simulated,
    parameters: Sequence[Any],
    architecture: DenseArchitecture,
    X: Sequence[Any],
    Y: Sequence[Any],
    batch: int,
    rate: float,
    **emulator: Any,
) -> Callable[[], None]:
    """A function epoch() that trains on all samples once, in batches of all devices together.

    `parameters`, X and Y are one array for each device. epoch() only launches kernels and makes no arrays, so it can be
    recorded as a CUDA graph. `emulator`: options of emulate.run.
    """
    together = (parameters, X, Y)
    if any(len(arrays) != peers.size for arrays in together):
        got = ", ".join(str(len(arrays)) for arrays in together)
        raise CourseError(f"expected parameters, X and Y for each of {peers.size} devices; got {got}")
    for own, x, y in zip(*together, strict=True):
        dense_sgd_epoch.sizes(own, architecture, x, y, batch, rate)
    most = max(1, ceil(min(batch, len(X[0])) / peers.size))
    xp = devices.array_module(parameters[0])
    members, gradients = [], []
    for rank in range(peers.size):
        with peers.on(rank):
            members.append(deltas_function(parameters[rank], architecture, most, **emulator))
            gradients.append(xp.zeros(parameters[rank].size, np.float32))

    def epoch() -> None:
        for rows in batches(len(X[0]), batch):
            count = rows.stop - rows.start
            for rank, member in enumerate(members):
                own = shard(count, rank, peers.size)
                x, y = (array[rows][own] for array in (X[rank], Y[rank]))
                with peers.on(rank):
                    if len(x) == 0:
                        gradients[rank].fill(0)
                        continue
                    member.to_deltas(x, y)
                    sums = [gradients[rank], x, member.A, member.D, member.table, len(x), 1 / count]
                    member.run("gradients", member.largest, *sums)
            peers.all_reduce(gradients, **emulator)
            for rank, member in enumerate(members):
                with peers.on(rank):
                    grid = (ceil(parameters[rank].size / THREADS),)
                    member.run("descend", grid, parameters[rank], gradients[rank], parameters[rank].size, rate)

    return epoch
