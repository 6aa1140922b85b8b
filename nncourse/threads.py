"""How many threads compute NumPy's products, or parts of a batch: as many as pay.

The threads of a product wait for each other. Where another program holds the core of one of them, all of them wait for
a time slice of the system: a product of 0.1 ms then takes 20 ms. Small products gain nothing from a second thread in
any case. So a training gets one thread, and up to MOST where a product is large and cores are idle.

    with Threads(flops) as threads:
        for epoch in range(epochs):
            threads.choose()
            …
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple

import psutil

PER_THREAD = 25e6  # FLOPs of a product
MOST = 4  # 784-512-512-10 with batch 128 on 16 idle cores: 5.2, 4.3, 3.2, 3.7 ms a step by 1, 2, 4, 8 threads
TELLS = 0.1  # seconds; in less the system's clock of work, which ticks 100 times a second, says little
WORK = ("user", "nice", "system", "irq", "softirq", "steal")  # guests' is counted as the user's already


class Load(NamedTuple):
    """Core-seconds of work by other processes in a time of `seconds`, and the cores that the machine has."""

    others: float = 0.0
    seconds: float = 0.0
    cores: int = 1


class Look(NamedTuple):
    """The clock, the core-seconds of work that the machine has done since it was started, and those of this process."""

    clock: float
    machine: float
    own: float


def look() -> Look:
    """A look at the machine."""
    times = psutil.cpu_times()
    work = sum(getattr(times, name, 0.0) for name in WORK)
    return Look(time.perf_counter(), work, time.process_time())


def since(before: Look) -> Load:
    """The load from `before` until now."""
    now = look()
    others = (now.machine - before.machine) - (now.own - before.own)
    return Load(max(others, 0.0), now.clock - before.clock, os.cpu_count() or 1)


def usable_cores() -> int:
    """The cores that this process may use: by its affinity, and in a Slurm job no more than the job has here."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return min(cores, int(granted)) if granted.isdigit() and int(granted) else cores


def granted() -> int:
    """The most threads that this process should use: the usable cores, or fewer by OMP_NUM_THREADS."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable_cores(), int(given)) if given.isdigit() and int(given) else usable_cores()


def limit(count: int) -> None:
    """From now on this number of threads in this process, except in a block of Threads."""
    import numpy  # noqa: F401, ICN001 (its BLAS must be loaded to be limited)
    from threadpoolctl import ThreadpoolController

    ThreadpoolController().limit(limits=count)


def that_pay(flops: float, idle: float, most: int = MOST) -> int:
    """Threads for a product of so many FLOPs where so many cores are idle."""
    return max(1, min(most, int(flops / PER_THREAD), int(idle)))


class Threads:
    """The threads of BLAS in a `with` block: one, until choose() is called. Afterwards they are as before.

    flops: of the largest product.
    exactly: this number of threads, whatever the product and the machine.
    """

    def __init__(self, flops: float, exactly: int | None = None):
        self.flops, self.exactly = flops, exactly
        self.most = min(MOST, granted())
        self.count, self._chosen = 1, False
        self._workers: ThreadPoolExecutor | None = None

    def __enter__(self) -> "Threads":
        from threadpoolctl import ThreadpoolController

        self._pools: Any = ThreadpoolController()
        self._before = self._pools.limit(limits=1)
        self._seen = look()
        self._outer = _block.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _block.reset(self._outer)
        if self._workers:
            self._workers.shutdown()
        self._before.restore_original_limits()

    def choose(self) -> int:
        """As many threads as pay, by what other processes have done since the last call."""
        most = self.exactly or that_pay(self.flops, self.most, self.most)
        if self.exactly or most == 1:
            return self._limit(most)
        if not self._chosen:
            time.sleep(max(0.0, self._seen.clock + TELLS - time.perf_counter()))
        elif time.perf_counter() < self._seen.clock + TELLS:
            return self.count
        self._chosen, load, self._seen = True, since(self._seen), look()
        return self._limit(that_pay(self.flops, usable_cores() - load.others / load.seconds, most))

    def _limit(self, count: int) -> int:
        if count != self.count:
            self._pools.limit(limits=count)
            self.count = count
        return count

    def together(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make all calls, by as many threads as were chosen; BLAS then has one thread in each."""
        count = min(self.count, len(calls))
        if count <= 1:
            _in_turn(calls)
            return
        self._workers = self._workers or ThreadPoolExecutor(self.most)
        with self._pools.limit(limits=1):
            shares = [calls[number::count] for number in range(count)]
            others = [self._workers.submit(copy_context().run, _in_turn, share) for share in shares[1:]]
            try:
                _in_turn(shares[0])
            finally:
                wait(others)
        for other in others:
            other.result()  # raises what the call has raised


_block: ContextVar[Threads | None] = ContextVar("_block", default=None)  # the innermost around what runs now


def _in_turn(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def at_most() -> int:
    """The most threads that may be chosen in the block of Threads around the call; 1 without such a block."""
    block = _block.get()
    return (block.exactly or block.most) if block else 1


def together(calls: Sequence[Callable[[], None]]) -> None:
    """Make all calls, by as many threads as the block of Threads around it has chosen."""
    block = _block.get()
    (block.together if block else _in_turn)(calls)
