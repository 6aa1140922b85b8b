"""What a student's .cu text must not contain is found, however it is written; ordinary CUDA C is left alone."""

from pathlib import Path

import pytest

from cuda_on_cpu.text import CudaSource
from nnclassroom.judge.forbidden_cuda import forbidden

KERNEL = 'extern "C" __global__ void f(float* a) {{\n    {}\n}}\n'

REFUSED = [
    ("#ifdef CUDA_ON_CPU\n#endif", "emulator"),
    ("#if defined(CUDA_ON_CPU)\n#endif", "emulator"),
    ("#ifdef CUDA_\\\nON_CPU\n#endif", "emulator"),
    ("#ifdef CUDA_\\  \nON_CPU\n#endif", "emulator"),
    ("cuda_on_cpu::grid_barrier();", "emulator"),
    ("using namespace cuda_on_cpu;", "emulator"),
    ("int x = cuda_on_cpu_call;", "emulator"),
    ('extern "C" int __tsan_read4(void*);', "emulator"),
    ("__asan_poison_memory_region(a, 4);", "emulator"),
    ("__sanitizer_print_stack_trace();", "emulator"),
    ("#define P(a, b) a##b\nint x = P(CUDA_ON, _CPU);", "emulator"),
    ("#define P(a, b, c) a##b##c\nP(cuda, _on_, cpu)::fence();", "emulator"),
    ("#include <stdlib.h>", "include"),
    ('  #  include "x.h"', "include"),
    ("/* */ #include <math.h>", "include"),
    ("#inc\\\nlude <math.h>", "include"),
    ("%:include <math.h>", "spelling"),
    ("??=include <math.h>", "spelling"),
    ("#ifdef __GNUC__\n#endif", "condition"),
    ("#if !defined __x86_64__\n#endif", "condition"),
    ("#ifndef __OPTIMIZE__\n#endif", "condition"),
    ("#if linux\n#endif", "condition"),
    ("#define A 1\n#if A && __linux__\n#endif", "condition"),
    ("#define A __GNUC__\n#if A\n#endif", "condition"),
    ("#if __has_include(<stdio.h>)\n#endif", "condition"),
    ("#line 7", "line"),
    ('# 7 "other.cu"', "line"),
    ('#pragma GCC optimize("O3")', "pragma"),
    ('#pragma push_macro("asm")', "pragma"),
    ('_Pragma("GCC optimize(3)")', "pragma"),
    ("__attribute__((constructor)) void g() {}", "attribute"),
    ("[[gnu::constructor]] void g() {}", "attribute"),
    ('asm("mov.u32 %0, %laneid;" : "=r"(x));', "asm"),
    ('__asm__ volatile("syscall");', "asm"),
    ("#undef asm", "asm"),
    ("#undef printf", "macro"),
    ("#define __syncthreads()", "macro"),
    ("#undef __shared__", "macro"),
    ("#ifndef __CUDACC_DEBUG__\n#endif", "condition"),
    ("#define __GNUC__ 1", "macro"),
    ("__builtin_return_address(0);", "builtin"),
    ('extern "C" int system(const char*);', "host"),
    ("exit(0);", "host"),
    ("abort();", "host"),
    ('auto f = fopen("x", "r");', "host"),
    ("::write(1, a, 4);", "host"),
    ("if (a[0] > 0) syscall(60, 0);", "host"),
    ('getenv("HOME");', "host"),
]


@pytest.mark.parametrize(("line", "kind"), REFUSED)
def test_it_is_found_in_its_line(line, kind):
    found = forbidden(CudaSource("// one\n" + KERNEL.format(line), "k.cu"))
    assert found is not None and found.kind == kind
    lines = line.count("\n")
    assert 3 <= found.line <= 3 + lines
    assert found.why and found.what in str(found)


ALLOWED = [
    "// #ifdef CUDA_ON_CPU: a comment",
    "/* #include <math.h>\n cuda_on_cpu */",
    'printf("#include %d cuda_on_cpu asm(", 1);',
    'const char* t = R"x(" #include asm)x";',
    "#ifndef TILE\n#define TILE 16\n#endif",
    "#define LONG 1\n#if LONG > 0 && defined(LONG)\n#endif",
    "#if __CUDA_ARCH__ >= 700\n#endif",
    "#ifdef __CUDACC__\n#endif",
    "#ifndef INFINITY\n#define INFINITY 1e38f\n#endif",
    "#pragma unroll\n    for (int i = 0; i < 4; i++) a[i] = 0;",
    "#pragma unroll 4\n    for (int i = 0; i < 4; i++) a[i] = 0;",
    "#define SQUARE(x) \\\n    ((x) * (x))",
    "#define NAME(x) tile_##x",
    "#ifndef __TILE__\n#define __TILE__ 16\n#endif",
    "#define DO() \\\n  a[0] = 1; \\\n  a[1] = 2;\n#undef DO",
    "float* p = (float*)malloc(4); free(p);",
    "int c = 1'000'000; char d = '\"'; /* ' */",
    "float time = 0, read = 1; a[0] = time * read;",
    "struct Q { float read(int i) { return i; } } q; a[0] = q.read(2);",
    "__builtin_assume(a[0] > 0); __builtin_expect(1, 1);",
    "int x = 7 %2; bool b = x ? 1 : 0;",
    "__trap();",
    "int assembly = 1, included = 2; a[0] = assembly + included;",
]


@pytest.mark.parametrize("line", ALLOWED)
def test_ordinary_text_is_left_alone(line):
    assert forbidden(CudaSource(KERNEL.format(line), "k.cu")) is None


def test_a_function_of_ones_own_may_have_any_name():
    text = "__device__ float read(const float* a, int i) { return a[i]; }\n" + KERNEL.format("a[0] = read(a, 1);")
    assert forbidden(CudaSource(text, "k.cu")) is None


def test_constants_and_texts_before_may_be_asked_for():
    before = CudaSource("#define SHARED_BEFORE 1", "b.cu")
    text = KERNEL.format("#if ALPHA > 0 && SHARED_BEFORE\n#endif")
    assert forbidden(CudaSource(text, "k.cu", ("ALPHA=1",), (before,))) is None
    assert forbidden(CudaSource(text, "k.cu")).kind == "condition"


def test_the_line_is_right_behind_joined_lines():
    text = "#define A \\\n  1 \\\n  + 2\n\nint x;\nexit(0);\n"
    assert forbidden(CudaSource(text, "k.cu")).line == 6


def test_the_kernels_of_the_course_contain_nothing_forbidden():
    """Except where blocks wait for each other, as in what GPUs exchange, and helpers with a twin or for GPUs only."""
    kernels = Path(__file__).parents[1] / "nncourse" / "kernels"
    for path in set(kernels.glob("*.cu")) - {
        kernels / f"{name}.cu" for name in ("all_reduce", "tensor_cores", "wgmma")
    }:
        assert forbidden(CudaSource.read(path)) is None, path.name
