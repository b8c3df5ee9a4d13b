// E4M3 numbers in their 8 bits: a sign, 4 bits of exponent (bias 7), 3 of mantissa; 0x7f is NaN, there are no infinities.
//
// To and from float32, both exact: what is encoded must be a number of E4M3 already (`rounded_to_e4m3`).
#pragma once
#include "plugins/native/e4m3.h"

namespace FORERUN_ISA {

constexpr int E4M3_NAN = 0x7f;
constexpr float LEAST_NORMAL_E4M3 = 0.015625f, STEP_BELOW_IT = 0.001953125f;  // 2**-6 and 2**-9
constexpr int32_t BIAS_OF_E4M3 = (127 - 7) << 3;                              // between its exponents and those of float32

FORERUN_INLINE Ints e4m3_bits(Floats value) {
  const Floats size = magnitude(value);
  const Ints normal = ((Ints)size >> 20) - all_ints(BIAS_OF_E4M3), small = rounded(size * all(1.0f / STEP_BELOW_IT));
  return (size < all(LEAST_NORMAL_E4M3) ? small : normal) | ((Ints)((Bits)value >> 24) & 0x80);
}

// Of the lowest 8 bits of each lane.
FORERUN_INLINE Floats from_e4m3_bits(Ints bits) {
  const Ints size = bits & 0x7f;
  const Floats normal = (Floats)((size + all_ints(BIAS_OF_E4M3)) << 20), small = to_floats(size) * all(STEP_BELOW_IT);
  const Floats finite = size < all_ints(8) ? small : normal;
  const Floats found = size == all_ints(E4M3_NAN) ? all(NAN) : finite;
  return (Floats)((Bits)found | (Bits)((bits & 0x80) << 24));
}

#if defined(__AVX512BF16__)
// To 32 brain floats, which hold every number of E4M3. Numbers below 2**-6, and NaN, come from a table: moving their bits
// gives brain floats too small for the products, which take them for 0.
FORERUN_INLINE __m512i bfloat16_of_e4m3(__m256i bytes) {
  const __m512i table = _mm512_setr_epi32(0x3b000000, 0x3bc03b80, 0x3c203c00, 0x3c603c40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                          0x7fc00000);
  const __m512i words = _mm512_cvtepu8_epi16(bytes), size = _mm512_and_si512(words, _mm512_set1_epi16(0x7f));
  const __m512i moved = _mm512_add_epi16(_mm512_slli_epi16(size, 4), _mm512_set1_epi16(BIAS_OF_E4M3 << 4));
  // Below 8, or 127.
  const __m512i above = _mm512_sub_epi16(size, _mm512_set1_epi16(8));
  const __mmask32 is_special = _mm512_cmpgt_epu16_mask(above, _mm512_set1_epi16(E4M3_NAN - 8 - 1));
  const __m512i found = _mm512_mask_permutexvar_epi16(moved, is_special, size, table);
  return _mm512_or_si512(found, _mm512_and_si512(_mm512_slli_epi16(words, 8), _mm512_set1_epi16((short)0x8000)));
}
#endif

}  // namespace FORERUN_ISA
