"""Generate, compile and cache the program that emulates the kernels of one .cu text on the CPU.

A program watches either for faults in memory accesses or for races. The code that all programs share is compiled once
for each of the two, and cached too: an object file to link with, and cuda_on_cpu.h as a precompiled header.
"""

import contextlib
import functools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from cuda_on_cpu.cache import cache_folder, is_there, remove_unused
from cuda_on_cpu.errors import MissingToolError, UserError, first_words, unmangled, write_atomically
from cuda_on_cpu.host_compiler import compiled, cpp_compiler, kept, run, said_by
from cuda_on_cpu.nvrtc import CudaCompileError, refuse_uncompilable, why_no_nvrtc
from cuda_on_cpu.source import kernels_in, refuse_misspelt
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.tokens import blanked

if sys.platform == "linux":
    import resource

FOLDER = Path(__file__).parent
PARTS = sorted([*FOLDER.glob("cuda_on_cpu*.h"), *FOLDER.glob("cuda_on_cpu*.ld")])
CONFINED = FOLDER / "confined.h"
READ = ("/usr", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/proc")  # by the loader, and for the report on a crash
# -no-pie: the sanitizer of older compilers fails at random if the program is loaded at a random address
# -gdwarf-4: with newer versions addr2line may confuse the .cu text, the first of its files, with kernels.cpp
FLAGS = shlex.split("-std=c++17 -g1 -gdwarf-4 -w -fno-strict-aliasing -fwrapv -no-pie")
# no stack protector: some distributions switch it on, and it calls a function of the C library
FLAGS += shlex.split("-fmax-errors=20 -fno-diagnostics-show-caret -fno-stack-protector")
# For a .cu text. -O0: otherwise a faulty access whose value is not used may be optimised away. -undef and -nostdinc:
# only macros and headers that NVRTC has. The rest: so that cuda_on_cpu.ld can sort the variables.
FOR_TEXT = shlex.split("-O0 -undef -U_GNU_SOURCE -nostdinc -nostdinc++ -ftrack-macro-expansion=0")
FOR_TEXT += shlex.split("-fno-threadsafe-statics -fdata-sections -fno-zero-initialized-in-bss")
LINKED_AS = f"-Wl,-T,{FOLDER / 'cuda_on_cpu.ld'}"
# An uninitialised variable is then never 0 by chance. Compilers before GCC 12 lack it: see PAINTS_STACKS.
PATTERN = "-ftrivial-auto-var-init=pattern"
PAINTS_STACKS = "-DCUDA_ON_CPU_PAINTS_STACKS"
ADDRESSES = 21 << 40  # bytes that AddressSanitizer reserves as it starts: measured, 20 TiB and a little
# A misaligned access, such as a float4 at an address that is not a multiple of 16, is an error on a GPU but not on a
# CPU. These flags make it trap on the CPU too.
FOR_MEMORY = ["-fsanitize=address"]
FOR_MEMORY += shlex.split("-fsanitize=alignment -fsanitize-undefined-trap-on-error")
SHARED_FOR_MEMORY = ["-O1", *FOR_MEMORY]
# Not passed to the linker: cuda_on_cpu_races.h replaces TSan, and must not be instrumented itself.
FOR_RACES = shlex.split("-fsanitize=thread -fsanitize-coverage=trace-pc -DCUDA_ON_CPU_RACES")
SHARED_FOR_RACES = shlex.split("-O2 -DCUDA_ON_CPU_RACES")

# Possessive, and of few words: a long text without an end must not be tried again from each of its words.
ALIGN = r"(?:(?:__align__|alignas)\s*+\([^()]*+(?:\([^()]*+\)\s*+)?\)\s*+)?"
DYNAMIC_SHARED = re.compile(
    rf"\bextern\s++{ALIGN}__shared__\s++{ALIGN}(?P<type>[\w:]++(?:\s++[\w:]++){{0,7}}?)\s++{ALIGN}(?P<name>\w++)"
    r"\s*+\[\s*+\](?P<columns>(?:\s*+\[[^][;]*+\])*+)\s*+;"
)
NO_JOIN = re.compile(r"(\\[ \t\f\v]+)(?=\r?\n)")  # with blanks behind it, a backslash joins lines for g++ only
GXX_ERROR = re.compile(r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<message>.*)$")
GXX_REQUIRED = re.compile(r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+):   required from ")
GXX_UNKNOWN = re.compile(
    r"'(?P<name>\w+)' (?:was not declared|has not been declared|does not name a type|is not a member|not declared)"
    r"|there are no arguments to '(?P<other>\w+)'"
)
UNDEFINED = re.compile(r"undefined reference to `(?:\(anonymous namespace\)::)?(?P<name>[^'\n]+)'")
NO_ASM = "the_emulator_has_no_asm"  # see cuda_on_cpu.h


def why_no_compiler() -> str | None:
    """Why no C++ compiler can be used, or what it makes cannot run; None if all is there."""
    if not sys.platform.startswith("linux"):
        return "the CPU emulator of CUDA runs on Linux only (on Windows: inside WSL)"
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY and allowed < ADDRESSES:
        return (
            "the CPU emulator of CUDA needs an unlimited address space, of which it uses little; here it is limited to "
            f"{allowed / 1e9:,.1f} GB: run `ulimit -v unlimited` before you start Python or Jupyter, or, if the shell "
            "refuses, open a new one or ask who set the limit"
        )
    name = cpp_compiler()[0]
    if shutil.which(name):
        return None
    return (
        f"the CPU emulator of CUDA expected the C++ compiler {name}, got none; install it, on Debian and Ubuntu with "
        "apt install g++, or name another in CXX"
    )


def program_for(source: CudaSource, races: bool = False, sandbox: tuple[str, ...] = ()) -> Path:
    """The path of the program for this source; it is compiled unless it is in the cache folder.

    With `races` the program detects races or records accesses, and does not contain AddressSanitizer. If neither of the
    two programs is cached, both are compiled at the same time, because judging a kernel needs both. `sandbox` is that
    of emulate.run. Raises CudaCompileError if the text does not compile, MissingToolError if there is no compiler.
    """
    if reason := why_no_compiler():
        raise MissingToolError(f"{source.file}: {reason}")
    refuse_misspelt(source)
    text = _program_text(source)
    programs = {kind: _kept("emulator", "", text, *_options(kind)) for kind in (races, not races)}
    there = {kind: is_there(program) for kind, program in programs.items()}
    if not there[races]:
        to_make = {kind: program for kind, program in programs.items() if not there[kind]}
        _make(source, text, to_make, races, sandbox)
    return programs[races]


def _options(races: bool) -> list[str]:
    return [*FLAGS, *FOR_TEXT, *(FOR_RACES if races else FOR_MEMORY)]


def _make(source: CudaSource, text: str, programs: dict[bool, Path], races: bool, sandbox: tuple[str, ...]) -> None:
    """Compile the programs in parallel, and with NVRTC too: its errors, which are those of a GPU, come first."""
    pool = ThreadPoolExecutor(1 + len(programs))
    try:
        accepted = pool.submit(_refuse_what_nvrtc_refuses, source)
        builds = {
            kind: pool.submit(
                write_atomically, program, functools.partial(_build, source, text, kind, sandbox, accepted)
            )
            for kind, program in programs.items()
        }
        accepted.result()
        wait(builds.values())  # for both programs, or the next call would compile the other one again
    finally:
        pool.shutdown(wait=False)
    builds[races].result()
    remove_unused(programs[races].parent)


def _refuse_what_nvrtc_refuses(source: CudaSource) -> None:
    if not why_no_nvrtc():
        refuse_uncompilable(source)


def _kept(folder: str, suffix: str, *made_of: str) -> Path:
    """The path of the cached file made from these texts and options, this compiler and these headers."""
    parts = [part.read_text(encoding="utf-8") for part in PARTS]
    return kept(folder, suffix, cpp_compiler(), *made_of, *parts)


def _shared_object(races: bool) -> Path:
    """The object file that all programs share."""
    paints = [] if _sets_patterns(*cpp_compiler()) else [PAINTS_STACKS]
    options = [*FLAGS, *(SHARED_FOR_RACES if races else SHARED_FOR_MEMORY), *paints, "-x", "c++", "-c"]
    path = _kept("emulator_parts", ".o", "cuda_on_cpu_program.h", *options)
    if not is_there(path):
        write_atomically(path, lambda new: _succeed(*options, FOLDER / "cuda_on_cpu_program.h", "-o", new))
        remove_unused(path.parent)
    return path


def _prepared_header(*options: str) -> Path:
    """A file that includes cuda_on_cpu.h, precompiled if g++ can do so: it is then read in a third of the time."""
    text = f'#include "{FOLDER / "cuda_on_cpu.h"}"\n'
    path = _kept("emulator_parts", ".h", text, *options)
    prepared = path.with_suffix(".h.gch")
    if not (is_there(path) and is_there(prepared)):
        write_atomically(path, lambda new: new.write_text(text, encoding="utf-8"))
        with contextlib.suppress(UserError):
            write_atomically(prepared, lambda new: _succeed(*options, "-x", "c++-header", path, "-o", new))
    return path


def confined() -> list[str]:
    """The beginning of a command line after which a program can only compute: see confined.h."""
    launcher = kept("emulator_parts", "", cpp_compiler(), CONFINED.read_text(encoding="utf-8"))
    if not is_there(launcher):
        write_atomically(launcher, lambda new: _succeed("-x", "c", "-O1", CONFINED, "-o", new))
    libraries = re.search("^libraries: =(.*)", said_by(*cpp_compiler(), "-print-search-dirs"), re.MULTILINE)
    named = [libraries[1] if libraries else "", os.environ.get("LD_LIBRARY_PATH", "")]
    return [str(launcher), *READ, *filter(os.path.isdir, ":".join(named).split(":")), "--"]


@functools.lru_cache(maxsize=8)
def _sets_patterns(*compiler: str) -> bool:
    """Whether the compiler can set uninitialised variables to a pattern."""
    return not run([*compiler, PATTERN, "-E", "-x", "c++", os.devnull]).returncode


def _program_text(source: CudaSource) -> str:
    """The C++ text: the .cu text, and a function that calls its kernels by number."""
    cases = "".join(
        f"        case {number}: return cuda_on_cpu::apply({name}, slots);\n"
        for number, name in enumerate(kernels_in(source))
    )
    return (
        "namespace {\n"  # so that a text may have names that the libraries have too
        f"{_with_pointers(source.compilable())}"
        "}\n"
        '#line 1 "main.cpp"\n'
        f"void cuda_on_cpu_call(int function, void** slots) {{\n    switch (function) {{\n{cases}    }}\n}}\n"
    )


def _with_pointers(text: str) -> str:
    """The text with pointers in place of dynamic shared memory, and with lines that end as NVRTC ends them."""
    parts, position = [], 0
    for declaration in DYNAMIC_SHARED.finditer(blanked(text)):
        parts += [text[position : declaration.start()], _pointer_to_dynamic_shared(declaration)]
        position = declaration.end()
    return NO_JOIN.sub(r"\1.", "".join([*parts, text[position:]]))


def _pointer_to_dynamic_shared(declaration: re.Match[str]) -> str:
    """Replace `extern __shared__ float tile[];`, which is not C++, by a pointer to the memory reserved for it."""
    ctype, name, columns = declaration["type"], declaration["name"], declaration["columns"]
    lines = "\n" * (declaration[0].count("\n") - 2 * columns.count("\n"))  # later lines keep their numbers
    pointer = f"({{}}){columns}" if columns else "{}"
    return (
        f"{ctype} {pointer.format(f'* const {name}')} = "
        f"reinterpret_cast<{ctype} {pointer.format('*')}>(cuda_on_cpu::dynamic_shared);{lines}"
    )


def inside(sandbox: tuple[str, ...], folder: str | Path) -> list[str]:
    """The beginning of a command line in a sandbox in which the folder may be written to."""
    return [part.replace("{folder}", str(folder)) for part in sandbox]


def _build(
    source: CudaSource, text: str, races: bool, sandbox: tuple[str, ...], accepted: Future[Any], program: Path
) -> None:
    """Compile and link in the program's folder. CudaCompileError, also if NVRTC has not `accepted` the text."""
    folder, options = program.parent, _options(races)
    if _sets_patterns(*cpp_compiler()):
        options.append(PATTERN)
    (folder / "kernels.cpp").write_text(text, encoding="utf-8")
    to_link = [LINKED_AS, _shared_object(races), *(() if races else FOR_MEMORY)]
    before = inside(sandbox, folder)
    # Some compilers refuse the header that they have precompiled; they get the header itself.
    for header in (_prepared_header(*options), FOLDER / "cuda_on_cpu.h"):
        result = compiled(
            cpp_compiler(), [*options, "-include", header, "-c", "kernels.cpp", "-o", "kernels.o"], folder, before
        )
        if not result.returncode:
            _refuse_host_functions(folder / "kernels.o", source)
            result = compiled(cpp_compiler(), [*FLAGS, "kernels.o", *to_link, "-o", program.name], folder, before)
            break
    accepted.result()
    if result.returncode:
        raise _compile_error(result.stderr, source)


def _succeed(*options: str | Path) -> None:
    """Run the compiler; UserError if it fails."""
    result = compiled(cpp_compiler(), options)
    if result.returncode:
        raise UserError(f"{cpp_compiler()[0]} cannot compile the CPU emulator of CUDA: {first_words(result.stderr)}")


def _refuse_host_functions(compiled: Path, source: CudaSource) -> None:
    """CudaCompileError if a text that NVRTC has not checked calls a function that only a CPU has, such as system()."""
    if why_no_nvrtc() is None or not shutil.which("nm"):
        return
    needed = set(run(["nm", "-u", "-P", compiled]).stdout.split()[::2])
    for name in sorted(needed - _functions_of_a_gpu()):
        if not re.match(
            r"_Z(T|d[la]|n[wa]|N11cuda_on_cpu)|__([atu]\w*san|sanitizer_cov)_|_(_cxa|Unwind|_gxx)_|__[a-z]+[sdt]i\d?$",
            name,
        ):
            said = f"{unmangled(name)} is not defined here, and a GPU has no such function"
            raise CudaCompileError(f"{source.file}: error: {said}")


@functools.cache
def _functions_of_a_gpu() -> frozenset[str]:
    """The names that a compiled .cu text may leave to the linker: those of cuda_on_cpu_math.h, and those g++ adds."""
    names = re.findall(r"\w+", blanked((FOLDER / "cuda_on_cpu_math.h").read_text(encoding="utf-8")))
    variables = ("threadIdx", "blockIdx", "blockDim", "gridDim", "memmove", "memcmp", "_GLOBAL_OFFSET_TABLE_")
    return frozenset((*names, *(name + "f" for name in names), *variables))


def _compile_error(log: str, source: CudaSource) -> CudaCompileError:
    """The errors of g++ in the format of compile.py: file, line and message, then the source line and a caret.

    If NVRTC has accepted the text, it is not a mistake: the emulator lacks something.
    """
    right, lines = why_no_nvrtc() is None or NO_ASM in log, source.text.splitlines()
    found, needed_at = [], None
    for line in log.splitlines():
        if match := GXX_REQUIRED.match(line):
            needed_at = match
        if not (match := GXX_ERROR.match(line)):
            continue
        place = needed_at if needed_at and match["file"] != source.file else match
        unknown = GXX_UNKNOWN.search(match["message"])
        said, needed_at = match["message"].replace("{anonymous}::", ""), None
        if NO_ASM in log and NO_ASM not in said:
            continue  # an error that follows from this one
        if right:
            said = _missing(unknown, said)
        ours = place["file"] in (source.file, *(before.file for before in source.before))
        found.append(f"{place['file']}:{place['line']}: error: {said}" if ours else f"{source.file}: error: {said}")
        if place["file"] == source.file and int(place["line"]) <= len(lines):
            found += ["  " + lines[int(place["line"]) - 1], "  " + " " * (int(place["column"]) - 1) + "^"]
    if "relocation truncated" in log:
        found = [f"{source.file}: error: the emulator has no room for __device__ variables of more than 2 GB"]
    elif not found and (missing := UNDEFINED.search(log)):
        number = line_in(log, source)
        where = f"{source.file}:{number}" if number else source.file
        found = [f"{where}: error: {missing['name']} is declared, but not defined"]
    text = "\n".join(found) or f"{source.file}: error: the C++ compiler says: {first_words(log)}"
    return CudaCompileError(text, kind="missing in the emulator" if right else "compile")


def _missing(unknown: re.Match[str] | None, said: str) -> str:
    if "comparison of pointer" in said:
        return f"a pointer is compared with a number: is its index missing, as in z[i]? g++ says: {said}"
    if not unknown:
        return f"the emulator cannot do this, though a GPU can; g++ says: {said}"
    name = unknown["name"] or unknown["other"]
    name = "asm" if name == NO_ASM else name
    return f"the emulator has no {name}; a GPU has: write it in another way, or check it on a GPU"


def lines_before(return_addresses: Sequence[int], program: Path, source: CudaSource) -> list[int]:
    """The .cu lines of the calls with these return addresses; 0 where unknown."""
    answer = said_by("addr2line", "-i", "-a", "-e", program, *(hex(address - 1) for address in return_addresses))
    frames = re.split(r"^0x[0-9a-f]+\n", answer, flags=re.MULTILINE)[1:]  # -a prints each address before its frames
    return [line_in(text, source) for text in frames] or [0] * len(return_addresses)


def line_in(report: str, source: CudaSource) -> int:
    """The first .cu line named in a report, which is the innermost if functions were inlined; 0 if there is none."""
    match = re.search(re.escape(source.file) + r":(\d+)", report)
    return int(match[1]) if match else 0


def read_in_a_sandbox() -> list[Path]:
    """The paths that the compiler and the programs read, apart from the folder that they write to."""
    return [*PARTS, cache_folder("cuda_on_cpu/emulator_parts"), cache_folder("cuda_on_cpu/emulator")]
