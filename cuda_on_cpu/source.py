"""Parse .cu text: its kernels and their parameters are read from the text, so that nothing is declared twice."""

import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cuda_on_cpu.conditions import NotReadError, value
from cuda_on_cpu.declarations import Declarations, Kernel, between_commas, declarations, without_attributes
from cuda_on_cpu.errors import CudaCompileError, UserError
from cuda_on_cpu.preprocessor import Left, Preprocessor
from cuda_on_cpu.spelling import closings, never_read
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.tokens import Token, spelt

# The NumPy type of each C type that a parameter may have.
DTYPES = {"float": "float32", "double": "float64", "bool": "bool", "signed char": "int8", "unsigned char": "uint8"}
DTYPES |= {"int": "int32", "unsigned int": "uint32", "long long": "int64", "unsigned long long": "uint64"}
# Words of a type come in any order: they are sorted as in INTEGERS.
OTHER_SPELLINGS = {
    "char": "signed char",
    "unsigned": "unsigned int",
    "signed": "int",
    "signed int": "int",
    "int long long": "long long",
    "signed long long": "long long",
    "signed int long long": "long long",
    "unsigned int long long": "unsigned long long",
    "size_t": "unsigned long long",
}

# Words of a parameter that say nothing about its type.
SILENT = ("__restrict__", "__restrict", "volatile", "__grid_constant__", "register", "struct", "typename")
UNREAD = {"(": "a pointer to a function", "<": "a template", "&": "a reference", ":": "a name with ::", ".": "…"}
INTEGERS = ("signed", "unsigned", "char", "short", "int", "long")
MOST_NAMES = 16  # of types, each of which stands for the next


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: `const float* A` is Parameter("A", "float", pointer=True, const=True)."""

    name: str
    ctype: str
    pointer: bool
    const: bool

    @functools.cached_property
    def dtype(self) -> np.dtype:
        """The NumPy type of the scalar, or of the array's elements."""
        return np.dtype(DTYPES[self.ctype])

    def __str__(self) -> str:
        return f"{'const ' * self.const}{self.ctype}{'*' * self.pointer} {self.name}"


def kernels_in(source: CudaSource) -> tuple[str, ...]:
    """The names of all `extern "C" __global__ void` functions, in order, also of those in an `extern "C"` block."""
    kernels = _read(source).declared.kernels.values()
    return tuple(kernel.name for kernel in kernels if not _problem(kernel))


@functools.lru_cache(maxsize=512)
def parameters(source: CudaSource, function: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel, as its text declares them. Raises UserError, also if it has no such kernel."""
    if function not in kernels_in(source):
        refuse_misspelt(source)
        there = ", ".join(kernels_in(source)) or "none"
        wanted = f'{source.file}: expected a kernel: extern "C" __global__ void {function}(...)'
        raise UserError(f"{wanted}; kernels there are: {there}{_why_not(source, function)}")
    declared = _read(source).declared
    listed = between_commas(declared.kernels[function].parameters)
    if [spelt(words) for words in listed] == ["void"]:
        return ()
    return tuple(_parameter(words, declared.types, f"{source.file}: {function}") for words in listed)


@functools.lru_cache(maxsize=512)
def numbers_of(source: CudaSource, function: str, attribute: str) -> tuple[int, ...]:
    """The numbers of a kernel's attribute, such as `__launch_bounds__(256, 1)`; () without it, or for names."""
    head = _read(source).declared.kernels[function].head
    at = next((number for number, word in enumerate(head) if word.text == attribute), None)
    if at is None:
        return ()
    depth, end = 0, at + 1
    while end < len(head) and (depth := depth + {"(": 1, ")": -1}.get(head[end].text, 0)):
        end += 1
    listed = between_commas(head[at + 2 : end])
    if any(word.kind == "name" for words in listed for word in words):
        return ()
    with contextlib.suppress(NotReadError):
        return tuple(value(words) for words in listed)
    return ()


def line_of(source: CudaSource, function: str) -> int:
    """The line of the text in which a kernel's name is declared, counted from 1."""
    return _read(source).declared.kernels[function].line


def has_empty_kernel(source: CudaSource) -> bool:
    """Whether the text has kernels, and no code in their bodies. False for a text that cannot be read."""
    try:
        reading = _read(source)
    except UserError:
        return False
    empty = [kernel.is_empty for kernel in reading.declared.kernels.values() if kernel.has_body]
    return bool(empty) and all(empty) and not reading.mistake


@functools.lru_cache(maxsize=128)
def constant_arrays(source: CudaSource) -> dict[str, int]:
    """The arrays `__constant__ float filters[SIZE]` of a text: name -> elements. SIZE is a number, or of numbers."""
    found = {}
    for ctype, name, sizes in _read(source).declared.constants:
        with contextlib.suppress(NotReadError):
            if ctype == "float" and not any(word.kind == "name" for size in sizes for word in size):
                found[name] = math.prod(value(size) for size in sizes)
    return found


@dataclass(frozen=True)
class _Reading:
    """What a text declares, and what makes it no C++ if anything does."""

    declared: Declarations
    mistake: CudaCompileError | None


@functools.lru_cache(maxsize=128)
def _read(source: CudaSource) -> _Reading:
    *before, left = _preprocessed(source)
    types: dict[str, Sequence[Token]] = {}
    for other in before:
        types |= declarations(other.words, closings(other.words, "")[0]).types
    closed, mistake = closings(left.words, source.file)
    declared = declarations(left.words, closed)
    declared.types = types | declared.types
    return _Reading(declared, never_read(source.text, source.file) or left.mistake or mistake)


def _preprocessed(source: CudaSource) -> list[Left]:
    """What the preprocessor leaves of the texts before, and of the text itself."""
    preprocessor = Preprocessor(source.defines)
    return [preprocessor.read(each.text, each.file) for each in (*source.before, source)]


def refuse_misspelt(source: CudaSource) -> None:
    """CudaCompileError for a text that is no C++, whatever it says; spelling.py says it more clearly than compilers."""
    if mistake := _read(source).mistake:
        raise CudaCompileError(str(mistake))


def _problem(kernel: Kernel) -> str:
    """Why a kernel cannot be launched by its name; "" if it can."""
    if kernel.problem:
        return kernel.problem
    if not kernel.c_linkage:
        return 'lacks extern "C" before __global__'
    return "" if kernel.has_body else "is declared, but has no body"


def _why_not(source: CudaSource, function: str) -> str:
    """Why a kernel that the text seems to have is not there: it is left out, or declared otherwise; "" if unknown."""
    kernels = _read(source).declared.kernels
    others = [kernel for kernel in kernels.values() if _problem(kernel)]
    if near := kernels.get(function) or (others[0] if len(others) == len(kernels) and others else None):
        return f"; {near.name} in line {near.line} {_problem(near)}"
    for start, words in _preprocessed(source)[-1].out:
        if named := [word for word in words if word.text == function] or [w for w in words if w.text == "__global__"]:
            left_out = f"{named[0].text} in line {named[0].line}"
            return f"; {left_out} is left out by the #{start.text} in line {start.line}"
    if not kernels and "__global__" in source.text:
        return "; __global__ is in comments or strings only"
    return ""


def _parameter(words: Sequence[Token], types: Mapping[str, Sequence[Token]], where: str) -> Parameter:
    """A parameter from its tokens; UserError for a form that is not read."""
    text = spelt(words)[:80]
    plain = without_attributes(words)
    end = next((number for number, word in enumerate(plain) if word.text == "="), len(plain))
    plain = [word for word in plain[:end] if word.text not in SILENT]
    brackets = next((number for number, word in enumerate(plain) if word.text == "["), len(plain))
    plain, sizes = plain[:brackets], plain[brackets:]
    if len(plain) > 3 and plain[-3].text == "(" and plain[-1].text == ")":
        plain = [*plain[:-3], plain[-2]]  # its name in brackets
    unread = next((UNREAD[word.text] for word in plain if word.text in UNREAD), "")
    ctype, names = plain[:-1], plain[-1:]
    names = [word for word in names if word.kind == "name" and word.text not in (*INTEGERS, *DTYPES, *types, "const")]
    if unread or not names or not ctype:
        why = f": {unread} is not read here" if unread else ": it has no name" if plain and not names else ""
        raise UserError(f"{where}: expected a parameter such as `const float* A` or `int n`, got `{text}`{why}")
    found = _type(ctype, types)
    stars = found.stars + bool(sizes) if found else 0
    if not found or stars > 1 or sum(word.text == "[" for word in sizes) > 1:
        raise UserError(f"{where}: expected a type that can be passed, {', '.join(DTYPES)} or a * to one; got `{text}`")
    return Parameter(names[0].text, found.ctype, stars == 1, found.const)


class _Type(NamedTuple):
    ctype: str
    stars: int
    const: bool  # the numbers, not the pointer


def _type(words: Sequence[Token], types: Mapping[str, Sequence[Token]], depth: int = 0) -> _Type | None:
    """A type from its tokens; None if numbers of it cannot be passed."""
    texts = [word.text for word in words if word.text not in SILENT]
    pointed = texts.index("*") if "*" in texts else len(texts)
    base = [text for text in texts[:pointed] if text != "const"]
    stars = texts.count("*")
    const = "const" in texts[:pointed]
    if set(texts[pointed:]) - {"*", "const"} or depth > MOST_NAMES:
        return None
    if len(base) == 1 and base[0] in types:
        named = _type(types[base[0]], types, depth + 1)
        return named and _Type(named.ctype, named.stars + stars, named.const or (const and not named.stars))
    ctype = " ".join(sorted(base, key=INTEGERS.index)) if set(base) <= set(INTEGERS) else " ".join(base)
    ctype = OTHER_SPELLINGS.get(ctype, ctype)
    return _Type(ctype, stars, const) if ctype in DTYPES else None
