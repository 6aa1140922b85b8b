"""Training with JAX: one compiled function for an epoch, with lax.scan over the batches. See training.py."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nncourse.model.image_layers import AveragePool, Convolution, Flatten, GlobalAveragePool, MaxPool
from nncourse.model.layers import Dense, Layer, views
from nncourse.model.network import COSTS
from nnexperiment.trainers.training import Problem, Tensor, Trainer, timed, written_out

State = tuple[Any, ...]  # parameters, the optimizer's arrays for each of them, and the number of steps


def scan(platform: str, pool: Callable[..., Tensor] | None = None) -> Callable[[Problem], Trainer]:
    """`pool`: pooled_by_windows or pooled_by_shape, for all max-pooling layers; by default the second if it fits."""

    def make(problem: Problem) -> Trainer:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it reserves most of the GPU's memory
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")  # otherwise it would use TF32
        place = jax.devices(platform)[0]  # raises an error if there is none; by default JAX would use the CPU
        whole, shapes = len(problem.X) // problem.batch, [array.shape for array in problem.network.parameters]
        X, Y = (jax.device_put(array, place) for array in (problem.X, problem.Y))
        rest = tuple(array[whole * problem.batch :] for array in (X, Y))
        X, Y = (by_batches(array, problem.batch) for array in (X, Y))
        epoch = jax_epoch(jax, problem, pool)
        parts: dict[int, tuple[Any, ...]] = {}
        state: State = ()

        def begin() -> None:
            nonlocal state
            parameters = [array.copy() for array in views(problem.parameters, shapes)]
            kept = [[np.zeros_like(array) for _ in problem.optimizer.remembers] for array in parameters]
            state = jax.device_put((parameters, kept, np.float32(0)), place)

        def train(steps: int) -> None:
            nonlocal state
            state = jax.block_until_ready(epoch(state, *part(steps)))

        def part(steps: int) -> tuple[Any, ...]:
            if steps not in parts:
                parts.clear()
                some = (X, Y) if steps >= whole else (X[:steps], Y[:steps])
                parts[steps] = jax.block_until_ready((*some, rest if steps > whole else ()))
            return parts[steps]

        def seconds(steps: int) -> float:
            part(steps)
            return timed(train)(steps)

        begin()
        return Trainer(begin, seconds, lambda: np.concatenate([np.asarray(array).ravel() for array in state[0]]))

    return make


def by_batches(array: Tensor, batch: int) -> Tensor:
    whole = len(array) // batch
    return array[: whole * batch].reshape(whole, batch, *array.shape[1:])


def jax_epoch(jax: Any, problem: Problem, pool: Callable[..., Tensor] | None) -> Callable[..., State]:
    """epoch(state, X, Y, rest) -> state; X and Y are (batches, batch, …), `rest` is (X, Y) of the last batch or ().

    The new state reuses the memory of the old one.
    """
    outputs, cost = outputs_of(jax, problem, pool), cost_of(jax, problem)
    move = written_out(jax.numpy, problem.optimizer, problem.rate)

    def step(state: State, one: tuple[Tensor, Tensor]) -> tuple[State, None]:
        parameters, kept, taken = state
        X, Y = one
        gradients = jax.grad(lambda parameters: cost(outputs(parameters, X), Y))(parameters)
        taken = taken + 1
        moved = [move(W, G, own, taken) for W, G, own in zip(parameters, gradients, kept, strict=True)]
        return ([W for W, _ in moved], [list(own) for _, own in moved], taken), None

    def epoch(state: State, X: Tensor, Y: Tensor, rest: tuple[Tensor, ...]) -> State:
        state = jax.lax.scan(step, state, (X, Y))[0]
        return step(state, rest)[0] if rest else state

    return jax.jit(epoch, donate_argnums=0)


def outputs_of(jax: Any, problem: Problem, pool: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    """outputs(parameters, X): the last layer's outputs, or its Z if the cost is computed from Z.

    Raises ValueError for a layer without a counterpart in JAX.
    """
    layers, counts = problem.network.layers, [len(layer.parameters) for layer in problem.network.layers]
    works = [layer_of(jax, layer, pool) for layer in layers]
    names = [layer.activation for layer in layers]
    if COSTS[problem.network.cost]:
        names[-1] = ""
    activations = [activation(jax, name) if name else None for name in names]

    def outputs(parameters: Sequence[Tensor], A: Tensor) -> Tensor:
        left = iter(parameters)
        for work, count, act in zip(works, counts, activations, strict=True):
            A = work(A, *(next(left) for _ in range(count)))
            A = act(A) if act else A
        return A

    return outputs


def layer_of(jax: Any, layer: Layer, pool: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    """work(A, *parameters) of a layer, without its activation."""
    lax = jax.lax
    match layer:
        case Dense():
            return lambda A, W, b: A @ W.T + b
        case Convolution():
            stride, padding = (layer.stride,) * 2, ((layer.before, layer.after),) * 2

            def convolved(A: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
                Z = lax.conv_general_dilated(A, W, stride, padding)
                return Z if b is None else Z + b[:, None, None]

            return convolved
        case MaxPool():
            pooled = pool or (pooled_by_shape if layer.is_side_by_side else pooled_by_windows)
            return lambda A: pooled(jax, A, layer)
        case AveragePool():
            window, strides = ((1, 1, side, side) for side in (layer.size, layer.stride))
            return lambda A: lax.reduce_window(A, 0.0, lax.add, window, strides, "VALID") / layer.size**2
        case GlobalAveragePool():
            return lambda A: A.mean(axis=(2, 3))
        case Flatten():
            return lambda A: A.reshape(len(A), -1)
    raise ValueError(f"no counterpart of {layer}")


def pooled_by_windows(jax: Any, A: Tensor, layer: MaxPool) -> Tensor:
    window, stride = ((1, 1, side, side) for side in (layer.size, layer.stride))
    padding = ((0, 0), (0, 0), *((layer.padding,) * 2,) * 2)
    return jax.lax.reduce_window(A, -np.inf, jax.lax.max, window, stride, padding)


def pooled_by_shape(jax: Any, A: Tensor, layer: MaxPool) -> Tensor:
    """The maximum over two axes of reshaped images: faster on an H200 than windows. The windows must be side by side.

    Equal largest pixels of a window share the gradient. If their surroundings are equal too, this changes nothing.
    """
    samples, channels, height, width = A.shape
    size, high, wide = layer.size, height // layer.size, width // layer.size
    cells = A[:, :, : high * size, : wide * size].reshape(samples, channels, high, size, wide, size)
    return cells.max(axis=(3, 5))


def activation(jax: Any, name: str) -> Callable[[Tensor], Tensor]:
    nn = jax.nn
    known = {
        "identity": lambda z: z, "sigmoid": nn.sigmoid, "tanh": jax.numpy.tanh, "relu": nn.relu,
        "softplus": nn.softplus, "leaky_relu": nn.leaky_relu, "softmax": nn.softmax,
        "gelu": nn.gelu,
    }  # fmt: skip
    if name not in known:
        raise ValueError(f"no counterpart of the activation {name}")
    return known[name]


def cost_of(jax: Any, problem: Problem) -> Callable[[Tensor, Tensor], Tensor]:
    """cost(outputs, Y), for the outputs that outputs_of() computes."""
    return {
        "mse": lambda A, Y: ((A - Y) ** 2).sum() / (2 * len(A)),
        "mae": lambda A, Y: abs(A - Y).sum() / len(A),
        "binary_cross_entropy": lambda Z, Y: (jax.nn.softplus(Z) - Y * Z).sum() / len(Z),
        "categorical_cross_entropy": lambda Z, Y: -(Y * jax.nn.log_softmax(Z)).sum() / len(Z),
    }[problem.network.cost]
