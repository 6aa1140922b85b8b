"""The world of a simulated group: it carries messages between members, and keeps a clock for each.

send(), receive() and the other methods either answer a member or let it wait; next_ready() says whose turn it is.
Nothing depends on the machine's own time: every run is the same.

Time: a message keeps its sender busy for latency + bytes / bandwidth, and its receiver for the same time, as soon as
the sender begins. A receiver takes one message at a time. Waiting costs time; sums and copies cost none.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from math import ceil, inf, log2
from typing import Any

import numpy as np

from nncourse.errors import CourseError
from nncourse.parallel.simulation import faults
from nncourse.parallel.simulation.links import Link, ring_seconds, root_seconds, tree_seconds
from nncourse.parallel.simulation.records import ANY, Died, Event, Message, State, Wait

MOST_MEMBERS = 4096  # each is a thread
MEETINGS = ("all_reduce", "broadcast", "gather", "barrier")  # calls in which every member takes part


@dataclass
class World(State):
    """Members 0 to size − 1 and the links between them.

    `links` has the links that differ from `link`, by (sender, receiver). By rank, `slow` has factors of the time for
    work, and `dies` the seconds at which members die. If `buffered`, a sender continues at once; otherwise it waits
    until the other receives, as MPI may do with large messages.
    """

    link: Link = field(default_factory=Link)
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    slow: Mapping[int, float] = field(default_factory=dict)
    dies: Mapping[int, float] = field(default_factory=dict)
    buffered: bool = True
    most_steps: float = inf  # of a member: with more, the exchange counts as endless
    record: bool = True  # keep events and received messages

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or not 1 <= self.size <= MOST_MEMBERS:
            raise CourseError(f"expected a group of 1 to {MOST_MEMBERS} members, a whole number; got {self.size!r}")
        ranks = range(self.size)
        if strange := [rank for rank in (*chain(*self.links), *self.slow, *self.dies) if rank not in ranks]:
            raise CourseError(f"expected ranks from 0 to {self.size - 1} in links, slow and dies; got {strange[0]!r}")
        super().__post_init__()
        self._answers: dict[int, Any] = {}
        self._boxes: dict[int, dict[tuple[int, int], deque[Message]]] = {rank: defaultdict(deque) for rank in ranks}
        self._free = [0.0] * self.size  # when each can take the next message
        self._met = [0] * self.size  # number of meetings of each
        self._meetings: dict[int, dict[int, Wait]] = defaultdict(dict)
        self._ready = [(0.0, rank) for rank in ranks]
        self._turn = ANY  # whose turn it is

    # ---- turns

    def next_ready(self) -> int | None:
        """The member whose turn it is: of those that can continue, one with the earliest clock. None if all have ended.

        Raises ExchangeError if all that are left wait for ever, or if all have ended and a message was never received.
        """
        self._turn = ANY
        while True:
            while self._ready:
                time, rank = heapq.heappop(self._ready)
                if wait := self.waits.get(rank):
                    if wait.method != "next_sender" or not self._hears(rank, wait, time):
                        continue  # an entry from an earlier turn
                elif rank in self.ended:
                    continue
                self._turn = rank
                return rank
            if not self._wake():
                break
        if self.waits:
            raise faults.deadlock(self)
        if lost := [message for message in self.messages if not message.taken and message.to not in self.died]:
            raise faults.lost(self, lost)
        return None

    def is_waiting(self, rank: int) -> bool:
        return rank in self.waits

    def answer(self, rank: int) -> Any:
        """The answer to the member's last call."""
        return self._answers.pop(rank, None)

    def end(self, rank: int) -> None:
        """The member's function has returned."""
        self.ended.add(rank)

    def _wake(self) -> bool:
        """No member can continue: let one die whose time comes while it waits, or answer next_sender() with None."""
        mortal = [rank for rank in self.waits if self.dies.get(rank, inf) < inf]
        if mortal:
            rank = min(mortal, key=lambda each: (self.dies[each], each))
            self._die(rank)
            return True
        if self.waits and all(wait.method == "next_sender" for wait in self.waits.values()):
            self._go_on(min(self.waits), None)
            return True
        return False

    def _go_on(self, rank: int, answer: Any) -> None:
        """Answer a member that waits."""
        self.waits.pop(rank, None)
        self._answers[rank] = answer
        if rank != self._turn:
            heapq.heappush(self._ready, (self.clocks[rank], rank))

    def _die(self, rank: int) -> None:
        self.clocks[rank] = max(self.clocks[rank], self.dies[rank])
        self.died.add(rank)
        self._go_on(rank, Died())

    def _pass(self, rank: int, kind: str, until: float, **about: Any) -> bool:
        """Move a member's clock on; False if it dies on the way."""
        begin, last = self.clocks[rank], min(until, self.dies.get(rank, inf))
        if self.record and last > begin:
            self.events.append(Event(rank, kind, begin, last, step=self.steps[rank], **about))
        self.clocks[rank] = max(begin, last)
        if until > last:
            self.died.add(rank)
            self._answers[rank] = Died()
        return until <= last

    def _step(self, rank: int, method: str, line: int, other: int = ANY) -> bool:
        """Count a step of a member; False if it has died by now."""
        self.steps[rank] += 1
        self.lines[rank] = line
        self.last[rank] = faults.doing(method, other)
        if self.steps[rank] > self.most_steps:
            raise faults.endless(self, rank)
        if method in ("send", "receive") and (other == rank or not 0 <= other < self.size):
            raise faults.wrong_rank(self, rank, method, other)
        if self.clocks[rank] >= self.dies.get(rank, inf):
            self.died.add(rank)
            self._answers[rank] = Died()
            return False
        return True

    # ---- requests of members

    def work(self, rank: int, seconds: float) -> None:
        """The member computes for `seconds`, times its factor of `slow`."""
        self._pass(rank, "work", self.clocks[rank] + seconds * self.slow.get(rank, 1.0))

    def send(self, rank: int, values: np.ndarray, to: int, tag: int = 0, line: int = 0) -> None:
        """Send a copy of the values to another member."""
        if not self._step(rank, "send", line, to):
            return
        seconds = self.links.get((rank, to), self.link).seconds(values.nbytes)
        begin = self.clocks[rank]
        message = Message(rank, to, tag, values.copy(), self.steps[rank], line, begin, seconds)
        if self.buffered and not self._pass(rank, "send", begin + seconds, peer=to, size=values.nbytes):
            return
        self.messages.append(message)
        self._boxes[to][rank, tag].append(message)
        if not self.buffered:
            self.waits[rank] = Wait("send", self.steps[rank], line, to, tag, message=message)
        wait = self.waits.get(to)
        if wait and wait.method == "receive" and (wait.other, wait.tag) == (rank, tag):
            self._deliver(to, wait, message)
        elif wait and wait.method == "next_sender" and wait.tag == tag:
            heapq.heappush(self._ready, (max(self.clocks[to], message.arrival), to))

    def receive(self, rank: int, values: np.ndarray, source: int, tag: int = 0, line: int = 0) -> None:
        """Fill `values` with what the source sent."""
        if not self._step(rank, "receive", line, source):
            return
        wait = Wait("receive", self.steps[rank], line, source, tag, values)
        self.waits[rank] = wait
        if box := self._boxes[rank].get((source, tag)):
            self._deliver(rank, wait, box[0])

    def next_sender(self, rank: int, tag: int = 0, patience: float = inf, line: int = 0) -> None:
        """Answer with the sender of the first message, or None: see SimulatedGroup.next_sender()."""
        if not self._step(rank, "next_sender", line):
            return
        wait = Wait("next_sender", self.steps[rank], line, ANY, tag, deadline=self.clocks[rank] + patience)
        self.waits[rank] = wait
        # Even if there is one, another may still arrive earlier: next_ready() decides.
        if first := self._first_for(rank, wait):
            heapq.heappush(self._ready, (max(self.clocks[rank], first.arrival), rank))
        if wait.deadline < inf:
            heapq.heappush(self._ready, (wait.deadline, rank))

    def meet(self, rank: int, method: str, values: np.ndarray | None = None, root: int = 0, line: int = 0) -> None:
        """The member takes part in one of MEETINGS, which ends when the last member arrives."""
        if not self._step(rank, method, line):
            return
        if not 0 <= root < self.size:
            raise faults.wrong_rank(self, rank, method, root)
        wait = Wait(method, self.steps[rank], line, values=values, root=root)
        meeting = self._meetings[self._met[rank]]
        for other, theirs in islice(meeting.items(), 1):  # the others agree with the first
            if faults.differ(theirs, wait):
                raise faults.mismatch(rank, wait, other, theirs)
        meeting[rank] = wait
        self.waits[rank] = wait
        self._met[rank] += 1
        if len(meeting) == self.size:
            del self._meetings[self._met[rank] - 1]
            self._hold(method, root, meeting)

    # ---- answers

    def _first_for(self, rank: int, wait: Wait) -> Message | None:
        """The message with the tag that arrives first at a member."""
        heads = [box[0] for (_, tag), box in self._boxes[rank].items() if box and tag == wait.tag]
        return min(heads, key=lambda message: (message.arrival, message.source), default=None)

    def _hears(self, rank: int, wait: Wait, time: float) -> bool:
        """Answer a next_sender() if a message or the deadline has come, now that no earlier message can be sent."""
        first = self._first_for(rank, wait)
        arrival = max(self.clocks[rank], first.arrival) if first else inf
        if min(arrival, wait.deadline) > time:
            return False
        del self.waits[rank]
        if self._pass(rank, "wait", min(arrival, wait.deadline)):
            self._answers[rank] = first.source if first and arrival <= wait.deadline else None
        return True

    def _deliver(self, rank: int, wait: Wait, message: Message) -> None:
        """Deliver a message to the member that waits for it."""
        values = wait.values
        assert values is not None
        if (values.size, values.dtype) != (message.values.size, message.values.dtype):
            raise faults.wrong_chunk(rank, wait, message)
        self._boxes[rank][message.source, message.tag].popleft()
        message.taken = wait.step
        del self.waits[rank]
        if not self.buffered:
            message.begin = max(self.clocks[message.source], self.clocks[rank])
            self._pass(message.source, "wait", message.begin, peer=rank)
            self._pass(message.source, "send", message.begin + message.seconds, peer=rank, size=values.nbytes)
            self._go_on(message.source, self._answers.get(message.source))
        begin = max(message.begin, self._free[rank])
        end = self._free[rank] = begin + message.seconds
        about = {"peer": message.source, "size": values.nbytes}
        if not (self._pass(rank, "wait", begin, **about) and self._pass(rank, "receive", end, **about)):
            self._go_on(rank, Died())
            return
        values[...] = message.values.reshape(values.shape)
        if not self.record:
            message.values = message.values[:0]
        self._go_on(rank, None)

    def _hold(self, method: str, root: int, meeting: Mapping[int, Wait]) -> None:
        """All members have arrived: answer them."""
        start = max(self.clocks)
        arrays = {rank: wait.values for rank, wait in sorted(meeting.items()) if wait.values is not None}
        end = start + self._meeting_seconds(method, [array.nbytes for array in arrays.values()])
        answers: dict[int, Any] = {}
        if method == "all_reduce":
            total = arrays[0].copy()
            for rank in range(1, self.size):
                total += arrays[rank]
            for array in arrays.values():
                array[...] = total
        elif method == "broadcast":
            for rank in range(self.size):
                arrays[rank][...] = arrays[root]
        elif method == "gather":
            answers[root] = [array.copy() for array in arrays.values()]
        for rank in meeting:
            alive = self._pass(rank, "wait", start) and self._pass(rank, method, end)
            self._go_on(rank, answers.get(rank) if alive else Died())

    def _meeting_seconds(self, method: str, sizes: list[int]) -> float:
        """The time of a meeting over the slowest link; an all-reduce takes the best of root, tree and ring."""
        if self.size == 1:
            return 0.0
        all_links = (self.link, *self.links.values())
        link = Link(max(each.latency for each in all_links), min(each.bandwidth for each in all_links))
        if method == "all_reduce":
            return min(seconds(link, sizes[0], self.size) for seconds in (root_seconds, tree_seconds, ring_seconds))
        if method == "gather":
            return sum(map(link.seconds, sizes[1:]))
        rounds = ceil(log2(self.size)) * (2 if method == "barrier" else 1)
        return rounds * link.seconds(sizes[0] if sizes else 0)
