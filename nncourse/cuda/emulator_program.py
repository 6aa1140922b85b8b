"""Generate, compile and cache the program that emulates the kernels of one .cu text on the CPU.

What all programs share is compiled once for each way of watching, and kept too: an object file to link with, and
cuda_on_cpu.h in the form that g++ reads fastest. The name of each kept file is a hash of all it was made of, the
compiler and its options included: so none is ever out of date, and all processes may share the folders.
"""

import contextlib
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nncourse.cuda.compile import CudaCompileError, refuse_uncompilable, why_no_nvrtc
from nncourse.cuda.source import CudaSource, kernels_in
from nncourse.errors import CourseError, write_atomically

FOLDER = Path(__file__).parent
HEADERS = sorted(FOLDER.glob("cuda_on_cpu*.h"))
# -no-pie: the sanitizer of older compilers fails at random if the program is loaded at a random address
# -gdwarf-4: in the newer form addr2line may take the .cu text, the first file of its kind, for kernels.cpp
FLAGS = shlex.split("-std=c++17 -O1 -g1 -gdwarf-4 -w -fno-strict-aliasing -fwrapv -no-pie")
FLAGS += shlex.split("-fmax-errors=20 -fno-diagnostics-show-caret")
# A misaligned access, such as a float4 at an address that is not a multiple of 16, is an error on a GPU but not on a
# CPU. These flags make it trap on the CPU too.
FOR_MEMORY = shlex.split("-fsanitize=address -fsanitize-sections=cuda_shared")
FOR_MEMORY += shlex.split("-fsanitize=alignment -fsanitize-undefined-trap-on-error")
# -O0: otherwise the racing access may be optimised away. Not passed to the linker: cuda_on_cpu_races.h replaces TSan,
# and must not be instrumented itself.
FOR_RACES = shlex.split("-O0 -fsanitize=thread -fno-threadsafe-statics -DCUDA_ON_CPU_RACES")
SHARED_FOR_RACES = shlex.split("-O2 -DCUDA_ON_CPU_RACES")
UNUSED_DAYS = 30  # programs unused for this many days are removed

ALIGN = r"(?:__align__\s*\(\s*\d+\s*\)\s*)?"
DYNAMIC_SHARED = re.compile(rf"extern\s+{ALIGN}__shared__\s+{ALIGN}([\w\s]+?)\s*\b(\w+)\s*\[\s*\]\s*;")
GXX_ERROR = re.compile(r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<message>.*)$")


def why_no_compiler() -> str | None:
    """Why there is no C++ compiler to use; None if there is one."""
    if not sys.platform.startswith("linux"):
        return "the CPU emulator of CUDA runs on Linux only (on Windows: inside WSL)"
    name = _compiler()[0]
    if shutil.which(name):
        return None
    return f"the CPU emulator of CUDA wanted the C++ compiler {name}, got none; install it, or name another in CXX"


def program_for(source: CudaSource, races: bool = False) -> Path:
    """The path of the program for this source; it is compiled unless it is in the cache folder.

    With `races` the program detects races or records accesses, and does not contain AddressSanitizer.
    Raises CudaCompileError if the text does not compile, CourseError if there is no compiler.
    """
    if reason := why_no_compiler():
        raise CourseError(f"{source.file}: {reason}")
    text, options = _program_text(source), [*FLAGS, *(FOR_RACES if races else FOR_MEMORY)]
    program = _kept("emulator", "", text, *options)
    if _is_there(program):
        return program
    if why_no_nvrtc() is None:
        refuse_uncompilable(source)  # first, so that errors are reported as NVIDIA's compiler reports them for a GPU
    to_link = [_shared_object(races), *(() if races else FOR_MEMORY)]
    write_atomically(program, lambda new: _build(new, text, options, to_link, source))
    _remove_unused(program.parent)
    return program


def _kept(folder: str, suffix: str, *made_of: str) -> Path:
    """Where a file is kept that is made of these texts and options, by this compiler, with these headers."""
    headers = [header.read_text() for header in HEADERS]
    key = "\0".join([*made_of, *headers, *_compiler(), said_by(*_compiler(), "--version")])
    return _cache_folder(folder) / (hashlib.sha256(key.encode()).hexdigest()[:32] + suffix)


def _is_there(path: Path) -> bool:
    """Whether a file is kept. If so, it is marked as used."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _shared_object(races: bool) -> Path:
    """What all programs share, compiled."""
    options = [*FLAGS, *(SHARED_FOR_RACES if races else FOR_MEMORY), "-x", "c++", "-c"]
    path = _kept("emulator_parts", ".o", "cuda_on_cpu_program.h", *options)
    if not _is_there(path):
        write_atomically(path, lambda new: _succeed(*options, FOLDER / "cuda_on_cpu_program.h", "-o", new))
        _remove_unused(path.parent)
    return path


def _prepared_header(*options: str) -> Path:
    """A copy of cuda_on_cpu.h. If g++ can, beside it lies what g++ reads in its place, in a third of the time."""
    path = _kept("emulator_parts", ".h", "cuda_on_cpu.h", *options)
    prepared = path.with_suffix(".h.gch")
    if not (_is_there(path) and _is_there(prepared)):
        write_atomically(path, lambda new: shutil.copyfile(FOLDER / "cuda_on_cpu.h", new))
        with contextlib.suppress(CourseError):
            write_atomically(prepared, lambda new: _succeed(*options, "-x", "c++-header", path, "-o", new))
    return path


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "")) or ["g++"]


@functools.lru_cache(maxsize=256)
def said_by(*command: str | Path) -> str:
    """The output of a command; "" if it is not installed (addr2line and nm come with g++'s linker)."""
    if not shutil.which(command[0]):
        return ""
    return _run(command).stdout


def _run(command: Sequence[str | Path], **options) -> subprocess.CompletedProcess:
    """Run a command with empty stdin, which addr2line would otherwise read. Raises CourseError if it cannot be run."""
    try:
        nothing = subprocess.DEVNULL
        return subprocess.run(command, stdin=nothing, capture_output=True, text=True, errors="replace", **options)
    except OSError as error:
        reason = f"{command[0]} cannot be run: {error.strerror}"
        raise CourseError(f"{reason}; install g++, or name another C++ compiler in CXX") from None


def _program_text(source: CudaSource) -> str:
    """The C++ text: the .cu text, and a function that calls its kernels by number."""
    cases = "".join(
        f"        case {number}: return cuda_on_cpu::apply({name}, slots);\n"
        for number, name in enumerate(kernels_in(source))
    )
    return (
        "namespace {\n"  # otherwise GCC cannot place a __shared__ array of a template or inline function in a section
        f"{DYNAMIC_SHARED.sub(_pointer_to_dynamic_shared, source.compilable())}"
        "ROOM_AFTER_SHARED_MEMORY\n"
        "}\n"
        '#line 1 "main.cpp"\n'
        f"void cuda_on_cpu_call(int function, void** slots) {{\n    switch (function) {{\n{cases}    }}\n}}\n"
    )


def _pointer_to_dynamic_shared(declaration: re.Match) -> str:
    """Replace `extern __shared__ float tile[];`, which is not C++, by a pointer to the memory reserved for it."""
    ctype, name = declaration.groups()
    lines = "\n" * declaration[0].count("\n")  # later lines keep their numbers
    return f"{ctype}* const {name} = reinterpret_cast<{ctype}*>(cuda_on_cpu::dynamic_shared);{lines}"


def _build(program: Path, text: str, options: list[str], to_link: list[str | Path], source: CudaSource) -> None:
    """Compile and link in the program's folder. Raises CudaCompileError."""
    folder = program.parent
    (folder / "kernels.cpp").write_text(text, encoding="utf-8")
    # Some compilers make a prepared header and then refuse it: they read the header itself.
    for header in (_prepared_header(*options), FOLDER / "cuda_on_cpu.h"):
        result = _compile([*options, "-include", header, "-c", "kernels.cpp", "-o", "kernels.o"], folder)
        if not result.returncode:
            result = _compile([*FLAGS, "kernels.o", *to_link, "-o", program.name], folder)
            break
    if result.returncode:
        raise CudaCompileError(_readable_errors(result.stderr, source))


def _compile(options: Sequence[str | Path], folder: Path | None = None) -> subprocess.CompletedProcess:
    """Run the compiler, which is told to speak English."""
    return _run([*_compiler(), *options], cwd=folder, env=os.environ | {"LC_ALL": "C"})


def _succeed(*options: str | Path) -> None:
    """Run the compiler; a CourseError where it fails."""
    result = _compile(options)
    if result.returncode:
        raise CourseError(f"{_compiler()[0]} cannot compile the CPU emulator of CUDA: {result.stderr.strip()}")


def _readable_errors(log: str, source: CudaSource) -> str:
    """The errors of g++ in the format of compile.py: file, line and message, then the source line and a caret."""
    lines = source.text.splitlines()
    found = []
    for match in filter(None, map(GXX_ERROR.match, log.splitlines())):
        found.append(f"{match['file']}:{match['line']}: error: {match['message']}")
        if match["file"] == source.file and int(match["line"]) <= len(lines):
            found += ["  " + lines[int(match["line"]) - 1], "  " + " " * (int(match["column"]) - 1) + "^"]
    return "\n".join(found) if found else f"{source.file}: error: the C++ compiler says: {log.strip()}"


def lines_before(return_addresses: Sequence[int], program: Path, source: CudaSource) -> list[int]:
    """The .cu lines of the calls with these return addresses; 0 where unknown."""
    answer = said_by("addr2line", "-i", "-a", "-e", program, *(hex(address - 1) for address in return_addresses))
    frames = re.split(r"^0x[0-9a-f]+\n", answer, flags=re.MULTILINE)[1:]  # -a prints each address before its frames
    return [line_in(text, source) for text in frames] or [0] * len(return_addresses)


def line_in(report: str, source: CudaSource) -> int:
    """The first .cu line named in a report, which is the innermost if functions were inlined; 0 if there is none."""
    match = re.search(re.escape(source.file) + r":(\d+)", report)
    return int(match[1]) if match else 0


def _cache_folder(name: str) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nncourse" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(f"{folder}: cannot keep programs there: {error.strerror}; set XDG_CACHE_HOME") from None
    return folder


def _remove_unused(folder: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 86400
    for program in folder.iterdir():
        if program.is_file() and program.stat().st_mtime < oldest:
            program.unlink(missing_ok=True)
