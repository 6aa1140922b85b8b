"""How much of one answer is found in another, whatever the names, by winnowing: fingerprints of runs of tokens.

Schleimer, Wilkerson, Aiken: Winnowing, SIGMOD 2003, as MOSS uses it. This proves nothing: two students may find the
same answer. Code that more than half of the class has, and the course's own code, do not count. Short answers are not
compared, since there are few ways to write them correctly.
"""

import ast
import hashlib
import io
import keyword
import re
import tokenize
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cuda_on_cpu.tokens import blanked
from nnclassroom.judge.python_text import tree

LONGEST = 64 << 10  # characters that are compared of a longer text
RUN, WINDOW = 5, 3  # tokens in a fingerprint; fingerprints in a row, of which the smallest is kept
FEWEST = 20  # fingerprints of a text that is compared
FEWEST_OWN = 6  # of these, that neither the course nor most of the class has
ALIKE = 0.6  # share of the shorter text's fingerprints
LIKE_THE_COURSE = 0.8
FEWEST_OF_COURSE = 40  # fingerprints of the course's own text, from which on it could be written differently
COMMON = 8  # texts, from which on whatever more than half of them have is not counted
TOKEN = re.compile(r"[A-Za-z_]\w*|(?:\d|\.\d)[\w.]*(?:(?<=[eE])[+-]\d+)?|\"(?:\\.|[^\"\\])*\"|\S")
# Words of CUDA C that stay; other names are alike, but for members and for functions that are called, not declared.
NO_TYPES = {"return", "else", "case", "goto", "throw", "new", "delete", "sizeof", "if", "while", "for", "switch"}
LANGUAGE = """
auto bool break char const constexpr continue default do double enum extern false float inline int long namespace
operator short signed static struct template true typedef typename union unsigned using void volatile
__global__ __device__ __shared__ __constant__ __restrict__ __forceinline__ __launch_bounds__
threadIdx blockIdx blockDim gridDim warpSize dim3 float2 float4 int2 int4 uint3 size_t
"""
KEPT_WORDS = NO_TYPES | set(LANGUAGE.split())
NAME = "v"
THE_COURSE, MOST_NAMED = "the course", 3


@dataclass(frozen=True)
class Pair:
    """Two texts of one exercise, and the share of the shorter one that is found in the other."""

    one: str
    other: str
    share: float


@dataclass(frozen=True)
class Comparison:
    """One exercise in a class: pairs of similar texts, and the students whose text is like the course's own."""

    pairs: tuple[Pair, ...]
    of_the_course: Mapping[str, float]  # by student: the share in common
    length: int  # fingerprints of the longest text that is similar to another; 0 if none is

    def groups(self) -> list[tuple[str, ...]]:
        """Groups of students connected by pairs, the largest group first."""
        group: dict[str, set[str]] = {}
        for pair in self.pairs:
            joined = group.get(pair.one, {pair.one}) | group.get(pair.other, {pair.other})
            group |= dict.fromkeys(joined, joined)
        return sorted({tuple(sorted(each)) for each in group.values()}, key=lambda names: (-len(names), names))

    def said_of(self, student: str) -> str:
        """The students with a text similar to this student's, with per cent; "" if there are none."""
        own = [(pair.share, pair.one if pair.other == student else pair.other) for pair in self.of(student)]
        own += [(self.of_the_course[student], THE_COURSE)] if student in self.of_the_course else []
        own.sort(key=lambda each: (-each[0], each[1]))
        named = [f"{name} {100 * share:.0f} %" for share, name in own[:MOST_NAMED]]
        return ", ".join([*named, *([f"and {len(own) - MOST_NAMED} more"] if len(own) > MOST_NAMED else [])])

    def of(self, student: str) -> list[Pair]:
        return [pair for pair in self.pairs if student in (pair.one, pair.other)]


NOT_COMPARED = Comparison((), {}, 0)


def compared(texts: Mapping[str, str], cuda: bool, solution: str = "") -> Comparison:
    """Compare the texts of one exercise, by student, with each other and with the course's."""
    marks = {student: fingerprints(text, cuda) for student, text in texts.items()}
    marks = {student: own for student, own in marks.items() if len(own) >= FEWEST}
    course = fingerprints(solution, cuda) if solution else frozenset()
    like = {student: _share(own, course) for student, own in marks.items()} if len(course) >= FEWEST_OF_COURSE else {}
    like = {student: share for student, share in like.items() if share >= LIKE_THE_COURSE}
    distinct = set(marks.values())
    counts = Counter(mark for own in distinct for mark in own)
    common = {mark for mark, count in counts.items() if len(distinct) >= COMMON and count > len(distinct) / 2}
    rest = {student: own - course - common for student, own in marks.items() if student not in like}
    rest = {student: own for student, own in rest.items() if len(own) >= FEWEST_OWN}
    names = sorted(rest)
    pairs = [
        Pair(one, other, share)
        for place, one in enumerate(names)
        for other in names[place + 1 :]
        if (share := _share(rest[one], rest[other])) >= ALIKE
    ]
    return Comparison(
        tuple(pairs), like, max((len(marks[name]) for p in pairs for name in (p.one, p.other)), default=0)
    )


def _share(one: frozenset[int], other: frozenset[int]) -> float:
    return len(one & other) / max(1, min(len(one), len(other)))


def fingerprints(text: str, cuda: bool) -> frozenset[int]:
    """The text's fingerprints: the smallest hash of every WINDOW consecutive runs of RUN tokens."""
    words = tokens(text[:LONGEST], cuda)
    runs = [_hash(words[place : place + RUN]) for place in range(len(words) - RUN + 1)]
    return frozenset(min(runs[place : place + WINDOW]) for place in range(len(runs) - WINDOW + 1))


def _hash(words: Sequence[str]) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(words).encode("utf-8", "replace"), digest_size=8).digest())


def tokens(text: str, cuda: bool) -> list[str]:
    """The tokens without comments. One name replaces all names that the text itself defines."""
    try:
        return _of_cuda(text) if cuda else _of_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):  # no Python, or too deep
        return TOKEN.findall(text)


def _of_python(text: str) -> list[str]:
    """The tokens of the text as Python itself writes it, without docstrings, annotations and `pass`."""
    parsed = tree(text)
    own = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            own.add(node.id)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.alias):
            own.add(node.asname or node.name)
    plain = ast.unparse(_Plain().visit(parsed))
    kinds = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)
    read = [each for each in tokenize.generate_tokens(io.StringIO(plain).readline) if each.type in kinds]
    return [NAME if each.string in own and not keyword.iskeyword(each.string) else each.string for each in read]


class _Plain(ast.NodeTransformer):
    """A tree without the statements that do nothing."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:  # noqa: N802
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:  # noqa: N802
        made = ast.Pass() if node.value is None else ast.Assign([node.target], node.value)
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def visit_Expr(self, node: ast.Expr) -> ast.AST:  # noqa: N802
        made = ast.Pass() if isinstance(node.value, ast.Constant) else node
        return ast.copy_location(made, node)


def _of_cuda(text: str) -> list[str]:
    """The tokens of the text without comments."""
    read = TOKEN.findall(blanked(text, strings=False))
    around = list(zip(["", *read], read, [*read[1:], ""], strict=False))
    declared = {here for before, here, after in around if after == "(" and _is_type(before)}
    words = []
    for before, here, after in around:
        is_name = re.match(r"[A-Za-z_]", here) and here not in KEPT_WORDS and before not in (".", ">")
        words.append(NAME if is_name and (after != "(" or here in declared) else here)
    return words


def _is_type(word: str) -> bool:
    return word in ("*", "&", ">") or bool(re.fullmatch(r"[A-Za-z_]\w*", word)) and word not in NO_TYPES
