"""The number of threads for NumPy's matrix products, or for the parts of a batch: as many as make them faster.

The threads of a product wait for each other. If another program occupies the core of one of them, all of them wait for
the system's next time slice: a product of 0.1 ms then takes 20 ms. Small products gain nothing from a second thread
anyway. So everything begins with one thread, and uses up to MOST if a product is large and cores are idle.

    with Threads(flops) as threads:
        for epoch in range(epochs):
            threads.choose()
            …
"""

import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple

from nncourse.errors import CourseError

PER_THREAD = 25e6  # FLOPs of a product for which a thread pays
MOST = 4  # 784-512-512-10 with batch 128 on 16 idle cores: 5.2, 4.3, 3.2, 3.7 ms per step with 1, 2, 4, 8 threads
# OpenBLAS's threads look for work for 2ⁿ ticks of the clock before they sleep. By default n is 28: for 0.1 s after a
# product they hold cores that other programs, or the threads of a batch's parts, could use. With 22 it is 2 ms.
TICKS = "22"
TELLS = 0.1  # seconds; over less, the system's counter of CPU time, which ticks 100 times a second, says little
NOISE = 0.25  # cores: the system itself is always somewhat busy
WORK = ("user", "nice", "system", "irq", "softirq", "steal")  # "user" already includes the time of guests
# Variables of MPICH, Open MPI and Slurm: how many processes they started on this machine. Slurm's may be "4(x2)".
LOCAL = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")


class Load(NamedTuple):
    """Core-seconds that other processes worked within `seconds`, and the number of cores that this process may use."""

    others: float = 0.0
    seconds: float = 0.0
    cores: int = 1


class Look(NamedTuple):
    """The time; the core-seconds worked on all usable cores since the system started, and those of this process."""

    clock: float
    machine: float
    own: float


def look() -> Look:
    """A look at the cores that this process may use."""
    import psutil

    each, own = psutil.cpu_times(percpu=True), cores()
    if max(own) < len(each):  # otherwise they are numbered differently, as in some containers
        each = [times for number, times in enumerate(each) if number in own]
    work = sum(getattr(times, name, 0.0) for times in each for name in WORK)
    return Look(time.perf_counter(), work, time.process_time())


def since(before: Look) -> Load:
    """The load from `before` until now."""
    now = look()
    others = (now.machine - before.machine) - (now.own - before.own)
    return Load(max(others, 0.0), now.clock - before.clock, len(cores()))


def cores() -> set[int]:
    """The numbers of the cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """How many cores this process may use: by its affinity, and in a Slurm job no more than the job has here."""
    return min(len(cores()), _number_in("SLURM_CPUS_ON_NODE") or len(cores()))


def granted() -> int:
    """The most threads for this process: its share of the usable cores, and at most OMP_NUM_THREADS."""
    processes = max(1, *map(_number_in, LOCAL))
    share = (_number_in("SLURM_CPUS_ON_NODE") or len(cores())) // processes  # srun may give each process its own cores
    return max(1, min(share, usable_cores(), _number_in("OMP_NUM_THREADS") or share))


def _number_in(variable: str) -> int:
    """The number that a variable of the environment begins with; 0 without one."""
    found = re.match(r"\d+", os.environ.get(variable, ""))
    return int(found[0]) if found else 0


def begin_with_one() -> None:
    """Use one thread of BLAS from now on, in this process and in those that it starts, except in a block of Threads."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", TICKS)
    if "numpy" in sys.modules:
        _pools("torch" in sys.modules).limit(limits=1)


@functools.cache
def _pools(with_torch: bool) -> Any:
    """The libraries with threads: NumPy's BLAS, and PyTorch's once it is imported. Finding them takes time."""
    import numpy  # noqa: F401, ICN001 (its BLAS must be loaded to be limited)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def that_pay(flops: float, idle: float, most: int = MOST) -> int:
    """The number of threads that pay for a product of `flops` FLOPs with `idle` cores idle; at most `most`."""
    return max(1, int(min(most, flops / PER_THREAD, idle + NOISE)))


class Threads:
    """The threads of BLAS in a `with` block: one, until choose() is called. After the block they are as before it.

    flops: FLOPs of the largest product.
    exactly: the number of threads, whatever the product and the machine. Raises CourseError below 1.
    most: the most threads if `exactly` is None.
    """

    def __init__(self, flops: float, exactly: int | None = None, most: int = MOST):
        exactly = _asked.get() if exactly is None else exactly
        if exactly is not None and exactly < 1:
            raise CourseError(f"expected at least 1 thread, got {exactly}")
        self.flops, self.exactly = flops, exactly
        self.most = exactly or that_pay(flops, granted(), most)
        self.count = 1
        self._workers: ThreadPoolExecutor | None = None

    def __str__(self) -> str:
        if self.exactly:
            return f"{self.exactly}, as asked"
        if self.most > 1:
            return f"1 to {self.most}, as other programs leave cores idle"
        return "1, since this process has one core" if granted() == 1 else "1, since its products are small"

    @property
    def _may_choose(self) -> bool:
        return not self.exactly and self.most > 1

    def __enter__(self) -> "Threads":
        self._pools = _pools("torch" in sys.modules)
        self._before = self._pools.limit(limits=1).__enter__()
        self._outer = _block.set(self)
        self.count = 1
        self._has_chosen = False
        if self._may_choose:
            self._looked = look()
        return self

    def __exit__(self, *error: object) -> None:
        _block.reset(self._outer)
        if self._workers:
            self._workers.shutdown()
            self._workers = None
        self._before.__exit__(*error)

    def choose(self, waits: bool = True) -> int:
        """Use as many threads as pay, judging by the work of other processes since the last choice in this block.

        Judging takes TELLS seconds: the first choice waits for it if `waits`, a later one keeps the number until then.
        """
        if not self._may_choose:
            return self.take(self.most)
        too_early = TELLS - (time.perf_counter() - self._looked.clock)
        if too_early > 0:
            if self._has_chosen or not waits:
                return self.count
            time.sleep(too_early)
        self._has_chosen = True
        load, self._looked = since(self._looked), look()
        return self.take(that_pay(self.flops, load.cores - load.others / load.seconds, self.most))

    def take(self, count: int) -> int:
        """Use this number of threads from now on; fewer if BLAS has fewer, or another Python thread limits it."""
        if count != self.count:
            self._pools.limit(limits=count)
            now = [pool["num_threads"] for pool in self._pools.info() if pool["user_api"] == "blas"]
            self.count = min(now, default=count)
        return self.count

    def together(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make all calls with the chosen number of threads; BLAS then has one thread in each."""
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


@contextmanager
def asked(count: int | None) -> Iterator[None]:
    """In the block `with asked(count):` use `count` threads instead of as many as pay; None changes nothing."""
    before = _asked.set(_asked.get() if count is None else count)
    try:
        yield
    finally:
        _asked.reset(before)


_asked: ContextVar[int | None] = ContextVar("_asked", default=None)
_block: ContextVar[Threads | None] = ContextVar("_block", default=None)  # the innermost block around the running code


def _in_turn(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def at_most() -> int:
    """The most threads that may be chosen in the block of Threads around the call; 1 without such a block."""
    block = _block.get()
    return block.most if block else 1


def together(calls: Sequence[Callable[[], None]]) -> None:
    """Make all calls with as many threads as the surrounding block of Threads has chosen."""
    block = _block.get()
    (block.together if block else _in_turn)(calls)
