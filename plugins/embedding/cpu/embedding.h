// Embedding: one row of a table per token, read from the panels that a linear layer packs (a tied head shares them).
#pragma once
#include "plugins/linear/cpu/int8_block.h"
#include "plugins/quantize/cpu/quantize_rows.h"

namespace FORERUN_ISA {

static int32_t embedding_num_units(const forerun::Step& step, const forerun::Operation& op) {
  return units_of_rows(step.num_rows(op.rows));
}

static void embed_int8(const Int8Factors& table, int64_t token, float scale, float* out, int32_t width) {
  const int8_t* numbers = table.weights((int)(token / 16)) + token % 16 * 4;
  const uint16_t* scales = table.weight_scales((int)(token / 16)) + token % 16;
  for (int32_t i = 0; i < width; i++) {
    const float step = from_half(scales[i / table.layout.group * 16]) * scale;
    out[i] = (float)numbers[i / 4 * 64 + i % 4] * step;
  }
}

static void embedding_run(const forerun::Step& step, const forerun::Operation& op, int32_t unit, char*) {
  const auto& out = step.buffers[op.out];
  const auto& weight = step.weights[op.weight];
  const char* table = step.weight(op.weight);
  const int32_t last = step.num_rows(op.rows), begin = unit * ROWS_PER_UNIT;
  for (int32_t row = begin; row < last && row < begin + ROWS_PER_UNIT; row++) {
    const int64_t token = step.in.token_ids[row];
    float* to = (float*)(out.data + row * out.row_bytes);
    if ((forerun::Form)weight.form == forerun::Form::int8) {
      embed_int8({nullptr, {weight.size_in, weight.group}, table}, token, op.scale, to, op.size_out);
      continue;
    }
    const float* column = (const float*)table + token / 16 * 16 * weight.size_in + token % 16;
    for (int32_t i = 0; i < op.size_out; i++) to[i] = column[16 * i];
  }
}

}  // namespace FORERUN_ISA
