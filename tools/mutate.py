"""Test the judge with mutants: python tools/mutate.py [--exercise OPERATION.KERNEL] [--limit SECONDS] [--list]

A mutant is a correct answer in which one token is different. The judge must refuse all mutants, except those that still
compute the same: tools/mutants_equivalent.toml lists them by reason. Every other survivor is a hole in the judge.

Results are kept in build/mutants.jsonl, so that the same command resumes; --again judges the survivors once more.
Several of these commands may run at once, on different exercises.
"""

import argparse
import hashlib
import io
import itertools
import json
import keyword
import os
import re
import sys
import tempfile
import time
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cuda_on_cpu import tokens  # noqa: E402
from nnclassroom.exercises import kept_kernels  # noqa: E402
from nnclassroom.exercises.catalogue import find  # noqa: E402
from nnclassroom.judge.verdict import UNCHECKED, Verdict  # noqa: E402
from nnclassroom.notebook import cuda_cell  # noqa: E402

RESULTS = ROOT / "build" / "mutants.jsonl"
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.toml")
OTHERS = {  # what takes a token's place
    **{"+": "- *", "-": "+", "*": "/ +", "/": "* +", "//": "/ *", "%": "/ *", "@": "*", "**": "*"},
    **{"<": "<= >", "<=": "< >=", ">": ">= <", ">=": "> <=", "==": "!= <=", "!=": "== <"},
    **{"+=": "-= =", "-=": "+= =", "*=": "/= =", "/=": "*= =", ">>": "<<", "<<": ">>"},
    **{"&&": "||", "||": "&&", "and": "or", "or": "and", "True": "False", "False": "True"},
    **{"break": "continue", "continue": "break", "threadIdx": "blockIdx", "blockIdx": "threadIdx"},
    **{"blockDim": "gridDim", "gridDim": "blockDim", "max": "min", "min": "max", "sum": "mean max", "mean": "sum"},
    **{"fmaxf": "fminf", "fminf": "fmaxf", "maximum": "minimum", "minimum": "maximum", "argmax": "argmin"},
}
CALLED = {"max", "min", "sum", "mean"}  # only where they are called
DROPPED = {"abs", "fabsf", "not", "__syncthreads", "__syncwarp"}
JOINED = {"<=", ">=", "==", "!=", "+=", "-=", "*=", "/=", "%=", "++", "--", "&&", "||", "<<", ">>", "->"}
CUDA_TYPES = {"float": "float", "double": "float", "int": "int", "unsigned": "int", "size_t": "int", "long": "int"}
NUMBER = re.compile(r"(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)([fFuUlL]*)", re.IGNORECASE)
LARGER = "…: __shared__ …"  # a larger or wider array in shared memory, each place of it for the same number
NEAR = 2  # names
OPENING, CLOSING = "([{", ")]}"


class Word(NamedTuple):
    """A token, a name, a number or a sign, and where it lies in its text."""

    kind: str
    text: str
    start: int
    end: int


def python_words(text: str) -> list[Word]:
    starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    kinds = {tokenize.NAME: "name", tokenize.NUMBER: "number", tokenize.OP: "sign"}
    there = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type in kinds]
    places = [starts[token.start[0] - 1] + token.start[1] for token in there]
    return [Word(kinds[t.type], t.string, at, at + len(t.string)) for t, at in zip(there, places, strict=True)]


def cuda_words(text: str) -> list[Word]:
    """Those of tokens.py, which says no columns, with signs such as <= in one piece; without directives."""
    code, words, end = tokens.blanked(text, strings=False), list[Word](), 0
    for token in tokens.tokens(text):
        start = code.index(token.text, end)
        end = start + len(token.text)
        if words and words[-1].end == start and words[-1].text + token.text in JOINED:
            words[-1] = words[-1]._replace(text=words[-1].text + token.text, end=end)
        elif not token.directive:
            kind = token.kind if token.kind in ("name", "number") else "sign"
            words.append(Word(kind, token.text, start, end))
    return words


def mutants(text: str, cuda: bool) -> dict[str, str]:
    """All mutants of a text, and of each its place: the number of the line that is different, and that line."""
    found = {text: ""}
    for start, end, becomes in sorted(_changes(cuda_words(text) if cuda else python_words(text), cuda)):
        mutant = text[:start] + becomes + text[end:]
        number = text.count("\n", 0, start)
        found.setdefault(mutant, f"{number + 1}: {mutant.splitlines()[number].strip()}")
    return {mutant: place for mutant, place in found.items() if place}


def _changes(words: Sequence[Word], cuda: bool) -> Iterator[tuple[int, int, str]]:
    """From where to where the text becomes what."""
    kinds, brackets = _names(words, cuda), _brackets(words)
    for number, word in enumerate(words[:-1]):
        before, after = words[number - 1], words[number + 1]
        others: Iterable[str] = ()
        if word.text == "]" or (word.text == "," and brackets[number] == "["):
            if before.text in CLOSING or (before.kind == "name" and not keyword.iskeyword(before.text)):
                yield from ((word.start, word.start, more) for more in (" + 1", " - 1"))
        elif word.kind == "sign" and _is_unary(before, cuda):
            others = [""] if word.text == "-" else []
        elif word.kind == "number":
            others = _other_numbers(word.text)
        elif word.text in DROPPED:
            start = words[number - 2].start if before.text == "." else word.start
            called = word.text.startswith("__") and after.text == "("
            yield start, words[number + 2].end if called else word.end, ""
        elif word.text in OTHERS and (after.text == "(" or word.text not in CALLED):
            others = OTHERS[word.text].split()
        elif word.text in ("x", "y") and before.text == ".":
            others = {"x": "y", "y": "x"}[word.text]
        elif before.text != "." and after.text != "++" and not (after.text == "=" and brackets[number] and not cuda):
            others = _alike(word.start, word.text, kinds)
        yield from ((word.start, word.end, other) for other in others)


def _brackets(words: Sequence[Word]) -> list[str]:
    """For each word the bracket that it is in, "" where there is none."""
    found, around = [], [""]
    for word in words:
        if word.text in CLOSING and len(around) > 1:
            around.pop()
        found.append(around[-1])
        if word.text in OPENING:
            around.append(word.text)
    return found


def _is_unary(before: Word, cuda: bool) -> bool:
    """Whether a sign after this word has nothing on its left."""
    words = {*CUDA_TYPES, "const", "return"} if cuda else {"return", "in", "and", "or", "not", "if", "else"}
    return (before.kind == "sign" and before.text not in CLOSING) or before.text in words


def _other_numbers(text: str) -> Iterator[str]:
    """A number one more and one less, twice as large, and zero."""
    if match := NUMBER.fullmatch(text):
        value = float(match[1]) if re.search(r"[.eE]", match[1]) else int(match[1])
        others = dict.fromkeys([value + 1, value - 1, 2 * value, 0 * value])
        yield from (f"{other!r}{match[2]}" for other in others if other != value)


def _names(words: Sequence[Word], cuda: bool) -> dict[str, tuple[str, int]]:
    """The names of a text's own arguments and variables: of each the type, in CUDA C, and where it is declared."""
    found: dict[str, tuple[str, int]] = {}
    for number, word in enumerate(words[:-1]):
        before, after, earlier = words[number - 1].text, words[number + 1].text, words[max(0, number - 3) : number]
        if word.kind != "name" or word.text in found or before == "." or keyword.iskeyword(word.text):
            continue
        types = [CUDA_TYPES[each.text] for each in earlier if each.text in CUDA_TYPES]
        if not cuda and before != "def" and after not in ("(", "."):
            found[word.text] = ("", word.end)
        elif cuda and types and before in (*CUDA_TYPES, "*", ",") and after in "=,);[":
            found[word.text] = (types[-1] + before.replace(",", "") * (before == "*"), word.end)
    return found


def _alike(start: int, name: str, kinds: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """The names of the same type that are declared next to this one: NEAR before it, and as many after it."""
    if name in kinds and start >= kinds[name][1]:
        alike = [each for each, (kind, declared) in kinds.items() if kind == kinds[name][0] and declared <= start]
        place = alike.index(name)
        yield from {alike[(place + step) % len(alike)] for step in range(-NEAR, NEAR + 1)} - {name}


def name_of(answer: Mapping[str, str]) -> str:
    return f"{answer['operation']}.{answer['kernel']}"


def verdict_of(answer: Mapping[str, str], text: str) -> Verdict:
    """The judge's verdict on a text in place of a right answer's, as in a notebook."""
    operation, launch = find(answer["operation"]), None
    if "line" in answer:
        launch = cuda_cell.launch_options(operation, cuda_cell.parsed(answer["line"]))
    return kept_kernels.judged(operation, answer["kernel"], text, launch)


def judge(answer: Mapping[str, str], rows: dict[str, dict[str, Any]], end: float, again: bool) -> Iterator[str]:
    """The keys of all mutants. What has no result yet is judged until the time has come, and goes into the file."""
    for mutant, place in mutants(answer["text"], "line" in answer).items():
        key = f"{name_of(answer)} {hashlib.sha256(mutant.encode()).hexdigest()[:16]}"
        yield key
        if (key not in rows or (again and rows[key]["right"])) and time.monotonic() < end:
            verdict = verdict_of(answer, mutant)
            if verdict.kind == UNCHECKED:
                raise SystemExit(f"mutate: {verdict}")
            rows[key] = {"key": key, "place": place, "right": bool(verdict), "line": verdict.line}
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[key], ensure_ascii=False) + "\n")


def is_same(place: str, known: Sequence[str]) -> bool:
    """Whether one of these stands for the place: … for anything."""
    return any(re.fullmatch(re.escape(each).replace("…", ".*"), place) for each in known)


def _counted(name: str, rows: Sequence[Any], reasons: Mapping[str, Sequence[str]], lines: bool) -> Counter[str]:
    """Counts of one exercise, printed; the unexplained survivors too if `lines`. A row is None if it is not judged."""
    known = [each for places in reasons.values() for each in places]
    alive = {row["place"]: row["line"].partition(": ")[2] for row in rows if row and row["right"]}
    holes = [place for place in alive if not is_same(place, [*known, LARGER])]
    outdated = [each for each in known if all(rows) and not any(is_same(place, [each]) for place in alive)]
    refused = sum(1 for row in rows if row and not row["right"])
    counts = Counter(made=len(rows), refused=refused, survived=len(alive), unexplained=len(holes))
    print(f"{name}: {_in_words(counts)}", flush=True)
    print("".join(f"  in the table, but no survivor: {each}\n" for each in outdated), end="")
    print("".join(f"  {place}\n      {alive[place]}\n" for place in holes if lines), end="")
    return counts + Counter(outdated=len(outdated))


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in ("made", "refused", "survived", "unexplained"))


def main() -> int:
    """Exit status 1 if a mutant survives that is not in the table, or the table has one that does not survive."""
    from tests.exercise_answers import RIGHT

    parser = argparse.ArgumentParser(description="judge all mutants of the right answers")
    names = [*map(name_of, RIGHT)]
    parser.add_argument("--exercise", action="append", choices=names, metavar="OPERATION.KERNEL", help="judge this one")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="time after which to stop")
    parser.add_argument("--again", action="store_true", help="judge the survivors of earlier runs once more")
    parser.add_argument("--list", action="store_true", help="print the survivors that are not in the table")
    options = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.touch()
    table = tomllib.loads(EQUIVALENT.read_text("utf-8"))
    rows = {row["key"]: row for row in map(json.loads, RESULTS.read_text("utf-8").splitlines())}
    end, totals = time.monotonic() + options.limit, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # what is compiled for mutants is not kept
        for name, answer in zip(names, RIGHT, strict=True):
            if not options.exercise or name in options.exercise:
                keys = list(judge(answer, rows, end, options.again))
                totals += _counted(name, [rows.get(key) for key in keys], table.get(name, {}), options.list)
    print(f"all: {_in_words(totals)}")
    return int(totals["unexplained"] + totals["outdated"] > 0)


if __name__ == "__main__":
    sys.exit(main())
