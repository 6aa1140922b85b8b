"""Find what a .cu text declares outside of functions: kernels, names for types, arrays in constant memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cuda_on_cpu.tokens import Token

# Words with brackets that say nothing about a type or a name.
ATTRIBUTES: tuple[str, ...] = (
    "__attribute__",
    "__attribute",
    "__declspec",
    "alignas",
    "__align__",
    "__launch_bounds__",
    "noexcept",
)
ATTRIBUTES += ("__cluster_dims__", "__block_size__", "__maxnreg__", "__local_maxnreg__", "decltype")


@dataclass
class Kernel:
    """A `__global__` function: where its name is, its parameters' tokens, and whether it has a body, and code in it.

    `head`: the tokens before its parameters. `problem`: why it cannot be found under its name, or "".
    """

    name: str
    line: int
    parameters: Sequence[Token]
    has_body: bool
    is_empty: bool
    c_linkage: bool
    head: Sequence[Token]
    problem: str = ""


class Constant(NamedTuple):
    """`__constant__ float filters[4][4]`: the type, the name, and the tokens of each size."""

    ctype: str
    name: str
    sizes: tuple[Sequence[Token], ...]


@dataclass
class Declarations:
    kernels: dict[str, Kernel] = field(default_factory=dict)
    types: dict[str, Sequence[Token]] = field(default_factory=dict)
    constants: list[Constant] = field(default_factory=list)

    def add(self, words: Sequence[Token], body: Sequence[Token] | None, scopes: Sequence[str]) -> None:
        """A declaration, up to its body or its semicolon."""
        texts = [word.text for word in words]
        if "__global__" in texts:
            if kernel := _kernel(words, body, scopes):
                self._add_kernel(kernel)
        elif "__constant__" in texts:
            self.constants += _constants(words)
        elif texts[:1] == ["typedef"] and len(words) > 2 and body is None:
            self.types[texts[-1]] = words[1:-1]
        elif texts[:1] == ["using"] and texts[2:3] == ["="]:
            self.types[texts[1]] = words[3:]

    def _add_kernel(self, kernel: Kernel) -> None:
        """A definition takes the place of a declaration before it, and has its linkage."""
        known = self.kernels.get(kernel.name)
        if known:
            kernel.c_linkage |= known.c_linkage
        if known is None or not known.has_body or kernel.c_linkage > known.c_linkage:
            self.kernels[kernel.name] = kernel


def declarations(words: Sequence[Token], closed: Mapping[int, int]) -> Declarations:
    """All declarations of a text without macros. `closed`: the position of each opening bracket's closing one."""
    found = Declarations()
    scopes: list[str] = []  # "C", "C++", "namespace": the blocks that are open here
    position = start = 0
    while position < len(words):
        text = words[position].text
        if position not in closed:
            if text in (";", "}"):
                found.add(words[start:position], None, scopes)
                if text == "}" and scopes:
                    scopes.pop()
                start = position + 1
            position += 1
            continue
        end = closed[position]
        if text == "{":
            head = words[start:position]
            if scope := _scope(head):
                scopes.append(scope)
                end = position
            else:
                found.add(head, words[position + 1 : end], scopes)
            start = end + 1
        position = end + 1
    return found


def _scope(head: Sequence[Token]) -> str:
    """The kind of block that a head opens, "C", "C++" or "namespace"; "" for all others."""
    if head and head[0].text == "extern" and all(word.kind in ("string", "raw") for word in head[1:]):
        return _linkage(head)
    first = next((word.text for word in head if word.text != "inline"), "")
    return "namespace" if first == "namespace" else ""


def _linkage(words: Sequence[Token]) -> str:
    """What follows `extern` in quotes: "C", "C++", or "" for nothing."""
    named, follows = "", False
    for word in words:
        if follows and word.kind in ("string", "raw"):
            quoted = word.text.partition('"')[2][:-1]
            named += quoted.partition("(")[2].rpartition(")")[0] if word.kind == "raw" else quoted
        else:
            follows = word.text == "extern"
    return named


def _kernel(words: Sequence[Token], body: Sequence[Token] | None, scopes: Sequence[str]) -> Kernel | None:
    """The kernel that is declared; None for what has no name before its brackets."""
    groups = _groups(words)
    if not groups:
        return None
    start, end = groups[0]
    name = words[start - 1]
    if len(groups) > 1 and groups[1][0] == end + 1 and end == start + 2:  # its name is in brackets
        name, (start, end) = words[start + 1], groups[1]
    if name.kind != "name":
        return None
    head = [word.text for word in words[:start]]
    linkage = _linkage(words[:start]) or next((scope for scope in reversed(scopes) if scope != "namespace"), "")
    problem = ""
    if "template" in head:
        problem = "is a template: write one for the type that you need"
    elif "namespace" in scopes:
        problem = "is in a namespace: put it outside"
    elif "static" in head:
        problem = "is static, which hides its name: leave static out"
    is_empty = all(word.text in "{};" for word in body or ())
    inside, has_body, c_linkage = words[start + 1 : end], body is not None, linkage == "C"
    return Kernel(name.text, name.line, inside, has_body, is_empty, c_linkage, words[:start], problem)


def _groups(words: Sequence[Token]) -> list[tuple[int, int]]:
    """Where the outermost ( ) of a declaration begin and end, apart from those of attributes."""
    found, depth, square, start = [], 0, 0, 0
    for number, word in enumerate(words):
        if not depth:
            square += {"[": 1, "]": -1}.get(word.text, 0)  # [[attribute(…)]]
        if square or word.text not in ("(", ")"):
            continue
        depth += 1 if word.text == "(" else -1
        if word.text == "(" and depth == 1:
            start = number
        elif word.text == ")" and not depth and start and words[start - 1].text not in ATTRIBUTES:
            found.append((start, number))
    return found


def _constants(words: Sequence[Token]) -> list[Constant]:
    """The arrays of a declaration such as `__constant__ float a[4], b[2][2] = …`."""
    found: list[Constant] = []
    sizes: list[Sequence[Token]] = []
    texts = [word.text for word in words]
    ctype = next((text for text in texts if text not in ("__constant__", "__device__", "static", "const")), "")
    name = ""
    texts += ["]", "="]  # of a bracket that is never closed; and the end
    for position, text in enumerate(texts):
        if text == "[":
            name = name if sizes else texts[position - 1]
            sizes.append(words[position + 1 : texts.index("]", position)])
        elif text in (",", "="):
            found += [Constant(ctype, name, tuple(sizes))] if sizes else []
            sizes = []
            if text == "=":
                break
    return found


def without_attributes(words: Sequence[Token]) -> list[Token]:
    """The tokens without `[[…]]` and without ATTRIBUTES and their brackets."""
    found: list[Token] = []
    hidden: list[str] = []  # brackets of an attribute that are open
    for number, word in enumerate(words):
        after = words[number + 1].text if number + 1 < len(words) else ""
        if hidden:
            hidden += [word.text] if word.text in ("(", "[") else []
            if word.text in (")", "]"):
                hidden.pop()
        elif word.text == after == "[":
            hidden.append("[")
        elif word.text == "(" and number and words[number - 1].text in ATTRIBUTES:
            hidden.append("(")
        elif word.text not in ATTRIBUTES:
            found.append(word)
    return found


def between_commas(words: Sequence[Token]) -> list[Sequence[Token]]:
    """The parts of a list between its outermost commas; none of an empty list."""
    parts: list[list[Token]] = [[]] if words else []
    depth = 0
    for word in words:
        depth += {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1}.get(word.text, 0)
        if word.text == "," and depth <= 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return list(parts)
