// CUDA C on the CPU, one thread after the other: for finding mistakes, not for speed. This file defines the language
// that a kernel sees: CUDA's types, functions and keywords. emulator_program.py compiles a .cu text after it, and links
// it with the code that all programs share, which is compiled once: cuda_on_cpu_program.h. AddressSanitizer checks
// memory accesses; a second program, compiled from the same text, detects races: cuda_on_cpu_races.h.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- types and variables of the language

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
#define VECTOR_TYPES(T, name, align2, align4)                                                     \
    struct alignas(align2) name##2 { T x, y; };                                                   \
    struct name##3 { T x, y, z; };                                                                \
    struct alignas(align4) name##4 { T x, y, z, w; };                                             \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                    \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                            \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTOR_TYPES(float, float, 8, 16)
VECTOR_TYPES(int, int, 8, 16)
VECTOR_TYPES(unsigned, uint, 8, 16)
VECTOR_TYPES(double, double, 16, 16)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

// ---- what a kernel needs of the part that all programs share: see cuda_on_cpu_threads.h for most of it

namespace cuda_on_cpu {

extern char dynamic_shared[];

int lane();
unsigned lanes_alive();
void fence();
int block_sum(const char* function, int line, int yes);
unsigned vote(const char* function, int line, unsigned mask, bool yes);
uint64_t shuffle_bits(const char* function, int line, unsigned mask, uint64_t value, int source);
void grid_barrier(int line = __builtin_LINE());
int print(const char* format, ...);
#ifdef CUDA_ON_CPU_RACES
void touch_atomically(void* address, size_t bytes, void* code);
void touch_to_read(const void* address, size_t bytes, void* code);
// Behind the .cu text's shared variables: who writes past the last one then harms nothing else.
#define ROOM_AFTER_SHARED_MEMORY __attribute__((used, section("cuda_shared"))) static char room_after_shared[4096];
#else
inline void touch_atomically(void*, size_t, void*) {}
inline void touch_to_read(const void*, size_t, void*) {}
#define ROOM_AFTER_SHARED_MEMORY
#endif

template <typename To, typename From>
To same_bits(From from) {
    To to = {};
    __builtin_memcpy(&to, &from, sizeof from < sizeof to ? sizeof from : sizeof to);
    return to;
}

template <typename T>
T shuffle(const char* function, int line, unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "shuffles take values of 4 or 8 bytes");
    return same_bits<T>(shuffle_bits(function, line, mask, same_bits<uint64_t>(value), source));
}

// Calls kernel(slot 0, slot 1, …), each slot read as the type that the kernel declares.
template <int... I>
struct Numbers {};
template <int N, int... I>
struct Count : Count<N - 1, N - 1, I...> {};
template <int... I>
struct Count<0, I...> {
    using type = Numbers<I...>;
};
template <typename... P, int... I>
void apply(void (*kernel)(P...), void** slots, Numbers<I...>) {
    kernel(*static_cast<P*>(slots[I])...);
}
template <typename... P>
void apply(void (*kernel)(P...), void** slots) {
    apply(kernel, slots, typename Count<sizeof...(P)>::type());
}

}  // namespace cuda_on_cpu

// Calls the kernel of that number; emulator_program.py writes it. Not in the namespace: there the name of a kernel could
// mean something else.
void cuda_on_cpu_call(int function, void** slots);

// ---- CUDA's functions. `line` is the line of the call in the .cu text.

#define LINE int line = __builtin_LINE()

inline void __syncthreads(LINE) { cuda_on_cpu::block_sum("__syncthreads", line, 0); }
inline int __syncthreads_count(int yes, LINE) { return cuda_on_cpu::block_sum("__syncthreads_count", line, yes); }
inline int __syncthreads_or(int yes, LINE) { return cuda_on_cpu::block_sum("__syncthreads_or", line, yes) > 0; }
inline int __syncthreads_and(int yes, LINE) { return cuda_on_cpu::block_sum("__syncthreads_and", line, !yes) == 0; }
inline void __threadfence() { cuda_on_cpu::fence(); }
inline void __threadfence_block() { cuda_on_cpu::fence(); }
inline void __threadfence_system() { cuda_on_cpu::fence(); }

inline void __syncwarp(unsigned mask = ~0u, LINE) { cuda_on_cpu::vote("__syncwarp", line, mask, false); }
inline unsigned __ballot_sync(unsigned mask, int yes, LINE) {
    return cuda_on_cpu::vote("__ballot_sync", line, mask, yes);
}
inline int __any_sync(unsigned mask, int yes, LINE) { return cuda_on_cpu::vote("__any_sync", line, mask, yes) != 0; }
inline int __all_sync(unsigned mask, int yes, LINE) { return cuda_on_cpu::vote("__all_sync", line, mask, !yes) == 0; }
inline unsigned __activemask() { return cuda_on_cpu::lanes_alive(); }

// Shuffles stay within groups of `width` lanes; a lane whose source is outside its group gets its own value.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, LINE) {
    const int lane = cuda_on_cpu::lane();
    return cuda_on_cpu::shuffle("__shfl_sync", line, mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, LINE) {
    const int lane = cuda_on_cpu::lane(), source = lane - int(distance);
    return cuda_on_cpu::shuffle("__shfl_up_sync", line, mask, value, source < (lane & ~(width - 1)) ? lane : source);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, LINE) {
    const int lane = cuda_on_cpu::lane(), source = lane + int(distance);
    return cuda_on_cpu::shuffle("__shfl_down_sync", line, mask, value, source > (lane | (width - 1)) ? lane : source);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, LINE) {
    const int lane = cuda_on_cpu::lane(), source = lane ^ bits;
    return cuda_on_cpu::shuffle("__shfl_xor_sync", line, mask, value, source > (lane | (width - 1)) ? lane : source);
}
#undef LINE

template <typename T>
struct Same {
    using type = T;
};

// Emulated threads cannot be interrupted between the read and the write, so plain statements are atomic here. For race
// detection each function counts as one atomic access, made by the line that calls it.
#define WATCHED_TEMPLATE template <typename T> __attribute__((no_sanitize("thread")))
#define TOUCH cuda_on_cpu::touch_atomically(address, sizeof(T), __builtin_return_address(0))
#define ATOMIC(name, result)                                                  \
    WATCHED_TEMPLATE                                                          \
    T name(T* address, typename Same<T>::type value) {                        \
        TOUCH;                                                                \
        T old = *address;                                                     \
        *address = result;                                                    \
        return old;                                                           \
    }
ATOMIC(atomicAdd, old + value)
ATOMIC(atomicSub, old - value)
ATOMIC(atomicMax, value > old ? value : old)
ATOMIC(atomicMin, value < old ? value : old)
ATOMIC(atomicExch, value)
ATOMIC(atomicAnd, old & value)
ATOMIC(atomicOr, old | value)
ATOMIC(atomicXor, old ^ value)
ATOMIC(atomicInc, old >= value ? 0 : old + 1)
ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
WATCHED_TEMPLATE
T atomicCAS(T* address, typename Same<T>::type expected, typename Same<T>::type value) {
    TOUCH;
    T old = *address;
    if (old == expected) *address = value;
    return old;
}
#undef ATOMIC
#undef TOUCH

WATCHED_TEMPLATE
T __ldg(const T* address) {
    cuda_on_cpu::touch_to_read(address, sizeof(T), __builtin_return_address(0));
    return *address;
}
#undef WATCHED_TEMPLATE

// As in CUDA: if one argument is NaN, the result is the other one.
template <typename A, typename B>
auto min(A a, B b) {
    const decltype(a + b) x = a, y = b;
    return x < y || y != y ? x : y;
}
template <typename A, typename B>
auto max(A a, B b) {
    const decltype(a + b) x = a, y = b;
    return x > y || y != y ? x : y;
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline int __float2int_rn(float x) { return lrintf(x); }
inline int __float2int_rz(float x) { return x; }
inline float __int2float_rn(int x) { return x; }
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __sincosf sincosf

inline int __float_as_int(float x) { return cuda_on_cpu::same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return cuda_on_cpu::same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return cuda_on_cpu::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return cuda_on_cpu::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return cuda_on_cpu::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return cuda_on_cpu::same_bits<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline unsigned __umulhi(unsigned x, unsigned y) { return uint64_t(x) * y >> 32; }

static long long clock_ticks;
inline long long clock64() { return ++clock_ticks; }
inline int clock() { return int(++clock_ticks); }
inline void __nanosleep(unsigned) {}

// ---- CUDA's keywords: last, because headers use some of these names

#define CUDA_ON_CPU 1  // lets a .cu text replace code that only a GPU can run
#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static __attribute__((section("cuda_shared")))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define printf cuda_on_cpu::print
