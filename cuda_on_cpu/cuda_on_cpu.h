// CUDA C on the CPU, one thread after the other: for finding mistakes, not for speed. This file defines the language
// that a kernel sees: CUDA's types, functions and keywords, but no system header. program.py compiles a .cu text after
// it, and links it with the code that all programs share, which is compiled once: cuda_on_cpu_program.h.
// AddressSanitizer checks memory accesses; a second program, compiled from the same text, detects races:
// cuda_on_cpu_races.h.
#pragma once

// ---- types and variables of the language

using size_t = decltype(sizeof 0);
using ptrdiff_t = decltype((char*)nullptr - (char*)nullptr);

// A vector that a call returns is made of one copy, which the race detector sees as one access where it is assigned to
// memory. Of a function that is not inlined it would see none: the call's result goes straight to memory.
#define MADE(name, ...) {                                                                         \
        name made;                                                                                \
        const decltype(made.x) numbers[] = {__VA_ARGS__};                                         \
        return __builtin_memcpy(&made, numbers, sizeof made), made;                               \
    }
#define INLINE __attribute__((always_inline)) inline
#define VECTOR_TYPES(T, name, align2, align4)                                                     \
    struct name##1 { T x; };                                                                      \
    struct alignas(align2) name##2 { T x, y; };                                                   \
    struct name##3 { T x, y, z; };                                                                \
    struct alignas(align4) name##4 { T x, y, z, w; };                                             \
    INLINE name##1 make_##name##1(T x) MADE(name##1, x)                                           \
    INLINE name##2 make_##name##2(T x, T y) MADE(name##2, x, y)                                   \
    INLINE name##3 make_##name##3(T x, T y, T z) MADE(name##3, x, y, z)                           \
    INLINE name##4 make_##name##4(T x, T y, T z, T w) MADE(name##4, x, y, z, w)
VECTOR_TYPES(signed char, char, 2, 4)
VECTOR_TYPES(unsigned char, uchar, 2, 4)
VECTOR_TYPES(short, short, 4, 8)
VECTOR_TYPES(unsigned short, ushort, 4, 8)
VECTOR_TYPES(int, int, 8, 16)
VECTOR_TYPES(unsigned, uint, 8, 16)
VECTOR_TYPES(long, long, 16, 16)
VECTOR_TYPES(unsigned long, ulong, 16, 16)
VECTOR_TYPES(long long, longlong, 16, 16)
VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
VECTOR_TYPES(float, float, 8, 16)
VECTOR_TYPES(double, double, 16, 16)
#undef VECTOR_TYPES
#undef INLINE
#undef MADE

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 from) : x(from.x), y(from.y), z(from.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

// ---- declarations of the code that all programs share; most of it is in cuda_on_cpu_threads.h

namespace cuda_on_cpu {

extern char dynamic_shared[];

// A call of a function in which threads wait for each other. `site` is the address it returns to: two calls in one line
// are two calls.
struct Call {
    const char* function;
    int line;
    const void* site;
};

// What a warp function computes from the lanes' values; a number below 32 is the lane that a shuffle reads.
enum { VOTE = 32, MATCH, SUM, LEAST, GREATEST, LEAST_UNSIGNED, GREATEST_UNSIGNED, ALL_BITS, ANY_BITS, ODD_BITS, PRODUCT };

int lane();
unsigned lanes_alive();
void fence();
int block_sum(Call call, int yes);
unsigned long long exchanged(Call call, unsigned mask, unsigned long long value, int what);
void grid_barrier(int line = __builtin_LINE());
void nap(int line);
void let_others_first();
int print(const char* format, ...);
void* allocate(size_t bytes);
void release(void* memory);
void trap(int line);  // not [[noreturn]]: AddressSanitizer would look for the end of a stack that it does not know
void failed_assertion(const char* condition, int line);
#ifdef CUDA_ON_CPU_RACES
void touch_atomically(void* address, size_t bytes, void* code, bool exchanges);
void touch_to_read(const void* address, size_t bytes, void* code);
void touch_to_write(void* address, size_t bytes, void* code);
#else
inline void touch_atomically(void*, size_t, void*, bool) {}
inline void touch_to_read(const void*, size_t, void*) {}
inline void touch_to_write(void*, size_t, void*) {}
#endif

template <typename To, typename From>
To same_bits(From from) {
    To to = {};
    __builtin_memcpy(&to, &from, sizeof from < sizeof to ? sizeof from : sizeof to);
    return to;
}

template <typename T>
T shuffle(Call call, unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "shuffles take values of 4 or 8 bytes");
    return same_bits<T>(exchanged(call, mask, same_bits<unsigned long long>(value), source & 31));
}

template <typename T>
unsigned match(Call call, unsigned mask, T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "values of 4 or 8 bytes can be matched");
    return exchanged(call, mask, same_bits<unsigned long long>(value), MATCH);
}

// ---- tensor cores: a twin for each PTX instruction, since a text with asm does not run here

// A lane's share of a product of matrices, 16 x 8 += 16 x 8 times 8 x 8, as PTX's mma.sync.m16n8k8 shares them out.
// With g = lane / 4 and t = lane % 4 they are
//     sums  rows g, g, g + 8, g + 8 and columns 2 t, 2 t + 1, 2 t, 2 t + 1
//     a     rows g, g + 8, g, g + 8 and columns t, t, t + 4, t + 4
//     b     rows t, t + 4 and column g
struct Fragments {
    float sums[4];
    unsigned a[4], b[2];
};

// cvt.rna.tf32.f32: rounded to 10 bits of mantissa, ties away from zero. NaN stays NaN.
inline unsigned rounded_to_tf32(float number) {
    const unsigned bits = same_bits<unsigned>(number);
    return number == number ? (bits + 0x1000u) & ~0x1fffu : 0x7fffffffu;
}

// mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32: all 32 lanes of a warp meet in it. The last 13 bits of a and b
// are ignored; products are exact, and each sum is rounded once.
__attribute__((noinline)) inline void multiply_tf32(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                                    int line = __builtin_LINE()) {
    Fragments own = {{sums[0], sums[1], sums[2], sums[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    exchanged({"mma.sync", line, __builtin_return_address(0)}, ~0u, reinterpret_cast<unsigned long long>(&own), PRODUCT);
    for (int i = 0; i < 4; i++) sums[i] = own.sums[i];
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

// Calls the kernel of that number; program.py generates it. Not in the namespace, where a kernel's name could mean
// something else.
void cuda_on_cpu_call(int function, void** slots);

// ---- CUDA's functions. `line` is the line of the call in the .cu text.

// Not inlined, so that each call has its own return address.
#define WAITS __attribute__((noinline)) inline
#define LINE int line = __builtin_LINE()
#define CALL (cuda_on_cpu::Call{__func__, line, __builtin_return_address(0)})

WAITS void __syncthreads(LINE) { cuda_on_cpu::block_sum(CALL, 0); }
WAITS int __syncthreads_count(int yes, LINE) { return cuda_on_cpu::block_sum(CALL, yes); }
WAITS int __syncthreads_or(int yes, LINE) { return cuda_on_cpu::block_sum(CALL, yes) > 0; }
WAITS int __syncthreads_and(int yes, LINE) { return cuda_on_cpu::block_sum(CALL, !yes) == 0; }
inline void __threadfence() { cuda_on_cpu::fence(); }
inline void __threadfence_block() { cuda_on_cpu::fence(); }
inline void __threadfence_system() { cuda_on_cpu::fence(); }

WAITS void __syncwarp(unsigned mask = ~0u, LINE) { cuda_on_cpu::exchanged(CALL, mask, 0, cuda_on_cpu::VOTE); }
WAITS unsigned __ballot_sync(unsigned mask, int yes, LINE) {
    return cuda_on_cpu::exchanged(CALL, mask, yes != 0, cuda_on_cpu::VOTE);
}
WAITS int __any_sync(unsigned mask, int yes, LINE) {
    return cuda_on_cpu::exchanged(CALL, mask, yes != 0, cuda_on_cpu::VOTE) != 0;
}
WAITS int __all_sync(unsigned mask, int yes, LINE) {
    return cuda_on_cpu::exchanged(CALL, mask, yes == 0, cuda_on_cpu::VOTE) == 0;
}
inline unsigned __activemask() { return cuda_on_cpu::lanes_alive(); }

// Shuffles stay within groups of `width` lanes; a lane whose source is outside its group gets its own value.
template <typename T>
WAITS T __shfl_sync(unsigned mask, T value, int source, int width = 32, LINE) {
    const int lane = cuda_on_cpu::lane();
    return cuda_on_cpu::shuffle(CALL, mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <typename T>
WAITS T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, LINE) {
    const int lane = cuda_on_cpu::lane(), source = lane - int(distance);
    return cuda_on_cpu::shuffle(CALL, mask, value, source < (lane & ~(width - 1)) ? lane : source);
}
template <typename T>
WAITS T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, LINE) {
    const int lane = cuda_on_cpu::lane(), source = lane + int(distance);
    return cuda_on_cpu::shuffle(CALL, mask, value, source > (lane | (width - 1)) ? lane : source);
}
template <typename T>
WAITS T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, LINE) {
    const int lane = cuda_on_cpu::lane(), source = lane ^ bits;
    return cuda_on_cpu::shuffle(CALL, mask, value, source > (lane | (width - 1)) ? lane : source);
}

// The lanes with the same value as this one; all lanes of the mask if they agree, else 0.
template <typename T>
WAITS unsigned __match_any_sync(unsigned mask, T value, LINE) {
    return cuda_on_cpu::match(CALL, mask, value);
}
template <typename T>
WAITS unsigned __match_all_sync(unsigned mask, T value, int* agree, LINE) {
    *agree = cuda_on_cpu::match(CALL, mask, value) == mask;
    return *agree ? mask : 0;
}

#define REDUCTION(T, name, what)                                                   \
    WAITS T name(unsigned mask, T value, LINE) {                                   \
        return cuda_on_cpu::exchanged(CALL, mask, value, cuda_on_cpu::what);       \
    }
REDUCTION(int, __reduce_add_sync, SUM)
REDUCTION(int, __reduce_min_sync, LEAST)
REDUCTION(int, __reduce_max_sync, GREATEST)
REDUCTION(unsigned, __reduce_add_sync, SUM)
REDUCTION(unsigned, __reduce_min_sync, LEAST_UNSIGNED)
REDUCTION(unsigned, __reduce_max_sync, GREATEST_UNSIGNED)
REDUCTION(unsigned, __reduce_and_sync, ALL_BITS)
REDUCTION(unsigned, __reduce_or_sync, ANY_BITS)
REDUCTION(unsigned, __reduce_xor_sync, ODD_BITS)
#undef REDUCTION
#undef CALL
#undef WAITS

inline void __trap(LINE) { cuda_on_cpu::trap(line); }
#undef LINE

template <typename T>
struct Same {
    using type = T;
};

// Emulated threads cannot be interrupted between the read and the write, so plain statements are atomic here. For race
// detection each function counts as one access, made by the line that calls it.
#define WATCHED_TEMPLATE template <typename T> __attribute__((noinline, no_sanitize("thread")))
#define CODE __builtin_return_address(0)
#define ATOMIC(name, result)                                                  \
    WATCHED_TEMPLATE                                                          \
    T name(T* address, typename Same<T>::type value) {                        \
        cuda_on_cpu::touch_atomically(address, sizeof(T), CODE, false);       \
        T old = *address;                                                     \
        *address = result;                                                    \
        return old;                                                           \
    }
#define ATOMICS(name, result) ATOMIC(name, result) ATOMIC(name##_block, result) ATOMIC(name##_system, result)
ATOMICS(atomicAdd, old + value)
ATOMICS(atomicSub, old - value)
ATOMICS(atomicMax, value > old ? value : old)
ATOMICS(atomicMin, value < old ? value : old)
ATOMICS(atomicExch, value)
ATOMICS(atomicAnd, old & value)
ATOMICS(atomicOr, old | value)
ATOMICS(atomicXor, old ^ value)
ATOMICS(atomicInc, old >= value ? 0 : old + 1)
ATOMICS(atomicDec, old == 0 || old > value ? value : old - 1)
#undef ATOMIC
#undef ATOMICS
#define COMPARE_AND_SWAP(name)                                                                \
    WATCHED_TEMPLATE                                                                          \
    T name(T* address, typename Same<T>::type expected, typename Same<T>::type value) {       \
        cuda_on_cpu::touch_atomically(address, sizeof(T), CODE, true);                        \
        cuda_on_cpu::let_others_first();                                                      \
        T old = *address;                                                                     \
        if (old == expected) *address = value;                                                \
        return old;                                                                           \
    }
COMPARE_AND_SWAP(atomicCAS)
COMPARE_AND_SWAP(atomicCAS_block)
COMPARE_AND_SWAP(atomicCAS_system)
#undef COMPARE_AND_SWAP

// Loads and stores with advice to the caches, which are not emulated.
#define LOAD(name)                                                      \
    WATCHED_TEMPLATE                                                    \
    T name(const T* address) {                                          \
        cuda_on_cpu::touch_to_read(address, sizeof(T), CODE);           \
        return *address;                                                \
    }
LOAD(__ldg)
LOAD(__ldca)
LOAD(__ldcg)
LOAD(__ldcs)
LOAD(__ldlu)
LOAD(__ldcv)
#undef LOAD
#define STORE(name)                                                     \
    WATCHED_TEMPLATE                                                    \
    void name(T* address, typename Same<T>::type value) {               \
        cuda_on_cpu::touch_to_write(address, sizeof(T), CODE);          \
        *address = value;                                               \
    }
STORE(__stwb)
STORE(__stcg)
STORE(__stcs)
STORE(__stwt)
#undef STORE
#undef CODE
#undef WATCHED_TEMPLATE

#ifndef CUDA_ON_CPU_PROGRAM
#include "cuda_on_cpu_math.h"
#endif

// ---- CUDA's keywords and macros: last, because headers use some of these names

#define CUDA_ON_CPU 1  // lets a .cu text of the package replace code that only a GPU can run
#define __CUDA_ARCH__ 900
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define __CUDA_ARCH_LIST__ 900
#define __EDG__ 1
#define __EXCEPTIONS 1
#define __LP64__ 1
#define __global__
#define __device__
#define __host__
#define __managed__
#define __grid_constant__
#define __constant__
#define __shared__ static  // cuda_on_cpu.ld collects them
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_assume(condition) static_cast<void>(0)
#define __builtin_assume_aligned(pointer, ...) (pointer)
#define assert(...) ((__VA_ARGS__) ? static_cast<void>(0) : cuda_on_cpu::failed_assertion(#__VA_ARGS__, __LINE__))
#ifndef CUDA_ON_CPU_PROGRAM
#define NULL nullptr
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define printf cuda_on_cpu::print
#define malloc cuda_on_cpu::allocate
#define free cuda_on_cpu::release
// PTX is not an assembly language of this processor: the compiler shall report an unknown name.
#define asm the_emulator_has_no_asm
#define __asm the_emulator_has_no_asm
#define __asm__ the_emulator_has_no_asm
#endif
