"""Train an epoch on the GPU with nncourse, PyTorch and JAX: with the same network, weights, batches and order.

Sigmoid, mean squared error, plain stochastic gradient descent, float32 with TF32 off, data already on the device.

A contender is a function make(problem) -> Trainer; nnexperiment/trainers/ has both classes, and PyTorch's and JAX's
contenders. Before it is timed, its parameters after the first CHECKED steps are compared with a float64 reference.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.workers import WrongResultError
from fused_epochs.architecture import architecture_of
from fused_epochs.planner import operations_for
from nncourse.calls import ADAM
from nncourse.catalogue import find
from nncourse.kernels.dense_epoch import random_targets
from nnexperiment.trainers.training import DisagreesError, Problem, Trainer, error_of, timed

RATE = 2.0
TOLERANCE = 5e-5  # relative to the change of the parameters. Errors: float32 at most 5e-6, TF32 at least 2e-4


def checked(make: Callable, steps: int | None = None) -> Callable:
    """A contender for compare.py: a function that trains an epoch, or `steps` steps of it, and their number."""

    def prepare(case) -> tuple[Callable, int]:
        problem = problem_of(case)
        trainer = make(problem)
        try:
            error_of(trainer, problem, TOLERANCE)
        except DisagreesError as error:
            raise WrongResultError(f"{case.name}: {error}") from None
        times = min(steps or problem.steps, problem.steps)
        return lambda: trainer.train(times), times

    return prepare


def problem_of(case) -> Problem:
    """The case's network and random samples."""
    from nncourse.model.network import make_network
    from nncourse.model.optimizers import SGD

    rng = np.random.default_rng(0)
    X = rng.random((case.samples, case.sizes[0]), dtype=np.float32)
    Y = random_targets(rng, (case.samples, case.sizes[-1]))
    return Problem(make_network(case.sizes), X, Y, case.batch, SGD(), RATE)


def ours(backend_name: str, kernel: str) -> Callable[[Problem], Trainer]:
    """The package: fused epochs by this kernel, one call for all steps; or step by step, for "steps"."""

    def make(problem: Problem) -> Trainer:
        from nncourse import device as devices
        from nncourse.backend import choose
        from nncourse.model.optimizers import Adam
        from nncourse.model.plans import train_step_by_step

        operation = find(operations_for(problem.network, problem.optimizer)[0][0])
        backend, optimizer = choose(backend_name), problem.new_optimizer
        network, X, Y = problem.network.on(backend), backend.to_device(problem.X), backend.to_device(problem.Y)
        there = network.flat_parameters
        optimizer.state = {name: backend.to_device(np.zeros_like(problem.parameters)) for name in optimizer.remembers}

        def begin() -> None:
            there[...] = backend.to_device(problem.parameters)
            for array in optimizer.state.values():
                array.fill(0)
            optimizer.steps = 0

        def train(steps: int) -> None:
            rows = slice(steps * problem.batch)
            if kernel == "steps":
                train_step_by_step(network, X[rows], Y[rows], problem.batch, problem.rate, backend, optimizer)
            else:
                state = [optimizer.state[name] for name in optimizer.remembers]
                more = (optimizer.steps, *ADAM.values()) if isinstance(optimizer, Adam) else ()
                given = architecture_of(network), X[rows], Y[rows], problem.batch, problem.rate
                operation[kernel](there, *state, *given, *more)
                optimizer.steps += steps
            if backend.device == "gpu":
                import cupy

                cupy.cuda.Device().synchronize()  # all streams: a kernel may use its own

        return Trainer(begin, timed(train), lambda: devices.to_device(there, "cpu"))

    return make
