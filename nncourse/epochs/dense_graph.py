"""dense_sgd_epoch as a few CUDA kernels a step: `fused` launches them one by one, `graph` replays a recording.

Launching a kernel from Python takes longer than the kernel of a small network runs. A CUDA graph is a recording of many
launches, which one call replays. The kernels are in dense_graph.cu.
"""

import atexit
import functools
from itertools import pairwise
from math import ceil
from types import SimpleNamespace

import numpy as np

from nncourse import device as devices
from nncourse.architecture import DenseArchitecture
from nncourse.cuda.launch import launch
from nncourse.epochs.dense import COSTS, MATHEMATICS, batches, codes, dense_sgd_epoch
from nncourse.epochs.recordings import MOST_STEPS, most_steps, record, replay
from nncourse.kernels.activations import ALPHA
from nncourse.kernels.operation import cuda_beside

# Constants of the .cu text. A thread computes SIDE × SIDE elements of a product: 4 reuses more of what is read; 2 makes
# more blocks, which keeps more of the GPU busy if a product has fewer than LARGE multiplications.
THREADS, AHEAD, LARGE = 128, 4, 1 << 20
SOURCES = {
    side: cuda_beside(
        __file__, f"THREADS={THREADS}", f"SIDE={side}", f"AHEAD={AHEAD}", f"ALPHA={ALPHA}f", before=(MATHEMATICS,)
    )
    for side in (2, 4)
}


def deltas_function(parameters, architecture: DenseArchitecture, batch: int, **emulator) -> SimpleNamespace:
    """`to_deltas(X, Y)` launches the kernels that compute activations A and deltas D of all layers. It makes no arrays.

    `run` launches one kernel; `largest` is the grid of an update, `table` its `layers` argument.
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

    def run(function, grid, *arguments, threads=THREADS):
        launch(SOURCES[side], function, grid, (threads,), arguments, **emulator)

    def deltas_below(layer, rows, A_below, D_below, activation):
        (n_out, n_in), (W, _) = architecture.shapes[layer], weights[layer]
        grid = ceil(rows / side), ceil(n_in / (32 * side))
        run("hidden_deltas", grid, D[layer], W, A_below, D_below, rows, n_in, n_out, activation)

    def to_deltas(X, Y):
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
            deltas_below(layer, rows, A[layer - 1], D[layer - 1], activations[layer - 1])

    made = {"to_deltas": to_deltas, "deltas_below": deltas_below, "run": run, "largest": largest, "table": table}
    return SimpleNamespace(A=all_A, D=all_D, side=side, **made)


def step_function(parameters, architecture: DenseArchitecture, batch: int, rate: float, **emulator):
    """A function step(X, Y) that takes one training step. It only launches kernels: its arrays are allocated here."""
    made = deltas_function(parameters, architecture, batch, **emulator)

    def step(X, Y):
        made.to_deltas(X, Y)
        made.run("update", made.largest, parameters, X, made.A, made.D, made.table, len(X), rate / len(X))

    return step


@dense_sgd_epoch.kernel("fused", device="gpu", cuda=True)
def fused(parameters, architecture, X, Y, batch, rate, **emulator):
    """Launch the kernels of each step one by one."""
    dense_sgd_epoch.sizes(parameters, architecture, X, Y, batch, rate)
    xp = devices.array_module(parameters)
    X, Y = xp.ascontiguousarray(X), xp.ascontiguousarray(Y)
    step = step_function(parameters, architecture, min(batch, max(1, len(X))), rate, **emulator)
    for rows in batches(len(X), batch):
        step(X[rows], Y[rows])
    return parameters


@functools.lru_cache(maxsize=4)
def recording(architecture: DenseArchitecture, batch: int, steps: int, rate: float, device: int) -> SimpleNamespace:
    """A recording of `steps` training steps on full batches. `device` is the current GPU."""
    import cupy

    cupy.cuda.Device().synchronize()  # an older recording that is dropped from the cache may still be running
    with cupy.cuda.Stream(non_blocking=True) as stream:  # the default stream cannot be recorded
        n, sizes = steps * batch, architecture.contract_sizes
        shapes = sizes["p"], (n, sizes["n_in"]), (n, sizes["n_out"])
        parameters, X, Y = (cupy.zeros(shape, np.float32) for shape in shapes)
        step = step_function(parameters, architecture, batch, rate)
        return record(stream, (parameters,), X, Y, batch, lambda X, Y, number: step(X, Y))


atexit.register(recording.cache_clear)  # before CuPy is unloaded


@dense_sgd_epoch.kernel("graph", device="gpu", cuda=True)
def graph(parameters, architecture, X, Y, batch, rate, **emulator):
    """Replay the launches of up to 50 steps as a CUDA graph. Remaining steps, and NumPy arrays, are left to `fused`."""
    dense_sgd_epoch.sizes(parameters, architecture, X, Y, batch, rate)
    steps = min(most_steps(batch, architecture.sizes[0] + architecture.sizes[-1], MOST_STEPS), len(X) // batch)
    floats = all(array.dtype == np.float32 for array in (parameters, X, Y))  # `fused` refuses other types
    if steps == 0 or not floats or not devices.on_gpu(parameters):
        return fused(parameters, architecture, X, Y, batch, rate, **emulator)
    import cupy

    made = recording(architecture, batch, steps, float(rate), cupy.cuda.runtime.getDevice())
    whole = replay(made, (parameters,), X, Y)
    return fused(parameters, architecture, X[whole:], Y[whole:], batch, rate)
