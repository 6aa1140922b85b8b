"""Why is a result wrong? Each module looks for one kind of mistake, and gives facts, which words.py has words for."""

from typing import Any

import numpy as np

from nnclassroom.judge.compare import Call, Wrong, told
from nnclassroom.judge.diagnosis.factor import factor
from nnclassroom.judge.diagnosis.mistake import mistake, mistake_of_shape
from nnclassroom.judge.diagnosis.not_a_number import not_a_number
from nnclassroom.judge.diagnosis.not_reached import no_thread
from nnclassroom.judge.diagnosis.other_arrays import changed, itself_or_twin
from nnclassroom.judge.diagnosis.tiny import numbers_of
from nnclassroom.judge.verdict import Fault


def explained(call: Call, found: Wrong | Fault) -> Fault:
    """The fault in what a call returned, with all that is found of its cause."""
    return _of_elements(call, found) if isinstance(found, Wrong) else _of_form(call, found)


def _of_elements(call: Call, wrong: Wrong) -> Fault:
    facts: dict[str, Any] = told(call, wrong)
    for look in (not_a_number, mistake, no_thread, factor):  # what a later one finds counts
        facts |= look(call, wrong)
    name, returned = wrong.named.name, call.returned
    kind = "wrong value"
    if name not in returned.in_place:
        facts |= itself_or_twin(call, wrong)
    elif name in returned.changed:
        facts |= changed(call, wrong, bool(facts.get("mistaken")))
    else:
        kind = "not in place"
    return Fault(kind, facts | numbers_of(call, wrong))


def _of_form(call: Call, fault: Fault) -> Fault:
    """A fault of shape or type, with what would be wrong without it; the order of results that are exchanged."""
    results = call.operation.results
    if fault.facts.get("instead"):
        return Fault(fault.kind, {**fault.facts, "order": ", ".join(named.name for named in results)})
    for named, array in zip(results, call.returned.arrays, strict=False):
        if array is None or named.name != fault.facts.get("name"):
            continue
        if fault.kind == "shape" and array.shape == fault.facts["wanted"][::-1]:
            return Fault(fault.kind, {**fault.facts, "turned": not call.wrong(named, array.T)})
        if fault.kind == "shape":
            return Fault(fault.kind, {**fault.facts, "advice": mistake_of_shape(call, named.name, array)})
        if fault.kind == "dtype" and array.dtype.kind == np.dtype(named.dtype).kind:
            other = call.wrong(named, array.astype(named.dtype))
            return Fault(fault.kind, {**fault.facts, "other": other and str(explained(call, other))})
    return fault
