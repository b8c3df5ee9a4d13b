// IEEE half precision, the form of weight scales. A scale is stored times a power of two that is chosen per weight, so
// that the largest lies near the top of the range and none loses bits that matter.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

FORERUN_INLINE float from_half(uint16_t value) {
  const uint32_t sign = (uint32_t)(value & 0x8000) << 16, exponent = (value >> 10) & 31, fraction = value & 1023;
  if (exponent == 0) {
    const float tiny = (float)fraction * 5.9604644775390625e-8f;  // 2**-24
    return sign ? -tiny : tiny;
  }
  const uint32_t bits = sign | ((exponent + 112) << 23) | (fraction << 13);
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

FORERUN_INLINE Floats load_halves(const uint16_t* from) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#else
  Floats value;
  for (int i = 0; i < LANES; i++) value[i] = from_half(from[i]);
  return value;
#endif
}

}  // namespace FORERUN_ISA
