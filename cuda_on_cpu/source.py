"""Parse .cu text: its kernels and their parameters are read from the text, so that nothing is declared twice."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cuda_on_cpu.errors import UserError, reason_of

# The NumPy type of each C type that a parameter may have.
DTYPES = {"float": "float32", "double": "float64", "bool": "bool", "signed char": "int8", "unsigned char": "uint8"}
DTYPES |= {"int": "int32", "unsigned int": "uint32", "long long": "int64", "unsigned long long": "uint64"}
OTHER_SPELLINGS = {
    "char": "signed char",
    "unsigned": "unsigned int",
    "long long int": "long long",
    "unsigned long long int": "unsigned long long",
    "size_t": "unsigned long long",
}

# NVRTC has no <math.h> to define these two.
PRELUDE = """#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
"""

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
ATTRIBUTE = re.compile(
    r"(?:__launch_bounds__|__cluster_dims__)\s*\((?:[^()]|\([^()]*\))*\)|\b(?:__restrict__|__restrict|volatile)\b"
)
KERNEL = re.compile(r'(extern\s*"C"\s*)?__global__\s+void\s+(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)')
BLOCK = re.compile(r'extern\s*"C"\s*\{')
# Names that a text gives to types: `#define REAL float`, `typedef float real;`, `using real = float;`.
TYPE = r"\w+(?:[ \t]+\w+)*[ \t]*\*?"
NAMED_TYPES = (
    re.compile(rf"^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)[ \t]+(?P<type>{TYPE})[ \t]*$", re.MULTILINE),
    re.compile(rf"\btypedef\s+(?P<type>{TYPE})[ \t]*\b(?P<name>\w+)\s*;"),
    re.compile(rf"\busing\s+(?P<name>\w+)\s*=\s*(?P<type>{TYPE})\s*;"),
)
CONSTANTS = re.compile(r"\b__constant__\s+float\s+(?P<name>\w+)\s*\[\s*(?P<size>\w+)\s*\]")
PARAMETER = re.compile(
    r"(?P<type>[\w\s]+?)\s*(?P<stars>[*\s]*)(?:\bconst\b)?\s*\b(?P<name>\w+)\s*(?P<brackets>\[\s*\])?"
)


@dataclass(frozen=True)
class CudaSource:
    """A .cu text, its file name for messages, its constants ("ALPHA=0.01f"), and texts that are placed before it.

    Device functions shared by several texts are placed `before` each of them rather than included, because a compiler's
    cache on disk does not notice when an included file changes.
    """

    text: str
    file: str
    defines: tuple[str, ...] = ()
    before: tuple["CudaSource", ...] = ()

    def __hash__(self) -> int:
        return hash((self.text, self.file))  # needed at every launch; fast, because Python caches a string's hash

    @staticmethod
    def read(path: Path, defines: tuple[str, ...] = (), before: tuple["CudaSource", ...] = ()) -> "CudaSource":
        """The .cu file at `path`, shown as "<its folder>/<its name>"."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: wanted a .cu file, but {reason_of(error)}; check the path") from None
        return CudaSource(text, f"{path.resolve().parent.name}/{path.name}", defines, before)

    def compilable(self) -> str:
        """The text to compile: constants, then the texts, each after a #line so that messages give its own lines."""
        pairs = (define.partition("=") for define in self.defines)
        constants = "".join(f"#define {name} {value or 1}\n" for name, _, value in pairs)
        texts = "".join(f'#line 1 "{source.file}"\n{source.text}\n' for source in (*self.before, self))
        return PRELUDE + constants + texts


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
    return tuple(_signatures(source))


@functools.lru_cache(maxsize=512)
def parameters(source: CudaSource, function: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel, as its text declares them."""
    signatures = _signatures(source)
    if function not in signatures:
        there = ", ".join(signatures) or "none"
        raise UserError(
            f'{source.file}: wanted a kernel: extern "C" __global__ void {function}(...); kernels there are: {there}'
        )
    known = _named_types(source)
    texts = [_with_types(text.strip(), known) for text in signatures[function].split(",")]
    return tuple(_parameter(text, f"{source.file}: {function}") for text in texts if text not in ("", "void"))


def line_of(source: CudaSource, function: str) -> int:
    """The line of the text in which a kernel's name is declared, counted from 1."""
    plain = _plain(source)
    return next(plain.count("\n", 0, match.start("name")) + 1 for match in _kernels(plain) if match["name"] == function)


@functools.lru_cache(maxsize=128)
def constant_arrays(source: CudaSource) -> dict[str, int]:
    """The arrays `__constant__ float filters[SIZE]` of a text: name -> elements. SIZE is a number, or #defined."""
    plain = _plain(source)
    known = dict(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\d+)[ \t]*$", plain, re.MULTILINE))
    sizes = {match["name"]: known.get(match["size"], match["size"]) for match in CONSTANTS.finditer(plain)}
    return {name: int(size) for name, size in sizes.items() if size.isdecimal()}


@functools.lru_cache(maxsize=128)
def _signatures(source: CudaSource) -> dict[str, str]:
    """Kernel name -> the text between its parentheses."""
    return {match["name"]: match["parameters"] for match in _kernels(_plain(source))}


def _kernels(plain: str) -> list[re.Match]:
    """The declarations of all kernels with C linkage in a text without comments."""
    blocks = [(match.end(), _closing(plain, match.end())) for match in BLOCK.finditer(plain)]
    return [match for match in KERNEL.finditer(plain) if match[1] or any(a <= match.start() < b for a, b in blocks)]


def _closing(plain: str, start: int) -> int:
    """The position of the } that closes the { before `start`."""
    depth = 1
    for brace in re.finditer(r"[{}]", plain[start:]):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return start + brace.start()
    return len(plain)


@functools.lru_cache(maxsize=128)
def _named_types(source: CudaSource) -> dict[str, str]:
    """The names that a text, its constants and the texts before it give to types."""
    known = dict(define.split("=", 1) for define in source.defines if "=" in define)
    for text in (*source.before, source):
        for kind in NAMED_TYPES:
            known |= {match["name"]: match["type"].strip() for match in kind.finditer(_plain(text))}
    return known


def _with_types(declaration: str, known: dict[str, str]) -> str:
    """A parameter's declaration with all named types replaced. Its last word is its name."""
    for _ in range(8):  # a name may stand for another
        new = re.sub(r"\b\w+\b(?=[\s*]+\w)", lambda word: known.get(word[0], word[0]), declaration)
        if new == declaration:
            break
        declaration = new
    return declaration


def _plain(source: CudaSource) -> str:
    """The text without comments and attributes; the rest keeps its line numbers."""

    def blank(match: re.Match) -> str:
        return " " + "\n" * match[0].count("\n")

    return ATTRIBUTE.sub(blank, COMMENT.sub(blank, source.text))


def _parameter(text: str, where: str) -> Parameter:
    match = PARAMETER.fullmatch(text)
    if not match:
        raise UserError(f"{where}: wanted a parameter such as `const float* A` or `int n`, got `{text}`")
    words = match["type"].split()
    ctype = " ".join(word for word in words if word != "const")
    ctype = OTHER_SPELLINGS.get(ctype, ctype)
    stars = match["stars"].count("*") + bool(match["brackets"])
    if ctype not in DTYPES or stars > 1:
        raise UserError(f"{where}: wanted a type that can be passed, {', '.join(DTYPES)} or a * to one; got `{text}`")
    return Parameter(match["name"], ctype, stars == 1, "const" in words)
