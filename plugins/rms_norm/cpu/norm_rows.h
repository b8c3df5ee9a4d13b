// What norms of rows have in common; where the output has other rows than the input, of the wanted rows alone.
#pragma once
#include "plugins/quantize/cpu/quantize_rows.h"

namespace FORERUN_ISA {

// Calls `norm(from, values, width)` for each row of a unit: from numbers whose padding is zero it makes those of the
// output, `width` of each, which is the size padded to whole vectors.
template <typename Norm>
FORERUN_INLINE void norm_rows(
    const forerun::Step& step, const forerun::Operation& op, int32_t unit, char* scratch, const Norm& norm) {
  const auto &in = step.buffers[op.in], &out = step.buffers[op.out];
  const bool picks = in.spec.rows != op.rows;
  float* values = (float*)scratch;
  const int64_t width = round_up(op.size_in, LANES);
  memset(values + width, 0, sizeof(float) * (out.spec.width > width ? out.spec.width - width : 0));
  const int32_t last = step.num_rows(op.rows), begin = unit * ROWS_PER_UNIT;
  for (int32_t row = begin; row < last && row < begin + ROWS_PER_UNIT; row++) {
    const int64_t source = picks ? step.in.logit_rows[row] : row;
    norm((const float*)(in.data + source * in.row_bytes), values, width);
    write_row(out, row, values);
  }
}

}  // namespace FORERUN_ISA
