"""Operations that a group computes together: every member of the group runs the kernel, on its own part of the data.

    all_reduce = GroupOperation("all_reduce", "every rank gets the sum", "V (ranks, n) -> V (ranks, n)", reference=…)

    @all_reduce.kernel("root", device="cpu")
    def through_root(group, vector): …      # what one member does, with its own row of V

An array whose first size is `ranks` has a row for each member: member r gets row r, and the rows that all members
return are stacked again. Called with the arguments of the contract, a kernel runs on a simulated group. Called with a
group as the first argument, it is one member's part, on any kind of group.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from nnclassroom.judge.answer_process.results import said_of
from nnclassroom.judge.compare import count_fault, form_fault
from nnclassroom.judge.run import BROKEN_OFF, Returned, Runner, raised, returned, runner
from nnclassroom.judge.verdict import Case, Fault
from nncourse.errors import CourseError
from nncourse.kernels.contract import Argument
from nncourse.kernels.kernel import Kernel
from nncourse.kernels.operation import Operation
from nncourse.parallel.simulation.faults import ExchangeError
from nncourse.parallel.simulation.links import Link
from nncourse.parallel.simulation.members import run_members
from nncourse.parallel.simulation.records import AROUND, Message
from nncourse.parallel.simulation.world import MEETINGS, World

RANKS = "ranks"
EXCHANGES = ("send", "receive", "barrier")  # what a kernel may call, unless its operation allows more
ONE_EACH = Link(latency=1.0)  # so that a clock counts messages that follow one another
STEPS, STEPS_A_NUMBER = 100, 4  # exchanges of a member, and more for each number; beyond these it is endless

Demand = Callable[["Exchanged"], str]


@dataclass(frozen=True)
class Exchanged:
    """How a kernel exchanged, for the operation's demands and advice. `got` are the results, by name."""

    size: int
    arguments: tuple[Any, ...]
    messages: Sequence[Message]
    meetings: Sequence[str]  # the names of all_reduce and others that all members took part in, in order
    rounds: int  # messages that follow one another
    got: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class MemberKernel(Kernel):
    """A function of a group and of the member's own part of the arguments."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if arguments and hasattr(arguments[0], "rank"):
            return super().__call__(*arguments, **options)
        operation = self.operation
        assert isinstance(operation, GroupOperation)
        found = run_here(operation, self, Case("", arguments), options)
        if isinstance(found, Fault):
            raise CourseError(f"{operation.name} ({self.name}): {found}")
        values = []
        for named, array in zip(operation.results, found.arrays, strict=True):
            if named.name in operation.names:
                array = arguments[operation.names.index(named.name)]
                array[...] = found.in_place[named.name]
            values.append(array)
        return values[0] if len(values) == 1 else tuple(values)


@dataclass(eq=False)
class GroupOperation(Operation):
    """An operation whose kernels every member runs: see above. The other fields are those of Operation.

    methods: those of the group that a kernel may call.
    same_bits: whether all members must return the same bits.
    demands: by kernel, or "" for all of them, a function that says what is wrong with the exchanges; "" if nothing is.
    outside: by kernel, what to do where the rank to talk to does not exist.

    ended: ended(rank, *arguments) says why that rank may have ended while others wait for it; "" if nothing tells.

    The operation's `advice` gets an Exchanged after the arguments. A kernel need not return results in place.
    """

    methods: tuple[str, ...] = EXCHANGES
    same_bits: bool = False
    demands: Mapping[str, Demand] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    ended: Callable[..., str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for result in self.results:
            if result.dims[:1] != (RANKS,):
                raise CourseError(f"{self.name}: expected results with a row for each of the {RANKS}; got {result}")

    def made(self, name: str, device: str, where: str, function: Callable[..., Any] | None, **options: Any) -> Kernel:
        return MemberKernel(self, name, device, where, function, **options)

    @property
    def python_devices(self) -> Mapping[str, str]:
        return dict.fromkeys(self.kernels, "cpu")


@runner.register
def _(operation: GroupOperation, kernel: Kernel, device: str) -> Runner:
    """On a simulated group."""
    return partial(run_here, operation, kernel)


def world_of(operation: GroupOperation, name: str, case: Case, buffered: bool = True) -> World:
    """The world in which a kernel of this name is tried on a case."""
    size = int(operation.sizes(*case.arguments)[RANKS])
    numbers = max(np.size(value) for value in case.arguments)
    most = STEPS + STEPS_A_NUMBER * numbers
    return World(size, ONE_EACH, buffered=buffered, most_steps=most, outside=operation.outside.get(name, AROUND))


def member_arguments(operation: GroupOperation, arguments: tuple[Any, ...], rank: int) -> tuple[Any, ...]:
    """One member's arguments: copies of its rows; a number where its row is a single number."""
    given = []
    for argument, value in zip(operation.arguments, arguments, strict=True):
        if argument.dims[:1] == (RANKS,):
            value = value[rank]
        given.append(value.copy() if np.ndim(value) else value.item() if isinstance(value, np.generic) else value)
    return tuple(given)


def run_here(operation: GroupOperation, kernel: Kernel, case: Case, options: Mapping[str, Any]) -> Returned | Fault:
    """Call a kernel on every member of a simulated group in this process."""
    world = world_of(operation, kernel.name, case)
    given = [member_arguments(operation, case.arguments, rank) for rank in range(world.size)]
    before = [member_arguments(operation, case.arguments, rank) for rank in range(world.size)]
    try:
        with np.errstate(all="ignore"):
            results = run_members(world, partial(Kernel.__call__, kernel), given, operation.methods)
    except ExchangeError as error:
        return exchange_fault(operation, case, world, error)
    except CourseError as error:
        return Fault("raised", {"type": "CourseError", "text": str(error)})
    except (Exception, SystemExit) as error:  # a student's function may raise anything
        return raised(said_of(error), ())
    members = [returned(operation, *each) for each in zip(results, given, before, strict=True)]
    return together(operation, kernel.name, case, world, members)


def exchange_fault(operation: GroupOperation, case: Case, world: World, error: ExchangeError) -> Fault:
    """The fault in an exchange that cannot go on, and why the rank that others wait for has ended."""
    gone = error.circle[-1] if error.circle else -1
    why = operation.ended(gone, *case.arguments) if operation.ended and gone >= 0 and gone not in world.waits else ""
    return Fault(error.kind, {"said": f"{error}; {why}" if why else str(error)})


def together(
    operation: GroupOperation, name: str, case: Case, world: World, members: Sequence[Returned]
) -> Returned | Fault:
    """What all members returned, as the results of the operation; or the first member's fault."""
    own = {argument.name for argument in operation.shapes.in_place}
    sizes = operation.sizes(*case.arguments)
    shapes = [shape[1:] for shape in operation.shapes.result_shapes(case.arguments, sizes)]  # a member's
    for rank, member in enumerate(members):
        for name_there in member.changed:
            if name_there not in own:
                return Fault("changes an argument", {"name": name_there, "rank": rank})
        if fault := _form_fault(operation, own, shapes, member):
            return Fault(fault.kind, {**fault.facts, "rank": rank})
    arrays: dict[str, np.ndarray] = {}
    for number, (named, shape) in enumerate(zip(operation.results, shapes, strict=True)):
        found = [_elements(named, number, member) for member in members]
        rows = [row for row in found if row is not None and row.shape == shape and row.dtype == named.dtype]
        if len(rows) < len(members):
            return BROKEN_OFF
        arrays[named.name] = np.stack(rows)
    stale = (member.otherwise for member in members if member.otherwise)
    meetings = [event.kind for event in world.events if event.rank == 0 and event.kind in MEETINGS]
    exchanged = Exchanged(world.size, case.arguments, world.messages, meetings, round(max(world.clocks)), arrays)
    about = [
        {"what": "array", "dtype": array.dtype.str, "shape": list(array.shape), "writable": True}
        | ({"same": result} if result in own else {})
        for result, array in arrays.items()
    ]
    return Returned(
        about,
        len(arrays) if len(arrays) > 1 else None,
        list(arrays.values()),
        {result: arrays[result] for result in own},
        sorted({each for member in members for each in member.changed}),
        (*case.arguments, exchanged),
        otherwise=_traffic_fault(operation, name, exchanged) or _bits_fault(operation, arrays) or next(stale, None),
    )


def _form_fault(
    operation: GroupOperation, own: set[str], shapes: Sequence[tuple[int, ...]], member: Returned
) -> Fault | None:
    """What is wrong with what one member returned, apart from its elements. It need not return results in place."""
    results = [Argument(named.name, named.dims[1:], named.kind) for named in operation.results]  # as a member has them
    if own == {named.name for named in results} and member.results[0]["what"] == "nothing":
        return None
    if fault := count_fault(results, member):
        return fault
    for named, about, shape in zip(results, member.results, shapes, strict=True):
        if fault := form_fault(named, about, shape, named.name in own):
            return fault
    return None


def _elements(named: Argument, number: int, member: Returned) -> np.ndarray | None:
    """The elements of a member's result; None if they did not come."""
    if named.name in member.in_place:
        return member.in_place[named.name]
    about = member.results[number]
    return np.asarray(about["number"], named.dtype) if about["what"] == "number" else member.arrays[number]


def _bits_fault(operation: GroupOperation, got: Mapping[str, np.ndarray]) -> Fault | None:
    """The fault if a member's bits differ from those of member 0."""
    for name, array in got.items() if operation.same_bits else ():
        bits = np.ascontiguousarray(array).view(np.uint32)
        if (places := np.argwhere(bits != bits[0])).size:
            rank, *place = map(int, places[0])
            facts = {"place": f"{name}[{', '.join(map(str, place))}]", "other": rank}
            values = {"got": f"{array[rank, *place]:.9g}", "first": f"{array[0, *place]:.9g}"}
            return Fault("different bits", facts | values)
    return None


def _traffic_fault(operation: GroupOperation, name: str, exchanged: Exchanged) -> Fault | None:
    demand = operation.demands.get(name) or operation.demands.get("")
    said = demand(exchanged) if demand else ""
    return Fault("traffic", {"said": said}) if said else None
