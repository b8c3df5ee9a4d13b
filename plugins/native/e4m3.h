// E4M3 as it is stored, and rows rounded to E4M3 (FP8: 4 bits of exponent, 3 of mantissa, largest 448) with one scale per row.
//
// The scale is max |x| / 448, and no less than the smallest float32 with all its bits; a number is x / scale rounded half
// to even, times the scale again: what hardware multiplies, as float32. A row with a NaN or an infinity becomes all NaN.
#pragma once
#include "plugins/native/quantize.h"

namespace FORERUN_ISA {

constexpr float LARGEST_E4M3 = 448.0f, LEAST_ROW_SCALE = 1.17549435e-38f;

// Widens 16 bytes, each a number.
FORERUN_INLINE Floats load_e4m3(const char* from) {
#if defined(__F16C__)
  // Its bits are those of a half that is 256 times smaller: conversions take no longer for what lies below normal numbers.
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80));
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(halves) * all(256.0f);
#else
  const __m256 parts[2] = {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
  Floats value;
  memcpy(&value, parts, sizeof value);
  return value * all(256.0f);
#endif
#else
  const Bits bits = (Bits)load_bytes((const uint8_t*)from);
  return (Floats)((bits & 0x7fu) << 20 | (bits & 0x80u) << 24) * all(0x1p120f);
#endif
}

// Rounds magnitudes of up to 464, which 448 stands for.
FORERUN_INLINE Floats rounded_to_e4m3(Floats value) {
  const Bits bits = (Bits)value, kept = bits + 0x7ffffu + (bits >> 20 & 1u);
  const Floats normal = (Floats)(kept & 0xfff00000u);
  const Floats magic = all(24576.0f);  // its last bit is 2**-9, the step below 2**-6
  const Floats small = to_floats((Ints)(value + magic) - (Ints)magic) * all(0.001953125f);
  const Floats result = value < all(0.015625f) ? small : normal;
  return result < all(LARGEST_E4M3) ? result : all(LARGEST_E4M3);
}

FORERUN_INLINE void round_row_to_e4m3(const float* from, float* to, int64_t width) {
  const Extent extent = extent_of(from, width);
  const float step = extent.top / LARGEST_E4M3;
  const Floats scale = all(extent.is_poisoned ? NAN : step > LEAST_ROW_SCALE ? step : LEAST_ROW_SCALE);
  for (int64_t i = 0; i < width; i += LANES) {
    const Floats value = load(from + i), size = rounded_to_e4m3(magnitude(value) / scale) * scale;
    store(to + i, (Floats)((Bits)size | ((Bits)value & 0x80000000u)));
  }
}

}  // namespace FORERUN_ISA
