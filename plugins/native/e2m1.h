// E2M1 (FP4): 2 bits of exponent, 1 of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4 and 6.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

constexpr float LARGEST_E2M1 = 6.0f;

// Rounds magnitudes half to even; 6 stands for all beyond, and for a NaN.
FORERUN_INLINE Floats rounded_to_e2m1(Floats value) {
  const Bits bits = (Bits)value, kept = bits + 0x1fffffu + (bits >> 22 & 1u);
  const Floats normal = (Floats)(kept & 0xffc00000u);
  const Floats magic = all(6291456.0f);  // its last bit is 2**-1, the step below 1
  const Floats small = (value + magic) - magic;
  const Floats result = value < all(1.0f) ? small : normal;
  return result < all(LARGEST_E2M1) ? result : all(LARGEST_E2M1);
}

}  // namespace FORERUN_ISA
