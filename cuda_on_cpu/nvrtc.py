"""Compile .cu text with NVIDIA's compiler library NVRTC, for errors and resource usage. No GPU is needed."""

import functools
import io
import itertools
import re
import threading
from dataclasses import dataclass

from cuda_on_cpu.errors import CudaCompileError, MissingToolError, first_words, unmangled
from cuda_on_cpu.source import refuse_misspelt
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.tokens import blanked

STANDARD = "c++17"
ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<message>.*)$")
WARNING = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): warning(?: #\S+)?: (?P<message>.*)$", re.MULTILINE)
PTXAS_ERROR = re.compile(r"^\s*ptxas (?:application ptx input, line \d+; )?(?:error|fatal)\s*: (?P<message>.*)$")
END_ERROR = re.compile(r"^At end of source: (?:catastrophic )?error(?: #\S+)?: (?P<message>.*)$")
EXCERPT = re.compile(r"\s(?!\s*detected during)\s*\S")  # the types of arguments, the line of the text, the caret
NOTE = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): note(?: #\S+)?: (?P<message>.*)$")
# The output of `ptxas -v` for one kernel: name, stack, registers and, if it uses any, shared memory.
USED = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame.*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
    re.DOTALL,
)


# What may be of type double in a text: the word, and a number with a point or an exponent that no f ends.
MAYBE_DOUBLE = re.compile(r"\bdouble\b|(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=[eE][-+]?\d))(?:[eE][-+]?\d+)?(?![\w.])")
# In PTX: a file's number and name, the line that the next instructions are from, and a calculation with doubles.
PTX_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"(?:[^"]*/)?([^"/]+)"', re.MULTILINE)
PTX_LINE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
PTX_DOUBLE = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|min|max|setp)\.[\w.]*f64\b")

_FIRST = threading.Lock()  # of two threads that load the library at the same time, one may find it half loaded


@dataclass(frozen=True)
class Resources:
    """A kernel's resource usage: registers per thread, shared memory per block, local memory per thread (spills)."""

    registers: int
    shared_bytes: int
    spill_bytes: int


def why_no_nvrtc() -> str | None:
    """Why NVRTC cannot compile CUDA C on this machine; None if it can. No GPU is needed."""
    with _FIRST:
        return _why_no_nvrtc()


@functools.cache
def _why_no_nvrtc() -> str | None:
    try:
        _compiled("", "sm_90")
    except ImportError:
        return "NVIDIA's compiler library is not installed here: pip install cuda-core cuda-bindings nvidia-cuda-nvrtc"
    except Exception as error:  # loading the library can fail with many exception types
        return f"NVIDIA's compiler library does not start here ({type(error).__name__})"
    return None


@functools.lru_cache(maxsize=128)
def compile_check(source: CudaSource, arch: str = "sm_90") -> dict[str, Resources]:
    """Compile for the architecture `arch`; no GPU is needed. Returns each kernel's resources.

    Raises CudaCompileError if the text does not compile, MissingToolError if there is no compiler.
    """
    found = USED.findall(_built(source, arch)[1])
    return {name: Resources(int(registers), int(shared or 0), int(stack)) for name, stack, registers, shared in found}


def refuse_uncompilable(source: CudaSource) -> None:
    """CudaCompileError for a text that NVRTC does not compile."""
    if _log(source) is None:
        compile_check(source)  # which decides, and whose error has lines and carets


def warnings(source: CudaSource) -> tuple[str, ...]:
    """NVRTC's warnings, "file:line: warning: …", for a text that compiles. Without NVRTC there are none."""
    log = (_log(source) or "") if why_no_nvrtc() is None else ""
    found = (match for match in WARNING.finditer(log) if match["file"] == source.file)
    return tuple(f"{match['file']}:{match['line']}: warning: {match['message'].strip()}" for match in found)


@functools.lru_cache(maxsize=128)
def _log(source: CudaSource) -> str | None:
    """NVRTC's log; None if it does not compile the text. Not optimised: it takes a fraction of compile_check's time."""
    try:
        return _compiled(source.compilable(), "sm_90", debug=True)[1]
    except Exception:
        return None


def double_lines(source: CudaSource) -> tuple[int, ...]:
    """The lines of a text in which a GPU computes with 64 bits; none without NVRTC, or for a text that has errors."""
    if not MAYBE_DOUBLE.search(blanked(source.text)) or why_no_nvrtc() is not None:
        return ()
    ptx = _ptx(source.compilable())
    own = {number for number, name in PTX_FILE.findall(ptx) if name == source.file.rpartition("/")[2]}
    found, line = set(), 0
    for each in ptx.splitlines():
        if (at := PTX_LINE.match(each)) and at[1] in own:
            line = int(at[2])
        elif line and PTX_DOUBLE.match(each):
            found.add(line)
    return tuple(sorted(found))


def _ptx(text: str) -> str:
    """The text as PTX with line numbers, "" if it does not compile. cuda.core would ask for a driver, for PTX."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
    options = [b"-arch=sm_90", f"-std={STANDARD}".encode(), b"-lineinfo", b"-default-device"]
    nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = b" " * size
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    return ptx.decode(errors="replace")


def readable_errors(log: str, file: str) -> str:
    """The errors of an NVRTC log, each with its source line and caret if it has a line; no codes, and no paths.

    A note on an error gives it the line that it lacks at the end of the text.
    """
    lines = log.replace("\0", "").splitlines()
    found = []
    for position, line in enumerate(lines):
        if match := ERROR.match(line):
            found.append(f"{match['file']}:{match['line']}: error: {match['message']}")
            excerpt = itertools.takewhile(EXCERPT.match, lines[position + 1 : position + 6])
            found += [each.rstrip() for each in excerpt]
        elif match := PTXAS_ERROR.match(line):
            found.append(f"{file}: error: {match['message']}")
        elif match := END_ERROR.match(line):
            note = NOTE.match(lines[position + 1]) if position + 1 < len(lines) else None
            at, more = (f":{note['line']}", f", {note['message']}") if note else ("", "")
            found.append(f"{file}{at}: error: at the end of the text: {match['message']}{more}")
    return unmangled("\n".join(found)) or f"{file}: error: the compiler says: {first_words(log)}"


def machine_code(source: CudaSource, arch: str) -> bytes:
    """The text compiled for the architecture `arch`. Raises as compile_check does."""
    return _built(source, arch)[0]


def _built(source: CudaSource, arch: str) -> tuple[bytes, str]:
    """The machine code and the log of a text, or the errors of compile_check."""
    if reason := why_no_nvrtc():
        raise MissingToolError(f"{source.file}: cannot be compiled for a GPU: {reason}")
    refuse_misspelt(source)
    try:
        return _compiled(source.compilable(), arch)
    except Exception as error:
        raise CudaCompileError(readable_errors(str(error), source.file)) from None


def _compiled(text: str, arch: str, debug: bool = False) -> tuple[bytes, str]:
    """The machine code, and the log: warnings, and ptxas's output. debug: without optimisation."""
    from cuda.core import Program, ProgramOptions

    # device_as_default_execution_space: as CuPy compiles; a lambda inside a kernel is then a device function.
    # no_cache: a cached result would come without the log.
    more = {"device_as_default_execution_space": True, "ptxas_options": ["-v"], "no_cache": True, "debug": debug}
    options = ProgramOptions(arch=arch, std=STANDARD, name="kernels.cu", **more)
    log = io.StringIO()
    made = Program(text, "c++", options).compile("cubin", logs=log)
    return bytes(made.code), log.getvalue()
