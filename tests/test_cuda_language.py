"""What of CUDA C the emulator understands, with the values that CUDA's documentation states; and what it has not."""

import math

import numpy as np
import pytest

from cuda_on_cpu import nvrtc, program
from cuda_on_cpu.nvrtc import CudaCompileError, warnings
from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.source import Parameter, kernels_in, line_of, parameters
from cuda_on_cpu.text import CudaSource
from nncourse.cuda.launch import launch

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))
NO_NVRTC = nvrtc.why_no_nvrtc()
needs_nvrtc = pytest.mark.skipif(NO_NVRTC is not None, reason=str(NO_NVRTC))


def values(*expressions: str, ctype: str = "double", before: str = "", threads: int = 1) -> list:
    """The values of CUDA expressions, of which `x` is 2.0f, in one thread."""
    lines = "".join(f"    a[{number}] = {expression};\n" for number, expression in enumerate(expressions))
    text = f'{before}\nextern "C" __global__ void f({ctype}* a, float x) {{\n{lines}}}\n'
    dtype = parameters(CudaSource(text, "language.cu"), "f")[0].dtype
    a = np.zeros(len(expressions), dtype)
    launch(CudaSource(text, "language.cu"), "f", (1,), (threads,), [a, 2.0])
    return a.tolist()


NUMBERS = {
    "__float2uint_rn(x + 0.6f)": 3,
    "__float2int_rz(-x - 0.6f)": -2,
    "__float2int_ru(x + 0.1f)": 3,
    "__float2int_rd(-x - 0.1f)": -3,
    "__float2int_rn(1e20f)": 2**31 - 1,
    "__float2uint_rz(-5.0f)": 0,
    "__float2ll_rn(x * 1.5f)": 3,
    "__double2int_rn(2.5)": 2,
    "__uint2float_rn(7u)": 7,
    "__ull2double_rn(1ull << 40)": 2.0**40,
    "__fmaf_rz(x, 3.0f, 4.0f)": 10,
    "__frcp_rz(x)": 0.5,
    "__fsqrt_rn(x * x)": 2,
    "__dmul_rn(x, 4.0)": 8,
    "__brev(1u)": 2**31,
    "__brevll(2ull) == 1ull << 62": 1,
    "__funnelshift_l(0x80000000u, 1u, 1u)": 3,
    "__funnelshift_r(0x80000000u, 1u, 31u)": 3,
    "__funnelshift_lc(5u, 1u, 40u)": 5,
    "__byte_perm(0x03020100u, 0x07060504u, 0x7531u)": 0x07050301,
    "__mul24(-3, 5)": -15,
    "__umul24(0xff000003u, 5u)": 15,
    "__sad(-3, 4, 10u)": 17,
    "__usad(3u, 4u, 10u)": 11,
    "__hadd(-3, 4)": 0,
    "__rhadd(3, 4)": 4,
    "__uhadd(0xffffffffu, 1u)": 2**31,
    "__mulhi(1 << 30, 8)": 2,
    "__umulhi(1u << 31, 8u)": 4,
    "__mul64hi(1ll << 62, 8ll)": 2,
    "__dp4a(0x01020304, 0x01010101, 5)": 15,
    "__popc(0xffu) + __clz(1) + __ffs(8)": 8 + 31 + 4,
    "norm3df(x, 3.0f, 6.0f)": 7,
    "norm4d(1.0, 1.0, 1.0, 1.0)": 2,
    "rhypotf(3.0f, 4.0f)": 0.2,
    "normcdff(0.0f)": 0.5,
    "normcdfinvf(0.5f)": 0,
    "erfcx(30.0)": 0.0187958888614168,
    "erfcxf(1.0f)": 0.427583576155807,
    "erfinvf(0.5f)": 0.476936276204470,
    "sinpif(0.5f)": 1,
    "sinpi(1.0)": 0,
    "cospif(1.0f)": -1,
    "cospi(0.5)": 0,
    "cbrtf(8.0f)": 2,
    "rcbrt(8.0)": 0.5,
    "exp10f(x)": 100,
    "fdividef(x, 8.0f)": 0.25,
    "__saturatef(x)": 1,
    "__expf(x) / expf(x) + __powf(x, 3.0f)": 9,
    "__tanhf(x) / tanhf(x)": 1,
    "sqrt(x * x) + pow(x, 3) + fabs(-x) + abs(-x)": 14,
    "max(1u, 2u) + min(3ll, 4ll) + umax(1u, 5u) + llmin(-1ll, 2ll)": 9,
    "isnan(x - x) + isinf(x / 0.0f) + isfinite(x) + signbit(-x)": 3,
    "lroundf(2.5f) + rintf(2.5f) + truncf(-2.5f) + ceilf(2.1f)": 6,
    "ldexpf(x, 3) + fmodf(7.0f, x) + copysignf(x, -1.0f) + remainderf(5.0f, 3.0f)": 14,
    "tgammaf(5.0f) + lgammaf(1.0f) + hypotf(3.0f, 4.0f)": 29,
    "__builtin_expect(x > 0, 1)": 1,
    "__CUDA_ARCH__ >= 300": 1,
    "sizeof(size_t) + sizeof(long long)": 16,
    "make_char4(1, 2, 3, 4).w + make_longlong2(5, 6).y + make_ushort2(7, 8).x + make_float1(9).x": 26,
    "dim3(3).y + sizeof(float4) + alignof(double2)": 33,
    "__hiloint2double(__double2hiint(2.5), __double2loint(2.5))": 2.5,
}


def test_functions_have_the_values_that_cuda_states():
    found = values(*NUMBERS)
    assert dict(zip(NUMBERS, found, strict=True)) == pytest.approx(NUMBERS, rel=1e-6, abs=1e-12)


def test_sine_and_cosine_at_once():
    before = "__device__ double both(float x) { float s, c; sincospif(x, &s, &c); return s + 10 * c; }"
    assert values("both(0.5f)", "both(1.0f)", before=before) == [1, -10]


def test_loads_and_stores_with_advice():
    text = """
extern "C" __global__ void f(float* a, const float* b) {
    int i = threadIdx.x;
    a[i] = __ldcs(b + i) + __ldcg(b + i) + __ldca(b + i) + __ldlu(b + i) + __ldcv(b + i) + __ldg(b + i);
    __stcs(a + i, a[i] + 1); __stcg(a + i, a[i] + 1); __stwb(a + i, a[i] + 1); __stwt(a + i, a[i] + 1);
}"""
    for races in (False, True):
        a, b = np.zeros(4, np.float32), np.arange(4, dtype=np.float32)
        launch(CudaSource(text, "language.cu"), "f", (1,), (4,), [a, b], races=races)
        assert a.tolist() == (6 * b + 4).tolist()


def test_stores_with_advice_race_and_have_bounds():
    text = """
extern "C" __global__ void f(float* a, int n) { __stcs(a + n, 1.0f); }"""
    source = CudaSource(text, "language.cu")
    with pytest.raises(ValueError, match=r"language.cu:2: f: .* both touch a\[0\], one writes"):
        launch(source, "f", (1,), (4,), [np.zeros(1, np.float32), 0], races=True)
    with pytest.raises(ValueError, match=r"language.cu:2: f writes 4 bytes out of bounds: a\[1\]"):
        launch(source, "f", (1,), (4,), [np.zeros(1, np.float32), 1])


def test_warps_match_and_reduce():
    text = """
extern "C" __global__ void f(int* a, unsigned* u) {
    int t = threadIdx.x, agree;
    a[t] = __match_any_sync(~0u, t % 4);
    a[32 + t] = __match_all_sync(~0u, 5.0f, &agree) + agree;
    a[64 + t] = __match_all_sync(~0u, t, &agree) + agree;
    a[96] = __reduce_add_sync(~0u, t - 20);
    a[97] = __reduce_min_sync(~0u, t - 20);
    a[98] = __reduce_max_sync(~0u, t - 20);
    u[0] = __reduce_add_sync(~0u, 3u);
    u[1] = __reduce_min_sync(~0u, unsigned(t) + 5);
    u[2] = __reduce_max_sync(~0u, unsigned(t - 1));
    u[3] = __reduce_and_sync(~0u, unsigned(t) | 64);
    u[4] = __reduce_or_sync(~0u, 1u << t);
    u[5] = __reduce_xor_sync(~0u, t < 3 ? 1u << t : 0u);
}"""
    a, u = np.zeros(99, np.int32), np.zeros(6, np.uint32)
    launch(CudaSource(text, "language.cu"), "f", (1,), (32,), [a, u])
    assert a[:32].view(np.uint32).tolist() == [0x11111111 << t % 4 for t in range(32)]
    assert a[32:64].tolist() == [0] * 32  # all 32 bits, and 1 more
    assert a[64:96].tolist() == [0] * 32
    assert a[96:].tolist() == [sum(range(32)) - 640, -20, 11]
    assert u.tolist() == [96, 5, 2**32 - 1, 64, 2**32 - 1, 7]


def test_dynamic_shared_memory_with_rows():
    text = """
extern "C" __global__ void f(float* a) {
    extern __shared__ float tile[][33];
    extern __shared__ __align__(16) unsigned char raw[];
    tile[threadIdx.y][threadIdx.x] = 10 * threadIdx.y + threadIdx.x;
    __syncthreads();
    a[threadIdx.y * 4 + threadIdx.x] = tile[threadIdx.x][threadIdx.y] + (raw[4] == 0x80 ? 0.5f : 0);
}"""
    a = np.zeros(16, np.float32)
    for races in (False, True):
        launch(CudaSource(text, "language.cu"), "f", (1,), (4, 4), [a], shared_bytes=4 * 33 * 4, races=races)
        assert a.reshape(4, 4).astype(int).tolist() == [[10 * x + y for x in range(4)] for y in range(4)]


def test_memory_from_the_heap_and_copies():
    text = """
extern "C" __global__ void f(float* a) {
    float* p = (float*)malloc(8);
    float* q = new float[2];
    memset(q, 0, 8);
    p[0] = 1; p[1] = 2;
    memcpy(a, p, 8);
    a[2] = q[1] + (malloc(9 << 20) == NULL);
    delete[] q;
    free(p);
}"""
    for races in (False, True):
        a = np.zeros(3, np.float32)
        launch(CudaSource(text, "language.cu"), "f", (1,), (1,), [a], races=races)
        assert a.tolist() == [1, 2, 1]


def test_names_of_the_c_library_are_free():
    text = """
typedef unsigned long long uint64_t;
__device__ int index = 3;
__device__ float rand(float time) { return time + 1; }
extern "C" __global__ void f(float* a) { uint64_t remove = 2; a[0] = index + rand(remove); }"""
    a = np.zeros(1, np.float32)
    launch(CudaSource(text, "language.cu"), "f", (1,), (1,), [a])
    assert a[0] == 6


def test_a_table_in_a_function_keeps_its_values():
    text = """
extern "C" __global__ void f(float* a) {
    static float table[3] = {1, 2, 3};
    static float zeros[2] = {0, 0};
    const static int whole[2] = {4, 5};
    a[threadIdx.x] = table[threadIdx.x] + zeros[1] + whole[1];
}"""
    a = np.zeros(3, np.float32)
    launch(CudaSource(text, "language.cu"), "f", (2,), (3,), [a])
    assert a.tolist() == [6, 7, 8]


NAMES = """__CUDA_ARCH__ __CUDACC__ __CUDACC_RTC__ __NVCC__ __GNUC__ __GNUG__ __clang__ __x86_64__ __linux__ linux unix
__OPTIMIZE__ __SANITIZE_ADDRESS__ __SANITIZE_THREAD__ __CHAR_BIT__ __EXCEPTIONS __VERSION__ __INT_MAX__ _GNU_SOURCE
__ELF__ __SSE2__ __FLT_MAX__ __LP64__ __EDG__"""
MACROS = NAMES.split()


@needs_nvrtc
def test_macros_are_as_nvrtc_has_them():
    asked = "".join(f"#ifdef {name}\n    a[{i}] = 1;\n#endif\n" for i, name in enumerate(MACROS))
    warned = "".join(f"#ifdef {name}\n#warning has {name}\n#endif\n" for name in MACROS)
    log = "".join(warnings(CudaSource(f'{warned}extern "C" __global__ void f() {{}}', "language.cu")))
    there = [name for name in MACROS if f"has {name}" in log.replace('"', "")]
    for races in (False, True):
        a = np.zeros(len(MACROS), np.float32)
        source = CudaSource(f'extern "C" __global__ void f(float* a) {{\n{asked}}}', "language.cu")
        launch(source, "f", (1,), (1,), [a], races=races)
        assert [name for name, one in zip(MACROS, a, strict=True) if one] == there


# ---- what is not there


@needs_nvrtc
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a[0] = __vadd4(1, 2);", "k.cu:2: error: the emulator has no __vadd4"),
        ('asm volatile("mov.f32 %0, 0f3f800000;" : "=f"(a[0]));', "k.cu:2: error: the emulator has no asm"),
        ('unsigned x; asm("mov.u32 %0, %laneid;" : "=r"(x));', "k.cu:2: error: the emulator has no asm"),
        ("a[0] = tex2D<float>(0ull, 1.0f, 1.0f);", "k.cu:2: error: the emulator has no tex2D"),
        ("atomicAdd(reinterpret_cast<float2*>(a), make_float2(1, 2));", "k.cu:2: error: the emulator cannot do this"),
        ("if (a > 0) a[0] = 1;", "k.cu:2: error: a pointer is compared with a number: is its index missing"),
    ],
)
def test_what_only_a_gpu_has_is_missing_in_the_emulator(line, says):
    source = CudaSource(f'extern "C" __global__ void f(float* a) {{\n{line}\n}}', "k.cu")
    for races in (False, True):
        with pytest.raises(CudaCompileError) as caught:
            launch(source, "f", (1,), (1,), [np.zeros(2, np.float32)], races=races)
        assert caught.value.kind == "missing in the emulator"
        assert says in str(caught.value)
        assert str(caught.value).splitlines()[1].strip() == line


def test_a_mistake_is_no_missing_function():
    source = CudaSource('extern "C" __global__ void f(float* a) {\n  a[0] = nowhere(1);\n}', "k.cu")
    with pytest.raises(CudaCompileError, match="k.cu:2: error: ") as caught:
        launch(source, "f", (1,), (1,), [np.zeros(2, np.float32)])
    assert caught.value.kind == "compile"
    assert "emulator" not in str(caught.value)


@pytest.mark.parametrize("call", ['system("true")', "exit(0)", 'getenv("HOME")', "write(1, a, 4)", "abort()"])
def test_functions_of_the_host_are_out_of_reach_without_nvrtc(call, monkeypatch):
    monkeypatch.setattr(program, "why_no_nvrtc", lambda: "not on this system")
    name = call.partition("(")[0]
    undeclared = f'extern "C" __global__ void f(float* a) {{ {call}; }}'
    declared = f'extern "C" int {name}(...);\n{undeclared}'
    for text in (undeclared, declared):
        with pytest.raises(CudaCompileError, match=name):
            launch(CudaSource(text, "host.cu"), "f", (1,), (1,), [np.zeros(1, np.float32)])
    headers = "#include <stdlib.h>\n#include <unistd.h>\n"
    with pytest.raises(CudaCompileError, match="error: .*(No such file|no include path)"):
        launch(CudaSource(headers + undeclared, "host.cu"), "f", (1,), (1,), [np.zeros(1, np.float32)])


def test_everything_compiles_without_nvrtc_too(monkeypatch):
    monkeypatch.setattr(program, "why_no_nvrtc", lambda: "not on this system")
    found = values(*NUMBERS, before="// without NVRTC")
    assert found == pytest.approx(list(NUMBERS.values()), rel=1e-6, abs=1e-12)


@needs_nvrtc
def test_a_refused_text_is_refused_again():
    text = 'extern "C" __global__ void f(float* a, int n) { __shared__ float x[20000]; x[n] = a[0]; a[1] = x[n + 1]; }'
    for _ in range(2):
        with pytest.raises(CudaCompileError, match="too much shared data") as caught:
            launch(CudaSource(text, "large.cu"), "f", (1,), (1,), [np.zeros(2, np.float32), 0])
        assert caught.value.kind == "compile"


# ---- NVRTC's warnings


@needs_nvrtc
def test_warnings_name_file_and_line():
    before = CudaSource("__device__ int shared_before(int x) { int lost; return x; }\n", "before.cu")
    text = """extern "C" __global__ void f(float* a, unsigned n) {
    int unused;
    if (n < 0) a[0] = 1.0f;
}
__device__ int g(int x) { if (x) return 1; }
"""
    found = warnings(CudaSource(text, "k.cu", (), (before,)))
    assert [line.partition(": warning: ")[0] for line in found] == ["k.cu:3", "k.cu:2", "k.cu:5"]
    assert 'variable "unused" was declared but never referenced' in found[1]
    assert warnings(CudaSource('extern "C" __global__ void f(float* a) { a[0] = 1; }', "k.cu")) == ()


def test_no_warnings_without_nvrtc(monkeypatch):
    monkeypatch.setattr(nvrtc, "why_no_nvrtc", lambda: "not here")
    assert warnings(CudaSource('extern "C" __global__ void f() { int unused; }', "k.cu")) == ()


# ---- declarations

BLOCK = """
#define REAL float
#define COUNT int
typedef const REAL* input;
using output = REAL*;
__global__ void not_c(float* a) {}
extern "C" {
__device__ float twice(float x) { if (x > 0) { return 2 * x; } return x + x; }
__global__ void first(input a, output b, COUNT n) {
    if (threadIdx.x < n) { b[threadIdx.x] = twice(a[threadIdx.x]); }
}
// __global__ void commented(int n) {}
__global__ void __launch_bounds__(32) second(output b, const COUNT n) { b[0] = n; }
}
template <typename T> __global__ void templated(T* a) {}
extern "C" __global__ void third(const NUMBER* b) {}
"""


def test_kernels_in_a_block_and_types_with_other_names():
    source = CudaSource(BLOCK, "block.cu", ("NUMBER=unsigned char",))
    assert kernels_in(source) == ("first", "second", "third")
    assert parameters(source, "first") == (
        Parameter("a", "float", True, True),
        Parameter("b", "float", True, False),
        Parameter("n", "int", False, False),
    )
    assert parameters(source, "second")[1] == Parameter("n", "int", False, True)
    assert parameters(source, "third") == (Parameter("b", "unsigned char", True, True),)
    assert line_of(source, "second") == 13
    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    launch(source, "first", (1,), (8,), [a, b, 4])
    assert b.tolist() == (2 * a).tolist()
    launch(source, "second", (1,), (1,), [b, 7])
    assert b[0] == 7 and math.isfinite(b.sum())
