// Layer norm of rows.
#pragma once
#include "plugins/rms_norm/cpu/norm_rows.h"

namespace FORERUN_ISA {

// Centres `size` numbers and gives the factor to a variance of 1; the padding of `values` becomes zero.
FORERUN_INLINE float centre(const float* from, int64_t size, float eps, float* values) {
  const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Floats total{}, squares{};
  for (int64_t i = 0; i < size; i += LANES) total += load(from + i);  // padding is zero
  const float mean = sum(total) / (float)size;
  for (int64_t i = 0; i < size; i += LANES) {
    const Ints is_number = lanes < all_ints((int32_t)(size - i));
    const Floats centred = is_number ? load(from + i) - mean : Floats{};
    squares = fused(centred, centred, squares);
    store(values + i, centred);
  }
  return 1.0f / sqrtf(sum(squares) / (float)size + eps);
}

static void layer_norm_run(const forerun::Step& step, const forerun::Operation& op, int32_t unit, char* scratch) {
  const float* weight = (const float*)step.weight(op.weight);
  const float* bias = op.bias == forerun::NOTHING ? nullptr : (const float*)step.weight(op.bias);
  norm_rows(step, op, unit, scratch, [&](const float* from, float* values, int64_t width) {
    const float factor = centre(from, op.size_in, op.eps, values);
    for (int64_t i = 0; i < width; i += LANES) {
      const Floats normed = load(values + i) * factor * load(weight + i);
      store(values + i, bias ? normed + load(bias + i) : normed);
    }
  });
}

}  // namespace FORERUN_ISA
