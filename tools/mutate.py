"""A mutation test of the judge: python tools/mutate.py [--exercise OPERATION.KERNEL] [--limit SECONDS] [--list]

A mutant is a right answer in which one token is another. The judge must refuse all of them, but for those that compute
the same: tools/mutants_equivalent.toml has these, each under the reason. Every other survivor is a hole in the judge.

Results are kept in build/mutants.jsonl, so that the same command resumes; --again judges survivors once more. Several
of these may run at once, on different exercises. A verdict says "right" or why not; on the emulator where there is no GPU.
"""

import argparse
import hashlib
import io
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
from collections.abc import Callable, Iterator, Mapping, Sequence
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
OTHERS = {  # what takes a token's place; "" drops it
    **{"+": "- *", "-": "+", "*": "/ +", "/": "* +", "//": "/ *", "%": "/ *", "@": "*", "**": "*"},
    **{"<": "<= >", "<=": "< >=", ">": ">= <", ">=": "> <=", "==": "!= <=", "!=": "== <"},
    **{"+=": "-= =", "-=": "+= =", "*=": "/= =", "/=": "*= =", ">>": "<<", "<<": ">>"},
    **{"&&": "||", "||": "&&", "and": "or", "or": "and", "True": "False", "False": "True"},
    **{"break": "continue", "continue": "break"},
    **{"threadIdx": "blockIdx", "blockIdx": "threadIdx", "blockDim": "gridDim", "gridDim": "blockDim"},
}
CALLED = {  # likewise, where it is called
    **{"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "argmax": "argmin"},
    **{"fmaxf": "fminf", "fminf": "fmaxf", "sum": "mean max", "mean": "sum"},
}
DROPPED = {"abs", "fabsf", "not", "__syncthreads", "__syncwarp"}
JOINED = {"<=", ">=", "==", "!=", "+=", "-=", "*=", "/=", "%=", "++", "--", "&&", "||", "<<", ">>", "->"}
CUDA_TYPES = {"float": "float", "double": "float", "int": "int", "unsigned": "int", "size_t": "int", "long": "int"}
NUMBER = re.compile(r"(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)([fFuUlL]*)", re.IGNORECASE)
OPENING, CLOSING = "([{", ")]}"


class Word(NamedTuple):
    """A token: a name, a number, or a sign; and where it starts in its text."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Mutant(NamedTuple):
    """A whole text; and its `place`, the number of the line that is different, and that line."""

    text: str
    place: str


# ---- the words of a text


def python_words(text: str) -> list[Word]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    kinds = {tokenize.NAME: "name", tokenize.NUMBER: "number", tokenize.OP: "sign"}
    there = tokenize.generate_tokens(io.StringIO(text).readline)
    return [
        Word(kinds[token.type], token.string, starts[token.start[0] - 1] + token.start[1])
        for token in there
        if token.type in kinds
    ]


def cuda_words(text: str) -> list[Word]:
    """Those of tokens.py, which says no columns, with signs such as <= in one piece; without directives."""
    code, words, end = tokens.blanked(text, strings=False), list[Word](), 0
    for token in tokens.tokens(text):
        start = code.index(token.text, end)
        end = start + len(token.text)
        if token.directive:
            continue
        if words and words[-1].end == start and words[-1].text + token.text in JOINED:
            words[-1] = words[-1]._replace(text=words[-1].text + token.text)
        else:
            words.append(Word(token.kind if token.kind in ("name", "number") else "sign", token.text, start))
    return words


# ---- mutants


def mutants(text: str, cuda: bool) -> list[Mutant]:
    """All mutants of a text, each once, in the order of their places."""
    words = cuda_words(text) if cuda else python_words(text)
    found = {text: ""}
    for start, end, becomes in sorted(_changes(words, cuda)):
        mutant = text[:start] + becomes + text[end:]
        number = text.count("\n", 0, start)
        found.setdefault(mutant, f"{number + 1}: {mutant.splitlines()[number].strip()}")
    return [Mutant(mutant, place) for mutant, place in found.items() if place]


def _changes(words: Sequence[Word], cuda: bool) -> Iterator[tuple[int, int, str]]:
    """From where to where the text becomes what."""
    kinds = _names(words, cuda)
    open_brackets: list[int] = []
    for number, word in enumerate(words):
        before = words[number - 1] if number else Word("sign", ";", 0)
        after = words[number + 1] if number + 1 < len(words) else Word("sign", ";", word.end)
        in_index = bool(open_brackets) and words[open_brackets[-1]].text == "["
        if in_index and word.text in ("]", ",") and (before.kind == "name" or before.text in CLOSING):
            if not keyword.iskeyword(before.text):
                yield from ((word.start, word.start, more) for more in (" + 1", " - 1"))
        if word.text in OPENING:
            open_brackets.append(number)
        elif word.text in CLOSING and open_brackets:
            open_brackets.pop()
        if word.kind == "sign" and _is_unary(before, cuda):
            if word.text == "-":
                yield word.start, word.end, ""
            continue
        if word.kind == "number":
            yield from ((word.start, word.end, other) for other in _other_numbers(word.text))
        elif word.text in DROPPED:
            start = words[number - 2].start if before.text == "." else word.start
            called = word.text.startswith("__") and after.text == "("
            yield start, words[number + 2].end if called else word.end, ""
        elif word.text in OTHERS and (word.text != "*" or before.text not in {*CUDA_TYPES, "const"}):
            yield from ((word.start, word.end, other) for other in OTHERS[word.text].split())
        elif word.text in CALLED and after.text == "(":
            yield from ((word.start, word.end, other) for other in CALLED[word.text].split())
        elif word.text in "xy" and before.text == ".":
            yield word.start, word.end, "y" if word.text == "x" else "x"
        elif (
            word.kind == "name"
            and before.text != "."
            and after.text != "++"
            and (after.text != "=" or not open_brackets or cuda)
        ):
            yield from ((word.start, word.end, other) for other in _neighbours(word.start, word.text, kinds))


def _is_unary(before: Word, cuda: bool) -> bool:
    """Whether a sign after this word has nothing on its left."""
    words = {"return", "in", "and", "or", "not", "if", "else"} | ({"float", "int", "const"} if cuda else set())
    return (before.kind == "sign" and before.text not in CLOSING) or before.text in words


def _other_numbers(text: str) -> Iterator[str]:
    """A number one more and one less, twice as large, and zero."""
    if not (match := NUMBER.fullmatch(text)):
        return
    value = float(match[1]) if re.search(r"[.eE]", match[1]) else int(match[1])
    others = dict.fromkeys([value + 1, value - 1, 2 * value, 0 * value])
    yield from (f"{other!r}{match[2]}" for other in others if other != value)


def _names(words: Sequence[Word], cuda: bool) -> dict[str, tuple[str, int]]:
    """The arguments of the function and its index variables: of each the kind, and where it has been declared."""
    found: dict[str, tuple[str, int]] = {}
    depth = of_head = 0
    for number, word in enumerate(words[:-1]):
        before, after = words[number - 1], words[number + 1]
        if word.text in OPENING:
            depth += 1
            of_head += not of_head and word.text == "("
        elif word.text in CLOSING:
            depth -= 1
            of_head += of_head == 1 and depth == 0
        elif word.kind != "name" or word.text in found:
            continue
        elif cuda and (before.text in CUDA_TYPES or before.text == "*") and after.text in "=,);[":
            backwards = [each.text for each in words[max(0, number - 3) : number]]
            typed = next((CUDA_TYPES[each] for each in reversed(backwards) if each in CUDA_TYPES), "")
            if typed and "/" not in backwards:
                found[word.text] = (typed + ("*" if before.text == "*" else ""), word.end)
        elif not cuda and of_head == 1 and after.text in ",):=":
            found[word.text] = ("argument", word.end)
        elif not cuda and before.text in ("for", ",") and after.text in ("in", ",") and _in_for(words, number):
            found[word.text] = ("index", word.end)
    return found


def _in_for(words: Sequence[Word], number: int) -> bool:
    """Whether only names and commas lie between this word and a `for`."""
    while number and (words[number].kind == "name" or words[number].text == ","):
        if words[number].text == "for":
            return True
        number -= 1
    return False


def _neighbours(start: int, name: str, kinds: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """The names of the same kind that were declared just before and just after this one."""
    if name not in kinds or start < kinds[name][1]:
        return
    alike = [each for each, (kind, declared) in kinds.items() if kind == kinds[name][0] and declared <= start]
    place = alike.index(name)
    yield from {alike[place - 1], alike[(place + 1) % len(alike)]} - {name}


# ---- verdicts


def verdict_of(answer: Mapping[str, str], text: str) -> Verdict:
    """The judge's verdict on a text in place of a right answer's, as in a notebook."""
    operation, launch = find(answer["operation"]), None
    if "line" in answer:
        launch = cuda_cell.launch_options(operation, cuda_cell.parsed(answer["line"]))
    return kept_kernels.judged(operation, answer["kernel"], text, launch)


def survivors(made: Sequence[Mutant], verdict: Callable[[str], Verdict]) -> list[str]:
    """The places of those that the judge accepts."""
    return [mutant.place for mutant in made if verdict(mutant.text)]


def judge(answer: Mapping[str, str], rows: dict[str, dict[str, Any]], end: float, again: bool) -> None:
    """Judge what has no result yet until the time has come; each result becomes a line of the file at once."""
    for mutant in mutants(answer["text"], "line" in answer):
        name = key(answer, mutant)
        if time.monotonic() > end:
            return
        if name in rows and not (again and rows[name]["right"]):
            continue
        verdict = verdict_of(answer, mutant.text)
        if verdict.kind == UNCHECKED:
            raise SystemExit(f"mutate: {verdict}")
        rows[name] = {"key": name, "place": mutant.place, "right": bool(verdict), "line": verdict.line}
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[name], ensure_ascii=False) + "\n")


def key(answer: Mapping[str, str], mutant: Mutant) -> str:
    return f"{name_of(answer)} {hashlib.sha256(mutant.text.encode()).hexdigest()[:16]}"


def name_of(answer: Mapping[str, str]) -> str:
    return f"{answer['operation']}.{answer['kernel']}"


def main() -> int:
    """Exit status 1 if a mutant survives that is not in the table, or the table has one that does not survive."""
    from tests.exercise_answers import RIGHT

    parser = argparse.ArgumentParser(description="judge all mutants of the right answers")
    parser.add_argument(
        "--exercise", action="append", metavar="OPERATION.KERNEL", help="only this one; may be repeated"
    )
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="judge for this long")
    parser.add_argument("--again", action="store_true", help="judge the survivors once more")
    parser.add_argument("--list", action="store_true", help="print the survivors that are not in the table")
    options = parser.parse_args()
    chosen = [answer for answer in RIGHT if not options.exercise or name_of(answer) in options.exercise]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.touch()
    rows = {row["key"]: row for row in map(json.loads, RESULTS.read_text("utf-8").splitlines())}
    end, status, totals = time.monotonic() + options.limit, 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # what is compiled for mutants is not kept
        for answer in chosen:
            judge(answer, rows, end, options.again)
            made = mutants(answer["text"], "line" in answer)
            known = tomllib.loads(EQUIVALENT.read_text("utf-8")).get(name_of(answer), {})
            same = {place for places in known.values() for place in places}
            judged = [rows[name] for mutant in made if (name := key(answer, mutant)) in rows]
            alive = [row for row in judged if row["right"]]
            holes = [row for row in alive if row["place"] not in same]
            counts = Counter(made=len(made), refused=len(judged) - len(alive), survived=len(alive), holes=len(holes))
            totals += counts
            print(f"{name_of(answer)}: {_in_words(counts)}", flush=True)
            gone = same - {row["place"] for row in alive} if len(judged) == len(made) else set()
            print(*(f"  in the table, but refused or not made: {place}" for place in sorted(gone)), sep="\n", end="")
            if options.list:
                for row in holes:
                    print(f"  {row['place']}\n      {row['line'].partition(': ')[2]}")
            status = status or int(bool(holes or gone))
    print(f"all: {_in_words(totals)}")
    return status


def _in_words(counts: Counter[str]) -> str:
    made, *others = (f"{counts[name]} {name}" for name in ("made", "refused", "survived"))
    return ", ".join([made, *others, f"{counts['holes']} of these unexplained"])


if __name__ == "__main__":
    sys.exit(main())
