"""Compare what a call returned with the float64 reference: what is wrong first, how many elements, and where.

Why it may be wrong is for diagnosis/. An element is right if it is off by a few float32 roundings at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any

import numpy as np

from nnclassroom.judge.answer_process.results import ANOTHER
from nnclassroom.judge.run import BROKEN_OFF, Returned
from nnclassroom.judge.tolerance import MOST_FLUSHED, TINY, allowed_error
from nnclassroom.judge.verdict import Fault
from nncourse.kernels.contract import Argument
from nncourse.kernels.operation import Operation


@dataclass(frozen=True)
class Wrong:
    """One result that has wrong elements. `allowed` is the error that a right one may have."""

    named: Argument
    got: np.ndarray
    reference: np.ndarray
    allowed: np.ndarray | float
    elements: np.ndarray  # whether each is wrong

    @cached_property
    def first(self) -> tuple[int, ...]:
        return tuple(map(int, np.unravel_index(int(np.argmax(self.elements)), self.elements.shape)))


@dataclass(frozen=True)
class Call:
    """One call of a kernel: its arguments as they were before it, what it returned, and what would be right."""

    operation: Operation
    arguments: tuple[Any, ...]
    returned: Returned
    references: Mapping[str, np.ndarray]
    large: bool = False

    @cached_property
    def before(self) -> dict[str, Any]:
        """The arguments by name."""
        return dict(zip(self.operation.names, self.arguments, strict=False))

    @cached_property
    def given(self) -> list[Any]:
        """The arguments of the call and whatever follows them, with the arrays as they were before it."""
        after = self.returned.arguments
        pairs = zip(self.arguments, after, strict=False)
        given = [was if isinstance(was, np.ndarray) else is_now for was, is_now in pairs]
        return [*given, *after[len(given) :]]

    @cached_property
    def floats(self) -> list[np.ndarray]:
        """Those arguments that are arrays of floats."""
        return [value for value in self.arguments if isinstance(value, np.ndarray) and value.dtype.kind == "f"]

    def wrong(self, named: Argument, got: np.ndarray) -> Wrong | Fault | None:
        """None if one result is right up to rounding; else which elements are wrong."""
        reference, trial = self.references[named.name], self.operation.trial
        if got.shape != reference.shape:
            return Fault("shape", {"name": named.name, "got": got.shape, "wanted": reference.shape})
        allowed = allowed_error(self.operation, named, self.arguments, self.large)
        with np.errstate(invalid="ignore"):
            wrong = ~((got == reference) | (np.abs(got - reference) <= allowed))
        if "nan" in trial.edge_cases:
            wrong &= ~(np.isnan(reference) & np.isnan(got))
        elif self.operation.shapes.reduces(named):
            wrong &= ~(np.isinf(reference) & np.isnan(got))  # ∞ − ∞ on the way, as in a compensated sum
        return Wrong(named, got, reference, allowed, wrong) if wrong.any() else None


def first_wrong(call: Call) -> Wrong | Fault | None:
    """What is wrong first with what a call returned and with its arguments; None if nothing is."""
    returned, in_place = call.returned, {named.name: named for named in call.operation.shapes.in_place}
    if returned.in_place.keys() != in_place.keys():
        return BROKEN_OFF
    for name, value in returned.in_place.items():
        if found := call.wrong(in_place[name], value):
            return found
    for name in returned.changed:
        if name not in in_place:
            return Fault("changes an argument", {"name": name})
    return wrong_result(call) or returned.otherwise


def wrong_result(call: Call) -> Wrong | Fault | None:
    """What is wrong with the returned values: their number, their kinds, their elements."""
    results, returned = call.operation.results, call.returned
    if fault := count_fault(results, returned):
        return fault
    for named, about, array in zip(results, returned.results, returned.arrays, strict=True):
        in_place = named.name in returned.in_place  # then its elements were compared as the argument's
        fault = form_fault(named, about, call.references[named.name].shape, in_place)
        alike = about.get("same") or about.get("shares") == ANOTHER
        if fault and not (fault.kind == "shares memory" and alike and array is not None):
            return fault
        if in_place:
            continue
        got = np.asarray(about["number"], np.float32) if about["what"] == "number" else array
        assert got is not None
        if found := call.wrong(named, got) or fault:
            return found
    return None


def count_fault(results: Sequence[Argument], returned: Returned) -> Fault | None:
    """What is wrong with the number of values that a call returned."""
    if len(results) == 1 or returned.several == len(results):
        return None
    about, wanted = returned.results[0], f"a tuple of {', '.join(map(str, results))}"
    if returned.several is not None:
        return Fault("type", {"length": returned.several, "type": "tuple", "wanted": wanted})
    if about["what"] == "nothing":
        return Fault("nothing", {"wanted": wanted})
    kind = "ndarray" if about["what"] == "array" else about.get("type", "")
    return Fault("type", {"type": kind, "one": True, "wanted": wanted})


def form_fault(named: Argument, about: Mapping[str, Any], shape: tuple[int, ...], in_place: bool) -> Fault | None:
    """What is wrong with one value apart from its elements."""
    name, dtype = named.name, np.dtype(named.dtype)
    what, wanted = about["what"], str(named)
    if what == "nothing":
        return Fault("nothing", {"wanted": wanted})
    if what == "number" and shape:
        return Fault("shape", {"name": name, "got": (), "wanted": shape})
    if what == "other" or (what == "number" and named.kind != "float"):
        return _type_fault(about, wanted, dtype.name if shape else "")
    if what == "number":
        return None
    if in_place and about.get("same") != name:
        return Fault("not in place", {"name": name, "another": True, "instead": about.get("same")})
    if tuple(about["shape"]) != shape:
        return Fault("shape", {"name": name, "got": tuple(about["shape"]), "wanted": shape})
    if about["dtype"] != dtype.str:
        got = np.dtype(about["dtype"]).name
        got = about["dtype"] if got == dtype.name else got  # the same type with the other order of bytes
        return Fault("dtype", {"name": name, "got": got, "wanted": dtype.name, "from": "array", "dtype": dtype.name})
    if not in_place and (shared := about.get("same") or about.get("shares")):
        return Fault("shares memory", {"name": name, "shares": shared})
    if not about["writable"]:
        return Fault("type", {"read-only": True, "wanted": wanted, "type": "ndarray"})
    return None


def _type_fault(about: Mapping[str, Any], wanted: str, dtype: str) -> Fault:
    """The fault for a value that is no array; one that np.array() would take gets that advice."""
    kind = about["type"]
    facts = {"type": kind, "length": about.get("length") if kind == "tuple" else None, "wanted": wanted, "dtype": dtype}
    listed = kind in ("list", "matrix", "MaskedArray", "tuple") or about["what"] == "number"
    return Fault("type", {**facts, "from": "other"} if listed and dtype else facts)


@singledispatch
def place_of(operation: Operation, named: Argument, index: tuple[int, ...], arguments: tuple[Any, ...]) -> str:
    """An element of a result in words, as verdicts name it: Z[0, 2]."""
    return f"{named.name}[{', '.join(map(str, index))}]" if index else named.name


def told(call: Call, wrong: Wrong) -> dict[str, Any]:
    """How many elements are wrong, and the first of them."""
    named, first = wrong.named, wrong.first
    margin = float(np.broadcast_to(wrong.allowed, wrong.reference.shape)[first])
    around = f" ± {margin:.1g}" if margin > MOST_FLUSHED * TINY else ""
    digits = ".7g" if named.kind == "float" else ".0f"
    expected = wrong.reference[first]
    return {
        "name": named.name,
        "wrong": int(wrong.elements.sum()),
        "size": wrong.elements.size,
        "place": place_of(call.operation, named, first, call.arguments),
        "got": f"{wrong.got[first]:{digits}}",
        "expected": "NaN" if np.isnan(expected) else f"{expected:{digits}}{around}",
    }
