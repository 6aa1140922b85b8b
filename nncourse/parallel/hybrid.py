"""CPU and GPUs together: everyone has the share of each batch that it computes in the same time as the others.

The first process works on the CPU, each other one on a GPU. If the CPU takes f = T_cpu / T_gpu times as long as a GPU
for the same rows, then beside K GPUs its share is 1 / (K f + 1), and no more than that part of the time is gained:
f = 12 and two GPUs make 4 %. What the CPU has to do besides, such as feeding the GPUs and exchanging gradients, comes
off, so that more is easily lost than gained. The gradients are weighted by rows: the CPU's few rows count as few.

Processes and not threads, since Python lets only one thread of a process run at a time, except within some calls.
Where there is no GPU, two CPU backends of different speed stand in: "numpy" for the GPU, "numba" for the CPU.

    group, backend, what = take_device(world)
    shares = measured_shares(network, X, Y, backend, group, batch_size=256)
    train(network, X, Y, backend, group=group, shares=shares, batch_size=256, epochs=5)
"""

import statistics
import time
from collections.abc import Sequence

import numpy as np

from nncourse import device as devices
from nncourse.backend import Backend, choose
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.group import Group, shard, total
from nncourse.model.data_parallel import data_parallel_epoch
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, training_step
from nncourse.model.optimizers import SGD
from nncourse.parallel.mpi import MPIGroup


def ideal_share(f: float, gpus: int = 1) -> float:
    """The CPU's share of the rows, 1 / (K f + 1), if it takes f times as long for them as each of K GPUs."""
    return 1 / (gpus * f + 1)


def step_seconds(share: float, f: float, gpus: int = 1, gpu_alone: float = 1.0, exchange: float = 0.0) -> float:
    """The seconds of a step by theory: of whoever takes longer, the CPU with its share or the GPUs with the rest.

    share: of the batch's rows, that the CPU has: 0 to 1.
    f: how many times as long as a GPU the CPU takes for the same rows.
    gpus: how many share the rest.
    gpu_alone: seconds of one GPU for the whole batch.
    exchange: seconds of adding the gradients.

    >>> step_seconds(0.1, f=9), step_seconds(0.2, f=9)
    (0.9, 1.8)
    """
    return gpu_alone * max(share * f, (1 - share) / gpus) + exchange


def take_device(world: MPIGroup) -> tuple[MPIGroup, Backend, str]:
    """This process's group, with its device; its backend; and what it works on, in words."""
    if world.size < 2:
        raise CourseError("wanted two processes at least, one for the CPU and one for each GPU; got 1")
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
    """The share of each member, by the time it takes for a row, while the others work too.

    A step has a part that does not depend on the rows, so the time is measured with the rows that the member will have:
    first with equal shares, then with those that follow, and so on.
    """
    shares = [1 / group.size] * group.size
    there = network.on(backend)
    for _ in range(3):
        own = shard(batch_size, group.rank, group.size, shares)
        rows = slice(0, max(1, own.stop - own.start))
        batch = [backend.to_device(array[rows]) for array in (X, Y)]
        group.barrier()
        seconds = devices.seconds(lambda batch=batch: training_step(there, *batch, 1e-6, backend), backend.device)
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
    """The time of a training step with these shares, in seconds: of so many the median, of the slowest member.

    With ALONE and [1.0] it is that of one device.
    """
    there, optimizer, times = network.on(backend), SGD(), []
    X, Y = (backend.to_device(array[:batch_size]) for array in (X, Y))
    order: Array = backend.to_device(np.arange(len(X)))
    for number in range(steps + 3):  # the first ones warm up
        group.barrier()
        start = time.perf_counter()
        data_parallel_epoch(
            there, X, Y, order, batch_size, 1e-6, backend, optimizer, StepPosition(0, number), group, shares=shares
        )
        devices.synchronise(backend.device)
        times.append(time.perf_counter() - start)
    return max(of_all(statistics.median(times[3:]), group))


def of_all(number: float, group: Group) -> list[float]:
    """The number of each member."""
    numbers = np.zeros(group.size)
    numbers[group.rank] = number
    return total(numbers, group).tolist()
