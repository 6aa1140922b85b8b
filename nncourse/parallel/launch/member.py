"""A guarded process (guard.py) that trains with others: how it joins them and how it ends."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from nncourse.errors import CourseError
from nncourse.group import Alone, Group, shard_sizes
from nncourse.parallel.launch import guard, world
from nncourse.parallel.launch.heartbeat import Heartbeat

Something = TypeVar("Something")
EXCHANGES = ("all_reduce", "broadcast", "gather", "send", "receive", "barrier")


class Watched:
    """A group whose member tells its guard, by its heartbeat, when it waits for others in one of EXCHANGES."""

    def __init__(self, group: Group, heart: Heartbeat):
        self.group, self.heart = group, heart
        self.rank, self.size, self.device = group.rank, group.size, group.device

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in EXCHANGES:
            raise AttributeError(name)

        def exchange(*arguments: Any, **options: Any) -> Any:
            self.heart.waits()
            result = getattr(self.group, name)(*arguments, **options)
            self.heart.goes_on()
            return result

        return exchange

    def __repr__(self) -> str:
        return repr(self.group)


def join(device: str, heart: Heartbeat | None) -> Group:
    """The group of all processes that were started together; the group of one process if this one is not guarded.

    Raises CourseError if MPI's world does not have the launcher's size.
    """
    if heart is None:
        return Alone(device)
    _meet()
    if device == "cpu":
        from nncourse.parallel.mpi import MPIGroup

        return Watched(MPIGroup(device), heart)
    from nncourse.parallel.nccl import NCCLGroup

    return Watched(NCCLGroup(), heart)


def join_unlike(device_of: Sequence[str], heart: Heartbeat) -> Group:
    """The same if some members compute on the CPU and each of the others on the next GPU: they exchange over MPI."""
    _meet()
    from nncourse.parallel.mpi import MPIGroup

    group = MPIGroup()
    group.device = device_of[group.rank]
    if group.device == "gpu":
        import cupy

        number = device_of[: group.rank].count("gpu")
        cupy.cuda.Device(number % cupy.cuda.runtime.getDeviceCount()).use()
    return Watched(group, heart)


def _meet() -> None:
    """Wait for all processes that were started together. CourseError if they are not those of MPI's world."""
    from nncourse.parallel.mpi import mpi

    everyone = mpi().COMM_WORLD
    world.refuse_wrong(world.launcher_environment(os.environ), everyone.Get_size())
    everyone.Barrier()  # now all have opened the shared memory of MPICH
    guard.unlink_shared_memory()


def first_one(group: Group, work: Callable[[], Something]) -> Something:
    """Call work() on every member, on the first before all others, so that they find what it has downloaded."""
    if group.rank > 0:
        group.barrier()
    result = work()
    if group.rank == 0:
        group.barrier()
    return result


def in_words(group: Group, batch_size: int) -> str:
    """A line: how many processes train together, and how many rows of a batch each has."""
    sizes = shard_sizes(batch_size, group.size)
    each = f"{sizes[0]} rows" if sizes[0] == sizes[-1] else f"{sizes[0]} or {sizes[-1]} rows"
    return f"{group.size} processes train together: each has {each} of every batch of {batch_size}"


def run(work: Callable[[Heartbeat], int], heart: Heartbeat) -> int:
    """The exit status of work(heart). A failure ends this process at once.

    Only rank 0 prints, and only rank 0 reacts to Ctrl-C: the launcher ends the others.
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
        _leave(heart, str(error) or "expected more memory than this machine has", guard.BAD_INPUT)
    except KeyboardInterrupt:
        _leave(heart, "interrupted", guard.INTERRUPTED)
    except BrokenPipeError:  # the reader has closed our output
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
    """End this process without MPI's finalisation, which would wait for the others."""
    heart.last_words(text, status)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
