// Rows rounded to E4M3 (FP8: 4 bits of exponent, 3 of mantissa, largest 448) with one scale per row.
//
// The scale is max |x| / 448, and no less than the smallest float32 with all its bits; a number is x / scale rounded half
// to even, times the scale again: what hardware multiplies, as float32. A row with a NaN or an infinity becomes all NaN.
#pragma once
#include "plugins/native/quantize.h"

namespace FORERUN_ISA {

constexpr float LARGEST_E4M3 = 448.0f, LEAST_ROW_SCALE = 1.17549435e-38f;

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
