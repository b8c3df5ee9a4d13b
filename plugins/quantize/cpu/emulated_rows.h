// Rows rounded to E4M3 or E2M1 times their scales: the float32 numbers that hardware multiplies which has such numbers.
#pragma once
#include "plugins/native/e2m1.h"
#include "plugins/native/e4m3.h"
#include "plugins/native/quantize.h"

namespace FORERUN_ISA {

constexpr float LEAST_SCALE = 1.17549435e-38f;  // the smallest float32 with all its bits
static_assert(LANES == 16, "as many numbers of E2M1 share a scale");

FORERUN_INLINE Floats with_sign_of(Floats sign, Floats size) {
  return (Floats)((Bits)size | ((Bits)sign & 0x80000000u));
}

// Rounds numbers that share a scale: a fixed one, or, if that is 0, their own.
FORERUN_INLINE void round_to_e4m3(const float* from, float* to, int64_t width, float fixed) {
  const Extent extent = extent_of(from, width);
  const float own = extent.top / LARGEST_E4M3, least = own > LEAST_SCALE ? own : LEAST_SCALE;
  const Floats scale = all(extent.is_poisoned ? NAN : fixed > 0 ? fixed : least);
  for (int64_t i = 0; i < width; i += LANES) {
    const Floats value = load(from + i);
    store(to + i, with_sign_of(value, rounded_to_e4m3(magnitude(value) / scale) * scale));
  }
}

// The last group of a row may be cut short.
FORERUN_INLINE void write_e4m3_row(const float* from, float* to, int64_t width, int64_t group, float fixed) {
  const int64_t together = group ? group : width;
  for (int64_t i = 0; i < width; i += together)
    round_to_e4m3(from + i, to + i, width - i < together ? width - i : together, fixed);
}

// Groups of 16 have E4M3 scales of their own, times the one of the tensor.
FORERUN_INLINE void write_e2m1_row(const float* from, float* to, int64_t width, float fixed) {
  const float six = LARGEST_E2M1 * fixed;
  for (int64_t i = 0; i < width; i += LANES) {
    const Extent extent = extent_of(from + i, LANES);
    const Floats value = load(from + i);
    const Floats scale = extent.is_poisoned ? all(NAN) : rounded_to_e4m3(all(extent.top / six)) * fixed;
    store(to + i, with_sign_of(value, rounded_to_e2m1(magnitude(value) / scale) * scale));  // of a scale of 0: 6 times 0
  }
}

}  // namespace FORERUN_ISA
