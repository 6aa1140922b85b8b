"""Errors between the members of a group, in words: which member, at which step, in which line.

A step is an exchange: a member's first send or receive is its step 1. Lines are those of the member's code, if known.
An ExchangeError stops a simulation; its `kind` is one of KINDS.
"""

from nncourse.errors import CourseError
from nncourse.parallel.simulation.records import AROUND, Message, Run, State, Wait

SAID = {  # the words for a kind at the beginning of a message
    "deadlock": "deadlock: ",
    "lost message": "lost message: ",
    "doubled message": "doubled message: ",
    "wrong chunk": "wrong chunk: ",
    "wrong rank": "wrong rank: ",
    "mismatch": "mismatch: ",
    "endless exchange": "endless exchange: ",
}
KINDS = tuple(SAID)
MOST_SHOWN = 8  # members of a circle


class ExchangeError(CourseError):
    """A group cannot continue. `rank` and `step` say where this shows first; `circle` lists who waits for whom.

    `run` has the clocks, events and messages of simulate() until then.
    """

    run: Run | None = None

    def __init__(self, kind: str, words: str, rank: int, step: int, circle: tuple[int, ...] = ()):
        super().__init__(SAID[kind] + words)
        self.kind, self.rank, self.step, self.circle = kind, rank, step, circle

    def __reduce__(self) -> tuple[object, ...]:
        words = str(self).removeprefix(SAID[self.kind])
        return ExchangeError, (self.kind, words, self.rank, self.step, self.circle)


def deadlock(world: State) -> ExchangeError:
    """No member can continue: follow who waits for whom, to a circle or to a member that has ended."""
    path = [min(world.waits)]
    while True:
        following = _waits_for(world, path[-1])
        if following not in world.waits:  # it has ended or died
            return _broken_chain(world, path[-1], following)
        if following in path:
            circle = path[path.index(following) :]
            start = circle.index(min(circle))
            return _circle(world, circle[start:] + circle[:start])
        path.append(following)


def _waits_for(world: State, rank: int) -> int:
    """The member that one waits for; among several, preferably one that does not wait itself."""
    wait = world.waits[rank]
    if wait.method in ("send", "receive"):
        return wait.other
    if wait.method == "next_sender":
        others = [other for other in range(world.size) if other != rank]
    else:  # those that do not wait in the same meeting
        meeting = {other for other, theirs in world.waits.items() if theirs.method == wait.method}
        others = [other for other in range(world.size) if other not in meeting]
    return next((other for other in others if other not in world.waits), others[0])


def _circle(world: State, circle: list[int]) -> ExchangeError:
    waits = [world.waits[rank] for rank in circle]
    places = {(wait.method, wait.step, wait.line) for wait in waits}
    shown = list(zip(circle, waits, strict=True))[:MOST_SHOWN]
    more = f", and so on through {len(circle)} ranks" if len(circle) > MOST_SHOWN else ""
    if len(places) == 1:
        pairs = ", ".join(f"{rank} for {_waits_for(world, rank)}" for rank, _ in shown)
        words = f"{_ranks(circle)} wait {_place(waits[0])}, each {_to(waits[0])}, {pairs}{more}"
    else:
        words = ", and ".join(f"rank {rank} waits {_place(wait)} to {doing_to(wait)}" for rank, wait in shown) + more
    methods = {wait.method for wait in waits}
    advice = ""
    if methods <= {"receive", "next_sender"}:
        advice = _tags(world, circle) or "; nobody's message is on the way, so one of them must send before it receives"
    elif methods == {"send"}:
        advice = "; a send waits here until the other receives, so one of them must receive before it sends"
    words = f"{words}: a circle{advice}{_behind(world, circle)}"
    return ExchangeError("deadlock", words, circle[0], waits[0].step, tuple(circle))


def _tags(world: State, ranks: list[int]) -> str:
    """A waiting message for one of them, from the right member but with another tag."""
    for rank in ranks:
        wait = world.waits[rank]
        for message in world.messages:
            if not message.taken and message.to == rank and message.source == wait.other and message.tag != wait.tag:
                return f"; rank {message.source}'s message has tag {message.tag}, rank {rank} expects tag {wait.tag}"
    return ""


def _broken_chain(world: State, rank: int, gone: int) -> ExchangeError:
    """A member waits for one that has ended or died."""
    wait = world.waits[rank]
    words = f"rank {rank} waits {_place(wait)} to {doing_to(wait)}"
    if wait.method == "receive":
        words += _why_nothing_comes(world, rank, wait, gone)
    elif wait.method == "send":
        words += f", which {_end_of(world, gone)}"
    else:
        words += f", but rank {gone} {_end_of(world, gone)}"
    return ExchangeError("deadlock", words + _behind(world, [rank]), rank, wait.step, (rank, gone))


def _end_of(world: State, rank: int) -> str:
    steps = world.steps[rank]
    if rank in world.died:
        return f"died at {world.clocks[rank]:.3g} s, after {steps} step{'s' * (steps != 1)}"
    if not steps:
        return "has ended without a send or receive"
    line = f", line {world.lines[rank]}" if world.lines[rank] else ""
    return f"has ended (its last was step {steps}{line}: {world.last[rank]})"


def _why_nothing_comes(world: State, rank: int, wait: Wait, gone: int) -> str:
    """What the member that has ended sent to the one that waits, and what other messages wait for it."""
    if tags := _tags(world, [rank]):
        return tags
    end = _end_of(world, gone)
    came = [message for message in world.messages if (message.source, message.to) == (gone, rank)]
    others = [message for message in world.messages if message.to == rank and not message.taken]
    unread = ""
    if others:
        unread = f"; a message from rank {others[0].source} is still unread, sent {_place(others[0])}"
    if came:
        which = "whose only message to it" if len(came) == 1 else f"whose last message to it, of {len(came)},"
        return f", {which} was received at step {came[-1].taken}: rank {gone} {end}{unread}"
    to = sorted({message.to for message in world.messages if message.source == gone})
    sends = f"sends only to {_ranks(to)}" if to else "sends nothing"
    return f", which {sends}, and {end}{unread}"


def _behind(world: State, shown: list[int]) -> str:
    """The members that wait too, but are not the cause."""
    others = sorted(set(world.waits) - set(shown))
    if not others:
        return ""
    return f"; {_ranks(others)} {'waits' if len(others) == 1 else 'wait'} behind {'it' if len(shown) == 1 else 'them'}"


def lost(world: State, messages: list[Message]) -> ExchangeError:
    """All have ended, but these messages were not received."""
    first = messages[0]
    twin = next((each for each in world.messages if each is not first and _is_twin(each, first)), None)
    words = f"rank {first.source} sends {count(first.values.size)} to rank {first.to} {_place(first)}"
    more = f"; {len(messages) - 1} more messages were not received" if len(messages) > 2 else ""
    more = "; another message was not received either" if len(messages) == 2 else more
    if twin is not None:
        words = (
            f"rank {first.source} sends the same {count(first.values.size)} to rank {first.to} twice"
            f", at step {twin.step} and again {_place(first)}; only the first is received"
        )
        return ExchangeError("doubled message", words + more, first.source, first.step)
    words += f", but rank {first.to} {_end_of(world, first.to)}, and never received that"
    return ExchangeError("lost message", words + more, first.source, first.step)


def _is_twin(one: Message, other: Message) -> bool:
    same = (one.source, one.to, one.tag) == (other.source, other.to, other.tag) and one.taken
    return bool(same) and one.values.size > 0 and one.values.tobytes() == other.values.tobytes()


def wrong_chunk(rank: int, wait: Wait, message: Message) -> ExchangeError:
    """A message does not fit the array that receives it."""
    assert wait.values is not None
    wanted, got = _array(wait.values), _array(message.values, wait.values)
    words = f"rank {rank} {_place(wait)} expects {wanted} from rank {message.source}; it sent {got} {_place(message)}"
    return ExchangeError("wrong chunk", words, rank, wait.step)


def wrong_rank(world: State, rank: int, method: str, other: int) -> ExchangeError:
    """The partner does not exist, or is the member itself."""
    where = _at(world.steps[rank], world.lines[rank])
    what = f"{method} with root {other}" if method in ("broadcast", "gather") else doing(method, other)
    words = f"rank {rank} {where} tries to {what}"
    last = world.size - 1
    there = "itself" if other == rank else "but there is only rank 0" if last == 0 else f"but ranks go from 0 to {last}"
    fits = other in (-1, world.size) if world.outside == AROUND else other != rank
    advice = f"; {world.outside}" if fits and world.size > 1 else ""
    return ExchangeError("wrong rank", f"{words}, {there}{advice}", rank, world.steps[rank])


def mismatch(rank: int, wait: Wait, other: int, theirs: Wait) -> ExchangeError:
    """Two members met for different purposes."""
    words = f"rank {rank} {_place(wait)} calls {_meeting(wait)}, rank {other} {_place(theirs)} calls {_meeting(theirs)}"
    return ExchangeError("mismatch", f"{words}; all members must make the same calls in order", rank, wait.step)


def differ(one: Wait, other: Wait) -> bool:
    """Whether two members that meet make different calls."""
    if (one.method, one.root) != (other.method, other.root):
        return True
    sized = one.values is not None and other.values is not None and one.method in ("all_reduce", "broadcast")
    return sized and (one.values.size, one.values.dtype) != (other.values.size, other.values.dtype)  # type: ignore


def endless(world: State, rank: int) -> ExchangeError:
    steps = world.steps[rank] - 1
    words = f"rank {rank} has made {steps} steps and goes on {_at(steps + 1, world.lines[rank])} to {world.last[rank]}"
    return ExchangeError("endless exchange", words, rank, steps)


# ---- phrases


def doing(method: str, other: int) -> str:
    """What a step does, such as "send to rank 2"."""
    if method == "next_sender":
        return "hear from any rank"
    return {"send": f"send to rank {other}", "receive": f"receive from rank {other}"}.get(method, method)


def doing_to(wait: Wait) -> str:
    words = doing(wait.method, wait.other)
    return f"meet in {wait.method}" if words == wait.method else words


def _to(wait: Wait) -> str:
    """What a member waits for, without the partner."""
    purposes = {"send": "to send", "receive": "to receive", "next_sender": "to hear"}
    return purposes.get(wait.method, f"to meet in {wait.method}")


def _place(at: "Wait | Message") -> str:
    return _at(at.step, at.line)


def _at(step: int, line: int) -> str:
    return f"at step {step} (line {line})" if line else f"at step {step}"


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    listed = [str(rank) for rank in ranks]
    if len(listed) > MOST_SHOWN:
        return f"ranks {', '.join(listed[:MOST_SHOWN])} and {len(listed) - MOST_SHOWN} more"
    return f"ranks {', '.join(listed[:-1])} and {listed[-1]}"


def _array(values, other=None) -> str:  # type: ignore[no-untyped-def]
    kind = f" of {values.dtype}" if other is None or other.dtype != values.dtype else ""
    return f"{count(values.size)}{kind}"


def count(size: int) -> str:
    """The length of a message, in words."""
    return "1 number" if size == 1 else f"{size:,} numbers"


def _meeting(wait: Wait) -> str:
    size = f" of {_array(wait.values, wait.values)}" if wait.values is not None else ""
    root = f" with root {wait.root}" if wait.method in ("broadcast", "gather") else ""
    return f"{wait.method}{size}{root}"
