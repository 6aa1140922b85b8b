"""What a student's .cu text must not contain: what could distinguish the emulator from a GPU, or escape from either.

The package's own texts may contain it, and are not examined. Comments and strings are ignored.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cuda_on_cpu.program import PARTS
from cuda_on_cpu.source import CudaSource

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

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"""
    r"""|(?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")"""
    r"""|(?P<string>(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))"""
    r"""|(?P<number>\.?\d(?:[eEpP][+-]|'?\w|\.)*)"""
    r"""|(?P<name>[^\W\d]\w*)"""
    r"""|(?P<trigraph>\?\?[=/'()!<>-])|(?P<digraph>%:)|(?P<paste>\#\#)|(?P<newline>\n)|(?P<other>[^\s])""",
    re.DOTALL | re.VERBOSE,
)
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


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int
    directive: str  # the directive it belongs to, such as "define", else ""


def forbidden(source: CudaSource) -> Forbidden | None:
    """The first thing in the text that a student's kernel must not contain; None if there is nothing."""
    tokens = list(_tokens(source.text))
    bodies = _macros(tokens)
    for define in source.defines:
        bodies.setdefault(define.partition("=")[0], [])
    for before in source.before:
        bodies |= _macros(list(_tokens(before.text)))
    found = [*_spellings(tokens), *_names(tokens), *_directives(tokens, bodies), *_pasted(tokens), *_host(tokens)]
    return min(found, key=lambda one: one.line, default=None)


def _tokens(text: str) -> Iterator[Token]:
    """The tokens of a text, without comments and without line breaks after a backslash."""
    text = text.replace("\r\n", "\n")
    # Lines joined by a backslash: `breaks` are their positions, so that later lines keep their numbers.
    joined, breaks, position, length = [], [], 0, 0
    for match in re.finditer(r"(?:\\|\?\?/)[ \t\f\v]*\n", text):
        joined.append(text[position : match.start()])
        position = match.end()
        length += len(joined[-1])
        breaks.append(length)
    joined.append(text[position:])
    line, directive, first, breaks = 1, "", True, breaks[::-1]
    for match in TOKEN.finditer("".join(joined)):
        while breaks and breaks[-1] <= match.start():
            breaks.pop()
            line += 1
        kind = match.lastgroup if match.lastgroup != "delimiter" else "raw"
        if kind == "newline":
            directive, first = "", True
        elif kind != "comment":
            if first and match[0] in ("#", "%:"):
                directive = "#"
            elif directive == "#":
                directive = match[0]
            first = False
            yield Token(kind, match[0], line, directive)
        line += match[0].count("\n")


def _macros(tokens: list[Token]) -> dict[str, list[str]]:
    """The macros that a text defines, each with the names in its body."""
    bodies: dict[str, list[str]] = {}
    for number, token in enumerate(tokens[1:], 1):
        if token.directive == "define" and tokens[number - 1].text == "define":
            body = []
            for other in tokens[number + 1 :]:
                if other.directive != "define" or other.text == "define":
                    break
                body += [other.text] if other.kind == "name" else []
            bodies.setdefault(token.text, []).extend(body)
    return bodies


def _spellings(tokens: list[Token]) -> Iterator[Forbidden]:
    for token in tokens:
        if token.kind in ("trigraph", "digraph"):
            yield Forbidden("spelling", token.text, token.line)


def _names(tokens: list[Token]) -> Iterator[Forbidden]:
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
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


def _directives(tokens: list[Token], bodies: dict[str, list[str]]) -> Iterator[Forbidden]:
    for number, token in enumerate(tokens):
        before = tokens[number - 1] if number else None
        starts = token.directive == token.text and before is not None and before.text in ("#", "%:")
        after = tokens[number + 1] if number + 1 < len(tokens) else None
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
        elif token.directive in CONDITIONS and token.kind == "name" and not starts and _asks_more(token.text, bodies):
            yield Forbidden("condition", f"#{token.directive} {token.text}", token.line)


def _asks_more(name: str, bodies: dict[str, list[str]], seen: frozenset[str] = frozenset()) -> bool:
    """Whether a name in a condition depends on more than the text's own macros."""
    if name in MAY_BE_ASKED_FOR or name in seen:
        return False
    if name not in bodies or _is_the_compilers(name):
        return True
    return any(_asks_more(other, bodies, seen | {name}) for other in bodies[name] if other.startswith("__"))


def _is_the_compilers(name: str) -> bool:
    """Whether a name that begins with __ is a compiler's, CUDA's or the emulator's, and not the text's own."""
    return name.startswith("__") and (bool(COMPILERS.match(name)) or name in _words_of_cuda())


@functools.cache
def _words_of_cuda() -> frozenset[str]:
    return frozenset(word for header in PARTS for word in re.findall(r"__\w+", header.read_text(encoding="utf-8")))


def _pasted(tokens: list[Token]) -> Iterator[Forbidden]:
    """Names of the emulator that ## could make from the words of the text."""
    pastes = [token for token in tokens if token.kind == "paste"]
    if not pastes:
        return
    words = {token.text for token in tokens if token.kind in ("name", "number")}
    for name in OF_THE_EMULATOR:
        for wanted in (name, name.upper()):
            if _can_be_made(wanted, words):
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


def _host(tokens: list[Token]) -> Iterator[Forbidden]:
    """Calls and declarations of functions that only a CPU has, unless the text itself defines such a function."""
    for number, token in enumerate(tokens):
        called = token.text in HOST and number + 1 < len(tokens) and tokens[number + 1].text == "("
        member = number and tokens[number - 1].text in (".", ">")
        if called and not member and not _defines(token.text, tokens):
            yield Forbidden("host", token.text, token.line)
            return


def _defines(name: str, tokens: list[Token]) -> bool:
    """Whether the text has `type name(…) {`, or a macro of that name."""
    for number, token in enumerate(tokens):
        if token.text != name or not number:
            continue
        before = tokens[number - 1]
        if token.directive == "define" and before.text == "define":
            return True
        after_type = before.kind == "name" and before.text not in ("return", "else", "do")
        if (after_type or before.text in ("*", "&")) and _has_body(tokens, number + 1):
            return True
    return False


def _has_body(tokens: list[Token], start: int) -> bool:
    """Whether `(…) {` begins at token `start`."""
    depth = 0
    for place in range(start, min(len(tokens) - 1, start + 1000)):  # far more than a function's parameters
        depth += {"(": 1, ")": -1}.get(tokens[place].text, 0)
        if depth <= 0:
            return tokens[place].text == ")" and tokens[place + 1].text == "{"
    return False
