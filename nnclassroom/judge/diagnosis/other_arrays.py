"""What the other arrays tell: one was returned twice, an argument was returned, or others that changed are right."""

from typing import Any

import numpy as np

from nnclassroom.judge.compare import Call, Wrong


def itself_or_twin(call: Call, wrong: Wrong) -> dict[str, Any]:
    """The argument that was returned as a result; or another result with the same numbers, which is wrong for one."""
    name, results = wrong.named.name, call.operation.results
    if itself := call.returned.results[[named.name for named in results].index(name)].get("same"):
        return {"itself": itself}
    for other, array in zip(results, call.returned.arrays, strict=True):
        same = other.name != name and array is not None and np.array_equal(array, wrong.got)
        if same and not np.array_equal(call.references[other.name], wrong.reference):
            return {"twin": other.name}
    return {}


def changed(call: Call, wrong: Wrong, mistaken: bool) -> dict[str, Any]:
    """Of an argument that was changed to wrong values: was it the other way, and which other ones are right?

    The operation's advice tells of the others, so it is left out if these are right, unless the mistake is known.
    """
    in_place, values = call.operation.shapes.in_place, call.returned.in_place
    others = [named for named in in_place if named is not wrong.named and named.name in call.returned.changed]
    right = [named.name for named in others if not call.wrong(named, values[named.name])]
    facts = {"in place": True, "sign": _has_wrong_sign(call.before[wrong.named.name], wrong), "right": right}
    return facts | ({"advice": ""} if right and len(right) == len(in_place) - 1 and not mistaken else {})


def _has_wrong_sign(before: np.ndarray, wrong: Wrong) -> bool:
    """Whether the change went just the other way."""
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        wanted, got = wrong.reference - before, wrong.got.astype(np.float64) - before
    return bool(np.any(wanted) and np.allclose(got, -wanted, rtol=1e-3, atol=1e-6))
