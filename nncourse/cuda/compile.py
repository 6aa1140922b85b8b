"""From .cu text to a kernel for the GPU (CuPy), or to errors and resources where there is no GPU (NVRTC alone)."""

import atexit
import functools
import io
import re
from dataclasses import dataclass

from nncourse import device
from nncourse.cuda.source import CudaSource, parameters
from nncourse.errors import CourseError

STANDARD = "c++17"
ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<message>.*)$")
PTXAS_ERROR = re.compile(r"^ptxas (?:error|fatal)\s*: (?P<message>.*)$")
# What `ptxas -v` says of a kernel: its name, its stack, its registers and its shared memory if it has some.
USED = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame.*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
    re.DOTALL,
)


class CudaCompileError(CourseError):
    """A .cu text that does not compile: for each error "file:line: error: …", then the source line and a caret."""


@dataclass(frozen=True)
class Resources:
    """What a kernel needs: registers a thread, shared memory a block, and local memory a thread (spilled registers)."""

    registers: int
    shared_bytes: int
    spill_bytes: int


@functools.cache
def why_no_nvrtc() -> str | None:
    """Why CUDA C cannot be compiled on this machine without a GPU; None if it can."""
    try:
        _nvrtc("", "sm_90")
    except ImportError:
        return "NVIDIA's compiler library is not installed here: pip install cuda-core cuda-bindings nvidia-cuda-nvrtc"
    except Exception as error:  # the library's loader has many ways to fail, none of them ours
        return f"NVIDIA's compiler library does not start here ({type(error).__name__})"
    return None


@functools.lru_cache(maxsize=128)
def compile_check(source: CudaSource, arch: str = "sm_90") -> dict[str, Resources]:
    """Compile for a GPU that need not be there; the resources of each kernel, or CudaCompileError."""
    if reason := why_no_nvrtc():
        raise CourseError(f"{source.file}: cannot be compiled for a GPU: {reason}")
    try:
        log = _nvrtc(source.compilable(), arch)
    except Exception as error:
        raise CudaCompileError(readable_errors(str(error), source.file)) from None
    found = USED.findall(log)
    return {name: Resources(int(registers), int(shared or 0), int(stack)) for name, stack, registers, shared in found}


@functools.cache
def gpu_kernel(source: CudaSource, function: str, cooperative: bool = False):
    """The kernel for the GPU, a cupy.RawKernel, compiled at once so that errors come now.

    A `cooperative` one is only launched if all of its blocks fit on the GPU at once, so they may wait for each other.
    """
    import cupy

    parameters(source, function)  # a CourseError if it is not there
    options = {"options": (f"--std={STANDARD}",), "backend": "nvrtc", "enable_cooperative_groups": cooperative}
    kernel = cupy.RawKernel(source.compilable(), function, **options)
    try:
        kernel.compile()
    except cupy.cuda.compiler.CompileException as error:
        raise CudaCompileError(readable_errors(error.get_message(), source.file)) from None
    return kernel


atexit.register(gpu_kernel.cache_clear)  # before CuPy itself is gone, or unloading the kernels prints errors


@functools.lru_cache(maxsize=128)
def refuse_uncompilable(source: CudaSource) -> None:
    """CudaCompileError for what NVRTC refuses. It is not optimised, in a fraction of compile_check's time."""
    try:
        _nvrtc(source.compilable(), "sm_90", debug=True)
    except Exception:  # whatever it is: the way that counts, and has words for it, decides
        compile_check(source)


def resources(source: CudaSource, function: str) -> Resources:
    """What the kernel needs: on this machine's GPU, or on an H100 or H200 where there is none."""
    parameters(source, function)
    if not device.gpu_available():
        return compile_check(source)[function]
    kernel = gpu_kernel(source, function)
    return Resources(kernel.num_regs, kernel.shared_size_bytes, kernel.local_size_bytes)


def readable_errors(log: str, file: str) -> str:
    """The errors of an NVRTC log, each with its source line and caret; the whole log if none is recognised."""
    lines = log.replace("\0", "").splitlines()
    found = []
    for position, line in enumerate(lines):
        if match := ERROR.match(line):
            found.append(f"{match['file']}:{match['line']}: error: {match['message']}")
            found += [excerpt.rstrip() for excerpt in lines[position + 1 : position + 3]]
        elif match := PTXAS_ERROR.match(line):
            found.append(f"{file}: error: {match['message']}")
    return "\n".join(found) if found else f"{file}: error: the compiler says: {log.strip()}"


def _nvrtc(text: str, arch: str, debug: bool = False) -> str:
    """Compile to machine code, for a debugger without optimising it; the assembler's log."""
    from cuda.core import Program, ProgramOptions

    # CuPy compiles with that default too: a lambda inside a kernel is then a device function.
    # A result from its cache would come without the log.
    more = {"device_as_default_execution_space": True, "ptxas_options": ["-v"], "no_cache": True, "debug": debug}
    options = ProgramOptions(arch=arch, std=STANDARD, name="kernels.cu", **more)
    log = io.StringIO()
    Program(text, "c++", options).compile("cubin", logs=log)
    return log.getvalue()
