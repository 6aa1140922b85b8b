"""simulate(): run a function on every member of a simulated group.

    def part(group, vector):
        group.all_reduce(vector)

    run = simulate(part, size=4, arguments=[(vector,) for vector in vectors], link=Link(1e-5, 1e9))

Each member is a thread, but only one runs at a time, until it waits for another member. So every run is the same.
"""

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from nncourse.errors import CourseError
from nncourse.parallel.simulation.faults import ExchangeError
from nncourse.parallel.simulation.links import Link
from nncourse.parallel.simulation.records import Died, Run
from nncourse.parallel.simulation.world import World

PATIENCE = 10.0  # seconds of a turn


class _LeaveError(BaseException):
    """Raised in a member that dies, or whose simulation has ended."""


class SimulatedGroup:
    """A member's view of the group: the methods of Group in group.py, and work(), clock() and next_sender()."""

    device = "cpu"

    def __init__(self, rank: int, turns: "_Turns"):
        self.rank, self.size = rank, turns.world.size
        self._turns = turns

    def all_reduce(self, vector: np.ndarray) -> None:
        self._turns.ask(self.rank, "meet", "all_reduce", vector)

    def broadcast(self, vector: np.ndarray, root: int = 0) -> None:
        self._turns.ask(self.rank, "meet", "broadcast", vector, root)

    def gather(self, vector: np.ndarray, root: int = 0) -> list[np.ndarray] | None:
        return self._turns.ask(self.rank, "meet", "gather", vector, root)

    def barrier(self) -> None:
        self._turns.ask(self.rank, "meet", "barrier")

    def send(self, vector: np.ndarray, to: int, tag: int = 0) -> None:
        self._turns.ask(self.rank, "send", vector, to, tag)

    def receive(self, vector: np.ndarray, source: int, tag: int = 0) -> None:
        self._turns.ask(self.rank, "receive", vector, source, tag)

    def next_sender(self, tag: int = 0, patience: float = inf) -> int | None:
        """Wait for a message with this tag, and return the sender of the first, without receiving the message.

        Returns None after `patience` simulated seconds, or if no message can come any more, since all other members
        have ended, have died, or wait in the same way.
        """
        return self._turns.ask(self.rank, "next_sender", tag, patience)

    def work(self, seconds: float) -> None:
        """This member computes for this many simulated seconds."""
        self._turns.ask(self.rank, "work", seconds)

    def clock(self) -> float:
        """This member's simulated time, in seconds."""
        return self._turns.world.clocks[self.rank]

    def __repr__(self) -> str:
        return f"member {self.rank} of {self.size}, simulated"


def simulate(
    part: Callable[..., Any],
    size: int,
    arguments: Sequence[tuple[Any, ...]] | None = None,
    link: Link = Link(),  # noqa: B008  (it cannot be changed)
    links: Mapping[tuple[int, int], Link] | None = None,
    slow: Mapping[int, float] | None = None,
    dies: Mapping[int, float] | None = None,
    buffered: bool = True,
    patience: float = PATIENCE,
) -> Run:
    """Call part(group, *arguments[rank]) for every member of a simulated group.

    part: the work of a member; `group` is a SimulatedGroup: rank, size, send(), receive(), all_reduce() and others.
    size: number of members.
    arguments: a tuple for each member.
    link, links: the link between any two members, and others for pairs (source, to); `latency` in seconds, `bandwidth`
        in bytes per second.
    slow: rank -> the factor by which a member computes longer.
    dies: rank -> the simulated second at which a member ends.
    buffered: whether a send returns before it is received.
    patience: seconds of real time that a member may take for one turn.

    Returns a Run: the results by rank, simulated seconds, events and messages.
    Raises ExchangeError, which says who waits for whom, or which message was lost. A member's exception is raised here,
    with its rank as a note.

    >>> simulate(lambda group: group.rank**2, 3).results
    [0, 1, 4]
    """
    if not callable(part):
        raise CourseError(f"expected a function of the group, then the number of members; got {part!r}")
    world = World(size, link, links or {}, slow or {}, dies or {}, buffered)
    given = arguments if arguments is not None else [()] * size
    if len(given) != size:
        raise CourseError(f"expected arguments for each of {size} members; got {len(given)}")
    try:
        results = run_members(world, part, given, patience=patience)
    except ExchangeError as error:
        error.run = Run([None] * size, world.clocks, world.events, world.messages, frozenset(world.died))
        raise
    return Run(results, world.clocks, world.events, world.messages, frozenset(world.died))


def run_members(
    world: World,
    part: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    methods: tuple[str, ...] = (),
    patience: float = PATIENCE,
) -> list[Any]:
    """The results of part(group, *arguments[rank]) for each member of a new world.

    If `methods` are given, the group has no others.
    """
    return _Turns(world, methods).run(part, arguments, patience)


class _Turns:
    """Threads that take turns: only one runs at a time."""

    def __init__(self, world: World, methods: tuple[str, ...] = ()):
        self.world, self.methods = world, methods
        self.error: BaseException | None = None
        self.over = False
        self.count = 0  # of turns, so that a long one is noticed
        self.running = -1
        self._may_run = [threading.Lock() for _ in range(world.size)]
        self._done = threading.Lock()
        for lock in (*self._may_run, self._done):
            lock.acquire()

    def run(self, part: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], patience: float) -> list[Any]:
        results: list[Any] = [None] * self.world.size

        def member(rank: int) -> None:
            self._may_run[rank].acquire()
            with contextlib.suppress(_LeaveError):
                try:
                    if not self.over:
                        results[rank] = part(SimulatedGroup(rank, self), *arguments[rank])
                except (Exception, SystemExit) as error:
                    steps = "1 step" if self.world.steps[rank] == 1 else f"{self.world.steps[rank]} steps"
                    error.add_note(f"(rank {rank} of {self.world.size}, after {steps})")
                    self._stop(error)
            if not self.over:
                self.world.end(rank)
                self._next()

        threads = [threading.Thread(target=member, args=(rank,), daemon=True) for rank in range(self.world.size)]
        for thread in threads:
            thread.start()
        try:
            self._next()
            self._wait(threads, patience)
        finally:
            self.over = True
            for lock in self._may_run:
                with contextlib.suppress(RuntimeError):
                    lock.release()
        for thread in threads:
            thread.join(1.0)
        if self.error:
            raise self.error
        return results

    def ask(self, rank: int, method: str, *arguments: Any) -> Any:
        """Make a member's request to the world. Other members run until it is answered."""
        if self.over:
            raise _LeaveError
        name = arguments[0] if method == "meet" else method
        if self.methods and name not in self.methods:
            raise AttributeError(f"there is no {name}; there are {', '.join(self.methods)}")
        try:
            if method == "work":
                self.world.work(rank, *arguments)
            else:
                vectors = [value for value in arguments[method == "meet" :][:1] if method != "next_sender"]
                if not all(isinstance(value, np.ndarray) for value in vectors):
                    raise TypeError(f"expected a NumPy array to exchange; got {type(vectors[0]).__name__}")
                getattr(self.world, method)(rank, *arguments, line=sys._getframe(2).f_lineno)
        except CourseError as error:
            self._stop(error)
            raise _LeaveError from None
        if self.world.is_waiting(rank):
            self._next()
            self._may_run[rank].acquire()
            if self.over:
                raise _LeaveError
        answer = self.world.answer(rank)
        if isinstance(answer, Died):
            raise _LeaveError
        return answer

    def _next(self) -> None:
        """Hand the turn on."""
        try:
            rank = self.world.next_ready()
        except CourseError as error:
            self._stop(error)
            return
        self.count += 1
        if rank is None:
            self.over = True
            self._done.release()
        else:
            self.running = rank
            self._may_run[rank].release()

    def _stop(self, error: BaseException) -> None:
        """End the simulation because of an error; only the first one counts."""
        if not self.over:
            self.error, self.over = error, True
            self._done.release()

    def _wait(self, threads: list[threading.Thread], patience: float) -> None:
        """Wait until all is over, or until one turn takes too long."""
        count = -1
        while not self._done.acquire(timeout=patience):
            if count == self.count:
                rank = self.running
                self.over = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(threads[rank].ident or 0), ctypes.py_object(_LeaveError)
                )
                after = f"after its step {self.world.steps[rank]}"
                raise CourseError(f"rank {rank} has computed for over {patience:g} s {after}: look for an endless loop")
            count = self.count
