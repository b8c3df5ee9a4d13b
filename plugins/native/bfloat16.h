// Brain floats: the upper half of a float32, rounded half to even.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

FORERUN_INLINE uint16_t to_bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;  // rounding could turn a NaN into an infinity
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

FORERUN_INLINE float from_bfloat16(uint16_t value) {
  const uint32_t bits = (uint32_t)value << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

FORERUN_INLINE void store_bfloat16(uint16_t* to, Floats value) {
#if defined(__AVX512BF16__)
  const __m256bh packed = _mm512_cvtneps_pbh((__m512)value);
  memcpy(to, &packed, sizeof packed);
#else
  for (int i = 0; i < LANES; i++) to[i] = to_bfloat16(value[i]);
#endif
}

FORERUN_INLINE void store_bfloat16_pair(uint16_t* to, Floats first, Floats second) {
#if defined(__AVX512BF16__)
  const __m512bh packed = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
  memcpy(to, &packed, sizeof packed);
#else
  store_bfloat16(to, first), store_bfloat16(to + LANES, second);
#endif
}

// Sixteen pairs lie as 32-bit words: the first of each pair in the lower half.
FORERUN_INLINE Floats first_of_pairs(Bits words) { return (Floats)(words << 16); }
FORERUN_INLINE Floats second_of_pairs(Bits words) { return (Floats)(words & 0xffff0000u); }

}  // namespace FORERUN_ISA
