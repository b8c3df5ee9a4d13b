// Keys and values in 8 bits with one fixed scale of the layer, which came with the model: E4M3, or int8.
//
// A number is x / scale rounded half to even, and saturates: at 448, at 127. What is NaN or infinite is kept as NaN, which
// shows in every result that sees it; int8 keeps it as -128.
#pragma once
#include "plugins/native/bfloat16.h"
#include "plugins/native/e4m3_bits.h"
#include "plugins/native/step.h"

namespace FORERUN_ISA {

using forerun::Form;

constexpr int INT8_NAN = -128;

FORERUN_INLINE Ints round_fixed(Form form, Floats value, Floats scale) {
  const Ints is_poison = (Ints)(value * 0.0f != Floats{});
  const Floats steps = value / scale;
  if (form == Form::e4m3) {
    const Floats size = rounded_to_e4m3(magnitude(steps));
    const Ints number = e4m3_bits((Floats)((Bits)size | ((Bits)value & 0x80000000u)));
    return is_poison ? all_ints(E4M3_NAN) : number;
  }
  const Floats most = all(127.0f), bounded = larger(-most, steps < most ? steps : most);
  return is_poison ? all_ints(INT8_NAN) : rounded(bounded);
}

// Of the lowest 8 bits of each lane.
FORERUN_INLINE Floats widen_fixed(Form form, Ints bits) {
  if (form == Form::e4m3) return from_e4m3_bits(bits);
  const Ints number = bits << 24 >> 24;
  return number == all_ints(INT8_NAN) ? all(NAN) : to_floats(number);
}

#if defined(__AVX512BF16__)
FORERUN_INLINE __m512i bfloat16_of_int8(__m256i bytes) {
  const __m512 first = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes)));
  const __m512 second = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1)));
  const __m512i numbers = (__m512i)_mm512_cvtne2ps_pbh(second, first);
  const __mmask32 is_nan = _mm256_cmpeq_epi8_mask(bytes, _mm256_set1_epi8((char)INT8_NAN));
  return _mm512_mask_mov_epi16(numbers, is_nan, _mm512_set1_epi16(0x7fc0));
}

// To bfloat16 in the same order, exactly.
FORERUN_INLINE void narrow_fixed(Form form, const char* from, char* to, int64_t count) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < count; i += 2 * LANES) {
    const __m256i bytes = _mm256_loadu_si256((const __m256i*)(from + i));
    _mm512_storeu_si512(to + 2 * i, form == Form::e4m3 ? bfloat16_of_e4m3(bytes) : bfloat16_of_int8(bytes));
  }
}
#endif

}  // namespace FORERUN_ISA
