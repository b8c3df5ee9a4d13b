// Hadamard transforms of vectors in place: they spread what stands out over all numbers, and keep products of two vectors.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

// Numbers that are transformed together: the largest power of two that divides the size, up to 256.
constexpr int64_t hadamard_block(int64_t size) {
  const int64_t block = size & -size;
  return block < 256 ? block : 256;
}

// Adds to each lane its partner `apart` lanes away, or takes it from the partner: one stage within a vector.
template <int APART>
FORERUN_INLINE Floats lane_stage(Floats value) {
  Ints partners;
  Floats signs;
  for (int i = 0; i < LANES; i++) partners[i] = i ^ APART, signs[i] = i & APART ? -1.0f : 1.0f;
  return __builtin_shuffle(value, partners) + value * signs;
}

// values becomes `values H` for each block, H of ones and minus ones; numbers beyond whole vectors stay.
FORERUN_INLINE void hadamard(float* values, int64_t size) {
  const int64_t block = hadamard_block(size);
  for (int64_t apart = block / 2; apart >= LANES; apart /= 2)
    for (int64_t first = 0; first < size; first += 2 * apart)
      for (int64_t i = first; i < first + apart; i += LANES) {
        const Floats a = load(values + i), b = load(values + i + apart);
        store(values + i, a + b), store(values + i + apart, a - b);
      }
  for (int64_t i = 0; i + LANES <= size; i += LANES) {
    Floats value = load(values + i);
    if (block > 8) value = lane_stage<8>(value);
    if (block > 4) value = lane_stage<4>(value);
    if (block > 2) value = lane_stage<2>(value);
    if (block > 1) value = lane_stage<1>(value);
    store(values + i, value);
  }
}

}  // namespace FORERUN_ISA
