// Vectors of one register, for loops that must keep many of them: where registers are narrower than the sixteen lanes of
// vector.h, compilers keep those in memory. Operations are lane by lane, so a width changes no bit.
#pragma once
#include "plugins/native/vector.h"
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace FORERUN_ISA {

#if defined(__AVX512F__)
constexpr int REGISTER_LANES = 16;
constexpr int ROWS_AT_ONCE = 8;  // of 16 lanes each, that fit the registers with room for their factors
#elif defined(__AVX2__)
constexpr int REGISTER_LANES = 8;
constexpr int ROWS_AT_ONCE = 4;
#else
constexpr int REGISTER_LANES = 4;
constexpr int ROWS_AT_ONCE = 2;
#endif
constexpr int REGISTERS = LANES / REGISTER_LANES;  // for 16 lanes
typedef float Register __attribute__((vector_size(4 * REGISTER_LANES), may_alias));

FORERUN_INLINE Register load_register(const float* from) {
  Register value;
  memcpy(&value, from, sizeof value);
  return value;
}
FORERUN_INLINE void store_register(float* to, Register value) { memcpy(to, &value, sizeof value); }

FORERUN_INLINE Register fused_register(float a, Register b, Register c) {
#if defined(__AVX512F__)
  return (Register)_mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (Register)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Register)vfmaq_n_f32((float32x4_t)c, (float32x4_t)b, a);
#else
  return a * b + c;
#endif
}

}  // namespace FORERUN_ISA
