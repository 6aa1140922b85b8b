"""Compile a whole CUDA C++ program, host side and kernels: by nvcc for the GPU, or by g++ to emulate it on the CPU.

The emulation is for programs without barriers and warp functions; host_on_cpu.h defines what they may use.
"""

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from cuda_on_cpu.cache import is_there, remove_unused
from cuda_on_cpu.errors import MissingToolError, UserError, first_words, write_atomically
from cuda_on_cpu.host_compiler import compiled, cpp_compiler, kept
from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.text import CudaSource

STAND_IN = Path(__file__).with_name("host_on_cpu.h")
LAUNCH = re.compile(r"(?P<kernel>\w+)\s*<<<(?P<sizes>[^;]*?)>>>\s*\((?P<arguments>[^;]*)\);")
FLAGS = ("-std=c++17", "-O1", "-g1", "-w", "-no-pie", "-fsanitize=address")
FOR_GPU = ("-std=c++17", "-O2")


def nvcc() -> list[str]:
    """The command of NVIDIA's compiler: the environment variable NVCC, or nvcc; [] if it is not installed."""
    command = shlex.split(os.environ.get("NVCC", "")) or ["nvcc"]
    return command if shutil.which(command[0]) else []


def program_for(source: CudaSource, defines: Sequence[str] = (), on_gpu: bool = False, *options: str) -> Path:
    """The path of the compiled program, which is cached. `options` are added to those of nvcc, such as -arch=native.

    UserError if it does not compile, MissingToolError if there is no compiler.
    """
    more = [f"-D{define}" for define in defines]
    if on_gpu:
        compiler, text, flags = nvcc() or ["nvcc"], source.text, [*FOR_GPU, *options, *more]
    else:
        compiler, text, flags = cpp_compiler(), emulated(source), [*FLAGS, *more]
    if not on_gpu and (reason := why_no_compiler()):
        raise MissingToolError(f"{source.file}: {reason}")
    if not shutil.which(compiler[0]):
        raise MissingToolError(f"{source.file}: expected NVIDIA's compiler nvcc, got none; install a CUDA toolkit")
    program = kept("host_programs", "", compiler, text, *flags)
    if not is_there(program):
        write_atomically(program, lambda new: _build(source, text, compiler, flags, on_gpu, new))
        remove_unused(program.parent)
    return program


def emulated(source: CudaSource) -> str:
    """The text as plain C++: after the stand-in, and with calls instead of launches. Lines keep their numbers."""

    def call(match: re.Match[str]) -> str:
        return f"host_on_cpu::launch({match['sizes']}, [&] {{ {match['kernel']}({match['arguments']}); }});"

    return f'{STAND_IN.read_text("utf-8")}\n#line 1 "{source.file}"\n{LAUNCH.sub(call, source.text)}'


def _build(
    source: CudaSource, text: str, compiler: Sequence[str], flags: Sequence[str], on_gpu: bool, program: Path
) -> None:
    name = Path(source.file).name if on_gpu else "program.cpp"
    (program.parent / name).write_text(text, encoding="utf-8")
    result = compiled(compiler, [*flags, name, "-o", program.name], program.parent)
    if result.returncode:
        said = next((line for line in result.stderr.splitlines() if "error" in line), result.stderr)
        raise UserError(f"{source.file} does not compile: {first_words(said)}")
