"""The words of all verdicts: templates, which an editor can read from top to bottom, and below what fills them in.

Templates are filled with the facts of a verdict. Code reads facts, never words.
"""

from collections.abc import Callable, Mapping
from typing import Any

RIGHT, OPEN, UNCHECKED = "right", "open", "cannot be checked"

# The words of each kind of fault. {…} are facts, or phrases made of facts: see _PHRASES. Other kinds
# come from cuda_on_cpu and nncourse/parallel/simulation, with their words as the fact `said`.
WORDS = {
    "wrong value": "{changed}{wrong} of {size} wrong, first {place}: got {got}{why}, expected {expected}{more}",
    "not in place": "{name} is to be changed in place, but {how}{new_array}",
    "nothing": "returns nothing: expected {wanted}",
    "type": "returns {what}: expected {wanted}{convert}",
    "shape": "{name} has shape {got}, expected {wanted}{transposed}{because}",
    "dtype": "{name} is {got}, expected {wanted}{convert}{besides}",
    "changes an argument": "changes its argument {name}",
    "changes what was": "changes {name} of an earlier call: keep no array from one call to the next",
    "shares memory": "{name} lies in the memory of {shares}: expected a new array{copy}",
    "remembers": "right when it is called first, but wrong after other calls: it remembers something: {said}",
    "raised": "raised {type}{says}{in_line}{hint}",
    "name": "raised {type}: {text}; names defined outside the function are not kept with it, except {names}",
    "forbidden": "{said}{in_line}{hint}",
    "build": "{said}",
    "time limit": "did not end within {seconds:g} s: {look}",
    "crash": "ended its process ({ending}){more}",
    "compile": "{not_compiled}{said}",
    "outside": "writes outside of its arrays: is the guard right?",
    "cannot be checked": "cannot be checked here: {said}",
    "different bits": "right up to rounding, but {place} is {got} on rank {other} and {first} on rank 0: {same_bits}",
    "traffic": "the sums are right, but {said}",
    "budget": "the numbers are right, but {over}",
    "not asked": "the numbers are right, but {missing} was never called: ask k for it, so that your own kernels train",
}
RIGHT_WORDS = "right in {count} cases {where}{here}{also}{rounded}{not_finite}{waste}"
BUT = "\n  right, but {said}"
NOT_FINITE = "\n  with NaN and infinities, which do not count: {said}"
OPEN_WORDS = " open"  # with a space, so that translations can tell it from the kind
WHERE = {
    "cpu": "on the CPU",
    "gpu": "on the GPU",
    "emulator": "on the CPU emulator, in three thread orders, and no races",
}
LOOKING = "looking for races"
IN_ORDER = {
    "forward": "threads in forward order",
    "reverse": "threads in reverse order",
    "shuffled": "threads in shuffled order",
}
IN_THIS_PROCESS = ", in this process"
ALSO_EMULATED = ", and on the CPU emulator without races"
ROUNDED = "; as exact as factors with {mantissa} bits of mantissa allow"
ALSO_WAITING = "; but if a send waits until it is received, as MPI's does with large messages, there is a {said}"
PHRASES = {
    "as it was": "is as it was: {wrong} of {size} wrong, first {place}: got {got}, expected {expected}",
    "another array": "another array is returned: change {name} itself, with {name}[:] = … or {name} -= …",
    "another argument": "{instead} is returned in its place: return {order}",
    "another in list": "another array stands in its place in the list: change {name} itself, as k.sgd_update does",
    "to wrong values": "{name} is changed in place, but to wrong values{sign}: ",
    "sign": " (sign?)",
    "right": "; your {names} is right",
    "all right": "; your {names} are right",
    "factor": "; each is {factor} times what it should be",
    "rebinds": "; `{rebinds}` gives the name to a new array: write `{within}` to change the array that was passed",
    "quotient": "; `{quotient}` divides whole numbers, and leaves 0: write `{better}`",
    "half": "; all are right to about three digits: is something computed in float16, or by an approximation?",
    "size": ", and {names} is {whole}",
    "sizes": ", and {names} are {whole}",
    "twin": "; {twin} holds the same numbers: is one array returned twice?",
    "itself": "; the argument {itself} itself is returned",
    "fixed": "; the launch has {fixed:,} threads, however many elements there are: does each take more than one?",
    "numbers": "{given}: yours {yours}, expected {wanted}",
    "transposed": ": rows and columns are exchanged, and the numbers are right",
    "besides": "; and {other}",
    "not reached": "; no thread came there: {name} has shape {shape}, and the launch covers {covered}{last}",
    "covered": "{count} in {axis}",
    "last index": ": is x the last index?",
    "never set": " (never set, added to before it was set, or computed from inf − inf, inf / inf, 0 · inf, 0 / 0 or "
    "such)",
    "unwritten": " (never set, or added to before it was set)",
    "computed": " (computed from inf − inf, inf / inf, 0 · inf, 0 / 0 or such)",
    "shared": " (computed from shared memory that none of a block's {block} threads had set, or from a lane that takes "
    "no part)",
    "unset": " (computed from a variable or an array that the kernel had not set)",
    "from infinities": " (there are infinities in the arguments: ∞ − ∞, ∞ / ∞ and 0 · ∞ are NaN)",
    "from nans": " (there are NaNs in the arguments: NaN is to go through just where the equation says so)",
    "endless": "look for an endless loop",
    "waits": "it computed for only {cpu:.2g} s of them: does it sleep, or wait for something?",
    "slow": "it computes too slowly for the sizes that are tried, or for ever",
    "in line": "; in the line: {source}",
    "convert": "; {name}.astype(np.{dtype}) makes one",
    "as array": "; np.array(…, np.{dtype}) makes one",
    "copy": ", such as {name}.copy()",
    "read-only": "an array that cannot be written",
    "same bits": "all ranks are to hold the same bits, so let one of them add, and send its sum to the others",
    "member": "rank {rank}: ",
    "member after": "rank {rank}, after its step {step}: ",
    "a": "a {type}",
    "an": "an {type}",
    "tuple": "a tuple of {length}",
    "one": "one {type}",
    "exit": "status {status}",
    "signal": "signal {signal}",
    "not compiled": "does not compile\n",
    "broke off": ": it broke off the conversation with the checker",
}
BUDGET_WORDS = {  # which limit of a Budget a kernel exceeds
    "reads": "{of} is read {got:,} times from global memory: expected at most {limit:,}, with a tile in shared memory",
    "sectors": "the reads of {of} touch {got:,} sectors of 32 bytes: expected at most {limit:,}, by neighbouring "
    "threads that read neighbours",
    "reads by a thread": "one thread reads {of} {got:,} times, one after the other: expected at most {limit:,}, "
    "and all threads at work",
    "shared reads": "what another thread has put into shared memory is read {got:,} times: expected at least {limit:,}",
    "shared reads by a thread": "one thread reads {got:,} numbers that others have put into shared memory: expected at "
    "most {limit:,}, such as one in each round of a tree",
    "shared writes": "shared memory is written {got:,} times: expected at most {limit:,}, one by each warp, whose "
    "threads hand each other their numbers by shuffles",
    "atomics": "{got:,} atomic additions to {of} wait for one another: expected at most {limit:,}, after each block "
    "has added up its own",
    "shared atomics": "{got:,} atomic additions to shared memory wait for one another: expected at most "
    "{limit:,}, and rounds in which half of the threads add",
    "additions": "it makes {got:,} atomic additions: expected at least {limit:,}, by atomicAdd",
}
WASTE_WORDS = {  # what a right kernel wastes
    "sectors": "a warp's {access} of {of}{line} touches {got} sectors where {least} would do",
    "turns": "a warp's {access} of {of}{line} takes {got} turns at the banks of shared memory where {least} would do",
    "again": "a thread reads the same numbers of {of} {got} times{line}: a local variable keeps them",
    "alone": "one thread reads {got} numbers of {of}{line}, one after the other, while others wait",
    "double": "it computes with 64 bits{line}: a number such as 1.0 is a double, 1.0f is a float",
}
IN_LINE = " in line {line}"
HINTS = {
    "np in cupy": "; in a cupy exercise NumPy is called xp, which is CuPy on a GPU",
    "numba apart": "; Numba belongs into a kernel named numba: write loops there, which it then compiles",
    "three to maximum": "; np.maximum and np.minimum take two arrays, and write into a third: nest two calls",
    "computes": "; a kernel computes, and needs only math, functools and their like",
    "returned nothing": "; all_reduce, broadcast and receive return nothing: they change the vector",
    "no cupy": "; without a GPU xp is NumPy here, which lacks what only CuPy has",
}


def words_of(kind: str, facts: Mapping[str, Any]) -> str:
    """The words for a fault, or for a kernel that is right or open."""
    if kind == RIGHT:
        also = ALSO_EMULATED if facts.get("emulated too") else ""
        if facts.get("waiting sends"):
            also = ALSO_WAITING.format(said=facts["waiting sends"])
        not_finite = NOT_FINITE.format(said=facts["not finite"]) if facts.get("not finite") else ""
        here = IN_THIS_PROCESS if facts.get("here") else ""
        rounded = ROUNDED.format_map(facts) if "mantissa" in facts else ""
        more = {"where": WHERE[facts["device"]], "here": here, "also": also, "rounded": rounded}
        waste = "".join(BUT.format(said=_waste(each)) for each in facts.get("waste", ()))
        return RIGHT_WORDS.format(count=facts["count"], not_finite=not_finite, waste=waste, **more)
    if kind == OPEN:
        return OPEN_WORDS.strip()
    member = PHRASES["member after" if facts.get("step") else "member"].format_map(facts) if "rank" in facts else ""
    template = WORDS.get(kind, "{said}")
    template = "{said}" if "said" in facts and "{said}" not in template else template
    return member + template.format_map(_Facts(facts))


def _waste(facts: Mapping[str, Any]) -> str:
    line = IN_LINE.format(line=facts["line"]) if facts["line"] else ""
    return WASTE_WORDS[facts["waste"]].format(**{**facts, "line": line})


class _Facts(dict[str, Any]):
    """The facts of a fault. A name that is missing is made as a phrase, or is empty."""

    def __missing__(self, name: str) -> str:
        make = _PHRASES.get(name)
        return make(self) if make else ""


def _those(facts: Mapping[str, Any], *names: str) -> str:
    """The phrases of those names that are facts."""
    return "".join(PHRASES[name].format_map(facts) for name in names if facts.get(name))


def _changed(facts: Mapping[str, Any]) -> str:
    template = PHRASES["to wrong values"] if facts.get("in place") else ""
    return template.format(name=facts.get("name"), sign=_those(facts, "sign"))


def _why(facts: Mapping[str, Any]) -> str:
    if facts.get("unset"):
        return PHRASES["unset"]
    kind = facts.get("nan")
    if kind in ("unwritten", "shared"):
        return PHRASES[kind].format_map(facts)
    if facts.get("nans"):
        return PHRASES["from nans"]
    return PHRASES["from infinities" if facts.get("infinities") else kind] if kind else ""


def _more(facts: Mapping[str, Any]) -> str:
    advice = f"; {facts['advice']}" if facts.get("advice") and not facts.get("quotient") else ""
    advice += _those(facts, "rebinds", "quotient")
    advice += _not_reached(facts) if facts.get("covers") else ""
    advice += _those(facts, "half", "twin", "itself")
    right = _right(facts) + _those(facts, "fixed")
    return _factor(facts) + advice + right + PHRASES.get(facts.get("reason", ""), "") + _hint(facts)


def _not_reached(facts: Mapping[str, Any]) -> str:
    """What a launch covers in x, y, z, where no thread came to some elements of an array."""
    covers, shape = facts["covers"], facts["shape"]
    counts = [PHRASES["covered"].format(count=count, axis=axis) for axis, count in zip("xyz", covers, strict=False)]
    fits = len(covers) == len(shape) and all(map(int.__ge__, covers, reversed(shape)))
    last = PHRASES["last index"] if fits and len(shape) > 1 else ""
    return PHRASES["not reached"].format(name=facts["name"], shape=shape, covered=", ".join(counts), last=last)


def _factor(facts: Mapping[str, Any]) -> str:
    """By how much all elements are wrong, and which sizes are just as large."""
    if not facts.get("factor"):
        return ""
    names, alike = facts["alike"], {1: "size"}.get(len(facts["alike"]), "sizes")
    size = PHRASES[alike].format(names=" and ".join(names), whole=facts["whole"]) if names else ""
    return PHRASES["factor"].format_map(facts) + size


def _right(facts: Mapping[str, Any]) -> str:
    """Which of the other arrays that are changed in place hold what they should."""
    names = facts.get("right")
    return PHRASES["right" if len(names) == 1 else "all right"].format(names=" and ".join(names)) if names else ""


def _what(facts: Mapping[str, Any]) -> str:
    if facts.get("read-only"):
        return PHRASES["read-only"]
    if facts.get("length") is not None:
        return PHRASES["tuple"].format_map(facts)
    if facts.get("one"):
        return PHRASES["one"].format_map(facts)
    return PHRASES["an" if facts["type"][:1].lower() in "aeio" else "a"].format_map(facts)


def _convert(facts: Mapping[str, Any]) -> str:
    phrase = {"array": "convert", "other": "as array"}.get(facts.get("from", ""))
    return PHRASES[phrase].format_map(facts) if phrase else ""


def _hint(facts: Mapping[str, Any]) -> str:
    return "".join(HINTS[name] for name in facts.get("hints", ()))


def _how(facts: Mapping[str, Any]) -> str:
    """What is there instead of an argument that is changed in place."""
    kinds = {"listed": "another in list", "instead": "another argument", "another": "another array"}
    return PHRASES[next((kinds[fact] for fact in kinds if facts.get(fact)), "as it was")].format_map(facts)


_PHRASES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "says": lambda facts: f": {facts['text']}" if facts.get("text") else "",
    "same_bits": lambda facts: PHRASES["same bits"],
    "transposed": lambda facts: PHRASES["transposed"] if facts.get("turned") else "",
    "because": lambda facts: f"; {facts['advice']}" if facts.get("advice") else "",
    "besides": lambda facts: PHRASES["besides"].format_map(facts) if facts.get("other") else "",
    "changed": _changed,
    "how": _how,
    "new_array": lambda facts: _those(facts, "rebinds"),
    "why": _why,
    "more": _more,
    "over": lambda facts: BUDGET_WORDS[facts["limited"]].format_map(facts),
    "look": lambda facts: PHRASES[facts.get("reason", "endless")].format_map(facts),
    "what": _what,
    "in_line": lambda facts: PHRASES["in line"].format_map(facts) if facts.get("source") else "",
    "convert": _convert,
    "copy": lambda facts: PHRASES["copy"].format(name=facts["shares"]) if facts["shares"].isidentifier() else "",
    "ending": lambda facts: PHRASES["signal" if facts.get("signal") else "exit"].format_map(facts),
    "not_compiled": lambda facts: "" if facts.get("python") else PHRASES["not compiled"],
    "hint": _hint,
}
