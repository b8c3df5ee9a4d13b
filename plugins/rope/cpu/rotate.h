// Rotary position embedding of one head in place: of the dimensions that are turned, the first half is paired with the
// second, or each with its neighbour.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

FORERUN_INLINE void rotate(float* head, const float* cosines, const float* sines, int half) {
  int i = 0;
  for (; i + LANES <= half; i += LANES) {
    const Floats a = load(head + i), b = load(head + half + i), c = load(cosines + i), s = load(sines + i);
    store(head + i, a * c - b * s);
    store(head + half + i, b * c + a * s);
  }
  for (; i < half; i++) {
    const float a = head[i], b = head[half + i];
    head[i] = a * cosines[i] - b * sines[i];
    head[half + i] = b * cosines[i] + a * sines[i];
  }
}

// Angle i turns dimensions 2 i and 2 i + 1.
FORERUN_INLINE void rotate_neighbours(float* head, const float* cosines, const float* sines, int half) {
  for (int i = 0; i < half; i++) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = a * cosines[i] - b * sines[i];
    head[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

}  // namespace FORERUN_ISA
