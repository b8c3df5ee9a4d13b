// Root-mean-square norm of rows.
#pragma once
#include "plugins/rms_norm/cpu/norm_rows.h"

namespace FORERUN_ISA {

static void rms_norm_run(const forerun::Step& step, const forerun::Operation& op, int32_t unit, char* scratch) {
  const float* weight = (const float*)step.weight(op.weight);
  norm_rows(step, op, unit, scratch, [&](const float* from, float* values, int64_t width) {
    Floats squares{};
    for (int64_t i = 0; i < width; i += LANES) squares = fused(load(from + i), load(from + i), squares);
    const float factor = 1.0f / sqrtf(sum(squares) / (float)op.size_in + op.eps);
    for (int64_t i = 0; i < width; i += LANES) store(values + i, load(from + i) * factor * load(weight + i));
  });
}

}  // namespace FORERUN_ISA
