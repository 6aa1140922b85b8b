"""The plans of fused epochs for train(): a kernel that computes whole epochs, or one for the gradient of a network.

PLANNERS are tried whenever a backend with only its own kernels trains; ASKED has kernels by name: train(…, plan="c").
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from math import ceil
from typing import Any

import numpy as np

from fused_epochs.architecture import Rule, architecture_of, chain_of, is_chain
from fused_epochs.catalogue import found
from nncourse import device as devices
from nncourse import threads
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.kernels.dense_epoch import DenseArchitecture
from nncourse.kernels.kernel import Kernel
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import HostSamples
from nncourse.model.network import Network, flops
from nncourse.model.optimizers import SGD, Adam, Optimizer, remembered
from nncourse.model.plans import MOST_IN_CACHE, Step, by_steps, recorded, reordered
from nncourse.model.task import Plan, Refused, Task, TrainEpoch

KERNELS = {"numpy": "numpy", "numba": "numba", "cuda": "one_kernel"}  # by backend
TILES = "tiles"  # on a CPU the fastest for dense layers with one thread, if there is a C compiler
MOST_BY_ONE = 2e8  # FLOPs of a product: 784-1024-1024-1024-10 with batch 256: 22 ms a step; BLAS 20, on 2 threads 12
GRADIENT, EPOCH = "network_gradient", "network_epoch"
LEAST_BATCHES = 16  # for which a fused kernel is worth its call; trials use this many
MOST_IN_A_CALL = 2e10  # FLOPs of a kernel on a CPU, a few tenths of a second: Ctrl-C waits for it
MUCH, TRIALS = 1e9, 3  # FLOPs of a step from which recorded steps are tried, on a GPU, and how often
BY_BATCHES = Refused("trained step by step, since the samples are sent batch by batch", is_news=True)


def fused(task: Task) -> Plan | Refused:
    """A whole epoch in one call, or the gradient in one call, with the backend's own kernels."""
    count, host = task.together.group.size, isinstance(task.X, HostSamples)
    if not task.backend.fusable or task.backend.name not in KERNELS:
        return BY_BATCHES if host and count == 1 else Refused("a kernel was chosen or kept, or the backend has none")
    if count > 1:
        return Refused(f"trained step by step, since {count} processes add their gradients", is_news=True)
    whole = BY_BATCHES if host else _by_own_kernel(task)
    if isinstance(whole, Plan):
        return (
            whole if not _recorded_is_faster(task) else Refused("recorded steps were faster on a trial", is_news=True)
        )
    step = by_gradient(task)
    return step if isinstance(step, Plan) or step.is_news else whole


def _recorded_is_faster(task: Task) -> bool:
    """Whether recorded steps, with cuBLAS for large products, take less time than the GPU's kernel, measured on copies.

    This is tried only for steps with so much work that a library's faster products may make up for its launches.
    """
    if task.backend.device != "gpu" or not task.network.is_dense:
        return False
    if task.batch_size * chain_of(task.network).flops_a_sample < MUCH:
        return False
    rows, times = slice(LEAST_BATCHES * task.batch_size), []
    for planner in (_by_own_kernel, recorded):
        network, optimizer = task.copies()
        plan = planner(replace(task, network=network, optimizer=optimizer, X=task.X[rows], Y=task.Y[rows]))
        if isinstance(plan, Refused):
            return False
        times.append(min(_seconds(task, plan, len(task.Y[rows])) for _ in range(TRIALS)))
    return times[1] < times[0]


def _seconds(task: Task, plan: Plan, rows: int) -> float:
    """The time of an epoch of `rows` rows."""
    order = task.backend.to_device(np.arange(rows))
    devices.synchronise(task.backend.device)
    start = time.perf_counter()
    plan.epoch(order, task.rate, StepPosition())
    devices.synchronise(task.backend.device)
    return time.perf_counter() - start


def _by_own_kernel(task: Task) -> Plan | Refused:
    """A whole epoch by the backend's kernel, or by the kernels that replace it if it cannot compute the network."""
    names, reason = operations_for(task.network, task.optimizer)
    own = KERNELS[task.backend.name]
    before = _kernels(task, TILES, [EPOCH]) if own == "numba" and _by_tiles(task) else ()
    kernels = (each for each in chain(before, _kernels(task, own, names)) if not each.missing())
    kernel: Any = next(kernels, None)
    is_news = bool(reason)
    note = ""
    while kernel:
        try:
            return _plan_by(kernel, task, note)
        except DoesNotFitError as error:
            kernel = kernel.operation.kernels.get(kernel.otherwise) or next(kernels, None)
            note = reason = f"trained {f'by {kernel.name}' if kernel else 'step by step'}: {error}"
            is_news = True
    return Refused(reason or f"no fused epoch for {task.network}", is_news)


def _by_tiles(task: Task) -> bool:
    """Whether the network is for the kernel `tiles`. BLAS is faster if several threads share large products."""
    largest = task.batch_size * max(flops(task.network), default=0)
    return task.network.is_dense and is_chain(task.network) and (threads.at_most() == 1 or largest <= MOST_BY_ONE)


def by_kernel(name: str, task: Task) -> Plan | Refused:
    """A whole epoch by the kernel of that name; used only if asked for."""
    if isinstance(task.X, HostSamples) or task.together.group.size > 1:
        return Refused("a fused epoch needs a single process, with all samples on the device")
    names, reason = operations_for(task.network, task.optimizer)
    for kernel in _kernels(task, name, names):
        if kernel.device != task.backend.device:
            return Refused(f"it is for the {kernel.device.upper()}")
        if missing := kernel.missing():
            return Refused(f"it cannot be used here: {missing}")
        try:
            return _plan_by(kernel, task)
        except DoesNotFitError as error:
            reason = str(error)
    return Refused(reason or f"it cannot train {task.network} with this {task.optimizer.describe()['kind']}")


def operations_for(network: Network, optimizer: Optimizer) -> tuple[list[str], str]:
    """The fused-epoch operations for this network and optimizer, the best first; and why there are none, or ""."""
    names: list[str] = []
    reason = ""
    try:
        dense = isinstance(architecture_of(network), DenseArchitecture)
        if isinstance(optimizer, SGD) and optimizer.is_plain:
            names.append("dense_sgd_epoch" if dense else "convolutional_sgd_epoch")
        elif isinstance(optimizer, Adam) and not optimizer.l2 and not dense:
            names.append("convolutional_adam_epoch")
    except CourseError as error:
        reason = f"trained step by step: {error}"
    if is_chain(network):
        names.append(EPOCH)
    return names, reason


def _kernels(task: Task, name: str, operations: list[str]) -> Iterator[Kernel]:
    """The kernels of that name, one after the other: an operation's modules are imported when its turn comes."""
    gpu = task.backend.device == "gpu" or name not in (*KERNELS.values(), TILES)
    for each in operations:
        operation: Any = found(each, gpu)
        if operation and name in operation.kernels:
            yield operation.kernels[name]


def _plan_by(kernel: Kernel, task: Task, note: str = "") -> Plan:
    """The plan, tried on a few batches, so that nothing is compiled later. Raises DoesNotFitError."""
    network, optimizer = task.copies()
    first = slice(LEAST_BATCHES * task.batch_size)
    _train(kernel, network, task.batch_size, optimizer, task.X[first], task.Y[first], task.rate)
    compute = partial(_train, kernel, task.network, task.batch_size, task.optimizer)
    if kernel.name == TILES:
        return Plan(kernel.name, _in_its_order(task, compute), note)
    most = MOST_IN_CACHE if task.backend.device == "cpu" else task.X.size
    return Plan(kernel.name, reordered(task, compute, most, LEAST_BATCHES), note)


def _in_its_order(task: Task, compute: Callable[..., None]) -> TrainEpoch:
    """epoch(order, rate, position): the kernel itself takes the rows in that order, several batches per call."""
    work = task.batch_size * chain_of(task.network).flops_a_sample
    some = task.batch_size * max(LEAST_BATCHES, int(MOST_IN_A_CALL / work))

    def epoch(order: Array, rate: float, position: StepPosition) -> None:
        for start in range(0, len(order), some):
            compute(task.X, task.Y, rate, order=order[start : start + some])

    return epoch


def _train(
    kernel: Any,
    network: Network,
    batch_size: int,
    optimizer: Optimizer,
    X: Array,
    Y: Array,
    rate: float,
    position: StepPosition | None = None,
    order: Array | None = None,
) -> None:
    """A step for each batch by one kernel; the optimizer counts them. `order`: the rows, for a kernel that takes it."""
    parameters = network.flat_parameters
    state = {name: remembered(optimizer.state, name, parameters) for name in optimizer.remembers}
    if kernel.operation.name == EPOCH:
        M, V = (state.get(name, parameters[:0]) for name in "MV")
        rule = Rule(optimizer.kind, tuple(optimizer.options.items()))
        X = X.reshape(len(X), -1)
        options = {} if order is None else {"order": order}
        kernel(parameters, M, V, chain_of(network), rule, X, Y, batch_size, rate, optimizer.steps, **options)
    else:
        more: tuple[float, ...] = ()
        if isinstance(optimizer, Adam):
            more = optimizer.steps, optimizer.beta1, optimizer.beta2, optimizer.epsilon
        kernel(parameters, *state.values(), architecture_of(network), X, Y, batch_size, rate, *more)
    optimizer.steps += ceil(len(X if order is None else order) / batch_size)


def by_gradient(task: Task) -> Plan | Refused:
    """A step in two calls: a kernel of network_gradient for the gradient, then the optimizer's move."""
    if task.together.group.size > 1 or not is_chain(task.network):
        return Refused(f"no kernel computes the gradient of {task.network} in one call, or that of a group")
    operation = found(GRADIENT, gpu=False)
    kernel: Any = operation.kernels.get(task.backend.name) if operation else None
    if kernel is None or task.backend.device != kernel.device:
        return Refused(f"{task.backend.name} has no kernel for the gradient in one call")
    network, optimizer = task.copies()
    try:
        step = _step(kernel, network, task.backend, optimizer)
        kernel.prepare(network.flat_parameters, network.flat_gradient, chain_of(network))(task.X[:1], task.Y[:1])
    except DoesNotFitError as error:
        return Refused(f"trained step by step: {error}", is_news=True)
    rows = slice(task.batch_size)
    step(task.X[rows], task.Y[rows], task.rate, StepPosition())
    return Plan("gradient", by_steps(task, _step(kernel, task.network, task.backend, task.optimizer)))


def _step(kernel: Any, network: Network, backend: Calls, optimizer: Optimizer) -> Step:
    gradient = kernel.prepare(network.flat_parameters, network.flat_gradient, chain_of(network))

    def step(X: Array, Y: Array, rate: float, position: StepPosition | None) -> None:
        gradient(X, Y)
        optimizer.step(network.flat_parameters, network.flat_gradient, rate, backend)

    return step


PLANNERS = {"fused": fused}
NAMED = ("numpy", "numba", TILES, "one_kernel", "streamed", "c", "c_float", "c_fast", "c_float_fast")
ASKED = {"gradient": by_gradient} | {name: partial(by_kernel, name) for name in NAMED}
