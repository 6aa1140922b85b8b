"""Operations that a group computes together: their kernels are functions that every member of the group runs.

    all_reduce = GroupOperation("all_reduce", "every rank gets the sum", "V (ranks, n) -> V (ranks, n)", reference=…)

    @all_reduce.kernel("root", device="cpu")
    def through_root(group, vector): …      # what one member does, with its own row of V

An array whose first size is `ranks` has a row for each member: member r is handed row r, and what all return is put
together again. Such a kernel called with the arguments of the contract runs on a simulated group; called with a group
first, it is that member's part, on whatever group that is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from nnclassroom.judge.answer_process import described, said_of
from nnclassroom.judge.check import BROKEN_OFF, Returned, Runner, form_fault, raised, runner
from nnclassroom.judge.verdict import Case, Fault
from nncourse.errors import CourseError
from nncourse.kernels.contract import Argument
from nncourse.kernels.kernel import Kernel
from nncourse.kernels.operation import Operation
from nncourse.parallel.simulation.faults import ExchangeError
from nncourse.parallel.simulation.links import Link
from nncourse.parallel.simulation.members import run_members
from nncourse.parallel.simulation.records import Message
from nncourse.parallel.simulation.world import World

RANKS = "ranks"
EXCHANGES = ("send", "receive", "barrier")  # what a kernel may call, unless its operation says more
ONE_EACH = Link(latency=1.0)  # so that a clock counts messages, one after the other
STEPS, STEPS_A_NUMBER = 100, 4  # a member that makes more exchanges than these, for all numbers there are, is endless

Demand = Callable[["Exchanged"], str]


@dataclass(frozen=True)
class Exchanged:
    """How a kernel exchanged: what the operation's demands and its advice are told. `got` is what came out, by name."""

    size: int
    arguments: tuple[Any, ...]
    messages: Sequence[Message]
    rounds: int  # of messages that come one after the other
    got: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class MemberKernel(Kernel):
    """A function of a group and of the member's own part of the arguments."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if arguments and hasattr(arguments[0], "rank"):
            return super().__call__(*arguments, **options)
        operation = self.operation
        assert isinstance(operation, GroupOperation)
        returned = run_here(operation, self, Case("", arguments), options)
        if isinstance(returned, Fault):
            raise CourseError(f"{operation.name} ({self.name}): {returned}")
        values = []
        for named, array in zip(operation.results, returned.arrays, strict=True):
            if named.name in operation.names:
                array = arguments[operation.names.index(named.name)]
                array[...] = returned.in_place[named.name]
            values.append(array)
        return values[0] if len(values) == 1 else tuple(values)


@dataclass(eq=False)
class GroupOperation(Operation):
    """An operation whose kernels are run by every member: see above. What is not told here is as for Operation.

    `methods` are those of the group that a kernel may call. With `same_bits` all members must return the same, to the
    last bit. `demands[kernel]` looks at how that kernel exchanged, and says what is wrong with it, or "". `advice` gets
    an Exchanged after the arguments. Results in place need not be returned.
    """

    methods: tuple[str, ...] = EXCHANGES
    same_bits: bool = False
    demands: Mapping[str, Demand] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for result in self.results:
            if result.dims[:1] != (RANKS,):
                raise CourseError(f"{self.name}: wanted results with a row for each of the {RANKS}; got {result}")

    def made(self, name: str, device: str, where: str, function: Callable[..., Any] | None, **options: Any) -> Kernel:
        return MemberKernel(self, name, device, where, function, **options)

    @property
    def python_devices(self) -> Mapping[str, str]:
        return dict.fromkeys(self.kernels, "cpu")


@runner.register
def _(operation: GroupOperation, kernel: Kernel, device: str) -> Runner:
    """On a simulated group."""
    return partial(run_here, operation, kernel)


def world_of(operation: GroupOperation, case: Case, buffered: bool = True) -> World:
    """The world in which a case is tried."""
    size = int(operation.sizes(*case.arguments)[RANKS])
    numbers = max(np.size(value) for value in case.arguments)
    return World(size, ONE_EACH, buffered=buffered, most_steps=STEPS + STEPS_A_NUMBER * numbers)


def member_arguments(operation: GroupOperation, arguments: tuple[Any, ...], rank: int) -> tuple[Any, ...]:
    """What one member is handed: copies of its rows; a number where its row is one."""
    given = []
    for argument, value in zip(operation.arguments, arguments, strict=True):
        if argument.dims[:1] == (RANKS,):
            value = value[rank]
        given.append(value.copy() if np.ndim(value) else value.item() if isinstance(value, np.generic) else value)
    return tuple(given)


def run_here(operation: GroupOperation, kernel: Kernel, case: Case, options: Mapping[str, Any]) -> Returned | Fault:
    """Call a kernel on every member of a simulated group in this process, and say what came back."""
    world = world_of(operation, case)
    given = [member_arguments(operation, case.arguments, rank) for rank in range(world.size)]
    before = [member_arguments(operation, case.arguments, rank) for rank in range(world.size)]
    try:
        with np.errstate(all="ignore"):
            results = run_members(world, partial(Kernel.__call__, kernel), given, operation.methods)
    except ExchangeError as error:
        return Fault(error.kind, {"said": str(error)})
    except CourseError as error:
        return Fault("raised", {"type": "CourseError", "text": str(error)})
    except Exception as error:  # a student's function may raise anything
        return raised(said_of(error), ())
    members = []
    for rank in range(world.size):
        arrays = {n: v for n, v in zip(operation.names, given[rank], strict=True) if isinstance(v, np.ndarray)}
        several = len(operation.results) > 1 and type(results[rank]) is tuple
        values = results[rank] if several else (results[rank],)
        about = [described(value, arrays, []) for value in values]
        found = [value if isinstance(value, np.ndarray) else None for value in values]
        was = dict(zip(operation.names, before[rank], strict=True))
        changed = [name for name, array in arrays.items() if array.tobytes() != was[name].tobytes()]
        in_place = {named.name: arrays[named.name] for named in operation.shapes.in_place}
        members.append(Returned(about, len(values) if several else None, found, in_place, changed, given[rank]))
    return together(operation, kernel.name, case, world, members)


def together(
    operation: GroupOperation, name: str, case: Case, world: World, members: Sequence[Returned]
) -> Returned | Fault:
    """What all members returned, as the results of the operation; or the first member's fault."""
    own = {argument.name for argument in operation.shapes.in_place}
    for rank, member in enumerate(members):
        for name_there in member.changed:
            if name_there not in own:
                return Fault("changes an argument", {"name": name_there, "rank": rank})
        if fault := _returned_fault(operation, case, member):
            return Fault(fault.kind, {**fault.facts, "rank": rank})
    shapes = operation.shapes.result_shapes(case.arguments, operation.sizes(*case.arguments))
    for member in members:
        if not all(_has(named, member, number, shapes[number][1:]) for number, named in enumerate(operation.results)):
            return BROKEN_OFF
    in_place = {each: np.stack([member.in_place[each] for member in members]) for each in own}
    arrays = []
    for number, named in enumerate(operation.results):
        if named.name in own:
            arrays.append(in_place[named.name])
        else:
            arrays.append(np.stack([_value(named, member, number) for member in members]))
    named_arrays = dict(zip([named.name for named in operation.results], arrays, strict=True))
    exchanged = Exchanged(world.size, case.arguments, world.messages, round(max(world.clocks)), named_arrays)
    about = [
        {"what": "array", "dtype": array.dtype.str, "shape": list(array.shape), "writable": True}
        | ({"same": named.name} if named.name in own else {})
        for named, array in zip(operation.results, arrays, strict=True)
    ]
    changed = sorted({each for member in members for each in member.changed})
    otherwise = _bits_fault(operation, named_arrays) or _traffic_fault(operation, name, exchanged)
    several = len(arrays) if len(arrays) > 1 else None
    return Returned(about, several, list(arrays), in_place, changed, (*case.arguments, exchanged), otherwise=otherwise)


def _returned_fault(operation: GroupOperation, case: Case, member: Returned) -> Fault | None:
    """What is wrong with what one member returned, apart from its elements."""
    own = {argument.name for argument in operation.shapes.in_place}
    if own == {named.name for named in operation.results} and member.results[0]["what"] == "nothing":
        return None
    wanted = f"a tuple of {', '.join(map(str, map(_own, operation.results)))}"
    if len(operation.results) > 1 and member.several != len(operation.results):
        about = member.results[0]
        if about["what"] == "nothing":
            return Fault("nothing", {"wanted": wanted})
        kind = "tuple" if member.several is not None else about.get("type", "ndarray")
        return Fault("type", {"length": member.several, "type": kind, "one": True, "wanted": wanted})
    shapes = operation.shapes.result_shapes(case.arguments, operation.sizes(*case.arguments))
    for named, about, shape in zip(operation.results, member.results, shapes, strict=True):
        if fault := form_fault(_own(named), about, shape[1:], named.name in own):
            return fault
    return None


def _has(named: Argument, member: Returned, number: int, shape: tuple[int, ...]) -> bool:
    """Whether the elements of a result came, as many as there should be."""
    if named.name in member.in_place:
        array: np.ndarray | None = member.in_place[named.name]
    elif member.results[number]["what"] == "number":
        return True
    else:
        array = member.arrays[number]
    return array is not None and array.shape == shape and array.dtype == named.dtype


def _own(named: Argument) -> Argument:
    """A result as one member has it: without the first of its sizes."""
    return Argument(named.name, named.dims[1:], named.kind)


def _value(named: Argument, member: Returned, number: int) -> np.ndarray:
    array = member.arrays[number]
    return np.asarray(member.results[number]["number"] if array is None else array, named.dtype)


def _bits_fault(operation: GroupOperation, got: Mapping[str, np.ndarray]) -> Fault | None:
    """Whether a member has other bits than member 0."""
    for name, array in got.items() if operation.same_bits else ():
        bits = np.ascontiguousarray(array).view(np.uint32)
        if (places := np.argwhere(bits != bits[0])).size:
            rank, *place = map(int, places[0])
            facts = {"place": f"{name}[{', '.join(map(str, place))}]", "other": rank}
            values = {"got": f"{array[rank, *place]:.9g}", "first": f"{array[0, *place]:.9g}"}
            return Fault("different bits", facts | values)
    return None


def _traffic_fault(operation: GroupOperation, name: str, exchanged: Exchanged) -> Fault | None:
    demand = operation.demands.get(name)
    said = demand(exchanged) if demand else ""
    return Fault("traffic", {"said": said}) if said else None
