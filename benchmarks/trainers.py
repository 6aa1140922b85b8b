"""An epoch of training on the GPU with nncourse, PyTorch and JAX: the same network, weights, batches and order for all.

Sigmoid, mean squared error, plain stochastic gradient descent, float32 with TF32 off, data already on the device.

A contender is a function make(architecture, parameters, X, Y, batch) -> Trainer. Before it is timed, its parameters
after the first CHECKED steps are compared with the reference of dense_sgd_epoch, computed in float64.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from benchmarks.workers import WrongResultError
from nncourse.epochs.dense import dense_sgd_epoch, random_targets

RATE = 2.0
CHECKED = 50  # steps; also the number of steps in each CUDA graph of PyTorch
TOLERANCE = 5e-5  # relative to the change of the parameters. Errors: float32 at most 5e-6, TF32 at least 2e-4


@dataclass(frozen=True)
class Trainer:
    """train(steps) makes this many steps, beginning with the first batch, and returns when they are done."""

    train: Callable[[int], None]
    parameters: Callable[[], np.ndarray]


def checked(make: Callable, steps: int | None = None) -> Callable:
    """A contender for compare.py: a function that trains an epoch, or `steps` steps of it, and their number."""

    def prepare(case) -> tuple[Callable, int]:
        problem = architecture, parameters, X, Y = problem_of(case)
        trainer = make(*problem, case.batch)
        trainer.train(CHECKED)
        error = error_of(trainer.parameters(), architecture, parameters, X, Y, case.batch)
        if not error <= TOLERANCE:
            raise WrongResultError(
                f"{case.name}: after {CHECKED} steps the parameters are off by {error:.1e} of the way they went from "
                f"their beginning; wanted at most {TOLERANCE:.0e}"
            )
        times = min(steps or len(X), len(X) // case.batch)
        return lambda: trainer.train(times), times

    return prepare


def problem_of(case) -> tuple:
    """DenseArchitecture, parameters in one flat vector, samples and one-hot targets, in NumPy arrays."""
    from nncourse.model.network import make_network

    network = make_network(case.sizes)
    rng = np.random.default_rng(0)
    X = rng.random((case.samples, case.sizes[0]), dtype=np.float32)
    Y = random_targets(rng, (case.samples, case.sizes[-1]))
    return network.architecture, network.flat_parameters, X, Y


def error_of(found, architecture, parameters, X, Y, batch: int, steps: int = CHECKED) -> float:
    """‖found − reference‖ / ‖reference − initial parameters‖ after the first steps."""
    before = parameters.astype(np.float64)
    X, Y = (array[: steps * batch].astype(np.float64) for array in (X, Y))
    reference = dense_sgd_epoch.reference(before, architecture, X, Y, batch, RATE)
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference - before))


# ---- ours


def ours(backend_name: str, kernel: str) -> Callable:
    """The package: dense_sgd_epoch by this kernel, one call for all steps; or step by step, for "steps"."""

    def make(architecture, parameters, X, Y, batch: int) -> Trainer:
        from nncourse import device as devices
        from nncourse.backend import choose
        from nncourse.model.network import with_parameters
        from nncourse.model.optimizers import SGD
        from nncourse.model.training import train_step_by_step

        backend = choose(backend_name, dense_sgd_epoch=kernel)
        there, X, Y = (backend.to_device(array.copy()) for array in (parameters, X, Y))
        network = with_parameters(architecture, there)

        def train(steps: int) -> None:
            rows = slice(steps * batch)
            if kernel == "steps":
                train_step_by_step(network, X[rows], Y[rows], batch, RATE, backend, SGD())
            else:
                backend.dense_sgd_epoch(there, architecture, X[rows], Y[rows], batch, RATE)
            if backend.device == "gpu":
                import cupy

                cupy.cuda.Device().synchronize()  # all streams: a kernel may use its own

        return Trainer(train, lambda: devices.to_device(there, "cpu"))

    return make


# ---- PyTorch


def pytorch_eager(device: str) -> Callable:
    """PyTorch as in its tutorials: modules, autograd, an optimiser, a slice of the data for each batch."""

    def make(architecture, parameters, X, Y, batch: int) -> Trainer:
        import torch

        network = module(torch, architecture, parameters, device)
        step = eager_step(torch, network)
        X, Y = (torch.from_numpy(array).to(device) for array in (X, Y))

        def train(steps: int) -> None:
            for start in range(0, steps * batch, batch):
                step(X[start : start + batch], Y[start : start + batch])
            if device == "cuda":
                torch.cuda.synchronize()

        return Trainer(train, lambda: flat(torch, network))

    return make


def pytorch_graph(make_step: Callable, device: str = "cuda") -> Callable:
    """PyTorch with CHECKED whole steps in one CUDA graph. Batches are copied to its input arrays before each replay.

    On the CPU, for tests, the steps are executed directly.
    """

    def make(architecture, parameters, X, Y, batch: int) -> Trainer:
        import torch

        network = module(torch, architecture, parameters, device)
        step = make_step(torch, network)
        rows = [torch.from_numpy(array).to(device).view(-1, batch * array.shape[1]) for array in (X, Y)]
        # Each batch begins at a multiple of 16 bytes, otherwise PyTorch's compiled code would copy it again.
        copies = [torch.zeros(CHECKED, ceil(array.shape[1] / 4) * 4, device=device) for array in rows]
        windows = [copy[:, : array.shape[1]] for copy, array in zip(copies, rows, strict=True)]
        batches = [window.unflatten(1, (batch, -1)).unbind() for window in windows]

        def take_steps() -> None:
            for x, y in zip(*batches, strict=True):
                step(x, y)

        replay = captured(torch, take_steps) if device == "cuda" else take_steps
        load(torch, network, architecture, parameters)  # capturing has already changed them

        def train(steps: int) -> None:
            if steps % CHECKED:
                raise ValueError(f"wanted a multiple of {CHECKED} steps, got {steps}")
            for start in range(0, steps, CHECKED):
                for window, array in zip(windows, rows, strict=True):
                    window.copy_(array[start : start + CHECKED])
                replay()
            if device == "cuda":
                torch.cuda.synchronize()

        return Trainer(train, lambda: flat(torch, network))

    return make


def captured(torch, work: Callable) -> Callable:
    """A function that replays the launches of work(), which PyTorch requires to be run first on another stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def module(torch, architecture, parameters, device: str):
    """The network as PyTorch modules with these parameters."""
    torch.set_float32_matmul_precision("highest")  # no TF32, whatever the environment says
    layers = []
    for n_out, n_in in architecture.shapes:
        layers += [torch.nn.Linear(n_in, n_out), torch.nn.Sigmoid()]
    network = torch.nn.Sequential(*layers).to(device)
    load(torch, network, architecture, parameters)
    return network


def load(torch, network, architecture, parameters) -> None:
    """Copy parameters into the modules' tensors."""
    values = [array for pair in architecture.views(parameters) for array in pair]
    with torch.no_grad():
        for tensor, value in zip(network.parameters(), values, strict=True):
            tensor.copy_(torch.from_numpy(value))


def flat(torch, network) -> np.ndarray:
    """The modules' parameters as one vector."""
    return torch.cat([tensor.detach().flatten() for tensor in network.parameters()]).cpu().numpy()


def eager_step(torch, network) -> Callable:
    """step(X, Y) with autograd and PyTorch's optimiser."""
    optimiser = torch.optim.SGD(network.parameters(), lr=RATE)

    def step(X, Y) -> None:
        optimiser.zero_grad()
        (((network(X) - Y) ** 2).sum() / (2 * len(X))).backward()
        optimiser.step()

    return step


def compiled_step(torch, network, backend: str = "inductor") -> Callable:
    """step(X, Y) compiled as one function, with gradient and update; calls to autograd would split it."""
    parameters = [tensor.detach() for tensor in network.parameters()]  # the same memory

    def cost(parameters, X, Y):
        A = X
        for W, b in zip(parameters[0::2], parameters[1::2], strict=True):
            A = torch.sigmoid(torch.nn.functional.linear(A, W, b))
        return ((A - Y) ** 2).sum() / (2 * len(X))

    def step(parameters, X, Y) -> None:
        for tensor, gradient in zip(parameters, torch.func.grad(cost)(parameters, X, Y), strict=True):
            tensor.sub_(gradient, alpha=RATE)

    compiled = torch.compile(step, backend=backend, dynamic=False)
    return lambda X, Y: compiled(parameters, X, Y)


# ---- JAX


def jax_scan(platform: str) -> Callable:
    """JAX with one compiled function for the epoch: lax.scan over the batches."""

    def make(architecture, parameters, X, Y, batch: int) -> Trainer:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it reserves most of the GPU's memory
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")  # otherwise it would use TF32
        place = jax.devices(platform)[0]  # raises an error if there is none; by default JAX would use the CPU
        state = jax.device_put([tuple(pair) for pair in architecture.views(parameters)], place)
        X, Y = (jax.device_put(array.reshape(-1, batch, array.shape[1]), place) for array in (X, Y))
        parts = {len(X): (X, Y), CHECKED: (X[:CHECKED], Y[:CHECKED])}
        epoch = jax_epoch(jax, batch)

        def train(steps: int) -> None:
            nonlocal state
            state = jax.block_until_ready(epoch(state, *parts[steps]))

        return Trainer(train, lambda: np.concatenate([np.asarray(array).ravel() for pair in state for array in pair]))

    return make


def jax_epoch(jax, batch: int) -> Callable:
    """epoch(state, X, Y) -> state; X and Y are (batches, batch, n)."""

    def cost(state, X, Y):
        A = X
        for W, b in state:
            A = jax.nn.sigmoid(A @ W.T + b)
        return ((A - Y) ** 2).sum() / (2 * batch)

    def step(state, one):
        gradients = jax.grad(cost)(state, *one)
        return jax.tree.map(lambda p, g: p - RATE * g, state, gradients), None

    return jax.jit(lambda state, X, Y: jax.lax.scan(step, state, (X, Y))[0])
