"""The records of a simulation: events, messages, waits, and its results."""

from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

ANY = -1  # a wait for any sender
AROUND = "in a ring the neighbour is (rank ± 1) % size; otherwise there is none"


@dataclass
class Event:
    """What a member did (`kind`) from `begin` to `end`, in seconds: "work", "send", "wait", "receive", or a meeting."""

    rank: int
    kind: str
    begin: float
    end: float
    peer: int | None = None
    size: int = 0  # bytes
    step: int = 0


@dataclass
class Message:
    """A message that a member sent at its `step`. `taken` is the receiver's step that received it; 0 before."""

    source: int
    to: int
    tag: int
    values: np.ndarray
    step: int
    line: int
    begin: float
    seconds: float
    taken: int = 0

    @property
    def arrival(self) -> float:
        return self.begin + self.seconds


@dataclass
class Wait:
    """A wait of a member: to receive from `other`, to send `message`, for any sender until `deadline`, or to meet."""

    method: str
    step: int
    line: int
    other: int = ANY
    tag: int = 0
    values: np.ndarray | None = None  # of a receive: the array to fill
    message: Message | None = None
    root: int = 0
    deadline: float = inf


@dataclass
class Died:
    """The answer to a member that dies."""


@dataclass
class State:
    """The state of the members, which World changes."""

    size: int
    outside: str = field(default=AROUND, kw_only=True)  # advice for a rank that does not exist
    clocks: list[float] = field(init=False)  # simulated seconds
    steps: list[int] = field(init=False)
    lines: list[int] = field(init=False)  # the line of each member's last step, if known
    last: list[str] = field(init=False)  # the last step, in words
    waits: dict[int, Wait] = field(init=False)
    ended: set[int] = field(init=False)
    died: set[int] = field(init=False)
    events: list[Event] = field(init=False)
    messages: list[Message] = field(init=False)  # all, in the order sent

    def __post_init__(self) -> None:
        self.clocks, self.steps, self.lines = [0.0] * self.size, [0] * self.size, [0] * self.size
        self.last, self.waits, self.ended, self.died = [""] * self.size, {}, set(), set()
        self.events, self.messages = [], []


@dataclass(frozen=True)
class Run:
    """The results of a simulation, and each member's clock at its end, in simulated seconds.

    `seconds` is the latest of these clocks. `died` has the members that died; their results are None.
    """

    results: list[Any]
    clocks: list[float]
    events: list[Event]
    messages: list[Message]
    died: frozenset[int]

    @property
    def seconds(self) -> float:
        return max(self.clocks)

    def sent(self, rank: int) -> int:
        """The bytes that a member has sent."""
        return sum(message.values.nbytes for message in self.messages if message.source == rank)
