"""dense_sgd_epoch on several GPUs: each computes the gradient of its rows of a batch, and all_reduce.py adds them.

Every GPU holds all samples and the same parameters, which stay the same because the sums are bitwise equal.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import numpy as np

from nncourse import device as devices
from nncourse.architecture import DenseArchitecture
from nncourse.cuda.launch import launch
from nncourse.epochs.dense import MATHEMATICS, batches, dense_sgd_epoch
from nncourse.epochs.dense_graph import SOURCES as DENSE
from nncourse.epochs.dense_graph import THREADS, deltas_function
from nncourse.errors import CourseError
from nncourse.group import shard
from nncourse.kernels.operation import cuda_beside
from nncourse.kernels.peer.all_reduce import GPUs, Simulated

SOURCES = {side: cuda_beside(__file__, *text.defines, before=(MATHEMATICS, text)) for side, text in DENSE.items()}


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
        raise CourseError(f"wanted parameters, X and Y for each of {peers.size} devices; got {got}")
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
                    launch(SOURCES[member.side], "gradients", member.largest, (THREADS,), sums, **emulator)
            peers.all_reduce(gradients, **emulator)
            for rank, member in enumerate(members):
                with peers.on(rank):
                    moved = [parameters[rank], gradients[rank], parameters[rank].size, rate]
                    grid = (ceil(parameters[rank].size / THREADS),)
                    launch(SOURCES[member.side], "descend", grid, (THREADS,), moved, **emulator)

    return epoch
