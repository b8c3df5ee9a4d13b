// Layer norm of rows; where the output has other rows than the input, of the wanted rows alone.
#pragma once
#include "plugins/quantize/cpu/quantize_rows.h"

namespace FORERUN_ISA {

static int32_t layer_norm_num_units(const forerun::Step& step, const forerun::Operation& op) {
  return units_of_rows(step.num_rows(op.rows));
}

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
  const auto &in = step.buffers[op.in], &out = step.buffers[op.out];
  const bool picks = in.spec.rows != op.rows;
  const float* weight = (const float*)step.weight(op.weight);
  const float* bias = op.bias == forerun::NOTHING ? nullptr : (const float*)step.weight(op.bias);
  float* values = (float*)scratch;
  const int64_t width = round_up(op.size_in, LANES);
  memset(values + width, 0, sizeof(float) * (out.spec.width > width ? out.spec.width - width : 0));
  const int32_t last = step.num_rows(op.rows), begin = unit * ROWS_PER_UNIT;
  for (int32_t row = begin; row < last && row < begin + ROWS_PER_UNIT; row++) {
    const int64_t source = picks ? step.in.logit_rows[row] : row;
    const float factor = centre((const float*)(in.data + source * in.row_bytes), op.size_in, op.eps, values);
    for (int64_t i = 0; i < width; i += LANES) {
      const Floats normed = load(values + i) * factor * load(weight + i);
      store(values + i, bias ? normed + load(bias + i) : normed);
    }
    write_row(out, row, values);
  }
}

}  // namespace FORERUN_ISA
