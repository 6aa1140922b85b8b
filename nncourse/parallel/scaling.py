"""Measure how training scales: steps and messages in this machine's processes, and steps on simulated devices.

steps() and messages() are called in each process of a group, with together.py, and return lists and dicts.
Measurements alternate, round by round, so that a busy machine slows all of them equally.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from cuda_on_cpu.processes import kill_group
from nncourse.backend import choose
from nncourse.calls import Array
from nncourse.group import ALONE, Group
from nncourse.model.data_parallel import Together, data_parallel_epoch
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, make_network
from nncourse.model.optimizers import SGD
from nncourse.parallel.mpi import MPIGroup
from nncourse.parallel.simulation import Link, SimulatedGroup, simulate

SIZES = (784, 192, 10)
DONE = 72  # a tag


class Clocked:
    """A group that adds up the seconds of its all-reduces, including waits for other members."""

    def __init__(self, group: Group):
        self.group, self.exchange = group, 0.0
        self.rank, self.size, self.device = group.rank, group.size, group.device

    def all_reduce(self, vector: Array) -> None:
        start = time.perf_counter()
        self.group.all_reduce(vector)
        self.exchange += time.perf_counter() - start

    def __getattr__(self, name: str) -> Any:
        return getattr(self.group, name)


# ---- steps of training


def steps(
    world: MPIGroup,
    alone: Sequence[int],
    together: Sequence[int],
    rounds: int = 5,
    seconds: float = 0.08,
    sizes: Sequence[int] = SIZES,
) -> dict[str, dict[str, list[float]]]:
    """Seconds of a step of data-parallel training, by one process and by all; each is a list with one number per round.

    `alone` and `together` are batch sizes, of all processes together. A measurement takes about `seconds`. While one
    process trains alone, the others sleep. Rank 0 returns {"alone": …, "together": …, "exchange": …}, each by batch
    size; "exchange" is the part of "together" that all-reduces take.
    """
    network, X, Y = _problem(sizes, max((*alone, *together)))
    found: dict[str, dict[str, list[float]]] = {"alone": {}, "together": {}, "exchange": {}}
    for turn in range(rounds + 1):
        for batch in alone:
            if world.rank == 0:
                taken = _step(ALONE, network, X, Y, batch, seconds)
                _note(found["alone"], batch, taken[0], turn)
            _sleep_until_done(world)
        for batch in together:
            taken = _step(world, network, X, Y, batch, seconds)
            _note(found["together"], batch, taken[0], turn)
            _note(found["exchange"], batch, taken[1], turn)
    return found


def alone_here(
    batches: Sequence[int], rounds: int = 5, seconds: float = 0.08, sizes: Sequence[int] = SIZES
) -> dict[str, list[float]]:
    """Seconds of a training step by this process alone.

    batches: batch sizes, in rows.
    rounds: number of measurements of each.
    seconds: about how long a measurement takes.
    sizes: the layers of the dense network: inputs, then neurons.

    Returns the seconds of a step in each round, by batch size as text.

    >>> len(alone_here([8], rounds=2, seconds=0.001, sizes=(4, 2))["8"])
    2
    """
    network, X, Y = _problem(sizes, max(batches))
    found: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for batch in batches:
            _note(found, batch, _step(ALONE, network, X, Y, batch, seconds)[0], turn)
    return found


def _problem(sizes: Sequence[int], rows: int) -> tuple[Network, np.ndarray, np.ndarray]:
    """A network and random samples: their values do not change the time."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, sizes[0]), dtype=np.float32)
    return make_network(list(sizes)), X, np.eye(sizes[-1], dtype=np.float32)[rng.integers(0, sizes[-1], rows)]


def _note(into: dict[str, list[float]], key: float, seconds: float, turn: int) -> None:
    if turn:  # the first round warms up
        into.setdefault(str(key), []).append(seconds)


def _step(
    group: Group, network: Network, X: np.ndarray, Y: np.ndarray, batch: int, seconds: float
) -> tuple[float, float]:
    """The mean seconds of a step, and of its all-reduces, over as many steps as fit into `seconds`."""
    clocked, backend, order = Clocked(group), choose("numpy"), np.arange(batch)

    def step() -> None:
        data_parallel_epoch(network, X, Y, order, batch, 1e-6, backend, SGD(), StepPosition(), Together(clocked))

    group.barrier()
    start = time.perf_counter()
    step()
    count = np.array([max(2, round(seconds / (time.perf_counter() - start)))], np.int64)
    group.broadcast(count)
    group.barrier()
    clocked.exchange, start = 0.0, time.perf_counter()
    for _ in range(count[0]):
        step()
    return (time.perf_counter() - start) / int(count[0]), clocked.exchange / int(count[0])


def _sleep_until_done(world: MPIGroup) -> None:
    """A barrier in which the others sleep until rank 0 arrives. MPI's own barrier would keep their cores busy."""
    word = np.zeros(1, np.int64)
    if world.rank:
        world.next_sender(DONE)
        world.receive(word, 0, DONE)
    else:
        for other in range(1, world.size):
            world.send(word, other, DONE)


# ---- a disturbance

BUSY = """
import time
end = time.monotonic() + 60
while time.monotonic() < end:
    sum(i * i for i in range(100_000))
"""


@contextmanager
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """Another program that keeps one core of this machine busy during the block, for at most a minute.

    >>> with neighbour() as other:
    ...     other.poll() is None  # it runs
    True
    """
    process = subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True)
    try:
        yield process
    finally:
        kill_group(process)


# ---- messages


def messages(world: MPIGroup, sizes: Sequence[int], rounds: int = 7) -> dict[str, list[float]]:
    """Seconds of a message from rank 0 to rank 1, half of a round trip, for each size in bytes and each round."""
    found: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for size in sizes:
            vector = np.zeros(size // 4, np.float32)
            times = max(4, min(200, int(2e6 / max(size, 1))))
            world.barrier()
            start = time.perf_counter()
            for _ in range(times):
                if world.rank == 0:
                    world.send(vector, 1)
                    world.receive(vector, 1)
                elif world.rank == 1:
                    world.receive(vector, 0)
                    world.send(vector, 0)
            _note(found, size, (time.perf_counter() - start) / times / 2, turn)
    return found


def all_reduces(world: MPIGroup, size: int, rounds: int = 50) -> list[float]:
    """Seconds of all-reduces of `size` bytes, each after a barrier, so that no member waits for others' work."""
    vector, found = np.zeros(size // 4, np.float32), []
    for _ in range(rounds):
        world.barrier()
        start = time.perf_counter()
        world.all_reduce(vector)
        found.append(time.perf_counter() - start)
    return found


# ---- many devices, simulated


def simulated_step(
    devices: int,
    batch: int,
    compute: Callable[[int], float],
    size: int,
    link: Link,
    spread: Sequence[float] = (1.0,),
    steps: int = 31,
    seed: int = 0,
) -> float:
    """Seconds of a data-parallel step on simulated devices: the mean of some steps.

    devices: number of devices.
    batch: rows of all devices together.
    compute: a function of a number of rows; returns the seconds that a device takes for them.
    size: bytes of the gradient, which is added over all devices, by the fastest of root, tree and ring.
    link: the link between any two devices.
    spread: factors; each device's seconds in a step are multiplied by one of these, drawn at random.
    steps, seed: number of steps, and the seed of the draws.

    >>> simulated_step(4, 256, lambda rows: 1e-5 * rows, 4000, Link(1e-5, 1e9))
    0.000696
    """
    steps = steps if len(spread) > 1 else 1  # without noise all steps are equal
    rng = np.random.default_rng(seed)
    factors = rng.choice(np.asarray(spread), (devices, steps))
    rows = -(-batch // devices)  # the device with most rows decides
    # One number over a link that is slower in proportion takes the same time, without the memory.
    scaled = Link(link.latency, link.bandwidth * 4 / size)

    def part(group: SimulatedGroup) -> None:
        number = np.zeros(1, np.float32)
        for step in range(steps):
            group.work(compute(rows) * float(factors[group.rank, step]))
            group.all_reduce(number)

    return simulate(part, devices, link=scaled).seconds / steps
