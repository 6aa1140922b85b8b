"""What a student's .cu text must not contain: what could distinguish the emulator from a GPU, or escape from either.

The package's own texts may contain it, and are not examined. Comments and strings are ignored.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from cuda_on_cpu.program import PARTS
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.tokens import Token, tokens

WHY = {
    "emulator": "a kernel does the same wherever it runs",
    "include": "CUDA's functions and mathematics are there without it, and there are no other files",
    "condition": "a condition may ask for macros that the text itself defines, and for __CUDA_ARCH__",
    "macro": "this name is CUDA's or the compiler's",
    "line": "messages name the lines of the text",
    "pragma": "a kernel needs no other #pragma than unroll",
    "attribute": "a GPU has no such attributes; __launch_bounds__ and __align__ are there",
    "asm": "the emulator has no asm",
    "spelling": "write # for it, so that the text can be read",
    "builtin": "this function is the compiler's; use CUDA's",
    "host": "a GPU has no such function",
}

# g++ takes such a line as one that goes on, NVRTC does not: a text is examined both ways.
BLANKS_BEFORE_BREAK = re.compile(r"\\[ \t\f\v]+\r?\n")
OF_THE_EMULATOR = ("cuda_on_cpu", "__tsan", "__asan", "__sanitizer", "__ubsan", "__interceptor", "the_emulator_has_no")
ASM = ("asm", "__asm", "__asm__")
CONDITIONS = ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef")
COMPILERS = re.compile(
    r"__(cuda|nv|edg|stdc|gnu|gxx|sanit|clang|x86|amd|aarch|arm|linux|unix|cplusplus|optimi|no_inline|lp64|exceptions|date|"
    r"time|file|line|counter|base|include|version|pic|pie|elf|sse|avx|char|int|flt|dbl|ldbl|sizeof|has_|builtin)",
    re.IGNORECASE,
)
PRAGMAS = ("unroll", "nounroll", "once")
MAY_BE_ASKED_FOR = frozenset(
    ("__CUDA_ARCH__", "__CUDACC__", "__CUDACC_RTC__", "INFINITY", "NAN", "NULL", "assert", "defined", "true", "false")
    + ("and", "or", "not")
)
BUILTINS = re.compile(r"__builtin_(assume|assume_aligned|expect|unreachable|(inf|nan|huge_val|fabs|sqrt|fma)[fl]?)")
HOST_NAMES = """
system popen exec execl execlp execv execve execvp fork vfork clone wait waitpid kill raise signal sigaction
exit _exit _Exit quick_exit abort atexit syscall getenv setenv putenv secure_getenv fopen freopen fclose fread
fwrite fputs fgets fprintf fscanf puts putchar getchar gets scanf perror open openat creat close read write
pread pwrite lseek unlink remove rename rmdir mkdir chdir chmod chown link symlink truncate ftruncate dup dup2
pipe socket connect bind listen accept send recv mmap munmap mprotect sbrk brk ptrace dlopen dlsym dlclose
dl_iterate_phdr pthread_create setjmp longjmp sigsetjmp siglongjmp getpid getppid gettid prctl ioctl fcntl
select poll sleep usleep nanosleep alarm setitimer time gettimeofday clock_gettime rand srand random realloc
calloc alloca strcpy setrlimit getrlimit backtrace
"""
HOST = frozenset(HOST_NAMES.split())


@dataclass(frozen=True)
class Forbidden:
    """Something that a text must not contain: its kind, a key of WHY; the words of the text; and the line."""

    kind: str
    what: str
    line: int

    @property
    def why(self) -> str:
        return WHY[self.kind]

    def __str__(self) -> str:
        return f"line {self.line}: `{self.what}` is not allowed here: {self.why}"


def forbidden(source: CudaSource) -> Forbidden | None:
    """The first thing in the text that a student's kernel must not contain; None if there is nothing."""
    ways = dict.fromkeys((BLANKS_BEFORE_BREAK.sub("\\\n", source.text), source.text))
    found = [found for text in ways for found in _found(tokens(text), source)]
    return min(found, key=lambda one: one.line, default=None)


def _found(words: Sequence[Token], source: CudaSource) -> Iterator[Forbidden]:
    bodies = _macros(words)
    for define in source.defines:
        bodies.setdefault(define.partition("=")[0], [])
    for before in source.before:
        bodies |= _macros(tokens(before.text))
    yield from _spellings(words)
    yield from _names(words)
    yield from _directives(words, bodies)
    yield from _pasted(words)
    yield from _host(words)


def _macros(words: Sequence[Token]) -> dict[str, list[str]]:
    """The macros that a text defines, each with the names in its body."""
    bodies: dict[str, list[str]] = {}
    body: list[str] = []
    for before, word in pairwise(words):
        if word.directive != "define" or word.text == "define":
            body = []
        elif before.text == "define":
            body = bodies.setdefault(word.text, [])
        elif word.kind == "name":
            body.append(word.text)
    return bodies


def _spellings(words: Sequence[Token]) -> Iterator[Forbidden]:
    for token in words:
        if token.kind in ("trigraph", "digraph"):
            yield Forbidden("spelling", token.text, token.line)


def _names(words: Sequence[Token]) -> Iterator[Forbidden]:
    for token, after in zip_longest(words, words[1:]):
        if token.kind != "name":
            continue
        name = token.text
        if any(part in name.lower() for part in OF_THE_EMULATOR):
            yield Forbidden("emulator", name, token.line)
        elif name in ASM:
            yield Forbidden("asm", name, token.line)
        elif name in ("__attribute__", "__attribute") or (name in ("gnu", "__gnu__") and after and after.text == ":"):
            yield Forbidden("attribute", name, token.line)
        elif name in ("_Pragma", "__pragma"):
            yield Forbidden("pragma", name, token.line)
        elif name.startswith("__has_"):
            yield Forbidden("condition", name, token.line)
        elif name.startswith("__builtin_") and not BUILTINS.fullmatch(name):
            yield Forbidden("builtin", name, token.line)
        elif name.startswith(("__libc", "__cxa", "_dl_", "__dl")):
            yield Forbidden("host", name, token.line)


def _directives(words: Sequence[Token], bodies: dict[str, list[str]]) -> Iterator[Forbidden]:
    asking = _asking(bodies)
    for number, token in enumerate(words):
        before = words[number - 1] if number else None
        starts = token.directive == token.text and before is not None and before.text in ("#", "%:")
        after = words[number + 1] if number + 1 < len(words) else None
        argument = after.text if after and after.directive == token.directive else ""
        if starts and token.text in ("include", "include_next", "import", "embed"):
            yield Forbidden("include", f"#{token.text}", token.line)
        elif starts and (token.text == "line" or token.kind == "number"):
            yield Forbidden("line", f"#{token.text}", token.line)
        elif starts and token.text == "pragma" and argument not in PRAGMAS:
            yield Forbidden("pragma", f"#pragma {argument}", token.line)
        elif starts and token.text in ("define", "undef") and _is_the_compilers(argument):
            yield Forbidden("macro", f"#{token.text} {argument}", token.line)
        elif starts and token.text == "undef" and argument not in bodies:
            yield Forbidden("macro", f"#undef {argument}", token.line)
        elif token.directive not in CONDITIONS or token.kind != "name" or starts:
            continue
        elif token.text in asking or _asks_itself(token.text, bodies):
            yield Forbidden("condition", f"#{token.directive} {token.text}", token.line)


def _asking(bodies: dict[str, list[str]]) -> set[str]:
    """The macros of the text that depend on more than the text's own macros."""
    users: dict[str, list[str]] = {}
    for name, body in bodies.items():
        for other in body if name not in MAY_BE_ASKED_FOR else ():
            if other.startswith("__"):
                users.setdefault(other, []).append(name)
    found = {name for name in bodies | users if _asks_itself(name, bodies)}
    waiting = [*found]
    while waiting:
        new = set(users.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def _asks_itself(name: str, bodies: dict[str, list[str]]) -> bool:
    return name not in MAY_BE_ASKED_FOR and (name not in bodies or _is_the_compilers(name))


def _is_the_compilers(name: str) -> bool:
    """Whether a name that begins with __ is a compiler's, CUDA's or the emulator's, and not the text's own."""
    return name.startswith("__") and (bool(COMPILERS.match(name)) or name in _words_of_cuda())


@functools.cache
def _words_of_cuda() -> frozenset[str]:
    return frozenset(word for header in PARTS for word in re.findall(r"__\w+", header.read_text(encoding="utf-8")))


def _pasted(words: Sequence[Token]) -> Iterator[Forbidden]:
    """Names of the emulator that ## could make from the words of the text."""
    pastes = [token for token in words if token.kind == "paste"]
    if not pastes:
        return
    made_of = {token.text for token in words if token.kind in ("name", "number")}
    for name in OF_THE_EMULATOR:
        for wanted in (name, name.upper()):
            if _can_be_made(wanted, made_of):
                yield Forbidden("emulator", f"## makes {wanted}", pastes[0].line)


def _can_be_made(wanted: str, words: set[str]) -> bool:
    """Whether some of the words, concatenated, begin with `wanted`."""
    reached = {0}
    for start in range(len(wanted)):
        if start not in reached:
            continue
        rest = wanted[start:]
        if any(word.startswith(rest) for word in words):
            return True
        reached |= {start + len(word) for word in words if rest.startswith(word)}
    return False


def _host(words: Sequence[Token]) -> Iterator[Forbidden]:
    """Calls and declarations of functions that only a CPU has, unless the text itself defines such a function."""
    calls = []
    for number, token in enumerate(words):
        called = token.text in HOST and number + 1 < len(words) and words[number + 1].text == "("
        member = number and words[number - 1].text in (".", ">")
        if called and not member:
            calls.append(token)
    own = _defined(words) if calls else set()
    yield from (Forbidden("host", token.text, token.line) for token in calls if token.text not in own)


def _defined(words: Sequence[Token]) -> set[str]:
    """The names of HOST that the text defines itself: `type name(…) {`, or a macro."""
    own, closed = set(), _closing(words)
    for number, (before, token) in enumerate(pairwise(words), 1):
        if token.text not in HOST:
            continue
        after_type = before.kind == "name" and before.text not in ("return", "else", "do")
        is_macro = token.directive == "define" and before.text == "define"
        end = closed.get(number + 1, len(words)) + 1
        has_body = end < len(words) and words[end].text == "{"
        if is_macro or ((after_type or before.text in ("*", "&")) and has_body):
            own.add(token.text)
    return own


def _closing(words: Sequence[Token]) -> dict[int, int]:
    """The position of the ) of each (."""
    closed, opened = {}, []
    for number, word in enumerate(words):
        if word.text == "(":
            opened.append(number)
        elif word.text == ")" and opened:
            closed[opened.pop()] = number
    return closed
