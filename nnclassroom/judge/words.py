"""The words of all verdicts: templates, which an editor can read from top to bottom, and below what fills them in.

Templates are filled with the facts of a verdict. Code reads facts, never words.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

RIGHT, OPEN, UNCHECKED = "right", "open", "cannot be checked"

# The words of each kind of fault. {…} are facts, or phrases made of facts: see _PHRASES. Other kinds
# come from cuda_on_cpu and nncourse/parallel/simulation, with their words as the fact `said`.
WORDS = {
    "wrong value": "{diagnosis}{changed}{wrong} of {size} wrong, first {place}: "
    "expected {expected}, got {got}{why}{more}",
    "not in place": "{name} must be changed in place, but {how}{new_array}",
    "nothing": "returns nothing: expected {wanted}",
    "type": "returns the wrong type: expected {wanted}, got {what}{convert}",
    "shape": "{name} has the wrong shape: expected {wanted}, got {got}{transposed}{because}",
    "dtype": "{name} has the wrong type: expected {wanted}, got {got}{convert}{besides}",
    "changes an argument": "changes its argument {name}, which must stay as it is",
    "changes what was": "changes {name} of an earlier call: keep no array from one call to the next",
    "shares memory": "{name} shares memory with {shares}: expected a new array{copy}",
    "remembers": "right on the first call, wrong on a later one; does it keep state between calls? {said}",
    "raised": "raised {type}{says}{in_line}{hint}",
    "name": "raised {type}: {text}; only {names} is there already: define or import everything else inside the "
    "function{hint}",
    "forbidden": "{said}{in_line}{hint}",
    "build": "{said}",
    "time limit": "did not end within {seconds:g} s: {look}",
    "crash": "its process ended with {ending}{more}",
    "compile": "{not_compiled}{said}",
    "bounds": "{said}{swap}",
    "outside": "writes outside its arrays: is the guard right?",
    "cannot be checked": "cannot be checked here: {said}",
    "different bits": "right up to rounding, but the ranks differ: {place} is {got} on rank {other} and {first} on "
    "rank 0; {same_bits}",
    "traffic": "the sums are right, but {said}",
    "budget": "the numbers are right, but {over}",
    "unfinished": "ends at `raise NotImplementedError`, which is still in it: delete that line",
    "not asked": "the numbers are right, but {missing} was never called: call it, so that your own kernels train",
}
RIGHT_WORDS = "right in {count} cases {where}{here}{also}{rounded}{not_finite}{waste}"
BUT = "\n  right, but {said}"
NOT_FINITE = "\n  wrong only with NaN or infinities, which does not count: {said}"
OPEN_WORDS = " open"  # with a space, so that translations can tell it from the kind
WHERE = {
    "cpu": "on the CPU",
    "gpu": "on the GPU",
    "emulator": "on the CPU emulator, in three thread orders and without races",
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
    "as it was": "is unchanged: {wrong} of {size} wrong, first {place}: expected {expected}, got {got}",
    "another array": "a different array is returned: change {name} itself, with {name}[:] = … or {name} -= …",
    "another argument": "{instead} is returned instead: return {order}",
    "another in list": "its place in the list holds a different array: change {name} itself, as k.sgd_update does",
    "to wrong values": "{name} is changed in place, but to wrong values{sign}: ",
    "inner sizes": "@: the inner sizes of a product must be equal; got {left} and {right}",
    "sign": " (sign?)",
    "right": "; your {names} is right",
    "all right": "; your {names} are right",
    "factor": "each is {factor} times what it should be",
    "factor of one": "it is {factor} times what it should be",
    "rebinds": "`{rebinds}` gives the name to a new array: write `{within}` to change the array that was passed",
    "quotient": "`{quotient}` divides whole numbers, and leaves 0: write `{better}`",
    "swapped": "`{swapped}` swaps row and column: write `{better}`",
    "unshared": "`{unshared}` is not in shared memory, so each thread has its own: write `__shared__` before its type",
    "half": "all are right to about three digits only: is something rounded or approximated?",
    "size": ", and {names} is {whole}",
    "sizes": ", and {names} are {whole}",
    "twin": "{twin} holds the same numbers: is one array returned twice?",
    "itself": "the argument {itself} itself is returned",
    "fixed": "the launch has {fixed:,} threads, whatever the sizes: does each thread take more than one element?",
    "numbers": "{given}: expected {wanted}, got {yours}",
    "transposed": ": rows and columns are swapped, and the numbers are right",
    "besides": "; and {other}",
    "not reached": "some elements have no thread: {name} has shape {shape}, but the launch covers only {covered}{last}",
    "covered": "{count} in {axis}",
    "last index": ": is x the last index?",
    "never set": " (never set, added to before it was set, or computed from inf − inf, inf / inf, 0 · inf, 0 / 0 or "
    "the like)",
    "unwritten": " (never set, or added to before it was set)",
    "computed": " (computed from inf − inf, inf / inf, 0 · inf, 0 / 0 or the like)",
    "shared": " (computed from shared memory that none of a block's {block} threads had set)",
    "shuffles": "; or do shuffles read from a lane that takes no part?",
    "unset or computed": " (computed from a variable or an array that the kernel had not set, or from inf − inf, 0 / 0 "
    "or the like)",
    "unset": " (computed from a variable or an array that the kernel had not set)",
    "from infinities": " (the arguments contain infinities: ∞ − ∞, ∞ / ∞ and 0 · ∞ are NaN)",
    "from nans": " (the arguments contain NaN: the result must be NaN exactly where the equation gives NaN)",
    "endless": "look for an endless loop",
    "waits": "it computed for only {cpu:.2g} s of them: does it sleep or wait for something?",
    "slow": "it is too slow for the sizes that are tried, or it never ends",
    "in line": "; in the line: {source}",
    "convert": "; {name}.astype(np.{dtype}) converts it",
    "as array": "; np.array(…, np.{dtype}) makes an array of it",
    "copy": ", such as {name}.copy()",
    "read-only": "an array that cannot be written to",
    "same bits": "all ranks must end with the same bits: let one rank do each addition, and send its sum to the others",
    "member": "rank {rank}: ",
    "member after": "rank {rank}, after its step {step}: ",
    "a": "a {type}",
    "an": "an {type}",
    "tuple": "a tuple of {length}",
    "one": "one {type}",
    "exit": "status {status}",
    "signal": "signal {signal}",
    "not compiled": "does not compile\n",
    "broke off": ": it broke off its connection to the checker",
}
BUDGET_WORDS = {  # which limit of a Budget a kernel exceeds
    "reads": "{of} is read {got:,} times from global memory: expected at most {limit:,}; load a tile into shared "
    "memory, and read it there",
    "sectors": "the reads of {of} touch {got:,} sectors of 32 bytes: expected at most {limit:,}; let "
    "neighbouring threads read neighbouring numbers",
    "reads by a thread": "one thread reads {of} {got:,} times, one after the other: expected at most {limit:,}; "
    "share the work among all threads",
    "writes": "global memory is written {got:,} times: expected at most {limit:,}; keep all but the result in "
    "registers or shared memory, and write each element of the result once",
    "shared reads": "what another thread has put into shared memory is read {got:,} times: expected at least {limit:,}",
    "shared reads by a thread": "one thread reads {got:,} numbers that others have put into shared memory: expected at "
    "most {limit:,}; a tree needs one in each round",
    "all shared reads": "shared memory is read {got:,} times: expected at most {limit:,}; copy a number to a register, "
    "and use it there in several products",
    "shared writes": "shared memory is written {got:,} times: expected at most {limit:,}; add up in each warp "
    "by shuffles, and write once per warp",
    "atomics": "{got:,} atomic additions to {of} wait for one another: expected at most {limit:,}; let each block "
    "add up its own numbers first",
    "shared atomics": "{got:,} atomic additions to shared memory wait for one another: expected at most "
    "{limit:,}; add in rounds, each with half of the threads",
    "additions": "it makes {got:,} atomic additions: expected at least {limit:,}; use atomicAdd",
}
WASTE_WORDS = {  # what a right kernel wastes
    "sectors": "a warp's {access} of {of}{line} touches {got} sectors where {least} would do",
    "turns": "a warp's {access} of {of}{line} takes {got} turns at the banks of shared memory where {least} would do",
    "again": "a thread reads the same numbers of {of} {got} times{line}: keep them in a local variable",
    "alone": "one thread reads {got} numbers of {of}{line}, one after the other, while others wait",
    "double": "it computes in float64{line}: write a number such as 1.0 as 1.0f",
}
ACCESS_WORDS = {"read": "read", "write": "write"}
IN_LINE = " in line {line}"
HINTS = {
    "np in cupy": "; in a cupy exercise write xp in place of np: it is CuPy on a GPU, and NumPy without one",
    "numba apart": "; use Numba only in the kernel named numba: write plain loops there, and they are compiled for you",
    "three to maximum": "; np.maximum and np.minimum compare two arrays, and write into a third: nest two calls",
    "computes": "; a kernel only computes: import math, functools and the like, and nothing else",
    "returned nothing": "; all_reduce, broadcast and receive return nothing: they change the vector in place",
    "math": "; math.exp takes one number, np.exp an array",
    "no cupy": "; without a GPU xp is NumPy, which lacks what only CuPy has",
}


def without(line: str, unknown: str, own: str = "") -> str:
    """The line without its clauses in which the pattern of unknown words occurs; the first, what is wrong, stays.

    own: the student's words in it, which may be any. A compiler's excerpt below a line is left as it is; what a right
    kernel is told below its line goes whole.
    """
    first, *below = line.split("\n")
    hidden = first.replace(own, "\0") if own else first
    known, *clauses = hidden.split("; ")
    kept = [known, *(each for each in clauses if not re.search(unknown, each))]
    more = [each for each in below if not (each.startswith("  ") and re.search(unknown, each))]
    return "\n".join(["; ".join(kept).replace("\0", own), *more])


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
    access = ACCESS_WORDS.get(facts.get("access", ""), "")
    return WASTE_WORDS[facts["waste"]].format(**{**facts, "line": line, "access": access})


class _Facts(dict[str, Any]):
    """The facts of a fault. A name that is missing is made as a phrase, or is empty."""

    def __missing__(self, name: str) -> str:
        make = _PHRASES.get(name)
        return make(self) if make else ""


def _those(facts: Mapping[str, Any], *names: str) -> list[str]:
    """The phrases of those names that are facts."""
    return [PHRASES[name].format_map(facts) for name in names if facts.get(name)]


def _changed(facts: Mapping[str, Any]) -> str:
    template = PHRASES["to wrong values"] if facts.get("in place") else ""
    return template.format(name=facts.get("name"), sign="".join(_those(facts, "sign")))


def _why(facts: Mapping[str, Any]) -> str:
    if facts.get("unset"):
        return PHRASES["unset"]
    kind = facts.get("nan")
    if kind in ("unwritten", "shared"):
        return PHRASES[kind].format_map(facts)
    if facts.get("nans"):
        return PHRASES["from nans"]
    return PHRASES["from infinities" if facts.get("infinities") else kind] if kind else ""


WHOLE = ("rebinds", "quotient", "swapped", "unshared", "half", "twin", "itself", "fixed")


def _diagnosis(facts: Mapping[str, Any]) -> str:
    """What explains all wrong elements together: it comes before the numbers."""
    found = [_factor(facts), facts["advice"] if facts.get("mistaken") and facts.get("advice") else ""]
    found += [_not_reached(facts) if facts.get("covers") else "", *_those(facts, *WHOLE)]
    return "".join(f"{each} " if each.endswith("?") else f"{each}; " for each in found if each)


def _more(facts: Mapping[str, Any]) -> str:
    """What is told after the numbers: more about the first wrong element, and what else there is."""
    known = any(facts.get(name) for name in ("mistaken", "quotient", "swapped", "unshared"))
    advice = f"; {facts['advice']}" if facts.get("advice") and not known else ""
    lanes = "".join(_those(facts, "shuffles"))
    return lanes + advice + _right(facts) + PHRASES.get(facts.get("reason", ""), "") + _hint(facts)


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
    return PHRASES["factor of one" if facts.get("size") == 1 else "factor"].format_map(facts) + size


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


def _shortened(text: str) -> str:
    """What an exception says, without NumPy's signature of @."""
    sizes = re.search(r"^matmul: .*\(size (\d+) is different from (\d+)\)$", text)
    return PHRASES["inner sizes"].format(left=sizes[2], right=sizes[1]) if sizes else text


def _how(facts: Mapping[str, Any]) -> str:
    """What is there instead of an argument that is changed in place."""
    kinds = {"listed": "another in list", "instead": "another argument", "another": "another array"}
    return PHRASES[next((kinds[fact] for fact in kinds if facts.get(fact)), "as it was")].format_map(facts)


_PHRASES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "says": lambda facts: f": {_shortened(facts['text'])}" if facts.get("text") else "",
    "same_bits": lambda facts: PHRASES["same bits"],
    "transposed": lambda facts: PHRASES["transposed"] if facts.get("turned") else "",
    "because": lambda facts: f"; {facts['advice']}" if facts.get("advice") else "",
    "besides": lambda facts: PHRASES["besides"].format_map(facts) if facts.get("other") else "",
    "diagnosis": _diagnosis,
    "changed": _changed,
    "how": _how,
    "new_array": lambda facts: "".join(f"; {each}" for each in _those(facts, "rebinds")),
    "why": _why,
    "more": _more,
    "over": lambda facts: BUDGET_WORDS[facts["limited"]].format_map(facts),
    "swap": lambda facts: "".join(f"; {each}" for each in _those(facts, "swapped")),
    "look": lambda facts: PHRASES[facts.get("reason", "endless")].format_map(facts),
    "what": _what,
    "in_line": lambda facts: PHRASES["in line"].format_map(facts) if facts.get("source") else "",
    "convert": _convert,
    "copy": lambda facts: PHRASES["copy"].format(name=facts["shares"]) if facts["shares"].isidentifier() else "",
    "ending": lambda facts: PHRASES["signal" if facts.get("signal") else "exit"].format_map(facts),
    "not_compiled": lambda facts: "" if facts.get("python") else PHRASES["not compiled"],
    "hint": _hint,
}
