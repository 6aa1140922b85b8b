"""CUDA C as people write it: read as the preprocessor leaves it, with mistakes told in a line of their own.

The kinds are those of reports from classes: 4, preprocessor, strings and characters; 5, characters that nobody sees;
6, the compiler's own words; 11, byte-order marks; 16, unusual surroundings.
"""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cuda_on_cpu import emulate, nvrtc, program, source
from cuda_on_cpu.cache import cache_folder
from cuda_on_cpu.errors import CudaCompileError, UserError
from cuda_on_cpu.nvrtc import compile_check, readable_errors
from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.source import constant_arrays, kernels_in, line_of, parameters, refuse_misspelt
from cuda_on_cpu.text import CudaSource
from nnclassroom.exercises import kept_kernels
from nnclassroom.judge.forbidden_cuda import forbidden
from nnclassroom.notebook import cuda_cell

needs_emulator = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))
NO_NVRTC = nvrtc.why_no_nvrtc()
needs_nvrtc = pytest.mark.skipif(NO_NVRTC is not None, reason=str(NO_NVRTC))

HEAD = 'extern "C" __global__ void sigmoid(const float* z, float* a, int n) {\n'
BODY = """    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = 1.0f / (1.0f + expf(-z[i]));
}
"""
SIGMOID = HEAD + BODY
LIST = "const float* z, float* a, int n"


def verdict(text: str):
    return kept_kernels.check("sigmoid", "naive", text, {"block": [64]}, seed=1)


def source_of(text: str) -> CudaSource:
    return CudaSource(text, "sigmoid.naive.cu")


# ---- kind 4: right kernels

GIVEN = {
    "if0_after": f'{SIGMOID}#if 0\nextern "C" __global__ void sigmoid(const float* z, int n) {{ }}\n#endif\n',
    "brace_in_string": 'extern "C" {\n__global__ void other(int n) { if (n < 0) printf("}"); }\n'
    f"__global__ void sigmoid({LIST}) {{\n{BODY}}}\n",
    "declared_first_without_names": 'extern "C" __global__ void sigmoid(const float*, float*, int);\n'
    f"__global__ void sigmoid({LIST}) {{\n{BODY}",
    "comment_goes_on": f'{SIGMOID}// old: \\\nextern "C" __global__ void sigmoid(const float* z) {{ }}\n',
}


FORMS = {
    **GIVEN,
    "maybe_unused": 'extern "C" __global__ void sigmoid(const float* z, float* a, [[maybe_unused]] int n) {\n' + BODY,
    "macro for the parameters": f'#define PARAMETERS {LIST}\nextern "C" __global__ void sigmoid(PARAMETERS) {{\n{BODY}',
    "macro with arguments": '#define KERNEL(name, ...) \\\n    extern "C" __global__ void name##id(__VA_ARGS__)\n'
    f"KERNEL(sigmo, {LIST}) {{\n{BODY}",
    "macro for brackets": f"#define BEGIN {{\n#define END }}\n{HEAD.replace('{', 'BEGIN')}{BODY.replace('}', 'END')}",
    "void before": f'extern "C" void __global__ sigmoid({LIST}) {{\n{BODY}',
    "attribute": f'extern "C" __attribute__((noinline)) __global__ void sigmoid({LIST}) {{\n{BODY}',
    "noinline": f'extern "C" __noinline__ __global__ void __launch_bounds__(64 * (2), 1) sigmoid({LIST}) {{\n{BODY}',
    "name in brackets": f'extern "C" __global__ auto (sigmoid)({LIST}) -> void {{\n{BODY}',
    "ifdef else": f'#ifdef WIDE\nextern "C" __global__ void sigmoid(int n) {{\n#else\n{HEAD}#endif\n{BODY}',
    "nested conditions": f"#define N 3\n#if N > 2 && !defined(M)\n#if N == 4\n{{\n#elif (N % 2) ? 1 : 0\n{HEAD}"
    f"#else\n(\n#endif\n#endif\n{BODY}",
    "macro then undefined": f"#define a b, c\n#undef a\n{SIGMOID}",
    "quotes in left out text": f"#if 0\ndon't {{ \" {{\n#endif\n{SIGMOID}",
    "characters": SIGMOID.replace("int i", "char q = '{', r = '\"', s = '\\''; if (q + r + s == 0) return;\n    int i"),
    "raw string": SIGMOID.replace("if", 'if (n < 0) printf(R"x(}" \\)x");\n    if'),
    "string that goes on": SIGMOID.replace("if", 'if (n < 0) printf("} \\\n } // ");\n    if'),
    "comments in it": HEAD.replace("(", "/* ( */ (").replace("int n", "int // n)\n n /* ) */") + BODY,
    "line that goes on": HEAD.replace("float* a", "flo\\\nat* a") + BODY,
    "digraphs": SIGMOID.replace("{", "<%").replace("}", "%>").replace("[", "<:").replace("]", ":>"),
    "typedef and using": f"typedef float real;\nusing In = const real*;\n{HEAD.replace('const float*', 'In')}{BODY}",
    "const on the right": HEAD.replace("const float* z", "float const *__restrict__ const z") + BODY,
    "array and default": HEAD.replace("float* a", "float a[256]").replace("int n", "signed n = 2 * (3, 4)") + BODY,
    "linkage by a macro": '#define C extern "C"\n' + SIGMOID.replace('extern "C"', "C"),
    "raw linkage": SIGMOID.replace('"C"', 'R"(C)"'),
    "blank after a backslash": f"// C:\\ \n{SIGMOID}",
    "trigraph at the end of a comment": f"// what??/\n{SIGMOID}",
    "form feed and tabs": "\f\v\t" + SIGMOID.replace(" ", "\t"),
    "carriage returns": SIGMOID.replace("\n", "\r\n"),
    "letter by its number": SIGMOID.replace(" i ", " \\u00edndice ")
    .replace("[i]", "[\\u00edndice]")
    .replace("(i ", "(\\u00edndice "),
}


@pytest.mark.parametrize("name", FORMS)
def test_kind_4_kernels_and_parameters_are_read(name):
    text = FORMS[name]
    assert "sigmoid" in kernels_in(source_of(text))
    read = parameters(source_of(text), "sigmoid")
    assert [str(each) for each in read] == ["const float* z", "float* a", "int n"]
    refuse_misspelt(source_of(text))
    if NO_NVRTC is None:
        assert "sigmoid" in compile_check(source_of(text))


EMULATED = "blank after a backslash", "macro with arguments", "linkage by a macro", "digraphs"


@needs_emulator
@pytest.mark.parametrize("name", [*GIVEN, *EMULATED])
def test_kind_4_the_emulator_takes_it_as_nvrtc_does(name):
    found = verdict(FORMS[name])
    assert found, found.line


NOT_READ = {
    "static": f'extern "C" {{ static __global__ void sigmoid({LIST}) {{\n{BODY}}}',
    "template": f"template<class T> __global__ void sigmoid({LIST}) {{\n{BODY}",
    "namespace": f"namespace mine {{\n{SIGMOID}}}",
    'extern "C"': SIGMOID.replace('extern "C" ', ""),
    "body": HEAD.replace(" {", ";"),
    "function": SIGMOID.replace("int n", "float (*n)(float)"),
    "reference": SIGMOID.replace("int n", "int& n"),
    "Pair<int, int>": SIGMOID.replace("int n", "Pair<int, int> n"),
    "::": SIGMOID.replace("int n", "std::size_t n"),
    "name": SIGMOID.replace("int n", "int"),
    "float** z": SIGMOID.replace("float* z", "float** z"),
    "float4* z": SIGMOID.replace("float* z", "float4* z"),
    "Matrix n": SIGMOID.replace("int n", "Matrix n"),
    "z[2][2]": SIGMOID.replace("* z", " z[2][2]"),
    "__global__ is in comments": "// " + SIGMOID.replace("\n", "\n// "),
}


@pytest.mark.parametrize("form", NOT_READ)
def test_kind_4_a_form_that_is_not_read_is_named_in_one_line(form):
    with pytest.raises(UserError) as caught:
        parameters(source_of(NOT_READ[form]), "sigmoid")
    assert form in str(caught.value) and "\n" not in str(caught.value)


def test_kind_4_constants_lines_and_empty_kernels():
    text = '#define K 3\n#if 0\n__constant__ float old[5];\n#endif\nconst char* s = "__constant__ float no[2];";\n'
    text += f"__constant__ float filters[K * K][2], bias[K];\n{SIGMOID}"
    assert constant_arrays(source_of(text)) == {"filters": 18, "bias": 3}
    assert line_of(source_of(GIVEN["comment_goes_on"]), "sigmoid") == 1
    assert line_of(source_of(GIVEN["declared_first_without_names"]), "sigmoid") == 2
    for body in ("// your code here\n}\n", "#if 0\n a[0] = 1;\n#endif\n}\n", "/* { */ ; }\n// } and {\n"):
        assert cuda_cell.is_empty(HEAD + body)
    for text in (SIGMOID, HEAD + 'printf("");}', HEAD, "/* open", "", "// nothing", GIVEN["brace_in_string"]):
        assert not cuda_cell.is_empty(text)


# ---- the preprocessor, beside a compiler's

NAMES = ["A", "B", "C", "F", "G", "H", "x", "y", "n", "F(x)", "G(1,2)", "H(a)", "H(a,b)", "(A)", "-", "'{'", '"}"']
BODIES = {
    "F(x)": ["x", "x x", "[x]", "#x", "x##1", "F(x)", "G(x,x)", "A x", "x##_##A", "B##x"],
    "G(x, y)": ["x", "y", "x##y", "x y", "F(x) y", "#y x", "G", "y(x)", "x ## y ## 3"],
    "H(...)": ["__VA_ARGS__", "f(__VA_ARGS__)", "#__VA_ARGS__", "f(1, ##__VA_ARGS__)", "A"],
}
VALUES = ["1", "0", "2", "3u", "A", "B", "defined A", "!defined(C)", "'A'", "0x10", "-1", "~0", "!1", "7"]
SIGNS = ["==", "<", ">", "&&", "||", "+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", ">=", "<=", "!="]
HIDING = ["// c \\", "/* a", "*/ x /* y */", '"a//b" /*', "*/", 'R"x(', ')x" ;', "'\"'", "<% <: :> %>"]


def directives(drawn: random.Random, depth: int = 3) -> list[str]:
    """Lines of definitions, conditions, text, and what hides text."""
    lines = []
    for _ in range(drawn.randrange(1, 7)):
        kind = drawn.random()
        if kind < 0.25:
            lines.append(f"#define {drawn.choice('ABC')} {' '.join(drawn.choices(NAMES, k=drawn.randrange(5)))}")
        elif kind < 0.55:
            name = drawn.choice(list(BODIES))
            lines.append(f"#define {name} {drawn.choice(BODIES[name])}")
        elif kind < 0.6:
            lines.append(f"#undef {drawn.choice('ABCFG')}")
        elif kind < 0.75 and depth:
            asked = f"#if {condition(drawn)}", f"#ifdef {drawn.choice('ABC')}", f"#ifndef {drawn.choice('ABC')}"
            lines += [drawn.choice(asked), *directives(drawn, depth - 1)]
            if drawn.random() < 0.5:
                lines += [f"#elif {condition(drawn)}", *directives(drawn, depth - 1)]
            if drawn.random() < 0.5:
                lines += ["# else // c", *directives(drawn, depth - 1)]
            lines.append("#endif /* x */")
        else:
            lines.append(drawn.choice(HIDING) if kind > 0.95 else " ".join(drawn.choices(NAMES, k=drawn.randrange(7))))
    return lines


def condition(drawn: random.Random, depth: int = 3) -> str:
    kind = drawn.random()
    if not depth or kind < 0.3:
        return drawn.choice(VALUES)
    a, b, c = (condition(drawn, depth - 1) for _ in range(3))
    return f"({a})" if kind < 0.4 else f"{a} ? {b} : {c}" if kind < 0.5 else f"{a} {drawn.choice(SIGNS)} {b}"


@needs_emulator
def test_the_preprocessor_leaves_what_the_compilers_does():
    from cuda_on_cpu.preprocessor import Preprocessor
    from cuda_on_cpu.tokens import tokens

    command = ["g++", "-E", "-P", "-undef", "-nostdinc", "-std=c++17", "-x", "c++", "-"]
    compared = 0
    for seed in range(150):
        text = "\n".join(directives(random.Random(seed))) + "\n"
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode:
            continue  # a mistake, such as a macro with too few arguments
        left = Preprocessor().read(text, "k.cu")
        assert left.mistake is None, (seed, text)
        assert [word.text for word in left.words] == [word.text for word in tokens(done.stdout)], (seed, text)
        compared += 1
    assert compared > 75


# ---- no text takes long

MOST = 256 << 10


def repeated(part: str, after: str = "") -> str:
    return part * (MOST // len(part)) + after


HOSTILE = {
    "kernels that begin": repeated("__global__ void a("),
    "blank lines": "\n" * 400_000,
    "blanks": "extern __shared__ float" + " " * MOST + "a",
    "shared": repeated("extern __shared__ "),
    "aligned": "extern __align__(" + " " * MOST,
    "quotes": repeated('"\\"'),
    "raw strings": repeated('R"x('),
    "brackets": repeated("{[(", repeated(")]}")),
    "joined lines": repeated("\\\n"),
    "signs of directives": repeated("#"),
    "definitions that begin": repeated("#define " + "a" * 200 + "(\n"),
    "apostrophes": repeated("'"),
    "comments that begin": repeated("/*"),
    "macros of macros": "".join(f"#define A{n} A{n + 1}\n" for n in range(9000)) + repeated("A0 ")[:60_000],
    "macros that double": "".join(f"#define A{n} A{n + 1} A{n + 1}\n" for n in range(99)) + "A0\n",
    "arguments that double": "".join(f"#define A{n}(x) A{n + 1}(x x)\n" for n in range(99)) + "A0(1)\n",
    "asked macros that double": "".join(f"#define __A{n} __A{n + 1} + __A{n + 1}\n" for n in range(3000))
    + "#if __A0\n",
    "asked macros": "".join(f"#define __A{n} __A{n + 1}\n#if __A{n}\n#endif\n" for n in range(7000)),
    "calls in calls": "#define F(x) x\n" + repeated("F("),
    "calls in calls, closed": "#define F(x) x\n" + "F(" * 60_000 + ")" * 60_000,
    "one long name": "#define P(a) " + repeated("a##", "a\nP(xx)"),
    "a deep condition": "#if " + repeated("(") + "\n#endif",
    "a long condition": "#if 9" + repeated("*99999") + "\n#endif",
    "a long number": "#if " + "9" * MOST + "\n#endif",
    "conditions": repeated("#if 1\n"),
    "functions of one's own": "float exit(float x) {}" + repeated("exit(1);"),
    "functions without a body": repeated("int exit("),
    "types of types": "".join(f"typedef T{n + 1} T{n};" for n in range(9000)) + SIGMOID.replace("int", "T0"),
    "parameters": SIGMOID.replace("int n", repeated("int n,", "int n")),
    "constants": "__constant__ float a" + repeated("[3]") + ";",
    "strange": repeated("é\u00a0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_kind_4_no_text_takes_long(name):
    """Two seconds here; what was quadratic took minutes, or never ended."""
    text = HOSTILE[name]
    started = time.process_time()
    for read in (
        lambda: forbidden(source_of(text)),
        lambda: cuda_cell.is_empty(text),
        lambda: parameters(source_of(text), "sigmoid"),
        lambda: refuse_misspelt(source_of(text)),
        lambda: constant_arrays(source_of(text)),
        lambda: program._with_pointers(text),
    ):
        try:
            read()
        except UserError as error:
            assert len(str(error)) < 500 and "\n" not in str(error)  # noqa: PT017
    assert time.process_time() - started < 20


# ---- what a student must not write is found in texts that are read by halves


@pytest.mark.parametrize("text", ["/* open", "", "// only", "\n", "#", '"', 'R"(', "'"])
def test_a_text_without_an_end_is_looked_through(text):
    assert forbidden(source_of(text)) is None
    assert forbidden(source_of(f"exit(0); {text}")).kind == "host"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("// ??/\n#include <x>\n", "include"),  # no compiler joins these lines
        ('// \\ \nasm("x");\n', "asm"),  # NVRTC does not join these
        ("#inc\\ \nlude <x>\n", "include"),  # g++ does
        ('asm<%"x"%>;', "asm"),
        ("#define __A __B\n#define __B __GNUC__\n#define C 1\n#if C && __A\n#endif", "condition"),
    ],
)
def test_what_hides_a_line_from_one_compiler_hides_it_from_nobody(text, kind):
    assert forbidden(source_of(text + SIGMOID)).kind == kind


# ---- kind 5: characters that CUDA C does not have

STRANGE = {
    "U+00A0 NO-BREAK SPACE; write an ordinary space": (2, HEAD + "\u00a0   " + BODY),
    'U+201C LEFT DOUBLE QUOTATION MARK; write "': (1, SIGMOID.replace('"C"', "\u201cC\u201d")),
    "U+2212 MINUS SIGN; write -": (3, SIGMOID.replace("(-z", "(\u2212z")),
    "U+00ED LATIN SMALL LETTER I WITH ACUTE; names": (2, SIGMOID.replace(" i ", " índice ").replace("[i]", "[índice]")),
    "U+200B ZERO WIDTH SPACE; delete it": (3, SIGMOID.replace("if (", "if\u200b (")),
    "U+FEFF ZERO WIDTH NO-BREAK SPACE; delete it": (2, SIGMOID.replace("    int", "\ufeff    int")),
    "U+FF1B FULLWIDTH SEMICOLON; write ;": (3, SIGMOID.replace("));", "))\uff1b")),
    "U+037E GREEK QUESTION MARK; write ;": (3, SIGMOID.replace("));", "))\u037e")),
    "U+2018 LEFT SINGLE QUOTATION MARK; write '": (2, HEAD + "char q = \u2018a\u2019;\n" + BODY),
    "U+00D7 MULTIPLICATION SIGN; write *": (2, SIGMOID.replace("* blockDim", "\u00d7 blockDim")),
    "U+2264 LESS-THAN OR EQUAL TO; write <=": (3, SIGMOID.replace("i < n", "i \u2264 n - 1")),
    "U+0430 CYRILLIC SMALL LETTER A; names": (3, SIGMOID.replace("a[i]", "\u0430[i]")),
    "U+0301 COMBINING ACUTE ACCENT; names": (2, SIGMOID.replace("int i", "int i\u0301, i")),
    "U+3000 IDEOGRAPHIC SPACE; write an ordinary space": (3, SIGMOID.replace("if (", "if\u3000(")),
    "U+2028 LINE SEPARATOR; write an ordinary line break": (2, SIGMOID.replace("    int", "\u2028    int")),
    "U+0024 DOLLAR SIGN; names": (2, SIGMOID.replace(" i ", " $i ")),
    "U+0040 COMMERCIAL AT; ": (3, SIGMOID.replace("(-z", "(@z")),
    "U+005C REVERSE SOLIDUS; ": (3, SIGMOID.replace("if (", "\\ if (")),
    "U+0007; delete it": (3, SIGMOID.replace("if (", "\a if (")),
    "U+0000; delete it": (2, HEAD + "// \0\n" + BODY),  # where NVRTC would stop reading, though it is a comment
    "U+D800; delete it": (2, HEAD + "// \ud800\n" + BODY),  # which no file can hold
}


@pytest.mark.parametrize("said", STRANGE)
def test_kind_5_a_character_that_cuda_c_has_not_is_named(said):
    line, text = STRANGE[said]
    with pytest.raises(CudaCompileError) as caught:
        refuse_misspelt(source_of(text))
    assert str(caught.value).startswith(f"sigmoid.naive.cu:{line}: error: {said}")
    assert "\n" not in str(caught.value)
    found = verdict(text)
    assert (found.kind, found.line.count("\n")) == ("compile", 1) and said in found.line


def test_kind_5_such_characters_may_be_in_comments_strings_and_text_that_is_left_out():
    text = f'// índice “x” −1 \u00a0\n#if 0\n“@”\n#endif\n#define UNUSED “\n{HEAD}if (n < 0) printf("é\u200b");\n{BODY}'
    refuse_misspelt(source_of(text))
    if NO_NVRTC is None:
        assert "sigmoid" in compile_check(source_of(text))


# ---- kind 6: mistakes for which compilers have unclear words

UNCLEAR = {
    "sigmoid.naive.cu:1: error: this { is never closed": SIGMOID[:-2],
    "sigmoid.naive.cu:3: error: this { is never closed": SIGMOID[:-2].replace("if (i < n)", "if (i < n) {\n"),
    "sigmoid.naive.cu:3: error: this ( is never closed": SIGMOID.replace("z[i]));", "z[i]);"),
    "sigmoid.naive.cu:3: error: this [ is never closed": SIGMOID.replace("a[i] =", "a[i ="),
    "sigmoid.naive.cu:5: error: this } closes nothing: no { is open here": SIGMOID + "}\n",
    "sigmoid.naive.cu:3: error: this ] closes nothing: no [ is open here": SIGMOID.replace("a[i]", "ai]"),
    'sigmoid.naive.cu:2: error: this " is never closed in its line': HEAD + 'printf("x);\n' + BODY,
    "sigmoid.naive.cu:2: error: this ' is never closed in its line": HEAD + "char c = 'x;\n" + BODY,
    'sigmoid.naive.cu:2: error: this " is never closed': HEAD + 'printf(R"(x);\n' + BODY,
    "sigmoid.naive.cu:5: error: this /* is never closed": SIGMOID + "/* that was it\n",
    "sigmoid.naive.cu:2: error: this #if has no #endif": HEAD + "#if 1\n" + BODY,
    "sigmoid.naive.cu:5: error: this #endif has no #if": SIGMOID + "#endif\n",
    "sigmoid.naive.cu:1: error: the condition of this #if cannot be read: it divides by zero": "#if 1/0\n#endif\n"
    + SIGMOID,
    "sigmoid.naive.cu:2: error: the number of arguments of the macro F: expected 1, got 2": "#define F(x) x\nF(1, 2)\n"
    + SIGMOID,
}


@pytest.mark.parametrize("said", UNCLEAR)
def test_kind_6_what_is_never_closed_is_named(said):
    with pytest.raises(CudaCompileError) as caught:
        refuse_misspelt(source_of(UNCLEAR[said]))
    assert str(caught.value) == said
    found = verdict(UNCLEAR[said])
    assert found.kind == "compile" and found.line.endswith(said)


def test_kind_6_a_text_that_is_left_out_says_so():
    text = f"#define DONE 0\n#if DONE\n{SIGMOID}#endif\n"
    found = verdict(text)
    assert not found and "sigmoid in line 3 is left out by the #if in line 2" in found.line
    assert "GPU" not in found.line and "emulator" not in found.line


LOGS = [
    'At end of source: error: expected a "}"\nk.cu(1): note #3196-D: to match this "{"\n  f {\n    ^\n',
    "ptxas application ptx input, line 26; error   : Not a name of any known instruction: 'nonsense'\n",
    "ptxas fatal   : Unresolved extern function '_Z1gf'\n",
    "/tmp/tmpx1/kernels.cu(3): internal error: assertion failed #33-D at /dvs/p4/build/sw/x.c line 3\n",
    "nvrtc: error: failed to open libnvrtc-builtins.so.12.9.\n  Make sure that /usr/local/cuda/lib64 is there.",
    "strange\n",
    "",
]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(
    "code", ["", "6: NVRTC_ERROR_COMPILATION, compilation log:\n\n", "NVRTC_ERROR_INTERNAL_ERROR\n"]
)
def test_kind_6_no_log_shows_paths_or_codes(log, code):
    said = readable_errors(code + log, "k.cu")
    assert said.startswith("k.cu") and ": error: " in said
    assert not re.search(r"NVRTC_|#\d|_Z\d|/\w+/", said)


WRONG = {
    "declared, but not defined": "extern __device__ float q;\n" + SIGMOID.replace("1.0f /", "q /"),
    "g": "__device__ float g(float);\n" + SIGMOID.replace("expf(", "g("),
    "unknown": SIGMOID.replace("expf", "unknown"),
    "nothing.h": '#include "nothing.h"\n' + SIGMOID,
    "__shfl_sync": SIGMOID.replace("int i", "struct S {} s; a[0] = __shfl_sync(~0u, s, 1); int i"),
}


@needs_emulator
@pytest.mark.parametrize("with_nvrtc", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_kind_6_the_emulators_compiler_names_no_folder(name, with_nvrtc, monkeypatch):
    if not with_nvrtc:
        monkeypatch.setattr(program, "why_no_nvrtc", lambda: "not here")
    with pytest.raises(CudaCompileError) as caught:
        program.program_for(source_of(WRONG[name]))
    said = str(caught.value)
    assert said.startswith("sigmoid.naive.cu") and "error: " in said
    assert not re.search(r"kernels\.(o|cpp)|/tmp|\.cache|NVRTC_|#\d|_Z\w*\d|anonymous|collect2|cuda_on_cpu", said)


def test_a_machine_that_runs_no_kernels_names_mistakes_all_the_same(monkeypatch):
    monkeypatch.setattr(emulate, "why_not", lambda: "it is a Mac")
    monkeypatch.setattr("cuda_on_cpu.program.why_no_compiler", lambda: "it is a Mac")
    assert verdict(SIGMOID[:-2]).kind == "compile"
    assert verdict(SIGMOID).kind == "cannot be checked"
    if NO_NVRTC is None:
        assert verdict(SIGMOID.replace("z[i]", "z[j]")).kind == "compile"


# ---- kind 11: byte-order marks


@needs_emulator
@pytest.mark.parametrize("mark", ["\ufeff", "// %%cuda sigmoid naive\n"])
def test_kind_11_a_byte_order_mark_before_a_kernel_is_no_mistake(mark):
    found = verdict(mark + SIGMOID)
    assert found, found.line


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_kind_11_a_file_with_a_mark_is_read(encoding, tmp_path):
    (tmp_path / "k.cu").write_text(SIGMOID, encoding)
    assert CudaSource.read(tmp_path / "k.cu").text == SIGMOID
    (tmp_path / "k.cu").write_bytes(b"\xff\x00\x81")
    with pytest.raises(UserError, match=r"k\.cu: expected a \.cu file in UTF-8"):
        CudaSource.read(tmp_path / "k.cu")


def test_kind_11_the_body_of_a_cell_may_begin_with_a_mark():
    text = cuda_cell.text_to_keep(" sigmoid naive", "\ufeff" + SIGMOID)
    assert text == "// %%cuda sigmoid naive\n" + SIGMOID
    refuse_misspelt(source_of(text))


# ---- kind 16: surroundings


@pytest.mark.parametrize("named", ["cache", "./cache", "../cache", "~/cache", ""])
def test_kind_16_a_relative_cache_folder_is_ignored(named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert cache_folder("x") == tmp_path / "home" / ".cache" / "x"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_kind_16_a_relative_home_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "home")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder("x") == tmp_path / "home" / ".cache" / "x"


def test_kind_16_no_home_is_told_in_one_line(monkeypatch):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UserError, match="set XDG_CACHE_HOME"):
        cache_folder("x")


ASK = """
import numpy as np
from cuda_on_cpu import CudaSource, UserError, emulate, program
print(emulate.why_not())
program.ADDRESSES = 0
emulate.run(CudaSource('extern "C" __global__ void k() {}', "k.cu"), "k", (1, 1, 1), (1, 1, 1), [])
"""


@needs_emulator
@pytest.mark.parametrize("kilobytes", [4_000_000, 100_000_000, 20 << 30])
def test_kind_16_a_limited_address_space_is_told_in_one_line(kilobytes, tmp_path):
    """Also where the limit is not seen beforehand: then by the kernel's process, whose words nobody sees."""
    emulate.why_not()  # the program is compiled
    limited = ["bash", "-c", f'ulimit -v {kilobytes} && exec "$@"', "-", sys.executable, "-c", ASK]
    done = subprocess.run(limited, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert "ulimit -v unlimited" in done.stdout and done.stdout.count("\n") == 1, done.stdout
    assert "ulimit -v unlimited" in done.stderr.splitlines()[-1]
    assert "Sanitizer" not in done.stdout + done.stderr


@needs_emulator
def test_kind_16_a_limit_that_is_high_enough_is_none():
    limited = ["bash", "-c", 'ulimit -v 24000000000 && exec "$@"', "-", sys.executable, "-c", ASK]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_are_told_where_the_emulator_runs(system, monkeypatch):
    monkeypatch.setattr(sys, "platform", system)
    assert "Linux only" in program.why_no_compiler()
    with pytest.raises(UserError, match="Linux only"):
        emulate.launch(source_of(SIGMOID + "// elsewhere"), "sigmoid", (1,), (1,), [*np.zeros((2, 1), np.float32), 1])


def test_reading_starts_no_process_and_is_done_once(monkeypatch):
    def never(*_, **__):
        raise AssertionError("a process")

    monkeypatch.setattr(subprocess, "Popen", never)
    text = FORMS["nested conditions"] + "// once"
    parameters(source_of(text), "sigmoid")
    before = source._read.cache_info().misses
    kernels_in(source_of(text)), line_of(source_of(text), "sigmoid"), constant_arrays(source_of(text))
    assert source._read.cache_info().misses == before
