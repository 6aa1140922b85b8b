"""Timelines: what each member did, and when. Figures show them, and idle_share() tells how long members wait."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nncourse import device as devices
from nncourse.errors import refuse_unknown
from nncourse.group import Group

if TYPE_CHECKING:
    from nncourse.parallel.simulation.members import SimulatedGroup
    from nncourse.parallel.simulation.records import Event

WORK = ("compute", "forward", "backward", "update")
KINDS = (*WORK, "send", "receive", "exchange", "wait")


class Span(NamedTuple):
    """One thing that a member did, `what` of KINDS, from `start` to `end` in seconds.

    `number` is that of a micro-batch or of a step; for send and receive it is the other member's rank.
    """

    rank: int
    what: str
    start: float
    end: float
    number: int = 0


class Timeline(list[Span]):
    """The spans of one member, by its clock.

    spend(what, number) is called before a span ends. It may advance the clock of a simulated group by the time of the
    work, sleep to slow the member down, or synchronise a GPU.
    """

    def __init__(
        self,
        rank: int = 0,
        clock: Callable[[], float] = time.perf_counter,
        spend: Callable[[str, int], None] = lambda what, number: None,
    ):
        super().__init__()
        self.rank, self.clock, self.spend = rank, clock, spend

    @contextmanager
    def span(self, what: str, number: int = 0) -> Iterator[None]:
        """Add the span of the block."""
        refuse_unknown("something to do", what, KINDS)
        start = self.clock()
        yield
        self.spend(what, number)
        self.append(Span(self.rank, what, start, self.clock(), number))


def gathered(timeline: Timeline, group: Group) -> list[Span] | None:
    """The spans of all members, at member 0; None for the others. Their clocks must agree, as on one machine."""
    numbers = [(rank, KINDS.index(what), start, end, number) for rank, what, start, end, number in timeline]
    parts = group.gather(devices.to_device(np.array(numbers, np.float64).ravel(), group.device))
    if parts is None:
        return None
    rows = np.concatenate([devices.to_device(part, "cpu") for part in parts]).reshape(-1, 5).tolist()
    return [Span(int(rank), KINDS[int(what)], start, end, int(number)) for rank, what, start, end, number in rows]


def made_up(group: "SimulatedGroup", seconds: Mapping[str, float]) -> Timeline:
    """The timeline of a simulated member; `seconds` gives the time of each kind of work."""
    return Timeline(group.rank, group.clock, lambda what, number: group.work(seconds.get(what, 0.0)))


def simulated(events: Sequence["Event"]) -> list[Span]:
    """What the members of a simulated group did, by the simulation's clock."""
    kinds = {"work": "compute", "wait": "wait", "send": "send", "receive": "receive"}
    numbers = [each.step if each.peer is None else each.peer for each in events]
    return [
        Span(each.rank, kinds.get(each.kind, "exchange"), each.begin, each.end, number)
        for each, number in zip(events, numbers, strict=True)
    ]


def idle_share(spans: Sequence[Span]) -> float:
    """The share of the members' time, from the first start to the last end, in which they do not work."""
    members = {span.rank for span in spans}
    whole = len(members) * (max(span.end for span in spans) - min(span.start for span in spans))
    return 1 - sum(span.end - span.start for span in spans if span.what in WORK) / whole
