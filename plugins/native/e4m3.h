// E4M3 (FP8): 4 bits of exponent, 3 of mantissa, largest 448, no infinities.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

constexpr float LARGEST_E4M3 = 448.0f;

// Rounds magnitudes half to even; 448 stands for all beyond, and for a NaN.
FORERUN_INLINE Floats rounded_to_e4m3(Floats value) {
  const Bits bits = (Bits)value, kept = bits + 0x7ffffu + (bits >> 20 & 1u);
  const Floats normal = (Floats)(kept & 0xfff00000u);
  const Floats magic = all(24576.0f);  // its last bit is 2**-9, the step below 2**-6
  const Floats small = to_floats((Ints)(value + magic) - (Ints)magic) * all(0.001953125f);
  const Floats result = value < all(0.015625f) ? small : normal;
  return result < all(LARGEST_E4M3) ? result : all(LARGEST_E4M3);
}

}  // namespace FORERUN_ISA
