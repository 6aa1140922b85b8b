"""The digits CNN with JAX: one compiled function for an epoch, lax.scan over the batches, then the smaller last batch.

Its max-pool is tried in two forms: lax.reduce_window, and the maximum over two axes of reshaped images.
"""

import os
from collections.abc import Callable
from math import log

import numpy as np

from benchmarks.digits import RATE, Problem, Trainer

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def scan(platform: str, pool: Callable) -> Callable:
    """`pool` is pooled_by_windows or pooled_by_shape."""

    def make(problem: Problem) -> Trainer:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it reserves most of the GPU's memory
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")  # otherwise it would use TF32
        place = jax.devices(platform)[0]  # raises an error if there is none; by default JAX would use the CPU
        batch = problem.batch
        whole = len(problem.X) // batch
        X, Y = (jax.device_put(array, place) for array in (problem.X, problem.Y))
        X, Y, rest = by_batches(X, batch), by_batches(Y, batch), (X[whole * batch :], Y[whole * batch :])
        epoch = jax_epoch(jax, problem.architecture, pool)
        parts: dict[int, tuple] = {}
        state: tuple = ()

        def begin() -> None:
            nonlocal state
            parameters = [tuple(pair) for pair in problem.architecture.views(problem.parameters)]
            zeros = [tuple(map(np.zeros_like, pair)) for pair in parameters]
            state = jax.device_put((parameters, zeros, zeros, np.float32(0)), place)

        def train(steps: int) -> None:
            nonlocal state
            if steps not in parts:
                parts[steps] = X[:steps], Y[:steps], rest if steps > whole else ()
            state = jax.block_until_ready(epoch(state, *parts[steps]))

        def parameters() -> np.ndarray:
            return np.concatenate([np.asarray(array).ravel() for pair in state[0] for array in pair])

        begin()
        return Trainer(begin, train, parameters)

    return make


def by_batches(array, batch: int):
    whole = len(array) // batch
    return array[: whole * batch].reshape(whole, batch, *array.shape[1:])


def jax_epoch(jax, architecture, pool: Callable) -> Callable:
    """epoch(state, X, Y, rest) -> state; X and Y are (batches, batch, …), `rest` is (X, Y) of the last batch or ()."""
    numpy, count = jax.numpy, len(architecture.convolutions)

    def cost(parameters, X, Y):
        A = X
        for (W, b), filters in zip(parameters, architecture.convolutions, strict=False):
            stride, padding = (filters.stride,) * 2, ((filters.before, filters.after),) * 2
            A = jax.nn.relu(jax.lax.conv_general_dilated(A, W, stride, padding) + b[:, None, None])
        A = pool(jax, A, architecture.pool).reshape(len(X), -1)
        for W, b in parameters[count:-1]:
            A = jax.nn.relu(A @ W.T + b)
        W, b = parameters[-1]
        return -(Y * jax.nn.log_softmax(A @ W.T + b)).sum() / len(X)

    def step(state, one):
        parameters, M, V, taken = state
        gradients, taken = jax.grad(cost)(parameters, *one), taken + 1
        c1, c2 = (-numpy.expm1(taken * log(beta)) for beta in (BETA_1, BETA_2))  # 1 − βᵗ
        M = jax.tree.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * g, M, gradients)
        V = jax.tree.map(lambda v, g: BETA_2 * v + (1 - BETA_2) * g * g, V, gradients)
        moved = jax.tree.map(lambda p, m, v: p - RATE * (m / c1) / (numpy.sqrt(v / c2) + EPSILON), parameters, M, V)
        return (moved, M, V, taken), None

    def epoch(state, X, Y, rest):
        state = jax.lax.scan(step, state, (X, Y))[0]
        return step(state, rest)[0] if rest else state

    return jax.jit(epoch)


def pooled_by_windows(jax, A, size: int):
    window = (1, 1, size, size)
    return jax.lax.reduce_window(A, -np.inf, jax.lax.max, window, window, "VALID")


def pooled_by_shape(jax, A, size: int):
    """Of equal pixels in a window each gets a share of the gradient: where their surroundings are equal, all is one."""
    samples, channels, height, width = A.shape
    high, wide = height // size, width // size
    cells = A[:, :, : high * size, : wide * size].reshape(samples, channels, high, size, wide, size)
    return cells.max(axis=(3, 5))
