"""Judge a student's text that every member of a group runs, each member in a process of its own.

Members share no memory, as on a real machine. Messages pass through this process, which keeps the simulated world: it
sees each message and knows which member waits for which, and no text can change what it saw.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from nnclassroom.judge.answer import EndedError, TextProcess, array_from, most_bytes, process_of
from nnclassroom.judge.answer_process.messages import about_array
from nnclassroom.judge.cases import cases
from nnclassroom.judge.group_operation import GroupOperation, exchange_fault, member_arguments, together, world_of
from nnclassroom.judge.run import BROKEN_OFF, Returned
from nnclassroom.judge.verdict import Case, Fault, Verdict
from nncourse.parallel.simulation.faults import ExchangeError
from nncourse.parallel.simulation.world import MEETINGS, World

SECONDS = 2.0  # of computing, for a member in one case: all cases are small
PARAMETERS = {
    "send": ("vector", "to", "tag"),
    "receive": ("vector", "source", "tag"),
    "all_reduce": ("vector",),
    "broadcast": ("vector", "root"),
    "gather": ("vector", "root"),
    "barrier": (),
}


@process_of.register(GroupOperation)
class MemberProcesses:
    """The processes of a text, one for each member, for the time of a with-block. They are started when needed."""

    def __init__(self, operation: GroupOperation, name: str, text: str, seconds: float, sandbox: tuple[str, ...]):
        self.operation, self.name, self.calls = operation, name, 0
        self._start = operation, name, text, min(seconds, SECONDS), sandbox
        self.processes: list[MemberProcess] = []

    def __enter__(self) -> "MemberProcesses":
        self.building = self.start(1)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.__exit__()

    def start(self, count: int) -> Fault | None:
        """Start processes until there are `count`. Returns what is wrong with the text, if they cannot read it."""
        new = [MemberProcess(*self._start) for _ in range(len(self.processes), count)]  # they start side by side
        self.processes += new
        for process in new:
            process.__enter__()
        return self.processes[0].building

    def run(self, case: Case, options: Mapping[str, Any]) -> Returned | Fault:
        """Call the function in every member's process: what check.py calls a Runner."""
        self.calls += 1
        world = world_of(self.operation, self.name, case, options.get("buffered", True))
        if fault := self.start(world.size):
            return fault
        returned: dict[int, Returned] = {}
        begun: set[int] = set()
        rank = 0
        try:
            while (turn := world.next_ready()) is not None:
                rank = turn
                process = self.processes[rank]
                if rank in begun:
                    process.reply(world.answer(rank))
                else:
                    process.begin(case, rank, world.size)
                    begun.add(rank)
                if (ended := process.until_it_waits(world, rank)) is None:
                    continue
                if isinstance(ended, Fault):
                    return _of_member(ended, rank, world)
                returned[rank] = ended
                world.end(rank)
        except ExchangeError as error:
            return exchange_fault(self.operation, case, world, error)
        except EndedError as ended_early:
            return _of_member(ended_early.fault, rank, world)
        members = [returned[each] for each in range(world.size)]
        return together(self.operation, self.name, case, world, members)

    def noted(self, verdict: Verdict, seed: int | None) -> Verdict:
        """The verdict on a right kernel, with a note if it would hang where a send waits until it is received."""
        waiting = self.run(next(cases(self.operation, seed)), {"buffered": False})
        if isinstance(waiting, Fault) and waiting.kind == "deadlock":
            return dataclasses.replace(verdict, facts={**verdict.facts, "waiting sends": str(waiting)})
        return verdict


def _of_member(fault: Fault, rank: int, world: World) -> Fault:
    return Fault(fault.kind, {**fault.facts, "rank": rank, "step": world.steps[rank]})


class MemberProcess(TextProcess):
    """One member's process. It asks for each exchange, and waits for the answer."""

    rank = 0
    vector: np.ndarray | None = None  # what its last exchange is to fill

    def begin(self, case: Case, rank: int, size: int) -> None:
        """Call the function with this member's part of the case."""
        operation = self.operation
        assert isinstance(operation, GroupOperation)
        self.given = member_arguments(operation, case.arguments, rank)
        self.most, self.rank = most_bytes(operation, case), rank
        blocks: list[bytes] = []
        about = {"rank": rank, "size": size, "device": "cpu"}
        group = {"object": 0, "methods": list(operation.methods), "values": about, "type": "Group"}
        self.objects = [None]
        call = {
            "arguments": [group, *(self._about(value, blocks) for value in self.given)],
            "names": ("group", *operation.names),
            "results": len(operation.results),
            "in_place": [named.name for named in operation.shapes.in_place],
            "most_bytes": self.most,
            "again": 0,
        }
        taken = self.process.used()
        self.used_before = taken.seconds if taken else 0.0
        self.start = time.monotonic()
        self._send(call, blocks)

    def reply(self, answer: Any) -> None:
        """Answer the last exchange, so that the process goes on."""
        blocks: list[bytes] = []
        self.start = time.monotonic()  # it could do nothing until now
        if isinstance(answer, list):
            self._send({"list": [about_array(array, blocks) for array in answer]}, blocks)
        elif self.vector is not None:
            self._send({"fills": about_array(self.vector, blocks)}, blocks)
        else:
            self._send({})

    def until_it_waits(self, world: World, rank: int) -> Returned | Fault | None:
        """Answer the process's exchanges until one has to wait, then return None; or until the call has ended."""
        answer, blocks = self._receive(self.most)
        while "ask" in answer:
            try:
                self._exchange(answer, blocks, world, rank)
            except ExchangeError:
                raise
            except (KeyError, ValueError, AttributeError, IndexError, OverflowError):
                raise EndedError(BROKEN_OFF) from None
            except TypeError as error:
                self._refuse_excess()  # such a call does not count as a step, so nothing else limits their number
                self._send({"raised": "TypeError", "text": str(error)})
            else:
                if world.is_waiting(rank):
                    return None
                self.reply(world.answer(rank))
            answer, blocks = self._receive(self.most)
        return self._returned(answer, blocks, self.given)

    def _raised(self, said: dict[str, Any]) -> Fault:
        fault = super()._raised(said)
        if "NoneType" not in said["text"] and "dtype('O')" not in said["text"]:
            return fault
        return Fault(fault.kind, {**fault.facts, "hints": [*fault.facts.get("hints", ()), "returned nothing"]})

    def _print(self, answer: Mapping[str, Any]) -> None:
        """Print what the member printed, each line after its rank."""
        for line in str(answer.get("printed") or "").splitlines():
            print(f"rank {self.rank}: {line}")

    def _exchange(self, question: Mapping[str, Any], blocks: list[bytes], world: World, rank: int) -> None:
        """Make the exchange that the text asks for. TypeError for arguments that do not fit."""
        operation, method, line = self.operation, str(question["method"]), int(question.get("line", 0))
        assert isinstance(operation, GroupOperation)
        if method not in operation.methods:
            raise ValueError(method)
        parameters = PARAMETERS[method]
        listed = dict(zip(parameters, question["arguments"], strict=False)) | dict(question["named"])
        if len(question["arguments"]) > len(parameters) or not set(listed) <= set(parameters):
            raise TypeError(f"{method}() wants {', '.join(parameters) or 'nothing'}")
        missing = [name for name in parameters if name not in listed and name not in ("tag", "root")]
        if missing:
            raise TypeError(f"{method}({', '.join(parameters)}) is missing {', '.join(missing)}")
        vector = None
        if "vector" in parameters:
            if "array" not in listed["vector"]:
                raise TypeError(f"{method}() wants a NumPy array, got {_kind_of(listed['vector'])}")
            vector = array_from(listed.pop("vector"), blocks)
        numbers = {}
        for name, about in listed.items():
            if not isinstance(number := about.get("number"), int):
                raise TypeError(f"{method}() wants the whole number {name}, got {_kind_of(about)}")
            numbers[name] = number
        self.vector = vector if method in ("receive", "all_reduce", "broadcast") else None
        if method in MEETINGS:
            world.meet(rank, method, vector, numbers.get("root", 0), line=line)
            return
        assert vector is not None
        if method == "send":
            world.send(rank, vector, numbers["to"], numbers.get("tag", 0), line)
        else:
            world.receive(rank, vector, numbers["source"], numbers.get("tag", 0), line)


def _kind_of(about: Mapping[str, Any]) -> str:
    if "array" in about:
        return "an array"
    return repr(about["number"]) if "number" in about else str(about.get("other", "nothing"))[:60]
