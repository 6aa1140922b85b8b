"""A process that learns with others, guarded (guard.py): how it joins them, what it says, and how it leaves."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nncourse.calls import Array
from nncourse.errors import CourseError
from nncourse.group import Alone, Group, shard_sizes
from nncourse.parallel.launch import guard, world
from nncourse.parallel.launch.heartbeat import Heartbeat

Something = TypeVar("Something")


class Watched:
    """A group whose member tells its guard when it waits for the others."""

    def __init__(self, group: Group, heart: Heartbeat):
        self.group, self.heart = group, heart
        self.rank, self.size, self.device = group.rank, group.size, group.device

    def all_reduce(self, vector: Array) -> None:
        self._waiting(self.group.all_reduce, vector)

    def broadcast(self, vector: Array, root: int = 0) -> None:
        self._waiting(self.group.broadcast, vector, root)

    def gather(self, vector: Array, root: int = 0) -> list[Array] | None:
        return self._waiting(self.group.gather, vector, root)

    def send(self, vector: Array, to: int, tag: int = 0) -> None:
        self._waiting(self.group.send, vector, to, tag)

    def receive(self, vector: Array, source: int, tag: int = 0) -> None:
        self._waiting(self.group.receive, vector, source, tag)

    def barrier(self) -> None:
        self._waiting(self.group.barrier)

    def _waiting(self, call: Callable[..., Something], *arguments) -> Something:
        self.heart.waits()
        result = call(*arguments)
        self.heart.goes_on()
        return result

    def __repr__(self) -> str:
        return repr(self.group)


def join(device: str, heart: Heartbeat | None) -> Group:
    """The group of all processes that were started together; the group of one where this one is not guarded.

    Raises CourseError if MPI's world is not the one that the launcher told of.
    """
    if heart is None:
        return Alone(device)
    from nncourse.parallel.mpi import MPIGroup, mpi

    everyone = mpi().COMM_WORLD
    world.refuse_wrong(world.launcher_environment(os.environ), everyone.Get_size())
    everyone.Barrier()  # here all have opened the shared memory of MPICH
    guard.unlink_shared_memory()
    if device == "cpu":
        return Watched(MPIGroup(device), heart)
    from nncourse.parallel.nccl import NCCLGroup

    return Watched(NCCLGroup(), heart)


def first_one(group: Group, work: Callable[[], Something]) -> Something:
    """work() on every member, the first before all others: what it fetches from afar is there for them."""
    if group.rank > 0:
        group.barrier()
    result = work()
    if group.rank == 0:
        group.barrier()
    return result


def in_words(group: Group, batch_size: int) -> str:
    """How many learn together, and who has how many rows of a batch."""
    sizes = shard_sizes(batch_size, group.size)
    each = f"{sizes[0]} rows" if sizes[0] == sizes[-1] else f"{sizes[0]} or {sizes[-1]} rows"
    return f"{group.size} processes train together: of each batch of {batch_size}, {each} for each of them"


def run(work: Callable[[Heartbeat], int], heart: Heartbeat) -> int:
    """work(heart), whose exit status is returned when all have ended it. A failure ends this process at once.

    Only rank 0 prints, and only rank 0 is interrupted: the others are ended by whoever started them.
    """
    guard.die_with_parent(signal.SIGKILL)
    if world.launcher_environment(os.environ).rank > 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        warnings.simplefilter("ignore")
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until this process ends)
    try:
        status = work(heart)
    except CourseError as error:
        _leave(heart, str(error), guard.BAD_INPUT)
    except MemoryError as error:
        _leave(heart, str(error) or "wanted more memory than this machine has", guard.BAD_INPUT)
    except KeyboardInterrupt:
        _leave(heart, "interrupted", guard.INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has closed it
        _leave(heart, "", guard.ENDED)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        _leave(heart, f"{text} ({Path(place.filename).name}, line {place.lineno})", guard.ENDED)
    heart.last_words("", status)
    if status == guard.INTERRUPTED:
        _leave(heart, "", status)
    return status


def _leave(heart: Heartbeat, text: str, status: int) -> None:
    """End this process without MPI, which would wait for the others."""
    heart.last_words(text, status)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
