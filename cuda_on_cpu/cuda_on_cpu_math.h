// CUDA's mathematics on the CPU: the functions that NVRTC offers without any header. Those with a rounding direction
// round to the nearest; the fast ones (__expf, …) are as exact as the others.
#pragma once

// ---- the C library's functions, each for double and float

#define ONE(name)                                      \
    extern "C" double name(double) noexcept;           \
    extern "C" float name##f(float) noexcept;          \
    inline float name(float x) { return name##f(x); }
ONE(acos) ONE(acosh) ONE(asin) ONE(asinh) ONE(atan) ONE(atanh) ONE(cbrt) ONE(ceil) ONE(cos) ONE(cosh) ONE(erf) ONE(erfc)
ONE(exp) ONE(exp2) ONE(exp10) ONE(expm1) ONE(fabs) ONE(floor) ONE(lgamma) ONE(log) ONE(log10) ONE(log1p) ONE(log2)
ONE(logb) ONE(nearbyint) ONE(rint) ONE(round) ONE(sin) ONE(sinh) ONE(sqrt) ONE(tan) ONE(tanh) ONE(tgamma) ONE(trunc)
ONE(j0) ONE(j1) ONE(y0) ONE(y1)
#undef ONE

#define TWO(name)                                                    \
    extern "C" double name(double, double) noexcept;                 \
    extern "C" float name##f(float, float) noexcept;                 \
    inline float name(float x, float y) { return name##f(x, y); }
TWO(atan2) TWO(copysign) TWO(fdim) TWO(fmax) TWO(fmin) TWO(fmod) TWO(hypot) TWO(nextafter) TWO(pow) TWO(remainder)
#undef TWO

#define ROUNDED(T, name)                             \
    extern "C" T name(double) noexcept;              \
    extern "C" T name##f(float) noexcept;            \
    inline T name(float x) { return name##f(x); }
ROUNDED(int, ilogb) ROUNDED(long, lrint) ROUNDED(long, lround) ROUNDED(long long, llrint) ROUNDED(long long, llround)
#undef ROUNDED

extern "C" {
#define WITH(name, Second)                      \
    double name(double, Second) noexcept;       \
    float name##f(float, Second) noexcept;
WITH(frexp, int*) WITH(ldexp, int) WITH(scalbn, int) WITH(scalbln, long)
#undef WITH
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double modf(double, double*) noexcept;
float modff(float, float*) noexcept;
double remquo(double, double, int*) noexcept;
float remquof(float, float, int*) noexcept;
void sincos(double, double*, double*) noexcept;
void sincosf(float, float*, float*) noexcept;
double jn(int, double) noexcept;
float jnf(int, float) noexcept;
double yn(int, double) noexcept;
float ynf(int, float) noexcept;
double nan(const char*) noexcept;
float nanf(const char*) noexcept;
int abs(int) noexcept;
long labs(long) noexcept;
long long llabs(long long) noexcept;
}
inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
inline float frexp(float x, int* exponent) { return frexpf(x, exponent); }
inline float ldexp(float x, int exponent) { return ldexpf(x, exponent); }
inline float scalbn(float x, int exponent) { return scalbnf(x, exponent); }
inline float modf(float x, float* whole) { return modff(x, whole); }
inline void sincos(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }
inline float pow(float x, int y) { return powf(x, float(y)); }
inline double pow(double x, int y) { return pow(x, double(y)); }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }
inline long abs(long x) { return labs(x); }
inline long long abs(long long x) { return llabs(x); }

#define PREDICATE(name)      \
    template <typename T>    \
    bool name(T x) { return __builtin_##name(x); }
PREDICATE(isnan) PREDICATE(isinf) PREDICATE(isfinite) PREDICATE(signbit)
#undef PREDICATE

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
#define MIN_MAX(T, min, max)                              \
    inline T min(T a, T b) { return a < b ? a : b; }      \
    inline T max(T a, T b) { return a > b ? a : b; }
MIN_MAX(unsigned, umin, umax) MIN_MAX(long long, llmin, llmax) MIN_MAX(unsigned long long, ullmin, ullmax)
#undef MIN_MAX

// ---- CUDA's own functions: `float` ones end in f; computed in double precision, so that they are exact enough

namespace cuda_on_cpu {
const double PI = 3.14159265358979323846;
inline double sinpi(double x) {
    const double rest = ::fmod(x, 2.0);  // exact, so that whole numbers give zero
    return rest == ::floor(rest) ? ::copysign(0.0, x) : ::sin(PI * rest);
}
inline double cospi(double x) {
    const double rest = ::fmod(::fabs(x), 2.0);
    return rest == 0.5 || rest == 1.5 ? 0.0 : ::cos(PI * rest);
}
// exp(x²) erfc(x): for large x, where erfc is 0, by its series
inline double erfcx(double x) {
    if (x < 25) return ::exp(x * x) * ::erfc(x);
    const double r = 1 / (x * x);
    return (1 - r / 2 * (1 - 3 * r / 2 * (1 - 5 * r / 2))) / (x * 1.7724538509055160273);
}
// Φ⁻¹, by bisection of erfc: slow, and exact
inline double normcdfinv(double p) {
    if (!(p > 0 && p < 1)) return p == 0 ? -__builtin_inf() : p == 1 ? __builtin_inf() : __builtin_nan("");
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        (::erfc(-middle / 1.41421356237309504880) / 2 < p ? low : high) = middle;
    }
    return (low + high) / 2;
}
template <typename T>
double norm(int count, const T* values) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += double(values[i]) * values[i];
    return ::sqrt(sum);
}
}  // namespace cuda_on_cpu

#define BOTH_ONE(name, result)                                   \
    inline double name(double x) { return result; }              \
    inline float name##f(float x) { return float(name(double(x))); }
BOTH_ONE(rsqrt, 1.0 / sqrt(x))
BOTH_ONE(rcbrt, 1.0 / cbrt(x))
BOTH_ONE(sinpi, cuda_on_cpu::sinpi(x))
BOTH_ONE(cospi, cuda_on_cpu::cospi(x))
BOTH_ONE(erfcx, cuda_on_cpu::erfcx(x))
BOTH_ONE(normcdf, erfc(-x / 1.41421356237309504880) / 2)
BOTH_ONE(normcdfinv, cuda_on_cpu::normcdfinv(x))
BOTH_ONE(erfinv, cuda_on_cpu::normcdfinv((x + 1) / 2) / 1.41421356237309504880)
BOTH_ONE(erfcinv, -cuda_on_cpu::normcdfinv(x / 2) / 1.41421356237309504880)
#undef BOTH_ONE
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
inline float rhypotf(float x, float y) { return float(1.0 / hypot(double(x), double(y))); }
inline double norm3d(double a, double b, double c) { const double v[] = {a, b, c}; return cuda_on_cpu::norm(3, v); }
inline double norm4d(double a, double b, double c, double d) {
    const double v[] = {a, b, c, d};
    return cuda_on_cpu::norm(4, v);
}
inline double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
inline double rnorm4d(double a, double b, double c, double d) { return 1.0 / norm4d(a, b, c, d); }
inline float norm3df(float a, float b, float c) { return float(norm3d(a, b, c)); }
inline float norm4df(float a, float b, float c, float d) { return float(norm4d(a, b, c, d)); }
inline float rnorm3df(float a, float b, float c) { return float(rnorm3d(a, b, c)); }
inline float rnorm4df(float a, float b, float c, float d) { return float(rnorm4d(a, b, c, d)); }
inline double norm(int count, const double* values) { return cuda_on_cpu::norm(count, values); }
inline float normf(int count, const float* values) { return float(cuda_on_cpu::norm(count, values)); }
inline double rnorm(int count, const double* values) { return 1.0 / cuda_on_cpu::norm(count, values); }
inline float rnormf(int count, const float* values) { return float(1.0 / cuda_on_cpu::norm(count, values)); }
inline void sincospi(double x, double* sine, double* cosine) { *sine = sinpi(x), *cosine = cospi(x); }
inline void sincospif(float x, float* sine, float* cosine) { *sine = sinpif(x), *cosine = cospif(x); }
inline float fdividef(float x, float y) { return x / y; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
#define FAST(name) inline float __##name(float x) { return name(x); }
FAST(expf) FAST(exp10f) FAST(logf) FAST(log2f) FAST(log10f) FAST(sinf) FAST(cosf) FAST(tanf) FAST(tanhf)
#undef FAST
inline float __powf(float x, float y) { return powf(x, y); }
inline void __sincosf(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }

#define ROUNDINGS(define) define(rn) define(rz) define(ru) define(rd)
#define ARITHMETIC(way)                                                                 \
    inline float __fadd_##way(float x, float y) { return x + y; }                       \
    inline float __fsub_##way(float x, float y) { return x - y; }                       \
    inline float __fmul_##way(float x, float y) { return x * y; }                       \
    inline float __fdiv_##way(float x, float y) { return x / y; }                       \
    inline float __fmaf_##way(float x, float y, float z) { return fmaf(x, y, z); }      \
    inline float __frcp_##way(float x) { return 1.0f / x; }                             \
    inline float __fsqrt_##way(float x) { return sqrtf(x); }                            \
    inline double __dadd_##way(double x, double y) { return x + y; }                    \
    inline double __dsub_##way(double x, double y) { return x - y; }                    \
    inline double __dmul_##way(double x, double y) { return x * y; }                    \
    inline double __ddiv_##way(double x, double y) { return x / y; }                    \
    inline double __fma_##way(double x, double y, double z) { return fma(x, y, z); }    \
    inline double __drcp_##way(double x) { return 1.0 / x; }                            \
    inline double __dsqrt_##way(double x) { return sqrt(x); }                           \
    inline float __double2float_##way(double x) { return float(x); }
ROUNDINGS(ARITHMETIC)
#undef ARITHMETIC

// ---- conversions. As on a GPU, numbers out of range become the nearest whole number of the type; NaN becomes 0, or 1
// << 63.

namespace cuda_on_cpu {
template <typename T>
T whole(double x) {
    const bool is_signed = T(-1) < T(0);
    const double end = is_signed ? double(T(1) << (8 * sizeof(T) - 2)) * 2 : double(T(1) << (8 * sizeof(T) - 1)) * 2;
    const T lowest = is_signed ? T(T(1) << (8 * sizeof(T) - 1)) : T(0);
    if (x != x) return sizeof(T) == 8 ? T(T(1) << 63) : T(0);
    return x >= end ? T(~lowest) : x <= (is_signed ? -end : 0.0) ? lowest : T(x);
}
inline double rounded_rn(double x) { return __builtin_rint(x); }
inline double rounded_rz(double x) { return __builtin_trunc(x); }
inline double rounded_ru(double x) { return __builtin_ceil(x); }
inline double rounded_rd(double x) { return __builtin_floor(x); }
}  // namespace cuda_on_cpu

#define TO_WHOLE(From, T, name, way) \
    inline T name##_##way(From x) { return cuda_on_cpu::whole<T>(cuda_on_cpu::rounded_##way(x)); }
#define CONVERSIONS(way)                                                                                   \
    TO_WHOLE(float, int, __float2int, way)                                                                 \
    TO_WHOLE(float, unsigned, __float2uint, way)                                                           \
    TO_WHOLE(float, long long, __float2ll, way)                                                            \
    TO_WHOLE(float, unsigned long long, __float2ull, way)                                                  \
    TO_WHOLE(double, int, __double2int, way)                                                               \
    TO_WHOLE(double, unsigned, __double2uint, way)                                                         \
    TO_WHOLE(double, long long, __double2ll, way)                                                          \
    TO_WHOLE(double, unsigned long long, __double2ull, way)                                                \
    inline float __int2float_##way(int x) { return float(x); }                                             \
    inline float __uint2float_##way(unsigned x) { return float(x); }                                       \
    inline float __ll2float_##way(long long x) { return float(x); }                                        \
    inline float __ull2float_##way(unsigned long long x) { return float(x); }                              \
    inline double __ll2double_##way(long long x) { return double(x); }                                     \
    inline double __ull2double_##way(unsigned long long x) { return double(x); }
ROUNDINGS(CONVERSIONS)
#undef CONVERSIONS
#undef TO_WHOLE
#undef ROUNDINGS
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

inline int __float_as_int(float x) { return cuda_on_cpu::same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return cuda_on_cpu::same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return cuda_on_cpu::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return cuda_on_cpu::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return cuda_on_cpu::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return cuda_on_cpu::same_bits<double>(x); }
inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return int(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)unsigned(high) << 32 | unsigned(low)));
}

// ---- whole numbers

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; bit++) reversed |= (x >> bit & 1) << (31 - bit);
    return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned long long)x * y >> 32; }
inline int __mulhi(int x, int y) { return (long long)x * y >> 32; }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) { return (unsigned __int128)x * y >> 64; }
inline long long __mul64hi(long long x, long long y) { return (__int128)x * y >> 64; }
inline int __mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
inline unsigned __sad(int x, int y, unsigned z) { return (x < y ? unsigned(y) - x : unsigned(x) - y) + z; }
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x < y ? y - x : x - y) + z; }
inline int __hadd(int x, int y) { return ((long long)x + y) >> 1; }
inline int __rhadd(int x, int y) { return ((long long)x + y + 1) >> 1; }
inline unsigned __uhadd(unsigned x, unsigned y) { return ((unsigned long long)x + y) >> 1; }
inline unsigned __urhadd(unsigned x, unsigned y) { return ((unsigned long long)x + y + 1) >> 1; }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return ((unsigned long long)high << 32 | low) << (by & 31) >> 32;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return ((unsigned long long)high << 32 | low) >> (by & 31);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
    return by >= 32 ? low : __funnelshift_l(low, high, by);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
    return by >= 32 ? high : __funnelshift_r(low, high, by);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) result |= unsigned(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return result;
}
inline int __dp4a(int x, int y, int sum) {
    for (int i = 0; i < 32; i += 8) sum += int(static_cast<signed char>(x >> i)) * static_cast<signed char>(y >> i);
    return sum;
}
inline unsigned __dp4a(unsigned x, unsigned y, unsigned sum) {
    for (int i = 0; i < 32; i += 8) sum += (x >> i & 0xff) * (y >> i & 0xff);
    return sum;
}

// ---- memory. A read or write of a range counts as one access by the line that calls it.

namespace cuda_on_cpu {
__attribute__((noinline, no_sanitize("thread"))) inline void* copy(void* to, const void* from, size_t bytes) {
    touch_to_read(from, bytes, __builtin_return_address(0));
    touch_to_write(to, bytes, __builtin_return_address(0));
    for (size_t i = 0; i < bytes; i++) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
    return to;
}
__attribute__((noinline, no_sanitize("thread"))) inline void* fill(void* to, int value, size_t bytes) {
    touch_to_write(to, bytes, __builtin_return_address(0));
    for (size_t i = 0; i < bytes; i++) static_cast<char*>(to)[i] = char(value);
    return to;
}
}  // namespace cuda_on_cpu
#define memcpy cuda_on_cpu::copy
#define memset cuda_on_cpu::fill

// ---- time, which advances with each call of a clock, and while threads sleep

using clock_t = long;
namespace cuda_on_cpu {
extern long long ticks;
}
inline long long clock64() { return ++cuda_on_cpu::ticks; }
inline clock_t clock() { return ++cuda_on_cpu::ticks; }
inline void __nanosleep(unsigned, int line = __builtin_LINE()) { cuda_on_cpu::nap(line); }
