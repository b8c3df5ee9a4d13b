// Root-mean-square norm of rows; where the output has other rows than the input, of the wanted rows alone.
#pragma once
#include "plugins/quantize/cpu/quantize_rows.h"

namespace FORERUN_ISA {

static int32_t rms_norm_num_units(const forerun::Step& step, const forerun::Operation& op) {
  return units_of_rows(step.num_rows(op.rows));
}

static void rms_norm_run(const forerun::Step& step, const forerun::Operation& op, int32_t unit, char* scratch) {
  const auto &in = step.buffers[op.in], &out = step.buffers[op.out];
  const bool picks = in.spec.rows != op.rows;
  const float* weight = (const float*)step.weight(op.weight);
  float* values = (float*)scratch;
  const int64_t width = round_up(op.size_in, LANES);
  memset(values + width, 0, sizeof(float) * (out.spec.width > width ? out.spec.width - width : 0));
  const int32_t last = step.num_rows(op.rows), begin = unit * ROWS_PER_UNIT;
  for (int32_t row = begin; row < last && row < begin + ROWS_PER_UNIT; row++) {
    const int64_t source = picks ? step.in.logit_rows[row] : row;
    const float* from = (const float*)(in.data + source * in.row_bytes);
    Floats squares{};
    for (int64_t i = 0; i < width; i += LANES) squares = fused(load(from + i), load(from + i), squares);
    const float factor = 1.0f / sqrtf(sum(squares) / (float)op.size_in + op.eps);
    for (int64_t i = 0; i < width; i += LANES) store(values + i, load(from + i) * factor * load(weight + i));
    write_row(out, row, values);
  }
}

}  // namespace FORERUN_ISA
