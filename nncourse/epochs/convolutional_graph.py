"""Epochs of convolutional networks as a few CUDA kernels a step: `fused` launches them, `graph` replays a recording.

The kernels of dense_graph.cu compute the dense layers; the others are in convolutional_graph.cu.
"""

import atexit
import functools
from math import ceil, inf, log, prod
from types import SimpleNamespace

import numpy as np

from nncourse import device as devices
from nncourse.architecture import ConvolutionalArchitecture
from nncourse.cuda.launch import launch
from nncourse.epochs.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch
from nncourse.epochs.dense import MATHEMATICS, batches, codes
from nncourse.epochs.dense_graph import SOURCES as DENSE
from nncourse.epochs.dense_graph import THREADS, deltas_function
from nncourse.epochs.recordings import MOST_STEPS, most_steps, record, replay
from nncourse.kernels.operation import cuda_beside

MOST_THREADS = 512  # of the block that takes a sample
SOURCES = {side: cuda_beside(__file__, *text.defines, before=(MATHEMATICS, text)) for side, text in DENSE.items()}


def table_of(architecture: ConvolutionalArchitecture) -> tuple[list[list[int]], int, int]:
    """A row for each convolution, as the .cu text has them; the numbers of all maps but X, and of all filters."""
    rows, maps, weights = [], 0, 0
    for number, f in enumerate(architecture.convolutions):
        below, above = architecture.maps[number : number + 2]
        code, start = codes(architecture.activations)[number], maps - prod(below) if number > 0 else 0
        rows.append([*below, *above, f.k, f.stride, f.before, code, start, maps, weights])
        maps += prod(above)
        weights += prod(architecture.shapes[number]) + f.count
    return rows, maps, weights


def step_function(
    changed: tuple, rate, taken, architecture: ConvolutionalArchitecture, batch: int, adam: tuple = (), **emulator
):
    """A function step(X, Y, number) that only launches kernels: its arrays are allocated here.

    `changed` are the parameters; for Adam M and V too, and then `adam` are β₁, β₂ and ε. `rate` and `taken`, the steps
    before number 0, are arrays with one element.
    """
    parameters = changed[0]
    xp = devices.array_module(parameters)
    rows, numbers, filter_numbers = table_of(architecture)
    last, pool, inputs = architecture.maps[-1], architecture.pool, prod(architecture.pooled)
    dense = deltas_function(parameters[filter_numbers:], architecture.dense, batch, **emulator)
    layers = dense.table.copy()
    layers[:, 2] += filter_numbers  # where the weights begin among all parameters
    table = xp.array(rows, np.int32).reshape(-1) if rows else xp.zeros(1, np.int32)
    maps, deltas = (xp.zeros((batch, max(1, numbers)), np.float32) for _ in range(2))
    A, D = (xp.zeros((batch, inputs), np.float32) for _ in range(2))
    places = xp.zeros((batch, inputs), np.int32)
    gradients = xp.zeros((batch, max(1, filter_numbers)), np.float32)
    threads = min(MOST_THREADS, 32 * ceil(max(prod(shape[1:]) for shape in architecture.maps) / 32))
    grid = (*dense.largest[:2], len(architecture.sizes) + (1 if rows else 0))
    remembered = changed[1:] or (parameters, parameters)
    *betas, epsilon = adam or (0.0, 0.0, 1.0)
    of_adam = [number for beta in betas for number in (beta, 1 - beta, log(beta) if beta else -inf)]

    def run(function, grid, threads, *arguments):
        launch(SOURCES[dense.side], function, grid, (threads,), arguments, **emulator)

    def step(X, Y, number):
        n = len(X)
        flat = X.reshape(n, -1)
        if rows or pool:
            shape = (len(rows), numbers, pool, *last)
            run("images_forward", (n,), threads, parameters, flat, maps, A, places, table, *shape)
            flat_inputs = A
        else:
            flat_inputs = flat
        dense.to_deltas(flat_inputs[:n], Y)
        if rows:
            dense.deltas_below(0, n, A, D, rows[-1][9])
            shape = (len(rows), numbers, pool, inputs, filter_numbers)
            run("images_backward", (n,), threads, parameters, flat, maps, D, places, deltas, gradients, table, *shape)
        run(
            "update_all", grid, THREADS, parameters, *remembered, flat_inputs, dense.A, dense.D, layers,
            len(architecture.sizes), gradients, filter_numbers, n, rate, taken, number, int(bool(adam)),
            *of_adam, epsilon,
        )  # fmt: skip

    return step


# ---- fused: the kernels of each step, launched one by one


@convolutional_sgd_epoch.kernel("fused", device="gpu", cuda=True)
def sgd_fused(parameters, architecture, X, Y, batch, rate, **emulator):
    """Launch the kernels of each step one by one."""
    convolutional_sgd_epoch.sizes(parameters, architecture, X, Y, batch, rate)
    _launched((parameters,), architecture, X, Y, batch, rate, 0, (), emulator)
    return parameters


@convolutional_adam_epoch.kernel("fused", device="gpu", cuda=True)
def adam_fused(parameters, M, V, architecture, X, Y, batch, rate, steps, beta1, beta2, epsilon, **emulator):
    """Launch the kernels of each step one by one."""
    adam = beta1, beta2, epsilon
    convolutional_adam_epoch.sizes(parameters, M, V, architecture, X, Y, batch, rate, steps, *adam)
    _launched((parameters, M, V), architecture, X, Y, batch, rate, steps, adam, emulator)
    return parameters, M, V


def _launched(changed: tuple, architecture, X, Y, batch, rate, steps, adam: tuple, emulator) -> None:
    xp = devices.array_module(changed[0])
    X, Y = xp.ascontiguousarray(X), xp.ascontiguousarray(Y)
    numbers = xp.full(1, rate, np.float32), xp.full(1, steps, np.int32)
    step = step_function(changed, *numbers, architecture, min(batch, max(1, len(X))), adam, **emulator)
    for number, rows in enumerate(batches(len(X), batch)):
        step(X[rows], Y[rows], number)


# ---- graph: a recording of up to 50 steps


@functools.lru_cache(maxsize=4)
def recording(
    architecture: ConvolutionalArchitecture, adam: tuple, batch: int, steps: int, device: int
) -> SimpleNamespace:
    """A recording of `steps` training steps on full batches, for all rates; `adam` as in step_function.

    `device` is the current GPU.
    """
    import cupy

    cupy.cuda.Device().synchronize()  # an older recording that is dropped from the cache may still be running
    with cupy.cuda.Stream(non_blocking=True) as stream:  # the default stream cannot be recorded
        n, p = steps * batch, architecture.contract_sizes["p"]
        changed = tuple(cupy.zeros(p, np.float32) for _ in range(3 if adam else 1))
        X, Y = cupy.zeros((n, *architecture.image), np.float32), cupy.zeros((n, architecture.sizes[-1]), np.float32)
        rate, taken = cupy.zeros(1, np.float32), cupy.zeros(1, np.int32)
        step = step_function(changed, rate, taken, architecture, batch, adam)
        made = record(stream, changed, X, Y, batch, step)
    made.rate, made.taken = rate, taken
    return made


atexit.register(recording.cache_clear)  # before CuPy is unloaded


def _replayed(changed: tuple, architecture, X, Y, batch: int, rate: float, steps: int, adam: tuple) -> int:
    """Train on as many samples as recordings have room for, and return their number: 0 for NumPy arrays."""
    count = min(most_steps(batch, prod(architecture.image) + architecture.sizes[-1], MOST_STEPS), len(X) // batch)
    floats = all(array.dtype == np.float32 for array in (*changed, X, Y))  # `fused` refuses other types
    if count == 0 or not floats or not devices.on_gpu(changed[0]):
        return 0
    import cupy

    made = recording(architecture, adam, batch, count, cupy.cuda.runtime.getDevice())

    def begin(start: int) -> None:
        made.rate.fill(rate)
        made.taken.fill(steps + start // batch)

    return replay(made, changed, X, Y, begin)


@convolutional_sgd_epoch.kernel("graph", device="gpu", cuda=True)
def sgd_graph(parameters, architecture, X, Y, batch, rate, **emulator):
    """Replay the launches of up to 50 steps as a CUDA graph. Remaining steps, and NumPy arrays, are left to `fused`."""
    convolutional_sgd_epoch.sizes(parameters, architecture, X, Y, batch, rate)
    done = _replayed((parameters,), architecture, X, Y, batch, rate, 0, ())
    return sgd_fused(parameters, architecture, X[done:], Y[done:], batch, rate, **emulator)


@convolutional_adam_epoch.kernel("graph", device="gpu", cuda=True)
def adam_graph(parameters, M, V, architecture, X, Y, batch, rate, steps, beta1, beta2, epsilon, **emulator):
    """Replay the launches of up to 50 steps as a CUDA graph. Remaining steps, and NumPy arrays, are left to `fused`."""
    adam = beta1, beta2, epsilon
    convolutional_adam_epoch.sizes(parameters, M, V, architecture, X, Y, batch, rate, steps, *adam)
    done = _replayed((parameters, M, V), architecture, X, Y, batch, rate, steps, adam)
    taken = steps + done // batch
    return adam_fused(parameters, M, V, architecture, X[done:], Y[done:], batch, rate, taken, *adam, **emulator)
