// Sixteen lanes of numbers, the same operations on every instruction set.
//
// A file that includes this is compiled once per instruction set, with FORERUN_ISA naming the namespace of that build, so
// that no inline function of one build can be linked into another. Everything is inlined: on narrow machines the compiler
// splits a vector of 64 bytes into the registers that there are. Multiplications and additions are fused where the
// instruction set can, always in the same places, so that a result doesn't depend on how a loop was unrolled.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define FORERUN_INLINE static inline __attribute__((always_inline))
#define FORERUN_INLINE_MEMBER inline __attribute__((always_inline))
#define FORERUN_APART static __attribute__((noinline))

namespace FORERUN_ISA {

constexpr int LANES = 16;
typedef float Floats __attribute__((vector_size(64), may_alias));
typedef int32_t Ints __attribute__((vector_size(64), may_alias));
typedef uint32_t Bits __attribute__((vector_size(64), may_alias));

FORERUN_INLINE Floats load(const float* from) {
  Floats value;
  memcpy(&value, from, sizeof value);
  return value;
}
FORERUN_INLINE void store(float* to, Floats value) { memcpy(to, &value, sizeof value); }
FORERUN_INLINE Ints load_bytes(const uint8_t* from) {
#if defined(__AVX512F__)
  return (Ints)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)from));
#else
  Ints value;
  for (int i = 0; i < LANES; i++) value[i] = from[i];
  return value;
#endif
}
FORERUN_INLINE Floats all(float value) { return value - Floats{}; }
FORERUN_INLINE Ints all_ints(int32_t value) { return value - Ints{}; }

FORERUN_INLINE Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  __m256 x[2], y[2], z[2];
  memcpy(x, &a, 64), memcpy(y, &b, 64), memcpy(z, &c, 64);
  z[0] = _mm256_fmadd_ps(x[0], y[0], z[0]), z[1] = _mm256_fmadd_ps(x[1], y[1], z[1]);
  memcpy(&c, z, 64);
  return c;
#else
  return a * b + c;
#endif
}

FORERUN_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
FORERUN_INLINE Floats magnitude(Floats a) { return (Floats)((Bits)a & 0x7fffffffu); }

FORERUN_INLINE float largest(Floats value) {
  float best = value[0];
  for (int i = 1; i < LANES; i++) best = value[i] > best ? value[i] : best;
  return best;
}

// Adds the lanes in one fixed order: halves, quarters, and so on.
FORERUN_INLINE float sum(Floats value) {
#if defined(__AVX512F__)
  const __m512 all16 = (__m512)value;
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(all16), _mm512_extractf32x8_ps(all16, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  float lanes[LANES];
  memcpy(lanes, &value, sizeof lanes);
  for (int width = LANES / 2; width; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
#endif
}

FORERUN_INLINE bool has_any(Ints mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#else
  int32_t found = 0;
  for (int i = 0; i < LANES; i++) found |= mask[i];
  return found != 0;
#endif
}

// Rounds half to even, for magnitudes below 2**22.
FORERUN_INLINE Ints rounded(Floats value) {
  const Floats magic = all(12582912.0f);
  return (Ints)(value + magic) - (Ints)magic;
}
FORERUN_INLINE Floats to_floats(Ints value) { return __builtin_convertvector(value, Floats); }

// 2 ** x with a relative error below 2e-7; 0 for x below -126, as for minus infinity; x is at most 127.
FORERUN_INLINE Floats exp2_of(Floats x) {
#if defined(__AVX512F__)
  // 2 ** (x - floor(x)), then an exponent: half the instructions of what follows.
  const Floats fraction = (Floats)_mm512_reduce_ps((__m512)x, 1);
  Floats power = all(1.86713e-3f);
  power = fused(power, fraction, all(9.01703e-3f));
  power = fused(power, fraction, all(5.579991e-2f));
  power = fused(power, fraction, all(2.4016445e-1f));
  power = fused(power, fraction, all(6.9315131e-1f));
  power = fused(power, fraction, all(1.0f));
  const __mmask16 is_seen = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ);
  return (Floats)_mm512_maskz_scalef_ps(is_seen, (__m512)power, (__m512)x);
#else
  const Floats bounded = larger(x, all(-126.0f));
  const Ints whole = rounded(bounded);
  const Floats rest = bounded - to_floats(whole);
  Floats series = all(1.54035e-4f);
  series = fused(series, rest, all(1.33335581e-3f));
  series = fused(series, rest, all(9.61812911e-3f));
  series = fused(series, rest, all(5.55041087e-2f));
  series = fused(series, rest, all(2.40226507e-1f));
  series = fused(series, rest, all(6.93147181e-1f));
  series = fused(series, rest, all(1.0f));
  const Floats scaled = (Floats)((Ints)series + (whole << 23));
  return x < all(-126.0f) ? Floats{} : scaled;
#endif
}

constexpr float LOG2_E = 1.44269504088896340736f;

// 1 / x, for x from 1 to 2**127, with a relative error below 2e-7.
FORERUN_INLINE Floats reciprocal(Floats x) {
#if defined(__AVX512F__)
  const Floats guess = (Floats)_mm512_rcp14_ps((__m512)x);  // a third of the time of a division
  return guess * fused(-x, guess, all(2.0f));
#else
  return all(1.0f) / x;
#endif
}

// x * sigmoid(x).
FORERUN_INLINE Floats silu_of(Floats x) {
  const Floats bounded = larger(all(-88.0f), x < all(88.0f) ? x : all(88.0f));
  const Floats decay = exp2_of(bounded * all(-LOG2_E));
  return x * reciprocal(all(1.0f) + decay);
}

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace FORERUN_ISA
