"""This machine's compilers of C and C++. Their output is cached: see cache.py."""

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuda_on_cpu.cache import cache_folder, is_there, remove_unused
from cuda_on_cpu.errors import MissingToolError, UserError, first_words, write_atomically
from cuda_on_cpu.processes import kill_group

MOST_SECONDS, MOST_FILE = 60, 64 << 20  # for a command, such as the compiler; bytes of a file that it writes
INCLUDES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")  # folders of headers that a text must not find
C_COMPILERS = ("gcc", "cc", "clang")


def cpp_compiler() -> list[str]:
    """The command of the C++ compiler: the environment variable CXX, or g++."""
    return shlex.split(os.environ.get("CXX", "")) or ["g++"]


def c_compiler() -> list[str]:
    """The command of the C compiler: the environment variable CC, or the first that is installed; [] if none is."""
    return shlex.split(os.environ.get("CC", "")) or [name for name in C_COMPILERS if shutil.which(name)][:1]


def why_no_c_compiler() -> str:
    """Why no C text can be compiled here, in one line; "" if it can."""
    command = c_compiler()
    if command and shutil.which(command[0]):
        return ""
    wanted = command[0] if command else " or ".join(C_COMPILERS)
    return (
        f"there is no C compiler here: expected {wanted}; install gcc, on Debian and Ubuntu with apt install gcc, or "
        "name another in CC"
    )


def shared_library(text: str, options: Sequence[str] = (), for_this_processor: bool = False) -> Path:
    """A C text as a shared library, compiled unless it is in the cache folder.

    options: of the compilation.
    for_this_processor: set it if the options do, as -march=native: the library is then not used on other processors.

    MissingToolError if there is no compiler, UserError if the text does not compile.
    """
    if reason := why_no_c_compiler():
        raise MissingToolError(reason)
    parts = [text, *options, processor() if for_this_processor else ""]
    library = kept("libraries", ".so", c_compiler(), *parts)
    if not is_there(library):
        write_atomically(library, lambda new: _make_library(text, options, new))
        remove_unused(library.parent)
    return library


def _make_library(text: str, options: Sequence[str], library: Path) -> None:
    """Compile, then link without the options: with -ffast-math GCC would link a start-up file that makes the whole
    process, NumPy included, replace numbers below 10⁻³⁸ by zero."""
    (library.parent / "library.c").write_text(text, encoding="utf-8")
    for step in (
        ["-std=c11", *options, "-fPIC", "-c", "library.c", "-o", "library.o"],
        ["-shared", "library.o", "-lm", "-o", library.name],
    ):
        result = compiled(c_compiler(), step, library.parent)
        if result.returncode:
            first = next((line for line in result.stderr.splitlines() if "error" in line), result.stderr)
            raise UserError(f"the C compiler {c_compiler()[0]} refuses the text: {first_words(first)}")


@functools.cache
def processor() -> str:
    """The processor's model and features, as Linux lists them: equal for processors that run the same machine code."""
    try:
        said = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return " ".join(os.uname()) if hasattr(os, "uname") else ""
    return "\n".join(sorted(set(re.findall(r"^(?:model name|flags|CPU part|Features)\s*:.*$", said, re.MULTILINE))))


def compiled(
    compiler: Sequence[str], options: Sequence[str | Path], folder: Path | None = None, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a compiler, with messages in English."""
    environment = {name: value for name, value in os.environ.items() if name not in INCLUDES} | {"LC_ALL": "C"}
    return run([*before, *compiler, *options], cwd=folder, env=environment)


@functools.lru_cache(maxsize=256)
def said_by(*command: str | Path) -> str:
    """The output of a command; "" if it is not installed (addr2line and nm come with g++'s linker)."""
    if not shutil.which(command[0]):
        return ""
    return run(command).stdout


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command with empty stdin, which addr2line would otherwise read.

    Raises MissingToolError if it cannot be run, and UserError if it does not end: a text can keep a compiler busy for
    ever.
    """
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # The shell sets the limit before the command begins; from here it might come too late for what the command starts.
    limited = ("sh", "-c", 'ulimit -f "$0" && exec "$@"', str(MOST_FILE // 512), *command)
    process = subprocess.Popen(limited, **pipes, text=True, errors="replace", start_new_session=True, **options)
    try:
        out, err = process.communicate(timeout=MOST_SECONDS)
    except BaseException as error:
        kill_group(process)  # the command may have started the compiler as another process
        if isinstance(error, subprocess.TimeoutExpired):
            raise UserError(f"{command[0]} did not end within {MOST_SECONDS} s: give it less to compile") from None
        raise
    if process.returncode in (126, 127):  # the shell's, for what it finds and cannot run, and for what it does not find
        reason = f"{command[0]} cannot be run: {first_words(err)}"
        raise MissingToolError(f"{reason}; install g++, or name another C++ compiler in CXX")
    return subprocess.CompletedProcess(list(command), process.returncode, out, err)


def kept(folder: str, suffix: str, compiler: Sequence[str], *made_of: str) -> Path:
    """The path of the cached file that this compiler makes from these texts and options."""
    key = "\0".join([*made_of, *compiler, said_by(*compiler, "--version")])
    return cache_folder(f"cuda_on_cpu/{folder}") / (hashlib.sha256(key.encode()).hexdigest()[:32] + suffix)
