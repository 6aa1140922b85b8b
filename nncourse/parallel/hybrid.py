"""CPU and GPUs together: each device gets the share of a batch that takes it as long as the others take for theirs.

The first process works on the CPU, each other process on a GPU. If the CPU takes f = T_cpu / T_gpu times as long as a
GPU for the same rows, its best share next to K GPUs is 1 / (K f + 1). It saves at most this part of the time: 4 % for
f = 12 and two GPUs. The CPU's other work, feeding the GPUs and exchanging gradients, easily costs more. Gradients are
weighted by rows.

Each device has a process, because Python runs only one thread of a process at a time, except within some calls. Without
a GPU, two CPU backends of different speed stand in: "numpy" for the GPU, "numba" for the CPU.

    group, backend, what = take_device(world)
    shares = measured_shares(network, X, Y, backend, group, batch_size=256)
    train(network, X, Y, backend, together=Together(group, shares), batch_size=256, epochs=5)
"""

import statistics
import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from nncourse import device as devices
from nncourse.backend import Backend, choose
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.group import Group, shard, total
from nncourse.model.data_parallel import Together, data_parallel_epoch
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, training_step
from nncourse.model.optimizers import SGD
from nncourse.parallel.mpi import MPIGroup


def step_seconds(share: float, f: float, gpus: int = 1, gpu_alone: float = 1.0, exchange: float = 0.0) -> float:
    """The theoretical seconds of a step: gpu_alone · max(share · f, (1 − share) / gpus) + exchange.

    share: the CPU's share of the batch's rows, from 0 to 1.
    f: the CPU's time divided by a GPU's for the same rows.
    gpus: number of GPUs, which divide the rest among them.
    gpu_alone: seconds that one GPU takes for the whole batch.
    exchange: seconds that adding the gradients takes.

    >>> step_seconds(0.1, f=9), step_seconds(0.2, f=9)
    (0.9, 1.8)
    """
    return gpu_alone * max(share * f, (1 - share) / gpus) + exchange


def take_device(world: MPIGroup) -> tuple[MPIGroup, Backend, str]:
    """This process's group, with its device; its backend; and the device in words. CourseError for one process."""
    if world.size < 2:
        raise CourseError("expected at least two processes, one for the CPU and one for each GPU; got 1")
    if not devices.gpu_available():
        name = "numba" if world.rank == 0 else "numpy"
        return world, choose(name), f"{name} on a core, which stands in for the {'GPU' if world.rank else 'CPU'}"
    if world.rank == 0:
        return world, choose("numpy"), devices.describe("cpu")
    import cupy

    cupy.cuda.Device((world.rank - 1) % cupy.cuda.runtime.getDeviceCount()).use()
    return MPIGroup("gpu", world.communicator), choose("cuda"), devices.describe("gpu")


def measured_shares(
    network: Network, X: np.ndarray, Y: np.ndarray, backend: Calls, group: Group, batch_size: int
) -> list[float]:
    """The share of each member, from its time per row while the others work too.

    Part of a step's time does not depend on the rows, so it is measured with nearly the final shares: first with equal
    ones, then with the shares that follow from these, three times in all.
    """
    shares = [1 / group.size] * group.size
    there = network.on(backend)
    for _ in range(3):
        own = shard(batch_size, group.rank, group.size, shares)
        rows = slice(0, max(1, own.stop - own.start))
        step = partial(training_step, there, backend.to_device(X[rows]), backend.to_device(Y[rows]), 1e-6, backend)
        group.barrier()
        seconds = devices.seconds(step, backend.device)
        speeds = of_all((rows.stop - rows.start) / seconds, group)
        shares = [speed / sum(speeds) for speed in speeds]
    return shares


def measured_step(
    network: Network,
    X: np.ndarray,
    Y: np.ndarray,
    backend: Calls,
    group: Group,
    shares: Sequence[float],
    batch_size: int,
    steps: int = 30,
) -> float:
    """The seconds of a training step with these shares: the slowest member's median.

    With ALONE and [1.0] it is that of one device.
    """
    there, optimizer, times = network.on(backend), SGD(), []
    X, Y = (backend.to_device(array[:batch_size]) for array in (X, Y))
    order: Array = backend.to_device(np.arange(len(X)))
    for number in range(steps + 3):  # the first ones warm up
        group.barrier()
        start = time.perf_counter()
        data_parallel_epoch(
            there, X, Y, order, batch_size, 1e-6, backend, optimizer, StepPosition(0, number), Together(group, shares)
        )
        devices.synchronise(backend.device)
        times.append(time.perf_counter() - start)
    return max(of_all(statistics.median(times[3:]), group))


def of_all(number: float, group: Group) -> list[float]:
    """The numbers of all members, by rank."""
    numbers = np.zeros(group.size)
    numbers[group.rank] = number
    return total(numbers, group).tolist()
