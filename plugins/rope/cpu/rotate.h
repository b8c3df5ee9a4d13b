// Rotary position embedding of one head in place: the first half of its dimensions is paired with the second.
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

}  // namespace FORERUN_ISA
