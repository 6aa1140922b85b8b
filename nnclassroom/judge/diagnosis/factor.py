"""By which number all elements are wrong, such as a size that a sum was or was not divided by."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from nnclassroom.judge.compare import Call, Wrong
from nnclassroom.judge.verdict import Fault

MOST_FACTOR = 1000  # that is named without a size


def factor(call: Call, wrong: Wrong) -> dict[str, Any]:
    """The number by which all elements are wrong, if there is one, and the names of the sizes that it may stand for."""
    named, operation = wrong.named, call.operation
    counted = np.isfinite(wrong.reference) & (wrong.reference != 0)
    got, reference = wrong.got[counted], wrong.reference[counted]
    if named.kind != "float" or named.name in operation.names or not counted.any() or not np.isfinite(got).all():
        return {}
    with np.errstate(over="ignore"):
        times = float(np.median(got.astype(np.float64) / reference))
    # the error that a right element may have grows with the factor
    right, error = times * reference, abs(times) * np.broadcast_to(wrong.allowed, counted.shape)[counted]
    if times <= 0 or (np.abs(got - right) > error + 1e-4 * np.abs(right)).any():
        return {}
    whole, few = max(times, 1 / times), counted.sum() <= 3
    alike = [name for name, size in _sizes(call, wrong).items() if abs(whole - size) < 1e-4 * size]
    if whole < 1.01 or (few and not alike):
        return {}
    if not alike and (whole > MOST_FACTOR or abs(2 * whole - round(2 * whole)) > 1e-3):
        return {}  # no number that somebody forgot, or has once too often
    said = f"{times:.4g}" if times >= 1 else f"1/{whole:.4g}"
    return {"factor": said, "whole": f"{whole:.4g}", "alike": alike, "few": few}


def _sizes(call: Call, wrong: Wrong) -> dict[str, int]:
    """All sizes but those of steps, and the products of those that a result lacks, as a sum over them does."""
    shapes, sizes = call.operation.shapes, call.operation.sizes(*call.arguments)
    first, own = call.operation.arguments[0].size_names, wrong.named.size_names
    lacking = [name for name in first if name not in own and sizes[name] != 1]
    several = (names for count in range(2, len(lacking) + 1) for names in combinations(lacking, count))
    products = {" · ".join(names): prod(sizes[name] for name in names) for names in several}
    named = {name: size for name, size in sizes.items() if name not in shapes.whole_in_formulas}
    return {name: size for name, size in {**named, **products}.items() if isinstance(size, int)}


def confirmed(fault: Fault, others: Iterable[tuple[Mapping[str, Any], Fault | None]]) -> Fault:
    """The fault, with those sizes alone by which other cases are wrong too: another is as large by chance.

    others: the sizes of other cases, and what is wrong in each.
    """
    alike = list(fault.facts["alike"])
    for sizes, found in others:
        if found is None or found.kind == fault.kind:
            whole = float(found.facts.get("whole", "nan")) if found else 1.0
            counts = {name: prod(sizes[part] for part in name.split(" · ")) for name in alike}
            alike = [name for name, count in counts.items() if abs(whole - count) < 1e-3 * count]
    few = not alike and fault.facts["few"]
    return replace(fault, facts={**fault.facts, "alike": alike} | ({"factor": ""} if few else {}))
