"""The CPU emulator: right kernels give right results in every thread order, wrong ones are caught at the right line."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from cuda_on_cpu import emulate
from cuda_on_cpu.emulate import ORDERS, EmulationError
from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.source import CudaSource, kernels_in
from cuda_on_cpu.trace import READ, WRITE
from nncourse.cuda.launch import launch

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))

MATMUL = CudaSource(
    """
#define TILE 8
extern "C" __global__ void naive(const float* A, const float* B, float* C, int n, int m, int k) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= n || j >= m) return;
    float sum = 0.0f;
    for (int l = 0; l < k; l++) sum += A[i * k + l] * B[l * m + j];
    C[i * m + j] = sum;
}

template <bool FIRST, bool SECOND>
__device__ void product(const float* A, const float* B, float* C, int n, int m, int k) {
    __shared__ float A_tile[TILE][TILE];
    __shared__ float B_tile[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int j = blockIdx.x * TILE + x, i = blockIdx.y * TILE + y;
    float sum = 0.0f;
    for (int l = 0; l < k; l += TILE) {
        A_tile[y][x] = i < n && l + x < k ? A[i * k + l + x] : 0.0f;
        B_tile[y][x] = l + y < k && j < m ? B[(l + y) * m + j] : 0.0f;
        if (FIRST) __syncthreads();
        for (int t = 0; t < TILE; t++) sum += A_tile[y][t] * B_tile[t][x];
        if (SECOND) __syncthreads();
    }
    if (i < n && j < m) C[i * m + j] = sum;
}
extern "C" __global__ void tiled(const float* A, const float* B, float* C, int n, int m, int k) {
    product<true, true>(A, B, C, n, m, k);
}
extern "C" __global__ void no_first_barrier(const float* A, const float* B, float* C, int n, int m, int k) {
    product<false, true>(A, B, C, n, m, k);
}
extern "C" __global__ void no_second_barrier(const float* A, const float* B, float* C, int n, int m, int k) {
    product<true, false>(A, B, C, n, m, k);
}
""",
    "tests/matmul.cu",
)


def matmul_error(function: str, order: str, n: int = 19, m: int = 17, k: int = 21) -> float:
    """The greatest error of a matrix product against float64; NaN and cells never written count as infinite."""
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((n, k), dtype=np.float32), rng.standard_normal((k, m), dtype=np.float32)
    C = np.full((n, m), np.nan, np.float32)
    launch(MATMUL, function, (-(-m // 8), -(-n // 8)), (8, 8), [A, B, C, n, m, k], order=order, seed=3)
    return float(np.nan_to_num(np.abs(C - A.astype(float) @ B.astype(float)), nan=np.inf).max())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", ["naive", "tiled"])
def test_matrix_product_is_right_in_every_order(function, order):
    assert matmul_error(function, order) < 1e-5


@pytest.mark.parametrize("function", ["no_first_barrier", "no_second_barrier"])
def test_a_missing_barrier_shows_in_some_order(function):
    assert max(matmul_error(function, order) for order in ORDERS) > 0.1


def test_portable_fibers_give_the_same_results(monkeypatch):
    monkeypatch.setenv("CXX", "g++ -DCUDA_ON_CPU_PORTABLE")
    emulate._child.cache_clear()  # the environment is no part of its key
    assert matmul_error("tiled", "shuffled") < 1e-5
    emulate._child.cache_clear()


def test_the_emulator_works_where_there_is_a_compiler():
    assert emulate.why_not() is None


# ---- mistakes: each kernel marks its faulty line with a comment

MISTAKES = CudaSource(
    """
extern "C" __global__ void unguarded_write(float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = 1.0f;  // unguarded_write
}
extern "C" __global__ void unguarded_read(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i % n] = a[i];  // unguarded_read
}
extern "C" __global__ void before_the_start(float* a, int n) {
    a[n - 1] = 1.0f;  // before_the_start
}
extern "C" __global__ void unguarded_atomic(int* a, int n) {
    atomicAdd(&a[n], 1);  // unguarded_atomic
}
extern "C" __global__ void shared_write(float* a, int n) {
    __shared__ float tile[4][8];
    tile[n][threadIdx.x] = 1.0f;  // shared_write
    a[0] = tile[0][0];
}
extern "C" __global__ void shared_read(float* a, int n) {
    __shared__ float tile[8];
    tile[threadIdx.x] = 1.0f;
    a[0] = tile[n];  // shared_read
}
extern "C" __global__ void dynamic_write(float* a, int n) {
    extern __shared__ float tile[];
    tile[threadIdx.x + n] = 1.0f;  // dynamic_write
    a[0] = tile[0];
}
extern "C" __global__ void local_write(float* a, int n) {
    float local[4] = {};
    local[n] = 1.0f;  // local_write
    a[0] = local[0];
}
extern "C" __global__ void misaligned_read(float* a, int n) {
    float4 four = *(float4*)(a + n);  // misaligned_read
    a[0] = four.x + four.w;
}
extern "C" __global__ void misaligned_write(float* a, int n) {
    __shared__ float tile[8];
    *reinterpret_cast<float2*>(tile + n) = make_float2(1.0f, 2.0f);  // misaligned_write
    a[0] = tile[0];
}
extern "C" __global__ void null_pointer(float* a, int n) {
    float* nothing = nullptr;
    nothing[n] = 1.0f;  // null_pointer
}
extern "C" __global__ void divides(int* a, int n) {
    a[0] = 7 / n;  // divides
}
extern "C" __global__ void some_return_early(float* a, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();  // some_return_early
    a[0] = 1.0f;
}
extern "C" __global__ void divergent_barrier(float* a, int n) {
    if (threadIdx.x < n)
        __syncthreads();  // divergent_barrier
    else
        __syncthreads();  // its other branch
    a[0] = 1.0f;
}
__device__ float warp_sum(float value) {
    for (int d = 16; d > 0; d /= 2)
        value += __shfl_down_sync(0xffffffff, value, d);  // divergent_shuffle
    return value;
}
extern "C" __global__ void divergent_shuffle(float* a, int n) {
    float value = threadIdx.x;
    if (threadIdx.x < n) value = warp_sum(value);
    if (threadIdx.x == 0) a[0] = value;
}
extern "C" __global__ void shuffle_or_barrier(float* a, int n) {
    if (threadIdx.x < n)
        a[0] = __shfl_xor_sync(0xffffffff, 1.0f, 1);  // shuffle_or_barrier
    __syncthreads();
}
extern "C" __global__ void not_in_its_mask(float* a, int n) {
    a[0] = __shfl_sync(1u, 1.0f, 0);  // not_in_its_mask
}
extern "C" __global__ void endless(float* a, int n) {
    while (a[0] < n)
        a[1] += 1.0f;  // endless
}
extern "C" __global__ void casts_const_away(const float* a, float* b, int n) {
    const_cast<float*>(a)[n] = b[n] = 5.0f;
}
extern "C" __global__ void fine(float* a, int n) {
    if (threadIdx.x < n) a[threadIdx.x] = threadIdx.x;
}
""",
    "tests/mistakes.cu",
)


def line_of(comment: str) -> int:
    return next(i for i, line in enumerate(MISTAKES.text.splitlines(), 1) if line.endswith("// " + comment))


def mistake(function: str, arguments: list, threads: int = 8, **options) -> str:
    """What the emulator says about a launch; then another kernel must run as if nothing had been."""
    with pytest.raises(EmulationError) as caught:
        launch(MISTAKES, function, (2,), (threads,), arguments, **options)
    after = np.zeros(4, np.float32)
    launch(MISTAKES, "fine", (1,), (4,), [after, 4])
    assert after.tolist() == [0, 1, 2, 3]
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("tests/mistakes.cu:")
    return message


def floats(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


@pytest.mark.parametrize(
    ("function", "arguments", "says"),
    [
        ("unguarded_write", [floats(13), 13], "writes 4 bytes out of bounds: a[13], but a has 13 elements; thread (5,"),
        ("unguarded_write", [floats(0), 0], "a[0], but a has 0 elements"),
        ("unguarded_read", [floats(13), floats(13), 13], "reads 4 bytes out of bounds: a[13], but a has 13 elements"),
        ("before_the_start", [floats(3), 0], "writes 4 bytes out of bounds: a[-1]"),
        ("before_the_start", [floats(3), 10001], "a[10000], but a has 3 elements"),
        ("unguarded_atomic", [np.zeros(3, np.int32), 3], "a[3], but a has 3 elements"),
        ("shared_write", [floats(3), 4], "writes 4 bytes out of bounds of tile (128 bytes)"),
        ("shared_read", [floats(3), 8], "reads 4 bytes out of bounds of tile (32 bytes)"),
        ("local_write", [floats(3), 4], "writes 4 bytes out of bounds of an array"),
        ("null_pointer", [floats(3), 0], "memory that belongs to no array"),
        ("misaligned_read", [floats(8), 3], "no multiple of what it takes at once: 16 bytes for float4"),
        ("misaligned_write", [floats(1), 5], "no multiple of what it takes at once: 16 bytes for float4, 8 for float2"),
        ("divides", [np.zeros(3, np.int32), 0], "divides an integer by zero"),
    ],
)
def test_crashes_name_the_line(function, arguments, says):
    message = mistake(function, arguments)
    assert message.startswith(f"tests/mistakes.cu:{line_of(function)}: {function} ")
    assert says in message


def test_fours_at_multiples_of_16_bytes_are_right():
    a = np.arange(12, dtype=np.float32)
    launch(MISTAKES, "misaligned_read", (1,), (1,), [a, 8])
    assert a[0] == 8 + 11


def test_a_write_past_dynamic_shared_memory_is_caught():
    message = mistake("dynamic_write", [floats(1), 1], shared_bytes=32)
    assert f":{line_of('dynamic_write')}: " in message
    assert "byte 32 of the dynamic shared memory, which has 32; thread (7, 0, 0) of block (0, 0, 0)" in message


def test_thread_and_block_of_a_crash_are_named():
    assert mistake("unguarded_write", [floats(13), 13]).endswith("thread (5, 0, 0) of block (1, 0, 0)")


@pytest.mark.parametrize(
    ("function", "threads", "says"),
    [
        ("some_return_early", 8, "reached by 3 of 8 threads of block ({block}, 0, 0); the others ended without it"),
        ("divergent_shuffle", 32, "__shfl_down_sync() reached by 3 of the 32 threads in its mask"),
        ("shuffle_or_barrier", 32, "3 of the 32 threads in its mask, in warp 0 of block ({block}, 0, 0); the others"),
        ("not_in_its_mask", 8, "__shfl_sync() called by a thread that is not in its mask"),
    ],
)
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_divergence_is_an_error(function, threads, says, order):
    message = mistake(function, [floats(1), 3], threads, order=order)
    assert message.startswith(f"tests/mistakes.cu:{line_of(function)}: {function}: ")
    assert says.format(block=0 if order == "forward" else 1) in message


def test_a_divergent_barrier_names_both_lines():
    message = mistake("divergent_barrier", [floats(1), 3])
    first, other = line_of("divergent_barrier"), line_of("its other branch")
    assert message.startswith(f"tests/mistakes.cu:{first}: divergent_barrier: __syncthreads() reached by 3 of 8 ")
    assert f"the others wait at line {other}" in message


def test_a_write_to_a_const_array_is_caught():
    message = mistake("casts_const_away", [floats(9), floats(9), 8])
    assert message == "tests/mistakes.cu: casts_const_away writes to a, which it declares const"
    same = floats(9)
    launch(MISTAKES, "casts_const_away", (1,), (1,), [same, same, 8])  # the other parameter may write it
    assert same[8] == 5


def test_an_endless_loop_is_ended_and_its_line_named():
    start = time.monotonic()
    message = mistake("endless", [floats(2), 1], time_limit=0.3)
    assert time.monotonic() - start < 30
    assert "endless did not end within 0.3 s: thread (0, 0, 0) of block (0, 0, 0) still runs" in message
    assert int(message.split(":")[1]) - line_of("endless") in (-1, 0)


# ---- the language

LANGUAGE = CudaSource(
    """
extern "C" __global__ void reduce(const float* a, float* sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = i < n ? a[i] : 0.0f;
    __shared__ float partial[32];
    for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(0xffffffffu, value, d);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
        if (threadIdx.x == 0) sums[blockIdx.x] = value;
    }
}
extern "C" __global__ void shuffles(int* out, int width) {
    int t = threadIdx.x;
    out[t] = __shfl_sync(0xffffffff, t, 5, width);
    out[32 + t] = __shfl_up_sync(0xffffffff, t, 3, width);
    out[64 + t] = __shfl_down_sync(0xffffffff, t, 3, width);
    out[96 + t] = __shfl_xor_sync(0xffffffff, t, 6, width);
    double wide = __shfl_sync(0xffffffff, t + 0.25, 31);
    out[128 + t] = (int)(4.0 * wide);
}
extern "C" __global__ void votes(int* out, int n) {
    int t = threadIdx.x;
    out[0] = __ballot_sync(0xffffffff, t < n);
    out[1] = __any_sync(0xffffffff, t == 31) + 10 * __any_sync(0xffffffff, t > 31);
    out[2] = __all_sync(0xffffffff, t < 32) + 10 * __all_sync(0xffffffff, t < 31);
    out[3] = __syncthreads_count(t < n);
    out[4] = __syncthreads_and(t < n) + 10 * __syncthreads_and(t < 99);
    out[5] = __syncthreads_or(t > 99) + 10 * __syncthreads_or(t == 0);
    out[6] = __popc(__activemask());
    __syncwarp();
}
extern "C" __global__ void half_warps(int* out, int n) {
    int t = threadIdx.x;
    if (t < 16) out[t] = __shfl_xor_sync(0x0000ffffu, t, 1);
    else out[t] = __shfl_xor_sync(0xffff0000u, t, 2);
}
extern "C" __global__ void atomics(int* a, unsigned int* u, float* f, double* d) {
    int t = threadIdx.x;
    atomicAdd(&a[0], t);
    atomicSub(&a[1], 1);
    atomicMax(&a[2], t);
    atomicMin(&a[3], -t);
    atomicExch(&a[4], 7);
    atomicCAS(&a[5], 0, t + 1);
    atomicOr(&u[0], 1u << t);
    atomicAnd(&u[1], ~(1u << t));
    atomicXor(&u[2], 1u << t % 4);
    atomicInc(&u[3], 9u);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 1);
}
extern "C" __global__ void histogram(const unsigned char* values, int* counts, int n) {
    extern __shared__ int local[];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[values[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&counts[i], local[i]);
}
extern "C" __global__ void places(int* out) {
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
        100000 * blockIdx.x + 10000 * blockIdx.y + 1000 * blockIdx.z +
        100 * threadIdx.x + 10 * threadIdx.y + threadIdx.z;
}
extern "C" __global__ void unwritten(float* out) {
    __shared__ float tile[32];
    out[threadIdx.x] = tile[threadIdx.x];
    tile[threadIdx.x] = 1.0f;
}
extern "C" __global__ void prints(int n) { printf("thread %d of %d\\n", threadIdx.x, n); }
__constant__ float table[3] = {1.5f, 2.5f, 3.5f};
extern "C" __global__ void __launch_bounds__(32, 1) mathematics(float* __restrict__ out, const float* __restrict__ in) {
    float x = __ldg(in);
    int i = 0;
    out[i++] = __expf(x) + rsqrtf(x) + __fdividef(1.0f, x) + fmaf(x, x, 1.0f) + __logf(x);
    out[i++] = min(3, 4) + max(3.0f, x) + fminf(x, NAN) + table[2];
    out[i++] = isnan(NAN) && isinf(INFINITY) && !isnan(x) && -INFINITY < 0.0f;
    out[i++] = __int_as_float(__float_as_int(x)) + __popc(0xf0f0) + __ffs(8) + __clz(1);
    float4 four = make_float4(1.0f, 2.0f, 3.0f, x);
    out[i++] = four.x + four.w + make_int2(3, 4).y;
    long long before = clock64();
#pragma unroll
    for (int k = 0; k < 3; k++) out[i] = k;
    out[i + 1] = clock64() > before && warpSize == 32;
}
extern "C" __global__ void everyone_meets(int* a, int* sums) {
    __shared__ int mine[4];
    mine[threadIdx.x] = blockIdx.x;
    a[blockIdx.x * blockDim.x + threadIdx.x] = 1;
#ifdef CUDA_ON_CPU
    cuda_on_cpu::grid_barrier();
#endif
    int sum = 100 * mine[threadIdx.x];
    for (int i = 0; i < gridDim.x * blockDim.x; i++) sum += a[i];
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
extern "C" __global__ void adds_one(const float* a, float* b) { b[0] += 1.0f; b[1] = a[0]; }
""",
    "tests/language.cu",
)


def integers(count: int) -> np.ndarray:
    return np.zeros(count, np.int32)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("threads", [32, 256, 1024])
def test_reduction_by_shuffles(order, threads):
    a = np.random.default_rng(0).random(2 * threads - 7, dtype=np.float32)
    sums = floats(2)
    launch(LANGUAGE, "reduce", (2,), (threads,), [a, sums, a.size], order=order)
    assert np.allclose(sums, [a[:threads].sum(dtype=float), a[threads:].sum(dtype=float)], rtol=1e-6)


@pytest.mark.parametrize("width", [32, 8])
def test_shuffles_read_the_lane_that_cuda_says(width):
    out = integers(160)
    launch(LANGUAGE, "shuffles", (1,), (32,), [out, width])
    lanes = np.arange(32)
    start = lanes // width * width
    assert out[:32].tolist() == (start + 5).tolist()
    assert out[32:64].tolist() == np.where(lanes - 3 < start, lanes, lanes - 3).tolist()
    assert out[64:96].tolist() == np.where(lanes + 3 >= start + width, lanes, lanes + 3).tolist()
    assert out[96:128].tolist() == (lanes ^ 6).tolist()
    assert (out[128:] == 31 * 4 + 1).all()


def test_parts_of_a_warp_shuffle_by_themselves():
    out = integers(32)
    launch(LANGUAGE, "half_warps", (1,), (32,), [out, 0], order="shuffled")
    lanes = np.arange(32)
    assert out.tolist() == np.where(lanes < 16, lanes ^ 1, lanes ^ 2).tolist()


def test_votes():
    out = integers(7)
    launch(LANGUAGE, "votes", (1,), (32,), [out, 5])
    assert out.tolist() == [0b11111, 1, 1, 5, 10, 10, 32]


@pytest.mark.parametrize("order", ORDERS)
def test_atomics(order):
    a, u = integers(6), np.array([0, 2**32 - 1, 0, 0], np.uint32)
    f, d = floats(1), np.zeros(1)
    launch(LANGUAGE, "atomics", (1,), (32,), [a, u, f, d], order=order)
    assert a[:5].tolist() == [496, -32, 31, -31, 7]
    assert a[5] == {"forward": 1, "reverse": 32}.get(order, a[5])  # the first to come
    assert 1 <= a[5] <= 32
    assert u.tolist() == [2**32 - 1, 0, 0, 2]
    assert (f[0], d[0]) == (16, 32)


@pytest.mark.parametrize("order", ORDERS)
def test_histogram_in_dynamic_shared_memory(order):
    values = np.random.default_rng(0).integers(0, 256, 1000).astype(np.uint8)
    counts = integers(256)
    launch(LANGUAGE, "histogram", (3,), (64,), [values, counts, values.size], shared_bytes=1024, order=order)
    assert counts.tolist() == np.bincount(values, minlength=256).tolist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("grid", "block"), [((2, 3), (4, 5)), ((2, 3, 4), (5, 2, 3)), ((6,), (7,)), ((1, 1, 1), (1, 1, 1))]
)
def test_every_thread_of_every_block_runs_once(grid, block, order):
    grid3, block3 = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
    out = np.full(np.prod(grid3 + block3), -1, np.int32)
    launch(LANGUAGE, "places", grid, block, [out], order=order, seed=5)
    bz, by, bx, tz, ty, tx = np.indices(grid3[::-1] + block3[::-1])
    assert out.tolist() == (100000 * bx + 10000 * by + 1000 * bz + 100 * tx + 10 * ty + tz).ravel().tolist()


def test_shared_memory_starts_as_nan_in_every_block():
    out = floats(32)
    launch(LANGUAGE, "unwritten", (3,), (32,), [out])
    assert np.isnan(out).all()


def test_printf_reaches_pythons_stdout(capsys):
    launch(LANGUAGE, "prints", (1,), (3,), [-4], order="reverse")
    assert capsys.readouterr().out == "thread 2 of -4\nthread 1 of -4\nthread 0 of -4\n"
    launch(LANGUAGE, "prints", (1,), (1,), [5])
    assert capsys.readouterr().out == "thread 0 of 5\n"


def test_mathematics():
    x = 2.0
    out = floats(7)
    launch(LANGUAGE, "mathematics", (1,), (1,), [out, np.array([x], np.float32)])
    functions = np.exp(x) + x**-0.5 + 1 / x + x * x + 1 + np.log(x)
    assert np.allclose(out, [functions, 3 + 3 + x + 3.5, 1, x + 8 + 4 + 31, 1 + x + 4, 2, 1], rtol=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_all_blocks_can_wait_for_each_other(order):
    a, sums = integers(20), integers(20)
    launch(LANGUAGE, "everyone_meets", (5,), (4,), [a, sums], order=order, seed=2)
    assert sums.tolist() == (np.arange(20) // 4 * 100 + 20).tolist()


def test_an_array_passed_twice_is_the_same_memory():
    a = floats(2)
    launch(LANGUAGE, "adds_one", (1,), (1,), [a, a])
    assert a.tolist() == [1, 1]


def test_constants_come_from_defines():
    for value in ("0.25f", "4.0f"):
        text = 'extern "C" __global__ void alpha(float* a) { a[0] = ALPHA; }'
        a = floats(1)
        launch(CudaSource(text, "tests/alpha.cu", (f"ALPHA={value}",)), "alpha", (1,), (1,), [a])
        assert a[0] == float(value[:-1])


def test_a_kernel_may_have_a_name_that_the_emulator_uses_too():
    names = ("call", "fence", "grid_barrier", "lane", "serve")
    text = "\n".join(f'extern "C" __global__ void {name}(int* a) {{ a[0] = {len(name)}; }}' for name in names)
    for name in names:
        launch(CudaSource(text, "tests/names.cu"), name, (1,), (1,), [found := integers(1)])
        assert found[0] == len(name)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"order": "random"}, "shuffled"),
        ({"time_limit": 0}, "time_limit"),
        ({"record": [], "most_records": 0}, "most_records"),
    ],
)
def test_wrong_options_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        launch(LANGUAGE, "prints", (1,), (1,), [1], **options)


# ---- races: each kernel marks with comments the line that is named, and the line of the other access

RACES = CudaSource(
    """
extern "C" __global__ void adds(float* a) {
    a[1] += 1.0f;  // adds
}
extern "C" __global__ void all_write_the_same(float* a) {
    a[0] = 1.0f;  // all_write_the_same
}
extern "C" __global__ void one_writes(float* a) {
    float x = a[0];  // other: one_writes
    if (threadIdx.x == 3) a[0] = x;  // one_writes
}
extern "C" __global__ void shared_for_private(float* a) {
    __shared__ float x;
    x = threadIdx.x;  // shared_for_private
    a[blockIdx.x * blockDim.x + threadIdx.x] = x;  // other: shared_for_private
}
extern "C" __global__ void dynamic(float* a) {
    extern __shared__ float x[];
    x[threadIdx.x] = 1.0f;  // other: dynamic
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x / 2];  // dynamic
}
extern "C" __global__ void bytes(float* a) {
    __shared__ unsigned char x[64];
    x[threadIdx.x] = 1;  // bytes
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x ^ 1];  // other: bytes
}
extern "C" __global__ void no_barrier_in_the_tree(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = 1.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2)
        if (threadIdx.x < half) x[threadIdx.x] += x[threadIdx.x + half];  // no_barrier_in_the_tree
}
extern "C" __global__ void sets_then_adds(float* a) {
    if (threadIdx.x == 0) a[0] = 0.0f;  // other: sets_then_adds
    atomicAdd(a, 1.0f);  // sets_then_adds
}
extern "C" __global__ void reads_what_others_add(float* a) {
    atomicAdd(a, 1.0f);  // reads_what_others_add
    if (*a > 3.0f) a[1 + blockIdx.x] = 1.0f;  // other: reads_what_others_add
}
__device__ void helper(float* a) {
    a[0] = threadIdx.x;  // in_a_function
}
extern "C" __global__ void in_a_function(float* a) { helper(a); }
extern "C" __global__ void four_at_once(float* a) {
    float4 b = make_float4(1, 2, 3, 4);
    *reinterpret_cast<float4*>(a + threadIdx.x / 2 * 4) = b;  // four_at_once
}
extern "C" __global__ void warps_do_not_wait(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = 1.0f;  // other: warps_do_not_wait
    __syncwarp();
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[63 - threadIdx.x];  // warps_do_not_wait
}
extern "C" __global__ void fence_only(float* a) {
    a[0] += 1.0f;  // fence_only
    __threadfence();
}

extern "C" __global__ void ok_atomics(float* a) {
    atomicAdd(a, 1.0f);
    atomicMax(reinterpret_cast<int*>(a + 1), 3);
    atomicCAS(reinterpret_cast<int*>(a + 2), 0, 1);
}
extern "C" __global__ void ok_own_cells(float* a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = i;
    a[i] += 1.0f;
}
extern "C" __global__ void ok_tree(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = 1.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) x[threadIdx.x] += x[threadIdx.x + half];
        __syncthreads();
    }
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[0];
}
extern "C" __global__ void ok_syncwarp(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = threadIdx.x;
    for (int distance = 1; distance < 32; distance *= 2) {
        __syncwarp();
        float y = x[threadIdx.x ^ distance];
        __syncwarp();
        x[threadIdx.x] += y;
    }
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void ok_shuffle_orders(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = 1.0f;
    float y = __shfl_xor_sync(0xffffffff, 1.0f, 1);
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x ^ 1] + y;
}
extern "C" __global__ void ok_reads(float* a) {
    float x = a[0] + a[1];
    if (x < 0.0f) a[0] = 1.0f;
}
extern "C" __global__ void ok_bytes(float* a) {
    __shared__ unsigned char x[64];
    x[threadIdx.x] = 1;
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void ok_grid_barrier(float* a) {
    __shared__ float x;
    if (threadIdx.x == 0) x = 1.0f;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = blockDim.x * gridDim.x;
    a[i] = x;
#ifdef CUDA_ON_CPU
    cuda_on_cpu::grid_barrier();
    float y = a[n - 1 - i];
    cuda_on_cpu::grid_barrier();
    a[i] = y;
#endif
}
__device__ int blocks_done;
extern "C" __global__ void ok_last_block(float* a) {
    __shared__ bool last;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = 1.0f;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&blocks_done, 1) % gridDim.x == gridDim.x - 1;
    __syncthreads();
    if (last) for (int k = 0; k < gridDim.x; k++) a[threadIdx.x] += k > 0 ? a[k * blockDim.x + threadIdx.x] : 0.0f;
}
extern "C" __global__ void ok_lock(float* a) {
    int* lock = reinterpret_cast<int*>(a + 1);
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    a[0] += 1.0f;
    __threadfence();
    atomicExch(lock, 0);
}
""",
    "tests/races.cu",
)
RIGHT = [name for name in kernels_in(RACES) if name.startswith("ok_")]
WRONG = [name for name in kernels_in(RACES) if name not in RIGHT]


def race(function: str, threads: int = 64, blocks: int = 2, **options) -> str:
    """What the emulator says about a race. Without looking for races nothing is wrong with these kernels."""
    with pytest.raises(EmulationError) as caught:
        launch(RACES, function, (blocks,), (threads,), [floats(128)], shared_bytes=256, races=True, **options)
    launch(RACES, function, (blocks,), (threads,), [floats(128)], shared_bytes=256, **options)
    return str(caught.value)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", RIGHT)
def test_no_race_where_none_is(function, order):
    for _ in range(2):  # what the launch before left behind is no race either
        launch(RACES, function, (2,), (64,), [floats(128)], shared_bytes=256, order=order, races=True)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", WRONG)
def test_a_race_is_found(function, order):
    message = race(function, order=order)
    assert message.startswith("tests/races.cu:") and "\n" not in message
    assert "both touch" in message


@pytest.mark.parametrize("function", WRONG)
def test_a_race_names_its_lines(function):
    lines = RACES.text.splitlines()
    first = [i for i, line in enumerate(lines, 1) if line.endswith("// " + function)]
    other = [i for i, line in enumerate(lines, 1) if line.endswith("// other: " + function)]
    message = race(function)
    assert message.startswith(f"tests/races.cu:{first[0]}: {function}: thread (")
    assert message.endswith(f"(the other access is in line {other[0]})") if other else "other" not in message


def test_a_race_names_threads_blocks_and_the_cell():
    assert race("adds") == (
        "tests/races.cu:3: adds: thread (1, 0, 0) and thread (0, 0, 0) of block (0, 0, 0) both touch a[1], one writes, "
        "with no barrier between them: is the index right? If it is: atomicAdd or __syncthreads()"
    )
    assert race("adds", threads=1) == (
        "tests/races.cu:3: adds: thread (0, 0, 0) of block (1, 0, 0) and thread (0, 0, 0) of block (0, 0, 0) both "
        "touch a[1], one writes, and blocks do not wait for each other: is the index right? If it is: use atomicAdd"
    )
    assert "both touch shared memory, one writes" in race("shared_for_private")
    assert "both touch dynamic shared memory, one writes" in race("dynamic")


def test_one_thread_cannot_race():
    launch(RACES, "adds", (1,), (1,), [floats(2)], races=True)


@pytest.mark.parametrize("function", ["naive", "tiled"])
def test_matrix_products_do_not_race(function):
    A = np.ones((19, 19), np.float32)
    launch(MATMUL, function, (3, 3), (8, 8), [A, A, np.zeros_like(A), 19, 19, 19], races=True)


# ---- recording: more in test_picture.py


@pytest.mark.parametrize("order", ORDERS)
def test_recording_changes_no_result_and_sees_every_access_once(order):
    a, sums, found = integers(20), integers(20), []
    launch(LANGUAGE, "everyone_meets", (5,), (4,), [a, sums], order=order, seed=2, record=found)
    assert sums.tolist() == (np.arange(20) // 4 * 100 + 20).tolist()
    assert [memory.name for memory in found[0].memories] == ["a", "sums", "mine"]
    rows = found[0].accesses
    reads = np.bincount(rows["memory"][rows["kind"] == READ], minlength=3)
    writes = np.bincount(rows["memory"][rows["kind"] == WRITE], minlength=3)
    assert (reads.tolist(), writes.tolist()) == ([400, 0, 20], [20, 20, 20])
    assert not rows["outside"].any()


def test_races_are_no_mistake_while_recording_and_are_one_afterwards():
    launch(RACES, "adds", (2,), (64,), [floats(128)], record=(found := []))
    assert (found[0].accesses["cell"] == 1).all()
    assert len(found[0].accesses) == 2 * 128
    assert "both touch a[1]" in race("adds")


# ---- the child process


def test_threads_take_turns():
    results = [floats(2) for _ in range(16)]

    def work(result):
        for _ in range(10):
            launch(LANGUAGE, "adds_one", (1,), (1,), [np.full(1, 5, np.float32), result])

    workers = [threading.Thread(target=work, args=(result,)) for result in results]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [result.tolist() for result in results] == [[10, 5]] * 16


def _add_in_another_process(queue):
    a = floats(2)
    launch(LANGUAGE, "adds_one", (1,), (1,), [a, a])
    queue.put(a.tolist())


def test_a_forked_process_has_a_child_of_its_own():
    a = floats(2)
    launch(LANGUAGE, "adds_one", (1,), (1,), [a, a])
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    process = fork.Process(target=_add_in_another_process, args=(queue,))
    process.start()
    assert queue.get(timeout=30) == [1, 1]
    process.join()
    launch(LANGUAGE, "adds_one", (1,), (1,), [a, a])
    assert a.tolist() == [2, 2]


def test_an_interrupted_launch_does_not_disturb_the_next():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without it
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            launch(MISTAKES, "endless", (1,), (1,), [floats(2), 1], time_limit=10)
            pytest.fail("the launch was not interrupted")
    finally:
        signal.signal(signal.SIGINT, before)
    after = floats(4)
    launch(MISTAKES, "fine", (1,), (4,), [after, 4])
    assert after.tolist() == [0, 1, 2, 3]


def test_an_endless_printf_is_ended_too(capsys):
    text = 'extern "C" __global__ void chatty(int n) { while (n) printf("again\\n"); }'
    with pytest.raises(EmulationError, match="chatty did not end within 0.3 s"):
        launch(CudaSource(text, "tests/chatty.cu"), "chatty", (1,), (1,), [1], time_limit=0.3)
    assert 1000 < capsys.readouterr().out.count("again\n") < 1_000_000


# ---- threads that sleep

SLEEPERS = CudaSource(
    """
// Block b waits until block b + 1 has come: the last one need not wait. The first come is the last block.
extern "C" __global__ void in_turns(int* flags, int* order) {
    __shared__ int mine[4];
    mine[threadIdx.x] = 10 * blockIdx.x + threadIdx.x;
    if (threadIdx.x == 0 && blockIdx.x + 1 < gridDim.x)
        while (atomicAdd(flags + blockIdx.x + 1, 0) == 0) __nanosleep(20);
    __syncwarp();  // the others wait for the sleeper
    if (threadIdx.x == 3) {
        order[blockIdx.x] = 1000 * atomicAdd(flags + gridDim.x, 1) + mine[2];
        __threadfence();
        atomicExch(flags + blockIdx.x, 1);
    }
}
extern "C" __global__ void alone(int* flags) { while (atomicAdd(flags, 0) == 0) __nanosleep(20); }
extern "C" __global__ void impatient(int* flags, int* seen) {
    const long long start = clock64();
    while (atomicAdd(flags, 0) == 0 && clock64() - start < 2000000000) __nanosleep(20);
    *seen = 1 + flags[0];
}
extern "C" __global__ void one_does_not_come(int* flags) {
    if (threadIdx.x == 0) __nanosleep(20);
    else __syncthreads();
}
""",
    "sleepers.cu",
)


@pytest.mark.parametrize("races", [False, True])
@pytest.mark.parametrize("order", emulate.ORDERS)
def test_a_sleeping_thread_lets_other_blocks_go_on(order, races):
    flags, order_of = np.zeros(6, np.int32), np.zeros(5, np.int32)
    launch(SLEEPERS, "in_turns", (5,), (4,), [flags, order_of], order=order, races=races)
    assert order_of.tolist() == [4002, 3012, 2022, 1032, 42]


def test_nobody_sleeps_for_ever():
    with pytest.raises(EmulationError, match="0.2 s"):
        launch(SLEEPERS, "alone", (2,), (32,), [np.zeros(1, np.int32)], time_limit=0.2)
    seen = np.zeros(1, np.int32)
    launch(SLEEPERS, "impatient", (1,), (1,), [np.zeros(1, np.int32), seen], time_limit=2.0)
    assert seen[0] == 1


def test_a_sleeper_that_does_not_come_to_the_barrier_is_a_mistake():
    with pytest.raises(EmulationError, match="31 of 32 threads"):
        launch(SLEEPERS, "one_does_not_come", (1,), (32,), [np.zeros(1, np.int32)])
